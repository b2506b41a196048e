//! How a definition changes the one that it extends: groups are merged key by key, other values replace, and a list is replaced
//! by a list or changed by `add` and `remove`.

use std::collections::HashMap;

use document::diagnostic::Problem;
use document::nearest::nearest;
use document::shape::join;
use document::span::Span;
use document::tree::{Key, NodeKind, TreeNode};
use serde_json::Value;

use super::architectures;
use super::shape::{is_type, without_null};
use super::spellings::property;

const ADD: &str = "add";
const REMOVE: &str = "remove";
/// Keys whose value alone says which element of a list is meant.
const NAMES: [&str; 9] = ["name", "image", "list", "layout", "archive", "path", "dkms", "source", "modules"];
/// The list whose elements may have a version, a release or architectures behind the name.
const PACKAGES: &str = "base.debian.include";

/// The tree of a definition with this JSON Schema: `own`, over what it inherits.
pub(super) fn merge(
    inherited: Option<TreeNode>,
    own: TreeNode,
    schema: &Value,
    problems: &mut Vec<Problem>,
) -> TreeNode {
    let extends = inherited.is_some();
    let mut inherited = inherited;
    if let Some(inherited) = &mut inherited {
        architectures::replace_inherited(inherited, &own);
    }
    Merge { extends, problems }.node(inherited, own, schema, "")
}

struct Merge<'p> {
    /// True if the definition extends another one.
    extends: bool,
    problems: &'p mut Vec<Problem>,
}

impl Merge<'_> {
    fn node(&mut self, inherited: Option<TreeNode>, own: TreeNode, schema: &Value, path: &str) -> TreeNode {
        let schema = without_null(schema);
        match own.kind {
            NodeKind::Map(entries) if is_type(schema, "array") => {
                if !entries.iter().any(|(key, _)| [ADD, REMOVE].contains(&key.text.as_str())) {
                    return TreeNode { span: own.span, kind: NodeKind::Map(entries) };
                }
                let inherited = inherited.or_else(|| by_default(schema, own.span));
                let items = self.changed(inherited, own.span, entries, path);
                TreeNode { span: own.span, kind: NodeKind::List(items) }
            }
            NodeKind::Map(entries) => {
                let inherited = match inherited.map(|node| node.kind) {
                    // Another kind of base replaces the inherited one.
                    Some(NodeKind::Map(known))
                        if !is_choice_of_groups(schema) || same_keys(&known, &entries) =>
                    {
                        known
                    }
                    _ => Vec::new(),
                };
                let entries = self.group(inherited, entries, schema, path);
                TreeNode { span: own.span, kind: NodeKind::Map(entries) }
            }
            kind => TreeNode { span: own.span, kind },
        }
    }

    fn group(
        &mut self,
        inherited: Vec<(Key, TreeNode)>,
        own: Vec<(Key, TreeNode)>,
        schema: &Value,
        path: &str,
    ) -> Vec<(Key, TreeNode)> {
        let mut entries = inherited;
        let mut places: HashMap<String, usize> = HashMap::new();
        for (at, (key, _)) in entries.iter().enumerate() {
            places.entry(key.text.clone()).or_insert(at);
        }
        for (key, node) in own {
            let below = join(path, &key.text);
            // A key that is given twice stays so, for the reader to report it.
            match places.remove(&key.text) {
                Some(at) => {
                    let inherited = std::mem::replace(&mut entries[at].1, nothing(key.span));
                    let value = self.node(Some(inherited), node, property(schema, &key.text), &below);
                    entries[at] = (key, value);
                }
                None => {
                    let value = self.node(None, node, property(schema, &key.text), &below);
                    entries.push((key, value));
                }
            }
        }
        entries
    }

    /// The elements of a list after its `add` and `remove`.
    fn changed(
        &mut self,
        inherited: Option<TreeNode>,
        span: Span,
        changes: Vec<(Key, TreeNode)>,
        path: &str,
    ) -> Vec<TreeNode> {
        if !self.extends {
            let message = "`add` and `remove` change the list of the definition that `extends` names, and this \
                           definition extends none; write a list";
            self.problems.push(Problem::new(span, path, "nothing-inherited", message));
        }
        let mut items = match inherited.map(|node| node.kind) {
            Some(NodeKind::List(items)) => items,
            _ => Vec::new(),
        };
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (key, node) in changes {
            let list = match key.text.as_str() {
                ADD => &mut added,
                REMOVE => &mut removed,
                other => {
                    let message = format!("unknown key `{other}` beside `add` and `remove`");
                    let meant = nearest(other, [ADD, REMOVE].into_iter());
                    let problem = Problem::new(key.span, join(path, other), "unknown-key", message);
                    self.problems.push(problem.suggest(meant));
                    continue;
                }
            };
            match node.kind {
                NodeKind::List(items) => list.extend(items),
                _ if node.is_nothing() => {}
                _ => {
                    let message = format!("expected a list, found {}", node.noun());
                    self.problems.push(Problem::new(node.span, join(path, &key.text), "wrong-type", message));
                }
            }
        }
        for pattern in removed.iter().filter(|_| self.extends) {
            let before = items.len();
            let candidates: Vec<_> = items.iter().filter_map(name_of).map(str::to_owned).collect();
            items.retain(|item| !is_meant(pattern, item, path));
            if items.len() == before {
                let meant =
                    name_of(pattern).and_then(|text| nearest(text, candidates.iter().map(String::as_str)));
                let message =
                    "the inherited list has no such element; `iso-builder show DEFINITION` prints it";
                let at = format!("{path}.{REMOVE}");
                self.problems
                    .push(Problem::new(pattern.span, at, "nothing-to-remove", message).suggest(meant));
            }
        }
        for node in added {
            if !items.iter().any(|item| is_equal(&node, item)) {
                items.push(node);
            }
        }
        items
    }
}

fn nothing(span: Span) -> TreeNode {
    TreeNode { span, kind: NodeKind::Scalar { text: String::new(), plain: true } }
}

/// The list that a definition without this key has.
fn by_default(schema: &Value, span: Span) -> Option<TreeNode> {
    let words = schema["default"].as_array()?.iter().map(Value::as_str);
    let item = |word: &str| TreeNode { span, kind: NodeKind::Scalar { text: word.to_owned(), plain: false } };
    Some(TreeNode { span, kind: NodeKind::List(words.map(|word| word.map(item)).collect::<Option<_>>()?) })
}

/// True if a value has exactly one of several keys, such as `base`.
fn is_choice_of_groups(schema: &Value) -> bool {
    schema["oneOf"]
        .as_array()
        .is_some_and(|options| options.iter().any(|option| !option["properties"].is_null()))
}

fn same_keys(one: &[(Key, TreeNode)], other: &[(Key, TreeNode)]) -> bool {
    one.len() == other.len()
        && one.iter().all(|(key, _)| other.iter().any(|(known, _)| known.text == key.text))
}

/// The text by which an element of a list is known.
fn name_of(node: &TreeNode) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar { text, .. } => Some(text),
        NodeKind::Map(_) => NAMES.iter().find_map(|name| node.get(name)).and_then(name_of),
        NodeKind::List(_) => None,
    }
}

/// True if an element of `remove` means this element of the list at `path`: an equal one, a package whatever its version and its
/// architectures, a group by its name, or a group that has at least the same keys with the same values.
fn is_meant(pattern: &TreeNode, item: &TreeNode, path: &str) -> bool {
    match (&pattern.kind, &item.kind) {
        (NodeKind::Scalar { text, .. }, NodeKind::Scalar { text: item, .. }) => {
            item == text || path == PACKAGES && item.split(['=', '/', ' ', '[']).next() == Some(text)
        }
        (NodeKind::Scalar { text, .. }, NodeKind::Map(_)) => name_of(item) == Some(text),
        (NodeKind::Map(wanted), NodeKind::Map(_)) => !wanted.is_empty() && has_all(item, wanted),
        _ => false,
    }
}

/// True if two nodes have the same content, wherever they are.
fn is_equal(one: &TreeNode, other: &TreeNode) -> bool {
    match (&one.kind, &other.kind) {
        (NodeKind::Scalar { text, .. }, NodeKind::Scalar { text: other, .. }) => text == other,
        (NodeKind::List(one), NodeKind::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (NodeKind::Map(entries), NodeKind::Map(others)) => {
            entries.len() == others.len() && has_all(other, entries)
        }
        _ => false,
    }
}

/// True if a group has all of these keys with the same values.
fn has_all(group: &TreeNode, entries: &[(Key, TreeNode)]) -> bool {
    entries.iter().all(|(key, value)| group.get(&key.text).is_some_and(|own| is_equal(value, own)))
}
