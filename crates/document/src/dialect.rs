//! The reader's rules for one kind of document beyond its shape. Each kind implements [`Dialect`]; the defaults are
//! those of a strict document: one form for everything, and no key that was ever renamed.

use std::fmt::Debug;

use crate::shape::Shape;
use crate::tree::{Key, TreeNode};

/// The forms that a kind of document accepts, and what helps its authors.
pub trait Dialect: Debug + Sync {
    /// True if other forms than the canonical one are accepted: other spellings of keys, numbers in quotes, a single value
    /// in place of a list.
    fn is_lenient(&self) -> bool {
        false
    }

    /// Other names of keys, each with the key. They have all spellings that the key has.
    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Words of other programs, each with the word for it here.
    fn synonyms(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// How to read a text in place of a group of this shape; `None` if the group has no such form.
    fn short_form(&self, _group: &Shape) -> Option<ShortForm> {
        None
    }

    /// The keys of an older scheme among the `entries` of the group at `path`.
    fn older_keys<'t>(&self, _path: &str, _entries: &'t [(Key, TreeNode)]) -> Option<OlderKeys<'t>> {
        None
    }

    /// The fate of the key `name` with this `value` in the group at `path`, whose `entries` may say the same; `None` if
    /// there never was such a key.
    fn retired_key(
        &self,
        _path: &str,
        _name: &str,
        _value: &TreeNode,
        _entries: &[(Key, TreeNode)],
    ) -> Option<RetiredKey> {
        None
    }

    /// A valid text for the invalid one at `path`, where the format suggests none.
    fn correction(&self, _path: &str, _text: &str) -> Option<String> {
        None
    }

    /// The shape of the whole document, in which the right group of a misplaced key is looked for. `None` if
    /// [`place`](Self::place) knows the groups.
    fn root(&self) -> Option<&'static Shape> {
        None
    }

    /// The path where a key of this canonical name is valid. Asked only if there is no [`root`](Self::root).
    fn place(&self, _name: &str) -> Option<String> {
        None
    }
}

/// Makes a group of the text that a node has in its place.
pub type ShortForm = fn(&TreeNode, &str) -> TreeNode;

/// Keys of an older scheme, which are reported together.
#[derive(Debug)]
pub struct OlderKeys<'t> {
    /// In the order of the document, at least one.
    pub keys: Vec<&'t Key>,
    pub message: String,
    /// The same in today's keys.
    pub suggestion: Option<String>,
    /// The key of the same group that has their place today. Rules do not judge it.
    pub successor: &'static str,
}

/// The fate of a key that is not used any more.
#[derive(Clone, Copy, Debug)]
pub enum RetiredKey {
    /// It is read as another key of the same group with this value.
    Replaced {
        name: &'static str,
        value: &'static str,
        reason: &'static str,
    },
    /// The document means the same without it.
    NoEffect {
        reason: &'static str,
    },
    Refused {
        reason: &'static str,
    },
}
