//! The architectures of a definition: `architecture` names one, `architectures` any number. With the second key each of them gets a
//! directory of outputs and a lock file of its own.

use document::finding::Finding;
use document::span::Span;
use document::tree::{Key, NodeKind, TreeNode};
use model::architecture::Architecture;

/// The key that names one architecture.
const ONE: &str = "architecture";
/// The key that names any number of them.
pub(super) const SEVERAL: &str = "architectures";

/// Makes the architectures of a definition replace those of the one that it extends: the two keys are one choice. Where `own` changes
/// the list by `add` and `remove`, the architecture that it inherits becomes a list.
pub(super) fn replace_inherited(inherited: &mut TreeNode, own: &TreeNode) {
    let NodeKind::Map(entries) = &mut inherited.kind else { return };
    let Some(several) = own.get(SEVERAL) else {
        if own.get(ONE).is_some() {
            entries.retain(|(key, _)| key.text != SEVERAL);
        }
        return;
    };
    if !matches!(several.kind, NodeKind::Map(_)) {
        entries.retain(|(key, _)| key.text != ONE);
        return;
    }
    if entries.iter().any(|(key, _)| key.text == SEVERAL) {
        return;
    }
    let listed = |node: TreeNode| TreeNode { span: node.span, kind: NodeKind::List(vec![node]) };
    match entries.iter_mut().find(|(key, _)| key.text == ONE) {
        Some((key, node)) => {
            SEVERAL.clone_into(&mut key.text);
            *node = listed(std::mem::replace(node, word("", node.span)));
        }
        None => {
            let key = Key { text: SEVERAL.to_owned(), span: several.span };
            entries.push((key, listed(word(Architecture::default().debian(), several.span))));
        }
    }
}

fn word(text: &str, span: Span) -> TreeNode {
    TreeNode { span, kind: NodeKind::Scalar { text: text.to_owned(), plain: true } }
}

/// What is wrong with the architectures of the document `root`.
pub(super) fn findings(root: &TreeNode) -> Vec<Finding> {
    let Some(several) = root.get(SEVERAL) else { return Vec::new() };
    let mut found = Vec::new();
    if root.get(ONE).is_some() {
        let message = "`architecture` names one architecture and `architectures` several; leave out one of the two keys";
        found.push(Finding::new(SEVERAL, "superfluous-key", message));
    }
    let NodeKind::List(items) = &several.kind else { return found };
    if items.is_empty() {
        let all = Architecture::ALL.map(Architecture::debian).join(", ");
        let message =
            format!("the list names no architecture; write [{all}], or leave the key out for amd64 alone");
        found.push(Finding::new(SEVERAL, "missing-value", message));
    }
    let words: Vec<_> = items.iter().map(text).collect();
    for (index, word) in words.iter().enumerate() {
        if let Some(word) = word.filter(|_| words[..index].contains(word)) {
            let path = format!("{SEVERAL}[{index}]");
            found.push(Finding::new(
                path,
                "repeated-entry",
                format!("{word} is in the list twice; remove one"),
            ));
        }
    }
    found
}

/// The architectures that a document names, as far as they are ones that releases are made for.
pub(super) fn named(root: &TreeNode) -> Vec<Architecture> {
    let words: Vec<_> = match root.get(SEVERAL).map(|node| &node.kind) {
        Some(NodeKind::List(items)) => items.iter().filter_map(text).collect(),
        _ => root.get(ONE).and_then(text).into_iter().collect(),
    };
    let known: Vec<_> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if known.is_empty() { vec![Architecture::default()] } else { known }
}

fn text(node: &TreeNode) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar { text, .. } => Some(text),
        _ => None,
    }
}
