//! A network card as one text: `hwAddr: MAC`, `name: CARD`, `MAC`, `CARD`, or several of them with commas, as kernel
//! parameters have it.

use document::accepted_spellings::is_same_word;
use document::shape::Shape;
use document::span::Span;
use document::tree::{Key, NodeKind, TreeNode};

/// True if a group says which network card.
pub(crate) fn is_card(shape: &Shape) -> bool {
    shape.at("name").is_some() && shape.at("hw_addr").is_some() && matches!(shape, Shape::Record(..))
}

/// The group of keys that `text`, the value of `node`, stands for.
pub(crate) fn group(node: &TreeNode, text: &str) -> TreeNode {
    let mut entries = Vec::new();
    let mut offset = 0;
    for part in text.split(',') {
        let length = part.chars().count();
        let (key, value) = match part.split_once(':') {
            Some((key, value)) if is_same_word(key.trim(), "name") => ("name", value),
            Some((key, value)) if is_same_word(key.trim(), "hw_addr") => ("hw_addr", value),
            // Text with a colon can only be meant as an address.
            Some(_) => ("hw_addr", part),
            None => ("name", part),
        };
        let lead = length - value.trim_start().chars().count();
        let start = node.span.start + offset + lead;
        let column = node.span.column + offset + lead;
        let span = Span { start, end: start + value.trim().chars().count(), column, ..node.span };
        let kind = NodeKind::Scalar { text: value.trim().to_owned(), plain: false };
        entries.push((Key { text: key.to_owned(), span }, TreeNode { span, kind }));
        offset += length + 1;
    }
    TreeNode { span: node.span, kind: NodeKind::Map(entries) }
}
