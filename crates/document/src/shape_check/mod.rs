//! Compares a document with its shape: finds every mistake that can be seen key by key, and gathers the valid values
//! under canonical key names.

mod unknown_key;
mod values;
mod wrong_kind;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Value};

use crate::accepted_spellings::{self, truth};
use crate::characters;
use crate::diagnostic::{LISTED, Problem, Severity};
use crate::dialect::{Dialect, RetiredKey};
use crate::echo::{MistakePaths, UnusableValues};
use crate::finding::Finding;
use crate::format::Format;
use crate::nearest::meant;
use crate::secret::has_password;
use crate::shape::{Shape, join};
use crate::span::Span;
use crate::tree::{Key, NodeKind, TreeNode};

use values::{
    fits, is_empty_allowed, is_left_out, is_number, is_only_element, listed, parts, suits, without_line_end,
};

/// The most keys of a group that a message lists.
const KEYS_SHOWN: usize = 12;

/// A document that is being compared, and what was found so far.
#[derive(Debug)]
pub struct ShapeCheck {
    dialect: &'static dyn Dialect,
    pub problems: Vec<Problem>,
    /// Character offsets that must not be shown: secrets, and whatever stands below unknown keys.
    pub hidden: Vec<Range<usize>>,
    /// The place of the value of each dotted path.
    pub places: HashMap<String, Span>,
    /// The values that have a mistake, so that rules see a default in their places.
    pub unusable: UnusableValues,
    /// The canonical name of each key that has one, by where the key begins.
    pub names: HashMap<usize, String>,
}

impl ShapeCheck {
    /// A walk that has found nothing yet.
    #[must_use]
    pub fn new(dialect: &'static dyn Dialect) -> Self {
        Self {
            dialect,
            problems: Vec::new(),
            hidden: Vec::new(),
            places: HashMap::new(),
            unusable: UnusableValues::default(),
            names: HashMap::new(),
        }
    }

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
        if let Some(line) = without_line_end(node, shape).filter(|_| self.dialect.is_lenient()) {
            return self.fitting(&line, shape, path);
        }
        self.places.insert(path.to_owned(), node.span);
        if let Shape::Text { secret: true, .. } = shape {
            self.hidden.push(node.span.range());
        }
        if let NodeKind::Scalar { text, .. } = &node.kind
            && has_password(text)
        {
            self.hidden.push(node.span.range());
        }
        if let (Shape::Record(..), NodeKind::Scalar { text, .. }) = (shape, &node.kind)
            && let Some(group) =
                self.dialect.short_form(shape).filter(|_| !text.is_empty() && !node.is_nothing())
        {
            return self.fitting(&group(node, text), shape, path);
        }
        match (shape, &node.kind) {
            // A group or list without a value is the same as one that is left out.
            (shape, _) if shape.is_group() && node.is_nothing() => None,
            (Shape::Record(shapes, required), NodeKind::Map(entries)) => {
                let object = self.record(entries, shapes, &|name| !required.contains(name), path);
                self.is_complete(node, &object, required, path).then_some(Value::Object(object))
            }
            (Shape::OneOf(shapes), NodeKind::Map(entries)) => {
                let object = self.record(entries, shapes, &|_| false, path);
                self.is_one(node, entries, shapes, path);
                (object.len() == 1 && entries.len() == 1).then_some(Value::Object(object))
            }
            (Shape::Dictionary { keys, values }, NodeKind::Map(entries)) => {
                Some(self.dictionary(entries, *keys, values, path))
            }
            (Shape::List(shape), NodeKind::List(items)) => self.list(items, shape, path),
            (Shape::List(item), NodeKind::Scalar { text, .. })
                if self.dialect.is_lenient() && listed(item, text).is_some() =>
            {
                let message = "expected a list, found a single value with several elements";
                let problem = Problem::new(node.span, path, "wrong-type", message);
                self.problems.push(problem.suggest(listed(item, text)));
                None
            }
            (Shape::List(item), NodeKind::Scalar { .. })
                if self.dialect.is_lenient() && is_only_element(self.dialect, item, node) =>
            {
                self.list(std::slice::from_ref(node), item, path)
            }
            (Shape::Text { format, .. }, NodeKind::Scalar { text, .. }) if !node.is_nothing() => {
                self.text(node, text, *format, path)
            }
            (Shape::Choice { words, numbered }, NodeKind::Scalar { text, .. }) if !node.is_nothing() => {
                let number = text.parse::<usize>().ok().filter(|_| *numbered && is_number(text));
                let word = number.and_then(|number| words.get(number));
                self.choice(node, word.unwrap_or(text), words, path)
            }
            (Shape::Either(shapes), _) => match shapes.iter().find(|shape| fits(shape, node)) {
                Some(shape) => self.value(node, shape, path),
                None => {
                    self.mismatch(node, shape, path);
                    None
                }
            },
            (Shape::Number { least, most }, NodeKind::Scalar { text, plain })
                if is_number(text) && (*plain || self.dialect.is_lenient()) =>
            {
                self.number(node, text, *least, *most, path)
            }
            (Shape::Truth, NodeKind::Scalar { text, plain: true })
                if matches!(text.as_str(), "true" | "false") =>
            {
                Some(Value::Bool(text == "true"))
            }
            (Shape::Truth, NodeKind::Scalar { text, .. })
                if self.dialect.is_lenient() && truth(text).is_some() =>
            {
                truth(text).map(Value::Bool)
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
        is_optional: &dyn Fn(&String) -> bool,
        path: &str,
    ) -> Map<String, Value> {
        let mut object = Map::new();
        let mut seen: HashMap<&str, &Key> = HashMap::new();
        let older = self.older(entries, path);
        for (key, node) in entries {
            if older.iter().any(|older| older.span == key.span) {
                continue;
            }
            let Some((name, shape)) = self.named(shapes, key, node) else {
                if let Some(retired) = self.dialect.retired_key(path, &key.text, node, entries) {
                    let replacement = self.retired(key, node, retired, path);
                    object.extend(replacement.map(|(name, value)| (name.to_owned(), value.into())));
                    continue;
                }
                let given: Vec<_> = seen.keys().copied().collect();
                self.unknown(key, node, shapes, &given, path);
                continue;
            };
            self.names.insert(key.span.start, name.clone());
            let below = join(path, name);
            if let Some(first) = seen.insert(name, key) {
                self.twice(key, first, &below, matches!(shape, Shape::Text { secret: true, .. }), node);
                continue;
            }
            if self.dialect.is_lenient() && is_optional(name) && is_left_out(shape, node) {
                self.left_out(node, &below);
                continue;
            }
            if let Some(value) = self.value(node, shape, &below) {
                object.insert(name.clone(), value);
            }
        }
        object
    }

    /// Reports the keys of an older scheme together, and returns them.
    fn older<'t>(&mut self, entries: &'t [(Key, TreeNode)], path: &str) -> Vec<&'t Key> {
        let Some(older) = self.dialect.older_keys(path, entries) else { return Vec::new() };
        if let Some(first) = older.keys.first() {
            let problem = Problem::new(first.span, join(path, &first.text), "older-scheme", older.message);
            self.problems.push(problem.suggest(older.suggestion));
        }
        self.unusable.note_group(join(path, older.successor));
        older.keys
    }

    /// Reports a retired key, and returns the key that replaces it with its value.
    fn retired(
        &mut self,
        key: &Key,
        node: &TreeNode,
        retired: RetiredKey,
        path: &str,
    ) -> Option<(&'static str, &'static str)> {
        let (text, at) = (&key.text, join(path, &key.text));
        let (problem, replacement) = match retired {
            RetiredKey::Replaced { name, value, reason } => {
                self.places.insert(join(path, name), node.span);
                let message = format!("`{text}` is read as `{name}: {value}`: {reason}");
                (Problem::warning(key.span, at, "retired-key", message), Some((name, value)))
            }
            RetiredKey::NoEffect { reason } => {
                let message = format!("`{text}` has no effect: {reason}");
                (Problem::warning(key.span, at, "no-effect", message), None)
            }
            RetiredKey::Refused { reason } => {
                let message = format!("`{text}` is no longer a key: {reason}");
                (Problem::new(key.span, at, "retired-key", message), None)
            }
        };
        if replacement.is_none() {
            self.hide_below(node, false);
        }
        self.problems.push(problem);
        replacement
    }

    /// The key of a group that the document means by `key`.
    fn named<'s>(
        &self,
        shapes: &'s [(String, Shape)],
        key: &Key,
        node: &TreeNode,
    ) -> Option<&'s (String, Shape)> {
        match self.dialect.is_lenient() {
            true => accepted_spellings::find(shapes, &key.text, self.dialect.aliases(), |shape| {
                suits(self.dialect, shape, node)
            }),
            false => shapes.iter().find(|(name, _)| key.text == *name),
        }
    }

    /// Reports a key that is ignored because of its value.
    fn left_out(&mut self, node: &TreeNode, path: &str) {
        self.places.insert(path.to_owned(), node.span);
        let message = match node.is_nothing() || node.is_empty_text() {
            true => "the key has no value, so it is ignored",
            false => "0 is not a valid number here, so the key is ignored",
        };
        self.problems.push(Problem::warning(node.span, path, "empty-value", message));
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
                ("several-values", format!("the group has {given}; keep one of them"))
            }
        };
        let start = Span { end: node.span.start, ..node.span };
        self.problems.push(Problem::new(start, path, code, message));
    }

    /// True if a group has every key that it cannot be without; those that the document does not name are noted.
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
        let mut seen: HashMap<String, &Key> = HashMap::new();
        for (key, node) in entries {
            let canonical = match self.dialect.is_lenient() {
                true => keys.and_then(|format| (format.canonical?)(&key.text)),
                false => None,
            };
            let name = canonical.map_or(Cow::Borrowed(key.text.as_str()), Cow::Owned);
            self.names.insert(key.span.start, name.to_string());
            let below = join(path, if is_key(&name) { &name } else { "?" });
            if let Some(first) = seen.insert(name.to_string(), key) {
                self.twice(key, first, &below, values.is_secret(), node);
                continue;
            }
            if let Some(format) = keys
                && let Err(fault) = (format.check)(&name)
            {
                if values.is_secret() {
                    self.hidden.push(node.span.range());
                }
                let message = format!("the key {}", fault.message);
                self.problems
                    .push(Problem::new(key.span, below, format.code, message).suggest(fault.suggestion));
                continue;
            }
            if self.dialect.is_lenient() && node.is_nothing() && !values.is_group() {
                if is_empty_allowed(values) {
                    object.insert(name.into_owned(), Value::from(""));
                } else {
                    self.left_out(node, &below);
                }
                continue;
            }
            if let Some(value) = self.value(node, values, &below) {
                object.insert(name.into_owned(), value);
            }
        }
        Value::Object(object)
    }

    fn list(&mut self, items: &[TreeNode], shape: &Shape, path: &str) -> Option<Value> {
        let mut values = Vec::new();
        let mut whole = true;
        let parted: Vec<TreeNode>;
        let items = match shape {
            Shape::Text { format: Some(Format { elements: Some(elements), .. }), .. }
                if self.dialect.is_lenient() =>
            {
                parted = items.iter().flat_map(|item| parts(item, *elements)).collect();
                &parted
            }
            _ => items,
        };
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
            let mut message = format!("the value {}", fault.message);
            let mut better = fault.suggestion.or_else(|| self.dialect.correction(path, text));
            // Nothing is said about the characters of a secret.
            let is_shown = self.problems.len() < LISTED && !self.hidden.contains(&node.span.range());
            if let Some(unlike) = characters::unlike(text).filter(|_| is_shown) {
                let _ = write!(message, "; it has {unlike}");
                let plain = characters::plain(text);
                better = better.or_else(|| (format.check)(&plain).is_ok().then_some(plain));
            }
            let problem = Problem::new(node.span, path, format.code, message).suggest(better);
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
                let message = format!("the number must be from {least} to {most}");
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
        let mut message = format!("the value is not one of {}", shown.join(", "));
        if let Some(unlike) = characters::unlike(text) {
            let _ = write!(message, "; it has {unlike}");
        }
        let problem = Problem::new(node.span, path, "unknown-value", message);
        let near = meant(text, words.iter().map(String::as_str), self.dialect.synonyms());
        self.problems.push(problem.suggest(near));
        None
    }

    fn twice(&mut self, key: &Key, first: &Key, path: &str, secret: bool, node: &TreeNode) {
        if secret {
            self.hidden.push(node.span.range());
        }
        let line = first.span.line;
        let problem = if key.text == first.text {
            let message = format!("duplicate key; the first is on line {line}");
            Problem::new(key.span, path, "duplicate-key", message)
        } else {
            let message = format!("the same key is on line {line} in another spelling; keep one");
            Problem::new(key.span, path, "both-spellings", message)
        };
        self.problems.push(problem);
    }

    /// Places what rules have found. A finding about a value that is one of the `mistakes`, or that holds one or is in
    /// one, is an echo of that mistake and is dropped.
    pub fn findings(&mut self, findings: Vec<Finding>, mistakes: &MistakePaths) {
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

    /// True if there is no mistake among what has been found so far.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problems.iter().all(|problem| problem.severity == Severity::Warning)
    }

    fn note(&mut self, node: &TreeNode, path: &str, code: &'static str, message: &str) {
        self.problems.push(Problem::new(node.span, path, code, message));
    }
}

fn is_key(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}
