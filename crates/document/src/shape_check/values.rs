//! How single values and shapes go together.

use crate::accepted_spellings::truth;
use crate::dialect::Dialect;
use crate::shape::Shape;
use crate::tree::{NodeKind, TreeNode};

/// True if a node is of the kind that the shape describes.
pub(super) fn fits(shape: &Shape, node: &TreeNode) -> bool {
    match (shape, &node.kind) {
        (Shape::Record(..) | Shape::OneOf(_) | Shape::Dictionary { .. }, NodeKind::Map(_))
        | (Shape::List(_), NodeKind::List(_)) => true,
        (
            Shape::Text { .. } | Shape::Choice { .. } | Shape::Number { .. } | Shape::Truth,
            NodeKind::Scalar { .. },
        ) => !node.is_nothing(),
        _ => false,
    }
}

/// The node without line ends at its end, where a single line is wanted and it has some, as `|` and programs leave them.
pub(super) fn without_line_end(node: &TreeNode, shape: &Shape) -> Option<TreeNode> {
    let lines = match shape {
        Shape::Text { format, .. } => format.is_none_or(|format| format.has_lines),
        Shape::Choice { .. } | Shape::Number { .. } | Shape::Truth => false,
        _ => true,
    };
    let NodeKind::Scalar { text, plain } = &node.kind else { return None };
    let line = text.trim_end_matches(['\n', '\r']);
    (!lines && line.len() < text.len()).then(|| TreeNode {
        span: node.span,
        kind: NodeKind::Scalar { text: line.to_owned(), plain: *plain },
    })
}

/// The elements that a text stands for as nodes of their own; the node itself if it is one element.
pub(super) fn parts(node: &TreeNode, elements: fn(&str) -> Option<Vec<&str>>) -> Vec<TreeNode> {
    let NodeKind::Scalar { text, plain } = &node.kind else { return vec![node.clone()] };
    let Some(texts) = elements(text) else { return vec![node.clone()] };
    let element = |text: &str| TreeNode {
        span: node.span,
        kind: NodeKind::Scalar { text: text.to_owned(), plain: *plain },
    };
    texts.into_iter().map(element).collect()
}

/// The list that a text with commas or blanks between its elements means.
pub(super) fn listed(item: &Shape, text: &str) -> Option<String> {
    let Shape::Text { format: Some(format), secret: false } = item else { return None };
    let parts: Vec<_> =
        text.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty()).collect();
    if parts.first().is_some_and(|first| format.directives.contains(first)) {
        let is_parsed = (format.check)(parts.get(1)?).is_ok();
        return is_parsed.then(|| format!("[{}]", parts[1]));
    }
    let all = parts.len() > 1
        && (format.check)(text.trim()).is_err()
        && parts.iter().all(|part| (format.check)(part).is_ok());
    all.then(|| format!("[{}]", parts.join(", ")))
}

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// How well a shape suits a value: by its kind, by a form that can be taken for it, or not at all.
pub(super) fn suits(dialect: &dyn Dialect, shape: &Shape, node: &TreeNode) -> u8 {
    match (shape, &node.kind) {
        (Shape::Truth, NodeKind::Scalar { text, .. }) if truth(text).is_none() => 0,
        _ if fits(shape, node) => 2,
        (Shape::List(item), _) if is_only_element(dialect, item, node) => 1,
        _ => 0,
    }
}

/// True if a single value can be the only element of a list.
pub(super) fn is_only_element(dialect: &dyn Dialect, item: &Shape, node: &TreeNode) -> bool {
    let single =
        matches!(item, Shape::Text { .. } | Shape::Choice { .. }) || dialect.short_form(item).is_some();
    single && matches!(node.kind, NodeKind::Scalar { .. }) && !node.is_nothing() && !node.is_empty_text()
}

/// True if a key with this value counts as absent.
pub(super) fn is_left_out(shape: &Shape, node: &TreeNode) -> bool {
    match (node.is_nothing(), shape, &node.kind) {
        (true, ..) => !shape.is_group(),
        // Harvester stores this for a number that was not given.
        (false, Shape::Number { least: 1.., .. }, NodeKind::Scalar { text, .. }) if text == "0" => true,
        (false, ..) => node.is_empty_text() && !is_empty_allowed(shape),
    }
}

pub(super) fn is_empty_allowed(shape: &Shape) -> bool {
    match shape {
        Shape::Text { format, .. } => format.is_none_or(|format| (format.check)("").is_ok()),
        Shape::Choice { words, .. } => words.iter().any(String::is_empty),
        Shape::Either(shapes) => shapes.iter().any(is_empty_allowed),
        _ => false,
    }
}
