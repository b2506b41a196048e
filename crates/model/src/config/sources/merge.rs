//! Values that know which source they came from, and how a stronger source changes a weaker one: it replaces
//! a value or a list, and it merges a group key by key.

use std::collections::BTreeMap;

use serde_json::Value;

use document::shape::join;

/// A value of a configuration in canonical spelling, with the number of the source that holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcedValue {
    /// The strongest source that says something here.
    pub source: usize,
    pub content: SourcedContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SourcedContent {
    /// A single value or a list: it has one source.
    Whole(Value),
    /// A group, whose keys may have several.
    Group {
        keys: BTreeMap<String, SourcedValue>,
        /// True if it has replaced something that was not a group, and so replaces what is weaker still. Without
        /// this the result would depend on which two of three sources are merged first.
        closed: bool,
    },
}

impl SourcedValue {
    #[must_use]
    pub fn of(value: &Value, source: usize) -> Self {
        let content = match value {
            Value::Object(map) => {
                let keys = map.iter().map(|(key, value)| (key.clone(), Self::of(value, source))).collect();
                SourcedContent::Group { keys, closed: false }
            }
            other => SourcedContent::Whole(other.clone()),
        };
        Self { source, content }
    }

    /// This piece changed by a `stronger` one.
    #[must_use]
    pub fn under(self, stronger: Self) -> Self {
        let Self { source, content } = stronger;
        let content = match (self.content, content) {
            (
                SourcedContent::Group { keys: mut merged, closed },
                SourcedContent::Group { keys, closed: false },
            ) => {
                for (key, piece) in keys {
                    let piece = match merged.remove(&key) {
                        Some(weaker) => weaker.under(piece),
                        None => piece,
                    };
                    merged.insert(key, piece);
                }
                SourcedContent::Group { keys: merged, closed }
            }
            (SourcedContent::Whole(_), SourcedContent::Group { keys, .. }) => {
                SourcedContent::Group { keys, closed: true }
            }
            (_, stronger) => stronger,
        };
        Self { source, content }
    }

    /// The same, its group at the dotted `path` replacing a weaker one as a whole. Nothing without such a group.
    #[must_use]
    pub fn closed_at(mut self, path: &str) -> Self {
        let found = path.split('.').try_fold(&mut self, |piece, key| match &mut piece.content {
            SourcedContent::Group { keys, .. } => keys.get_mut(key),
            SourcedContent::Whole(_) => None,
        });
        if let Some(Self { content: SourcedContent::Group { closed, .. }, .. }) = found {
            *closed = true;
        }
        self
    }

    #[must_use]
    pub fn value(&self) -> Value {
        match &self.content {
            SourcedContent::Whole(value) => value.clone(),
            SourcedContent::Group { keys, .. } => {
                Value::Object(keys.iter().map(|(key, piece)| (key.clone(), piece.value())).collect())
            }
        }
    }

    /// The source of what is at `path`, or of what is nearest above it, with the path of that.
    #[must_use]
    pub fn nearest<'p>(&self, path: &'p str) -> (usize, &'p str) {
        let (piece, found) = self.find(path);
        (piece.source, found)
    }

    /// True if it is a group that [`SourcedValue::nearest`] finds, which may have keys of several sources.
    #[must_use]
    pub fn is_group(&self, path: &str) -> bool {
        matches!(self.find(path).0.content, SourcedContent::Group { .. })
    }

    fn find<'p>(&self, path: &'p str) -> (&Self, &'p str) {
        let mut here = self;
        let mut from = 0;
        while let SourcedContent::Group { keys, .. } = &here.content {
            // Keys may have dots: the longest that fits is meant.
            let rest = path[from..].strip_prefix('.').unwrap_or(&path[from..]);
            let start = path.len() - rest.len();
            let ends = rest.match_indices(['.', '[']).map(|(end, _)| end).chain([rest.len()]);
            let known = ends.rev().find_map(|end| keys.get(&rest[..end]).map(|piece| (piece, end)));
            let Some((piece, end)) = known else { break };
            here = piece;
            from = start + end;
        }
        match here.content {
            // The elements of a list have the source of the list.
            SourcedContent::Whole(_) => (here, path),
            SourcedContent::Group { .. } => (here, &path[..from]),
        }
    }

    /// Every single value with its dotted path and its source; an empty list or group counts as one.
    #[must_use]
    pub fn leaves(&self) -> Vec<(String, usize, Value)> {
        let mut leaves = Vec::new();
        self.collect("", &mut leaves);
        leaves
    }

    fn collect(&self, path: &str, leaves: &mut Vec<(String, usize, Value)>) {
        match &self.content {
            SourcedContent::Whole(value) => single(value, path, self.source, leaves),
            SourcedContent::Group { keys, .. } => {
                for (key, piece) in keys {
                    piece.collect(&join(path, key), leaves);
                }
            }
        }
    }
}

fn single(value: &Value, path: &str, source: usize, leaves: &mut Vec<(String, usize, Value)>) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                single(item, &format!("{path}[{index}]"), source, leaves);
            }
        }
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                single(value, &join(path, key), source, leaves);
            }
        }
        other => leaves.push((path.to_owned(), source, other.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn merged(sources: &[Value]) -> SourcedValue {
        let mut pieces = sources.iter().enumerate().map(|(source, value)| SourcedValue::of(value, source));
        let first = pieces.next().unwrap();
        pieces.fold(first, SourcedValue::under)
    }

    #[test]
    fn a_stronger_source_replaces_values_and_lists_and_merges_groups() {
        let result = merged(&[
            json!({"os": {"name": "a", "list": [1, 2], "map": {"x": 1, "y": 1}}, "install": {"poweroff": true}}),
            json!({"os": {"list": [], "map": {"y": 2, "z": 2}}, "install": {"poweroff": false}}),
        ]);
        let expected = json!({
            "os": {"name": "a", "list": [], "map": {"x": 1, "y": 2, "z": 2}},
            "install": {"poweroff": false},
        });
        assert_eq!(result.value(), expected);
        let sources: Vec<_> = result.leaves().into_iter().map(|(path, source, _)| (path, source)).collect();
        let expected = [
            ("install.poweroff", 1),
            ("os.list", 1),
            ("os.map.x", 0),
            ("os.map.y", 1),
            ("os.map.z", 1),
            ("os.name", 0),
        ];
        assert_eq!(sources, expected.map(|(path, source)| (path.to_owned(), source)));
    }

    #[test]
    fn keys_with_dots_are_found_and_what_is_missing_is_placed_above() {
        let result = merged(&[
            json!({"sysctls": {"net.ipv4": "0", "net": "0"}, "list": [{"a": 1}]}),
            json!({"sysctls": {"net.ipv4.ip_forward": "1"}}),
        ]);
        assert_eq!(result.nearest("sysctls.net.ipv4.ip_forward"), (1, "sysctls.net.ipv4.ip_forward"));
        assert_eq!(result.nearest("sysctls.net.ipv4"), (0, "sysctls.net.ipv4"));
        assert_eq!(result.nearest("sysctls.vm"), (1, "sysctls"));
        assert_eq!(result.nearest("list[0].a"), (0, "list[0].a"));
        assert_eq!(result.nearest("absent.key"), (1, ""));
        let group = ["sysctls", "sysctls.vm", "absent.key", "sysctls.net", "list", "list[0]"];
        assert_eq!(group.map(|path| result.is_group(path)), [true, true, true, false, false, false]);
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0_u8..4).prop_map(Value::from),
            prop::collection::vec(0_u8..3, 0..3).prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 20, 3, |inner| {
            prop::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        });
        prop::collection::btree_map("[a-c]", value, 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn merging_is_associative(a in document(), b in document(), c in document()) {
            let [a, b, c] = [SourcedValue::of(&a, 0), SourcedValue::of(&b, 1), SourcedValue::of(&c, 2)];
            let left = a.clone().under(b.clone()).under(c.clone());
            prop_assert_eq!(left, a.under(b.under(c)));
        }

        #[test]
        fn the_strongest_source_always_has_its_way(a in document(), b in document()) {
            let result = SourcedValue::of(&a, 0).under(SourcedValue::of(&b, 1));
            for (path, _, value) in SourcedValue::of(&b, 1).leaves() {
                let empty = value.as_object().is_some_and(serde_json::Map::is_empty);
                let has = result.leaves().contains(&(path, 1, value));
                prop_assert!(has || empty);
            }
        }
    }
}
