//! A key that its group does not have: which key or which group was probably meant, and hiding of its value, which may be a
//! secret.

use std::collections::BTreeMap;

use super::values::{fits, is_number};
use super::{KEYS_SHOWN, ShapeCheck};
use crate::accepted_spellings::truth;
use crate::characters;
use crate::diagnostic::{LISTED, Problem, is_word};
use crate::nearest::nearest;
use crate::secret::is_secretive;
use crate::shape::{Shape, join, snake};
use crate::tree::{Key, NodeKind, TreeNode};

impl ShapeCheck {
    /// Reports a key that the group does not have.
    pub(super) fn unknown(
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
                    format!("this is not a key: it has {unlike}, which YAML treats as a letter")
                }
                None => "this is not a key".to_owned(),
            };
            self.problems.push(Problem::new(key.span, join(path, "?"), "unknown-key", message));
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
                // The key that was meant must not be reported as missing as well.
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
                // A key of the top level has no path to suggest.
                place.filter(|place| self.dialect.root().is_none() || place.contains('.'))
            }
            _ => None,
        };
        let problem = Problem::new(key.span, join(path, &key.text), "unknown-key", message);
        self.problems.push(problem.suggest(suggestion));
    }

    /// A clause that says where a key belongs. Findings about the missing key at that place would be echoes, so they are
    /// suppressed.
    fn belongs(&mut self, place: &str, node: &TreeNode) -> String {
        if let Some(shape) = self.dialect.root().and_then(|root| at(root, place))
            && !place.contains('[')
        {
            self.unusable.note(place, shape);
            self.places.entry(place.to_owned()).or_insert(node.span);
        }
        match place.rsplit_once('.') {
            Some((group, _)) => format!("; it belongs to `{group}`"),
            None if self.dialect.root().is_none() => String::new(),
            None => "; it belongs at the top level, without indentation".to_owned(),
        }
    }

    /// The only place of a single value of this name, whether the value is right for it or not.
    fn named_elsewhere(&self, key: &Key, node: &TreeNode) -> Option<String> {
        let root = self.dialect.root()?;
        let mut places = root.places(&snake(&key.text));
        let place = places.pop().filter(|_| places.is_empty())?;
        at(root, &place).is_some_and(|shape| fits(shape, node) && !shape.is_group()).then_some(place)
    }

    /// A clause with the keys that the group has, once for each group that has few.
    fn known(&self, shapes: &[(String, Shape)], path: &str) -> String {
        let is_told = self.problems.iter().any(|problem| {
            let group = problem.path.rsplit_once('.').map_or("", |(group, _)| group);
            problem.code == "unknown-key" && group == path
        });
        let keys: Vec<_> = shapes.iter().map(|(name, _)| name.as_str()).collect();
        match is_told || keys.is_empty() || keys.len() > KEYS_SHOWN {
            true => String::new(),
            false => format!("; its keys are {}", keys.join(", ")),
        }
    }

    /// A clause that says where the keys below an unknown group belong; empty if no place is known.
    fn misplaced(&self, node: &TreeNode, path: &str) -> String {
        let NodeKind::Map(entries) = &node.kind else { return String::new() };
        if self.dialect.root().is_none() || !path.is_empty() || self.problems.len() >= LISTED {
            return String::new();
        }
        let mut places: BTreeMap<String, Vec<&str>> = BTreeMap::new();
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

    /// The place in the document where a key of this name accepts this value.
    fn elsewhere(&self, key: &Key, node: &TreeNode) -> Option<String> {
        let name = snake(&key.text);
        let Some(root) = self.dialect.root() else { return self.dialect.place(&name) };
        let takes = |place: &String| at(root, place).is_some_and(|shape| self.would_take(node, shape));
        root.places(&name).into_iter().find(takes)
    }

    /// True if the value is right for the shape.
    fn would_take(&self, node: &TreeNode, shape: &Shape) -> bool {
        let mut walk = Self::new(self.dialect);
        (walk.value(node, shape, "").is_some() || node.is_nothing() && shape.is_group()) && walk.is_clean()
    }

    /// Hides the values below an unknown key, except those that cannot be secrets: truth values and, unless the key is
    /// `secretive`, small numbers.
    pub(super) fn hide_below(&mut self, node: &TreeNode, secretive: bool) {
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
}

/// The shape at a place, such as `os.users[].name`.
fn at<'s>(root: &'s Shape, place: &str) -> Option<&'s Shape> {
    place.split('.').try_fold(root, |shape, key| match key.strip_suffix("[]") {
        Some(key) => shape.at(key).and_then(Shape::item),
        None => shape.at(key),
    })
}
