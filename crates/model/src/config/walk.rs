//! Holds a document against its shape: finds every mistake that can be seen key by key, and gathers what is
//! right into a value with canonical key names.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::{Map, Value};

use super::diagnostic::{LISTED, Problem, Severity, is_word};
use super::echo::{Mistakes, Unusable};
use super::formats::Format;
use super::nearest::nearest;
use super::redact::has_password;
use super::rules::Finding;
use super::shape::{Shape, camel, join};
use super::span::Span;
use super::tree::{Key, NodeKind, TreeNode};

/// What the walk has found so far.
#[derive(Debug, Default)]
pub struct Walk {
    pub problems: Vec<Problem>,
    /// Character offsets that must not be shown: secrets, and whatever stands below unknown keys.
    pub hidden: Vec<Range<usize>>,
    /// Where the value of each dotted path stands.
    pub places: HashMap<String, Span>,
    /// The values that have a mistake, so that rules see a default in their places.
    pub unusable: Unusable,
    /// For a document that is not an install configuration but has parts of one inside.
    pub help: Option<Help>,
}

/// How a document of another kind helps with keys that it does not have.
#[derive(Clone, Copy, Debug)]
pub struct Help {
    /// The path inside the part of an install configuration that holds this path of the document; none where the document
    /// has no such parts. Then keys have one spelling, and none has been retired.
    pub within: Option<fn(&str) -> &str>,
    /// The path of the document where a key of this name would do.
    pub place: fn(&str) -> Option<String>,
}

impl Walk {
    /// The part of `node` that fits `shape`; `None` where nothing does. Mistakes are noted.
    pub fn value(&mut self, node: &TreeNode, shape: &Shape, path: &str) -> Option<Value> {
        let value = self.fitting(node, shape, path);
        let left_out = node.is_nothing() && shape.is_group();
        if value.is_none() && !left_out {
            self.unusable.note(path, shape);
        }
        value
    }

    fn fitting(&mut self, node: &TreeNode, shape: &Shape, path: &str) -> Option<Value> {
        self.places.insert(path.to_owned(), node.span);
        if let Shape::Text { secret: true, .. } = shape {
            self.hidden.push(node.span.range());
        }
        if let NodeKind::Scalar { text, .. } = &node.kind
            && has_password(text)
        {
            self.hidden.push(node.span.range());
        }
        match (shape, &node.kind) {
            // Nothing below a group or a list asks for nothing.
            (shape, _) if shape.is_group() && node.is_nothing() => None,
            (Shape::Record(shapes, required), NodeKind::Map(entries)) => {
                let object = self.record(entries, shapes, path);
                self.is_complete(node, &object, required, path).then_some(Value::Object(object))
            }
            (Shape::OneOf(shapes), NodeKind::Map(entries)) => {
                let object = self.record(entries, shapes, path);
                self.is_one(node, entries, shapes, path);
                (object.len() == 1 && entries.len() == 1).then_some(Value::Object(object))
            }
            (Shape::Dictionary { keys, values }, NodeKind::Map(entries)) => {
                Some(self.dictionary(entries, *keys, values, path))
            }
            (Shape::List(shape), NodeKind::List(items)) => self.list(items, shape, path),
            (Shape::Text { format, .. }, NodeKind::Scalar { text, .. }) if !node.is_nothing() => {
                self.text(node, text, *format, path)
            }
            (Shape::Choice(words), NodeKind::Scalar { text, .. }) if !node.is_nothing() => {
                self.choice(node, text, words, path)
            }
            (Shape::Either(shapes), _) => match shapes.iter().find(|shape| fits(shape, node)) {
                Some(shape) => self.value(node, shape, path),
                None => {
                    self.mismatch(node, shape, path);
                    None
                }
            },
            (Shape::Number { least, most }, NodeKind::Scalar { text, plain: true }) if is_number(text) => {
                self.number(node, text, *least, *most, path)
            }
            (Shape::Truth, NodeKind::Scalar { text, plain: true })
                if matches!(text.as_str(), "true" | "false") =>
            {
                Some(Value::Bool(text == "true"))
            }
            _ => {
                self.mismatch(node, shape, path);
                None
            }
        }
    }

    fn record(
        &mut self,
        entries: &[(Key, TreeNode)],
        shapes: &[(String, Shape)],
        path: &str,
    ) -> Map<String, Value> {
        let mut object = Map::new();
        let mut seen: HashMap<&str, &Key> = HashMap::new();
        for (key, node) in entries {
            let Some((name, shape)) = shapes.iter().find(|(name, _)| self.is_named(&key.text, name)) else {
                self.hidden.push(node.span.range());
                self.unknown(key, shapes, path);
                continue;
            };
            let below = join(path, name);
            if let Some(first) = seen.insert(name, key) {
                self.twice(key, first, &below, matches!(shape, Shape::Text { secret: true, .. }), node);
                continue;
            }
            if let Some(value) = self.value(node, shape, &below) {
                object.insert(name.clone(), value);
            }
        }
        object
    }

    /// Whether `text` is the key `name` in one of the spellings that the document may use.
    fn is_named(&self, text: &str, name: &str) -> bool {
        match self.help {
            Some(Help { within: None, .. }) => text == name,
            _ => is_spelling(text, name),
        }
    }

    /// Notes where a group that has exactly one of several keys has none or more. Keys that are none of them are noted
    /// by themselves.
    fn is_one(
        &mut self,
        node: &TreeNode,
        entries: &[(Key, TreeNode)],
        shapes: &[(String, Shape)],
        path: &str,
    ) {
        let known = |name: &str| self.places.contains_key(&join(path, name));
        let all: Vec<_> = shapes.iter().map(|(name, _)| format!("`{name}`")).collect();
        let given = shapes.iter().zip(&all).filter(|((name, _), _)| known(name));
        let given: Vec<_> = given.map(|(_, quoted)| quoted.as_str()).collect();
        let (code, message) = match given.len() {
            0 if entries.is_empty() => {
                ("missing-value", format!("the group needs one of {}", all.join(", ")))
            }
            0 | 1 => return,
            _ => {
                let given = given.join(" and ");
                ("several-values", format!("the group has {given}, and can have only one of them"))
            }
        };
        let start = Span { end: node.span.start, ..node.span };
        self.problems.push(Problem::new(start, path, code, message));
    }

    /// Whether a group has every key that it cannot be without; those that the document does not name are noted.
    fn is_complete(
        &mut self,
        node: &TreeNode,
        object: &Map<String, Value>,
        required: &[String],
        path: &str,
    ) -> bool {
        let absent: Vec<_> = required.iter().filter(|name| !object.contains_key(*name)).collect();
        for name in &absent {
            let below = join(path, name);
            if !self.places.contains_key(&below) {
                let start = Span { end: node.span.start, ..node.span };
                let message = format!("the group needs `{name}`");
                self.problems.push(Problem::new(start, below, "missing-value", message));
            }
        }
        absent.is_empty()
    }

    fn dictionary(
        &mut self,
        entries: &[(Key, TreeNode)],
        keys: Option<&'static Format>,
        values: &Shape,
        path: &str,
    ) -> Value {
        let mut object = Map::new();
        let mut seen: HashMap<&str, &Key> = HashMap::new();
        for (key, node) in entries {
            let below = join(path, if is_key(&key.text) { &key.text } else { "?" });
            if let Some(first) = seen.insert(&key.text, key) {
                self.twice(key, first, &below, values.is_secret(), node);
                continue;
            }
            if let Some(format) = keys
                && let Err(fault) = (format.check)(&key.text)
            {
                if values.is_secret() {
                    self.hidden.push(node.span.range());
                }
                let message = format!("the key {}", fault.message);
                self.problems
                    .push(Problem::new(key.span, below, format.code, message).suggest(fault.suggestion));
                continue;
            }
            if let Some(value) = self.value(node, values, &below) {
                object.insert(key.text.clone(), value);
            }
        }
        Value::Object(object)
    }

    fn list(&mut self, items: &[TreeNode], shape: &Shape, path: &str) -> Option<Value> {
        let mut values = Vec::new();
        let mut whole = true;
        for (index, node) in items.iter().enumerate() {
            match (self.value(node, shape, &format!("{path}[{index}]")), shape) {
                (Some(value), _) => values.push(value),
                // An element with a mistake leaves an empty group, so that later ones keep their places.
                (None, Shape::Record(_, required)) if required.is_empty() => {
                    values.push(Value::Object(Map::new()));
                }
                (None, _) => whole = false,
            }
        }
        // With an element missing the places of the others would be wrong: rules do not see such a list.
        whole.then_some(Value::Array(values))
    }

    fn text(&mut self, node: &TreeNode, text: &str, format: Option<&Format>, path: &str) -> Option<Value> {
        if let Some(format) = format
            && let Err(fault) = (format.check)(text)
        {
            if fault.sensitive {
                self.hidden.push(node.span.range());
            }
            let message = format!("the value {}", fault.message);
            let problem = Problem::new(node.span, path, format.code, message).suggest(fault.suggestion);
            self.problems.push(problem);
            return None;
        }
        Some(Value::from(text))
    }

    fn number(&mut self, node: &TreeNode, text: &str, least: u32, most: u32, path: &str) -> Option<Value> {
        match text.parse::<u32>() {
            Ok(number) if (least..=most).contains(&number) => Some(Value::from(number)),
            Err(_) if most == u32::MAX => {
                self.note(node, path, "wrong-type", "the number is too large");
                None
            }
            _ => {
                let message = format!("the number is not from {least} to {most}");
                self.note(node, path, "number-out-of-range", &message);
                None
            }
        }
    }

    fn choice(&mut self, node: &TreeNode, text: &str, words: &[String], path: &str) -> Option<Value> {
        if words.iter().any(|word| word == text) {
            return Some(Value::from(text));
        }
        let shown: Vec<_> = words.iter().map(|word| if word.is_empty() { "''" } else { word }).collect();
        let message = format!("the value is not one of {}", shown.join(", "));
        let problem = Problem::new(node.span, path, "unknown-value", message);
        self.problems.push(problem.suggest(nearest(text, words.iter().map(String::as_str))));
        None
    }

    fn unknown(&mut self, key: &Key, shapes: &[(String, Shape)], path: &str) {
        // A value that has slipped into the place of a key could be a secret.
        if !is_word(&key.text) {
            self.hidden.push(key.span.range());
            let message = "this is not a key";
            self.problems.push(Problem::new(key.span, join(path, "?"), "unknown-key", message));
            return;
        }
        let within = match self.help {
            Some(help) => help.within.map(|within| within(path)),
            None => Some(path),
        };
        let inner = within.map(|within| join(within, &super::shape::snake(&key.text)));
        if let Some(reason) = inner.and_then(|inner| super::retired::reason(&inner)) {
            let message = format!("`{}` is not a key any more: {reason}", key.text);
            self.problems.push(Problem::new(key.span, join(path, &key.text), "retired-key", message));
            return;
        }
        let group = if path.is_empty() { "the document".to_owned() } else { format!("`{path}`") };
        let message = format!("unknown key `{}` in {group}", key.text);
        let elsewhere = || {
            let name = super::shape::snake(&key.text);
            match self.help {
                Some(help) => (help.place)(&name),
                None => super::shape::install_config().places(&name, "").into_iter().next(),
            }
        };
        // Only what is listed needs a suggestion, and the walk follows the lines. To look through all keys for each of
        // 100,000 mistakes would take minutes.
        let suggestion = (self.problems.len() < LISTED).then(|| {
            let nearby = nearest(&key.text, shapes.iter().map(|(name, _)| name.as_str()));
            nearby.map(str::to_owned).or_else(elsewhere)
        });
        let suggestion = suggestion.flatten();
        let problem = Problem::new(key.span, join(path, &key.text), "unknown-key", message);
        self.problems.push(problem.suggest(suggestion));
    }

    fn twice(&mut self, key: &Key, first: &Key, path: &str, secret: bool, node: &TreeNode) {
        if secret {
            self.hidden.push(node.span.range());
        }
        let line = first.span.line;
        let problem = if key.text == first.text {
            let message = format!("the key is given a second time; the first is in line {line}");
            Problem::new(key.span, path, "duplicate-key", message)
        } else {
            let message = format!("line {line} says the same in another spelling; keep one");
            Problem::new(key.span, path, "both-spellings", message)
        };
        self.problems.push(problem);
    }

    fn mismatch(&mut self, node: &TreeNode, shape: &Shape, path: &str) {
        if node.is_nothing() {
            self.note(node, path, "empty-value", "the key has no value; give one or leave the key out");
            return;
        }
        let is_keyed = matches!(shape, Shape::Record(..) | Shape::OneOf(_) | Shape::Dictionary { .. });
        if let (true, NodeKind::Scalar { .. }) = (is_keyed, &node.kind) {
            // Nobody knows what this was to be.
            self.hidden.push(node.span.range());
        }
        let (wanted, suggestion) = match (shape, &node.kind) {
            (Shape::Record(..) | Shape::OneOf(_) | Shape::Dictionary { .. }, _) => ("a group of keys", None),
            (Shape::List(_), _) => ("a list, each element on a line with '-'", None),
            (Shape::Number { .. }, NodeKind::Scalar { text, .. }) => {
                ("a whole number", is_number(text).then(|| text.clone()))
            }
            (Shape::Number { .. }, _) => ("a whole number", None),
            (Shape::Truth, NodeKind::Scalar { text, .. }) => {
                ("true or false", truth(text).map(str::to_owned))
            }
            (Shape::Truth, _) => ("true or false", None),
            (Shape::Text { .. } | Shape::Choice(_), _) => ("a single value", None),
            (Shape::Either(_), _) => ("another kind of value", None),
        };
        let message = match node.kind {
            NodeKind::Scalar { .. } if matches!(shape, Shape::Number { .. } | Shape::Truth) => {
                format!("expected {wanted}")
            }
            _ => format!("expected {wanted}, found {}", node.noun()),
        };
        self.problems.push(Problem::new(node.span, path, "wrong-type", message).suggest(suggestion));
    }

    /// Places what rules have found. A finding about a value that is one of the `mistakes`, or that holds one or is in
    /// one, is an echo of that mistake and is dropped.
    pub fn findings(&mut self, findings: Vec<Finding>, mistakes: &Mistakes) {
        let mut missing = HashSet::new();
        for Finding { severity, path, code, message, suggestion } in findings {
            if mistakes.within(&path) || self.unusable.has_around(&path) {
                continue;
            }
            // Several rules can miss the same key.
            if code == "missing-value" && !missing.insert(path.clone()) {
                continue;
            }
            let (span, exact) = self.place(&path);
            // A whole group is too much to underline; its beginning will do.
            let span = if exact { span } else { Span { end: span.start, ..span } };
            let problem = Problem { severity, ..Problem::new(span, path, code, message).suggest(suggestion) };
            self.problems.push(problem);
        }
    }

    /// Where the document has the value at `path`, or what is nearest above it; and whether it is the value itself.
    fn place(&self, path: &str) -> (Span, bool) {
        let mut at = path;
        loop {
            match self.places.get(at) {
                Some(span) => return (*span, at == path),
                None if at.is_empty() => return (Span::default(), false),
                None => at = at.rfind(['.', '[']).map_or("", |end| &at[..end]),
            }
        }
    }

    /// Whether there is no mistake among what has been found so far.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity == Severity::Warning)
    }

    fn note(&mut self, node: &TreeNode, path: &str, code: &'static str, message: &str) {
        self.problems.push(Problem::new(node.span, path, code, message));
    }
}

/// Whether `text` is `name` in `snake_case` or in `camelCase`, where acronyms may stand in capitals
/// (`guaranteedInstanceManagerCPU`).
pub fn is_spelling(text: &str, name: &str) -> bool {
    let camel = camel(name);
    let capitals = text.bytes().any(|b| b.is_ascii_uppercase()) && !text.contains('_');
    let initial = text.as_bytes().first() == camel.as_bytes().first();
    text == name || text == camel || capitals && initial && text.eq_ignore_ascii_case(&camel)
}

/// Whether a node is of the kind that the shape describes.
fn fits(shape: &Shape, node: &TreeNode) -> bool {
    match (shape, &node.kind) {
        (Shape::Record(..) | Shape::OneOf(_) | Shape::Dictionary { .. }, NodeKind::Map(_))
        | (Shape::List(_), NodeKind::List(_)) => true,
        (
            Shape::Text { .. } | Shape::Choice(_) | Shape::Number { .. } | Shape::Truth,
            NodeKind::Scalar { .. },
        ) => !node.is_nothing(),
        _ => false,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_key(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

/// What older YAML, and people, write for truth values.
fn truth(text: &str) -> Option<&'static str> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "1" => Some("true"),
        "false" | "no" | "off" | "n" | "0" => Some("false"),
        _ => None,
    }
}
