//! Holds a document against its shape: finds every mistake that can be seen key by key, and gathers what is
//! right into a value with canonical key names.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

use serde_json::{Map, Value};

use super::card;
use super::characters;
use super::diagnostic::{LISTED, Problem, Severity, is_word};
use super::echo::{Mistakes, Unusable};
use super::formats::{self, Format};
use super::nearest::{meant, nearest};
use super::older::Older;
use super::redact::has_password;
use super::retired;
use super::rules::Finding;
use super::secret::is_secretive;
use super::shape::{Shape, join};
use super::span::Span;
use super::spelling::{self, truth};
use super::tree::{Key, NodeKind, TreeNode};

/// How many keys of a group are told where a document has none of them.
const KEYS_TOLD: usize = 12;

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
    /// The canonical name of each key that has one, by where the key begins.
    pub names: HashMap<usize, String>,
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
        if let Some(line) = without_line_end(node, shape).filter(|_| self.is_lenient()) {
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
        match (shape, &node.kind) {
            // Nothing below a group or a list asks for nothing.
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
                if self.is_lenient() && listed(item, text).is_some() =>
            {
                let message = "expected a list, found a single value with several elements";
                let problem = Problem::new(node.span, path, "wrong-type", message);
                self.problems.push(problem.suggest(listed(item, text)));
                None
            }
            (Shape::List(item), NodeKind::Scalar { .. }) if self.is_lenient() && is_word_of(item, node) => {
                self.list(std::slice::from_ref(node), item, path)
            }
            (Shape::Record(..), NodeKind::Scalar { text, .. })
                if self.is_lenient() && shape.is_card() && !text.is_empty() =>
            {
                self.fitting(&card::group(node, text), shape, path)
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
                if is_number(text) && (*plain || self.is_lenient()) =>
            {
                self.number(node, text, *least, *most, path)
            }
            (Shape::Truth, NodeKind::Scalar { text, plain: true })
                if matches!(text.as_str(), "true" | "false") =>
            {
                Some(Value::Bool(text == "true"))
            }
            (Shape::Truth, NodeKind::Scalar { text, .. }) if self.is_lenient() && truth(text).is_some() => {
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
            if older.as_ref().is_some_and(|older| older.has(key)) {
                continue;
            }
            let Some((name, shape)) = self.named(shapes, key, node) else {
                if let Some(today) = self.today(key, node, entries, path) {
                    object.extend(today.map(|(name, value)| (name.to_owned(), value.into())));
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
            if self.is_lenient() && is_optional(name) && is_left_out(shape, node) {
                self.left_out(node, &below);
                continue;
            }
            if let Some(value) = self.value(node, shape, &below) {
                object.insert(name.clone(), value);
            }
        }
        object
    }

    /// The keys of `install` that are of an older scheme, which are noted together.
    fn older<'t>(&mut self, entries: &'t [(Key, TreeNode)], path: &str) -> Option<Older<'t>> {
        if self.within(path) != Some("install") {
            return None;
        }
        let older = Older::of(entries)?;
        let (message, replacement) = older.told(&|node, shape| Walk::default().value(node, shape, ""));
        let problem = Problem::new(older.key.span, join(path, &older.key.text), "older-scheme", message);
        self.problems.push(problem.suggest(replacement));
        self.unusable.note_group(join(path, "management_interface"));
        Some(older)
    }

    /// The key of today that a retired one stands for, and its value; nothing where its group says itself what the key is about.
    /// Either is noted.
    fn today(
        &mut self,
        key: &Key,
        node: &TreeNode,
        entries: &[(Key, TreeNode)],
        path: &str,
    ) -> Option<Option<(&'static str, &'static str)>> {
        let retired = retired::find(self.within(path)?, &key.text)?;
        let (name, value) = retired.today(node)?;
        let (code, message, today) = match retired.is_said(entries) {
            true => ("no-effect", format!("`{}` does nothing here: {}", key.text, retired.reason), None),
            false => {
                let message = format!("`{}` is taken as `{name}: {value}`: {}", key.text, retired.reason);
                self.places.insert(join(path, name), node.span);
                ("retired-key", message, Some((name, value)))
            }
        };
        self.problems.push(Problem::warning(key.span, join(path, &key.text), code, message));
        Some(today)
    }

    /// The path inside an install configuration that is at `path` of the document; none where it has no such parts.
    fn within<'p>(&self, path: &'p str) -> Option<&'p str> {
        match self.help {
            Some(help) => help.within.map(|within| within(path)),
            None => Some(path),
        }
    }

    /// The key of a group that the document means by `key`.
    fn named<'s>(
        &self,
        shapes: &'s [(String, Shape)],
        key: &Key,
        node: &TreeNode,
    ) -> Option<&'s (String, Shape)> {
        match self.is_lenient() {
            true => spelling::find(shapes, &key.text, |shape| suits(shape, node)),
            false => shapes.iter().find(|(name, _)| key.text == *name),
        }
    }

    /// Whether the document may say the same in other words: install configurations, and what has parts of them. Other
    /// documents have one form.
    fn is_lenient(&self) -> bool {
        !matches!(self.help, Some(Help { within: None, .. }))
    }

    /// Notes that a key counts as left out.
    fn left_out(&mut self, node: &TreeNode, path: &str) {
        self.places.insert(path.to_owned(), node.span);
        let message = match node.is_nothing() || node.is_empty_text() {
            true => "the key has no value, so it counts as left out",
            false => "the number is none that there can be, so the key counts as left out",
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
        let mut seen: HashMap<String, &Key> = HashMap::new();
        for (key, node) in entries {
            let name = match self.is_lenient() {
                true => keys
                    .map_or(Cow::Borrowed(key.text.as_str()), |format| formats::canonical(format, &key.text)),
                false => Cow::Borrowed(key.text.as_str()),
            };
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
            if self.is_lenient() && node.is_nothing() && !values.is_group() {
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
            Shape::Text { format: Some(format), .. } if format.name == "ssh-key" && self.is_lenient() => {
                parted = items.iter().flat_map(lines).collect();
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
            let mut better =
                fault.suggestion.or_else(|| mask(text).filter(|_| path.ends_with("subnet_mask")));
            // Of a secret nothing is told.
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
        let mut message = format!("the value is not one of {}", shown.join(", "));
        if let Some(unlike) = characters::unlike(text) {
            let _ = write!(message, "; it has {unlike}");
        }
        let problem = Problem::new(node.span, path, "unknown-value", message);
        self.problems.push(problem.suggest(meant(text, words.iter().map(String::as_str))));
        None
    }

    fn unknown(
        &mut self,
        key: &Key,
        node: &TreeNode,
        shapes: &[(String, Shape)],
        others: &[&str],
        path: &str,
    ) {
        // A value that has slipped into the place of a key could be a secret.
        if !is_word(&key.text) {
            self.hidden.push(key.span.range());
            self.hide_below(node, true);
            let message = match characters::unlike(&key.text) {
                Some(unlike) => {
                    format!("this is not a key: it has {unlike}, which YAML takes for a letter")
                }
                None => "this is not a key".to_owned(),
            };
            self.problems.push(Problem::new(key.span, join(path, "?"), "unknown-key", message));
            return;
        }
        if let Some(retired) = self.within(path).and_then(|within| retired::find(within, &key.text)) {
            let problem = match retired.is_harmless(node) {
                true => {
                    let message = format!("`{}` does nothing here: {}", key.text, retired.reason);
                    Problem::warning(key.span, join(path, &key.text), "no-effect", message)
                }
                false => {
                    let message = format!("`{}` is not a key any more: {}", key.text, retired.reason);
                    Problem::new(key.span, join(path, &key.text), "retired-key", message)
                }
            };
            self.hide_below(node, false);
            self.problems.push(problem);
            return;
        }
        let group = if path.is_empty() { "the document".to_owned() } else { format!("`{path}`") };
        let misplaced = self.misplaced(node, path);
        let mut message = format!("unknown key `{}` in {group}{misplaced}", key.text);
        // Only what is listed needs a suggestion, and the walk follows the lines. To look through all keys for each of
        // 100,000 mistakes would take minutes.
        let listed = self.problems.len() < LISTED;
        let meant =
            listed.then(|| nearest(&key.text, shapes.iter().map(|(name, _)| name.as_str()))).flatten();
        let meant = meant.and_then(|name| shapes.iter().find(|(key, _)| key == name));
        self.hide_below(node, is_secretive(&key.text) || meant.is_some_and(|(_, shape)| shape.is_secret()));
        let suggestion = match meant {
            Some((name, shape)) if self.would_take(node, shape) && !others.contains(&name.as_str()) => {
                // The key that was meant is not missing as well.
                let below = join(path, name);
                self.unusable.note(&below, shape);
                self.places.entry(below).or_insert(node.span);
                Some(name.clone())
            }
            _ if listed => {
                let place = self.elsewhere(key, node);
                match place.as_deref().or(self.named_elsewhere(key, node).as_deref()) {
                    Some(place) => message.push_str(&self.belongs(place, node)),
                    None if misplaced.is_empty() => message.push_str(&self.known(shapes, path)),
                    None => {}
                }
                // At the top the key is written as it is.
                place.filter(|place| self.help.is_some() || place.contains('.'))
            }
            _ => None,
        };
        let problem = Problem::new(key.span, join(path, &key.text), "unknown-key", message);
        self.problems.push(problem.suggest(suggestion));
    }

    /// A clause that says where a key belongs. What is said of the key there is an echo of its being here.
    fn belongs(&mut self, place: &str, node: &TreeNode) -> String {
        if self.help.is_none()
            && let Some(shape) = at(super::shape::install_config(), place)
            && !place.contains('[')
        {
            self.unusable.note(place, shape);
            self.places.entry(place.to_owned()).or_insert(node.span);
        }
        match place.rsplit_once('.') {
            Some((group, _)) => format!("; it belongs to `{group}`"),
            // A cluster file names its own places.
            None if self.help.is_some() => String::new(),
            None => "; it belongs to the top of the document, where no line is indented".to_owned(),
        }
    }

    /// The only place of a single value of this name, whether the value is right for it or not.
    fn named_elsewhere(&self, key: &Key, node: &TreeNode) -> Option<String> {
        let root = super::shape::install_config();
        let mut places = root.places(&super::shape::snake(&key.text), "");
        let place = places.pop().filter(|_| places.is_empty() && self.help.is_none())?;
        at(root, &place).is_some_and(|shape| fits(shape, node) && !shape.is_group()).then_some(place)
    }

    /// A clause with the keys that the group has, once for each group that has few.
    fn known(&self, shapes: &[(String, Shape)], path: &str) -> String {
        let is_told = self.problems.iter().any(|problem| {
            let group = problem.path.rsplit_once('.').map_or("", |(group, _)| group);
            problem.code == "unknown-key" && group == path
        });
        let keys: Vec<_> = shapes.iter().map(|(name, _)| name.as_str()).collect();
        match is_told || keys.is_empty() || keys.len() > KEYS_TOLD {
            true => String::new(),
            false => format!("; its keys are {}", keys.join(", ")),
        }
    }

    /// Where the keys belong that stand below a group that nobody knows, a clause to append; empty where none is known.
    fn misplaced(&self, node: &TreeNode, path: &str) -> String {
        let NodeKind::Map(entries) = &node.kind else { return String::new() };
        if self.help.is_some() || !path.is_empty() || self.problems.len() >= LISTED {
            return String::new();
        }
        let mut places: std::collections::BTreeMap<String, Vec<&str>> = std::collections::BTreeMap::new();
        for (key, node) in entries.iter().filter(|(key, _)| is_word(&key.text)) {
            let Some(place) = self.elsewhere(key, node) else { continue };
            let group = place.rsplit_once('.').map_or("", |(group, _)| group);
            places.entry(group.to_owned()).or_default().push(&key.text);
        }
        let named = places.iter().map(|(group, keys)| {
            let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
            let group = if group.is_empty() { "the top".to_owned() } else { format!("`{group}`") };
            format!("{} to {group}", keys.join(", "))
        });
        let named = named.collect::<Vec<_>>().join("; ");
        if named.is_empty() { named } else { format!(". Its keys belong elsewhere: {named}") }
    }

    /// Where in the document a key of this name would do with this value.
    fn elsewhere(&self, key: &Key, node: &TreeNode) -> Option<String> {
        let name = super::shape::snake(&key.text);
        let root = super::shape::install_config();
        match self.help {
            Some(help) => (help.place)(&name),
            None => {
                let mut places = root.places(&name, "");
                // Of several places the shallowest is the one that most people mean.
                places.sort_by_key(|place| place.matches(['.', '[']).count());
                places
                    .into_iter()
                    .find(|place| at(root, place).is_some_and(|shape| self.would_take(node, shape)))
            }
        }
    }

    /// Whether the value is right for the shape.
    fn would_take(&self, node: &TreeNode, shape: &Shape) -> bool {
        let mut walk = Self { help: self.help, ..Self::default() };
        (walk.value(node, shape, "").is_some() || node.is_nothing() && shape.is_group()) && walk.is_clean()
    }

    /// Hides the values below a key that nobody knows, but for those that can be no secrets: truth values and, unless
    /// the key is `secretive`, small numbers.
    fn hide_below(&mut self, node: &TreeNode, secretive: bool) {
        match &node.kind {
            NodeKind::Scalar { text, .. } => {
                let small = text.len() <= 6 && is_number(text);
                let word = truth(text).is_some() && !is_number(text);
                if !(node.is_nothing() || word || small && !secretive) {
                    self.hidden.push(node.span.range());
                }
            }
            NodeKind::List(items) => items.iter().for_each(|item| self.hide_below(item, secretive)),
            NodeKind::Map(entries) => {
                for (key, node) in entries {
                    if !is_word(&key.text) {
                        self.hidden.push(key.span.range());
                    }
                    self.hide_below(node, secretive || is_secretive(&key.text));
                }
            }
        }
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
        if let (true, NodeKind::Scalar { text, .. }) = (path.is_empty(), &node.kind)
            && is_web_page(text)
        {
            let message =
                "this is a web page (HTML): a page for an error or a login has come in place of the document";
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
            (Shape::Text { format: Some(format), .. }, NodeKind::List(items))
                if format.name == "kernel-arguments" =>
            {
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
            let message =
                format!("a blank is missing after the colon of `{key}`, so this is no key and its value");
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

/// The shape at a place, such as `os.users[].name`.
fn at<'s>(root: &'s Shape, place: &str) -> Option<&'s Shape> {
    place.split('.').try_fold(root, |shape, key| match key.strip_suffix("[]") {
        Some(key) => shape.at(key).and_then(Shape::item),
        None => shape.at(key),
    })
}

/// Whether a node is of the kind that the shape describes.
fn fits(shape: &Shape, node: &TreeNode) -> bool {
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
fn without_line_end(node: &TreeNode, shape: &Shape) -> Option<TreeNode> {
    let lines = match shape {
        Shape::Text { format, .. } => format.is_none_or(formats::has_lines),
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

/// The lines of a text as nodes of their own, without empty ones and comments, as sshd reads a file of keys.
fn lines(node: &TreeNode) -> Vec<TreeNode> {
    let NodeKind::Scalar { text, plain } = &node.kind else { return vec![node.clone()] };
    // A private key is one mistake, whatever its length.
    if text.contains("PRIVATE KEY") {
        return vec![node.clone()];
    }
    let lines: Vec<_> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    if lines.len() < 2 && !text.contains('\n') || lines.is_empty() {
        return vec![node.clone()];
    }
    let each = |line: &str| TreeNode {
        span: node.span,
        kind: NodeKind::Scalar { text: line.to_owned(), plain: *plain },
    };
    lines.into_iter().map(each).collect()
}

/// The list that a text with commas or blanks between its elements means.
fn listed(item: &Shape, text: &str) -> Option<String> {
    let Shape::Text { format: Some(format), secret: false } = item else { return None };
    let parts: Vec<_> =
        text.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty()).collect();
    // A line of chrony's or ntpd's configuration.
    if format.name == "time-server" && matches!(parts.first(), Some(&("server" | "pool" | "peer"))) {
        let is_parsed = (format.check)(parts.get(1)?).is_ok();
        return is_parsed.then(|| format!("[{}]", parts[1]));
    }
    let all = parts.len() > 1
        && (format.check)(text.trim()).is_err()
        && parts.iter().all(|part| (format.check)(part).is_ok());
    all.then(|| format!("[{}]", parts.join(", ")))
}

/// What a document may have in the place of one of several shapes.
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
    if keys.len() > KEYS_TOLD {
        return "a group of keys".to_owned();
    }
    format!("a group of keys ({})", keys.join(", "))
}

/// Whether a text is what a web server sends in place of a file.
fn is_web_page(text: &str) -> bool {
    let begin: String = text.trim_start().chars().take(14).collect::<String>().to_ascii_lowercase();
    ["<!doctype", "<html", "<head", "<?xml"].iter().any(|tag| begin.starts_with(tag))
}

/// The network mask of a prefix length, `24` or `/24`, or of `0xffffff00`.
fn mask(text: &str) -> Option<String> {
    let hexadecimal = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let bits =
        hexadecimal.filter(|bits| bits.leading_ones() + bits.trailing_zeros() == 32).or_else(|| {
            let length: u32 = text.trim_start_matches('/').parse().ok()?;
            (1..=32).contains(&length).then(|| u32::MAX << (32 - length))
        })?;
    Some(std::net::Ipv4Addr::from_bits(bits).to_string())
}

/// The key of `key:value`, in which YAML sees one word.
fn missing_blank(text: &str) -> Option<&str> {
    let (key, value) = text.split_once(':')?;
    (is_word(key) && !value.is_empty() && !value.starts_with([' ', '/'])).then_some(key)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_key(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

/// How well a shape suits a value: by its kind, by a form that can be taken for it, or not at all.
fn suits(shape: &Shape, node: &TreeNode) -> u8 {
    match (shape, &node.kind) {
        (Shape::Truth, NodeKind::Scalar { text, .. }) if truth(text).is_none() => 0,
        _ if fits(shape, node) => 2,
        (Shape::List(item), _) if is_word_of(item, node) => 1,
        _ => 0,
    }
}

/// Whether a single value can be the only element of a list.
fn is_word_of(item: &Shape, node: &TreeNode) -> bool {
    let single = matches!(item, Shape::Text { .. } | Shape::Choice { .. }) || item.is_card();
    single && matches!(node.kind, NodeKind::Scalar { .. }) && !node.is_nothing() && !node.is_empty_text()
}

/// Whether a key with this value says nothing.
fn is_left_out(shape: &Shape, node: &TreeNode) -> bool {
    match (node.is_nothing(), shape, &node.kind) {
        (true, ..) => !shape.is_group(),
        // What the reference product stores for a number that was not given.
        (false, Shape::Number { least: 1.., .. }, NodeKind::Scalar { text, .. }) if text == "0" => true,
        (false, ..) => node.is_empty_text() && !is_empty_allowed(shape),
    }
}

/// Whether empty text is a value of this shape.
fn is_empty_allowed(shape: &Shape) -> bool {
    match shape {
        Shape::Text { format, .. } => format.is_none_or(|format| (format.check)("").is_ok()),
        Shape::Choice { words, .. } => words.iter().any(String::is_empty),
        Shape::Either(shapes) => shapes.iter().any(is_empty_allowed),
        _ => false,
    }
}
