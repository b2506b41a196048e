//! A value of another kind than its key has: a list in place of a text, a text in place of a group.

use super::values::is_number;
use super::{KEYS_SHOWN, ShapeCheck};
use crate::accepted_spellings::truth;
use crate::diagnostic::{Problem, is_word};
use crate::shape::Shape;
use crate::tree::{NodeKind, TreeNode};

impl ShapeCheck {
    pub(super) fn mismatch(&mut self, node: &TreeNode, shape: &Shape, path: &str) {
        if node.is_nothing() {
            self.note(node, path, "empty-value", "the key has no value; set one or remove the key");
            return;
        }
        let is_keyed = matches!(shape, Shape::Record(..) | Shape::OneOf(_) | Shape::Dictionary { .. });
        if let (true, NodeKind::Scalar { .. }) = (is_keyed, &node.kind) {
            // The text could be a secret in the wrong place.
            self.hidden.push(node.span.range());
        }
        if let (true, NodeKind::Scalar { text, .. }) = (path.is_empty(), &node.kind)
            && is_web_page(text)
        {
            let message =
                "this is a web page (HTML), not a configuration: probably an error page or a login page";
            self.note(node, path, "wrong-type", message);
            return;
        }
        let keys: String;
        let (wanted, suggestion) = match (shape, &node.kind) {
            (Shape::Record(shapes, _) | Shape::OneOf(shapes), _) if !path.is_empty() => {
                keys = group_of(shapes);
                (keys.as_str(), None)
            }
            (Shape::Record(..) | Shape::OneOf(_) | Shape::Dictionary { .. }, _) => ("a group of keys", None),
            (Shape::List(_), _) => ("a list, each element on a line with '-'", None),
            (Shape::Number { .. }, NodeKind::Scalar { text, .. }) => {
                ("a whole number", is_number(text).then(|| text.clone()))
            }
            (Shape::Number { .. }, _) => ("a whole number", None),
            (Shape::Truth, NodeKind::Scalar { text, .. }) => {
                ("true or false", truth(text).map(|truth| truth.to_string()))
            }
            (Shape::Truth, _) => ("true or false", None),
            (Shape::Text { format: Some(format), .. }, NodeKind::List(items)) if format.has_words => {
                let words = items.iter().map(|item| match &item.kind {
                    NodeKind::Scalar { text, .. } => Some(text.as_str()),
                    _ => None,
                });
                let line = words.collect::<Option<Vec<_>>>().map(|words| words.join(" "));
                ("one line of text", line.filter(|line| (format.check)(line).is_ok()))
            }
            (Shape::Text { .. } | Shape::Choice { .. }, _) => ("a single value", None),
            (Shape::Either(shapes), _) => {
                keys = shapes.iter().map(kind_of).collect::<Vec<_>>().join(" or ");
                (keys.as_str(), None)
            }
        };
        let slip = match &node.kind {
            NodeKind::Scalar { text, .. } if is_keyed => missing_blank(text),
            _ => None,
        };
        if let Some(key) = slip {
            let message = format!("a space is missing after the colon of `{key}`");
            self.note(node, path, "wrong-type", &message);
            return;
        }
        let message = match node.kind {
            NodeKind::Scalar { .. } if matches!(shape, Shape::Number { .. } | Shape::Truth) => {
                format!("expected {wanted}")
            }
            _ => format!("expected {wanted}, found {}", node.noun()),
        };
        self.problems.push(Problem::new(node.span, path, "wrong-type", message).suggest(suggestion));
    }
}

/// The kind of value that a shape accepts, for messages.
fn kind_of(shape: &Shape) -> &'static str {
    match shape {
        Shape::Record(..) | Shape::OneOf(_) | Shape::Dictionary { .. } => "a group of keys",
        Shape::List(_) => "a list",
        _ => "a single value",
    }
}

/// A group with its keys, where they are few, so that a reader sees which group is meant.
fn group_of(shapes: &[(String, Shape)]) -> String {
    let keys: Vec<_> = shapes.iter().map(|(name, _)| format!("`{name}`")).collect();
    if keys.len() > KEYS_SHOWN {
        return "a group of keys".to_owned();
    }
    format!("a group of keys ({})", keys.join(", "))
}

/// True if a text is what a web server sends in place of a file.
fn is_web_page(text: &str) -> bool {
    let begin: String = text.trim_start().chars().take(14).collect::<String>().to_ascii_lowercase();
    ["<!doctype", "<html", "<head", "<?xml"].iter().any(|tag| begin.starts_with(tag))
}

/// The key of `key:value`, in which YAML sees one word.
fn missing_blank(text: &str) -> Option<&str> {
    let (key, value) = text.split_once(':')?;
    (is_word(key) && !value.is_empty() && !value.starts_with([' ', '/'])).then_some(key)
}
