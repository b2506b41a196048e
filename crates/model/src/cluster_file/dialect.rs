//! The forms that a cluster file accepts: those of an install configuration in the parts that it has of one.

use document::accepted_spellings::Aliases;
use document::dialect::{Dialect, OlderKeys, RetiredKey, ShortForm};
use document::shape::Shape;
use document::tree::{Key, TreeNode};

use super::places::{place_of, within};
use crate::config::harvester::InstallDialect;

/// The reader's rules for a cluster file.
#[derive(Debug)]
pub(super) struct ClusterDialect;

impl Dialect for ClusterDialect {
    fn is_lenient(&self) -> bool {
        InstallDialect.is_lenient()
    }

    fn aliases(&self) -> Aliases {
        InstallDialect.aliases()
    }

    fn synonyms(&self) -> &'static [(&'static str, &'static str)] {
        InstallDialect.synonyms()
    }

    fn short_form(&self, group: &Shape) -> Option<ShortForm> {
        InstallDialect.short_form(group)
    }

    fn older_keys<'t>(&self, path: &str, entries: &'t [(Key, TreeNode)]) -> Option<OlderKeys<'t>> {
        InstallDialect.older_keys(within(path), entries)
    }

    fn retired_key(
        &self,
        path: &str,
        name: &str,
        value: &TreeNode,
        entries: &[(Key, TreeNode)],
    ) -> Option<RetiredKey> {
        InstallDialect.retired_key(within(path), name, value, entries)
    }

    fn correction(&self, path: &str, text: &str) -> Option<String> {
        InstallDialect.correction(path, text)
    }

    fn place(&self, name: &str) -> Option<String> {
        place_of(name)
    }
}
