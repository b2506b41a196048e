//! Recognizes findings of rules that are only echoes of other mistakes.
//!
//! A rule sees the typed configuration, in which a default stands where a value has a mistake. What it finds about that
//! place, or because of that default, is no mistake of the document: `mode: isntall` does not make `token` missing.
//! [`MistakePaths`] are the places with a mistake of their own. [`UnusableValues`] tries what may have been meant: a finding counts
//! only if the rules have it whatever that was. Install configurations and cluster files use both.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value};

use crate::diagnostic::{Problem, Severity};
use crate::finding::Finding;
use crate::shape::Shape;

/// How many other values are tried for all unusable ones together. With more of them the rules wait until the mistakes
/// are corrected: each try checks the whole document.
const TRIES: usize = 32;

#[derive(Debug, Default)]
pub struct MistakePaths(BTreeSet<String>);

impl MistakePaths {
    /// The places of those `problems` that are mistakes.
    pub fn of<'p>(problems: impl Iterator<Item = &'p Problem>) -> Self {
        let mistakes = problems.filter(|problem| problem.severity == Severity::Error);
        Self(mistakes.map(|problem| problem.path.clone()).collect())
    }

    /// True if there is a mistake at `path` or below it.
    pub fn within(&self, path: &str) -> bool {
        let below = |separator: char| {
            let start = format!("{path}{separator}");
            self.0.range(start.clone()..).next().is_some_and(|first| first.starts_with(&start))
        };
        self.0.contains(path) || below('.') || below('[')
    }
}

/// The values of a document that cannot be used.
#[derive(Debug, Default)]
pub struct UnusableValues {
    /// Those that could have been one of few, by their paths without the numbers of list elements.
    single: BTreeMap<String, UnusableValue>,
    /// The paths of groups and lists.
    groups: HashSet<String>,
}

/// Unusable values of one key, which is in one place, or in each element of a list.
#[derive(Debug)]
struct UnusableValue {
    /// The values that may have been meant.
    candidates: Vec<Value>,
    paths: Vec<String>,
}

impl UnusableValues {
    /// Notes that the document has no usable value at `path`, which is of this `shape`.
    pub fn note(&mut self, path: &str, shape: &Shape) {
        if shape.is_group() {
            self.groups.insert(path.to_owned());
            return;
        }
        let key = without_numbers(path);
        if let Some(single) = self.single.get_mut(&key) {
            return single.paths.push(path.to_owned());
        }
        let candidates = candidates(shape);
        if !candidates.is_empty() {
            self.single.insert(key, UnusableValue { candidates, paths: vec![path.to_owned()] });
        }
    }

    /// Notes that the document says in another way what the group at `path` is for.
    pub fn note_group(&mut self, path: String) {
        self.groups.insert(path);
    }

    /// True if `path` is a group that is unusable as a whole, or is in one.
    pub fn has_around(&self, path: &str) -> bool {
        let mut ends = path.match_indices(['.', '[']).map(|(end, _)| &path[..end]);
        self.groups.contains(path) || ends.any(|above| self.groups.contains(above))
    }
}

/// Those of the `findings` about the document `value` that the rules have whatever the `unusable` values were to be.
/// `judge` finds what the rules have about a document with another value in such a place; nothing where that is none.
pub fn undisputed(
    mut findings: Vec<Finding>,
    unusable: &[&UnusableValues],
    value: &Value,
    judge: impl Fn(Value) -> Option<Vec<Finding>>,
) -> Vec<Finding> {
    let all = || unusable.iter().flat_map(|unusable| unusable.single.values());
    if all().map(|single| single.candidates.len()).sum::<usize>() > TRIES {
        return Vec::new();
    }
    for single in all() {
        for candidate in &single.candidates {
            if findings.is_empty() {
                return findings;
            }
            let mut document = value.clone();
            let mut filled = false;
            for path in &single.paths {
                filled |= fill(&mut document, path, candidate);
            }
            if let Some(others) = filled.then(|| judge(document)).flatten() {
                let others: HashSet<_> = others.iter().map(|other| (&other.path, other.code)).collect();
                findings.retain(|finding| others.contains(&(&finding.path, finding.code)));
            }
        }
    }
    findings
}

/// A sample of a text without a format.
const ANY_TEXT: &str = "text";

/// The possible values of this shape: all if they are few, and otherwise the extremes.
fn candidates(shape: &Shape) -> Vec<Value> {
    match shape {
        Shape::Choice { words, .. } => words.iter().map(|word| Value::from(word.as_str())).collect(),
        Shape::Truth => vec![Value::from(false), Value::from(true)],
        Shape::Number { least, most } => vec![Value::from(*least), Value::from(*most)],
        Shape::Text { format, .. } => {
            let extremes = format.map(|format| format.extremes).unwrap_or_default();
            let is_any = extremes.is_empty() && format.is_none_or(|format| (format.check)(ANY_TEXT).is_ok());
            extremes.iter().copied().chain(is_any.then_some(ANY_TEXT)).map(Value::from).collect()
        }
        _ => Vec::new(),
    }
}

/// The path with `[]` for each element of a list.
fn without_numbers(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut inside = false;
    for c in path.chars() {
        inside &= c != ']';
        if !inside {
            text.push(c);
        }
        inside |= c == '[';
    }
    text
}

/// Puts `candidate` where `document` has nothing at `path`, and makes the groups around it. Not where a list around it is
/// missing, nor where another source has given a value.
fn fill(document: &mut Value, path: &str, candidate: &Value) -> bool {
    let (mut here, mut rest) = (document, path);
    loop {
        let (step, deeper) = rest.split_once('.').unwrap_or((rest, ""));
        let (key, numbers) = step.split_at(step.find('[').unwrap_or(step.len()));
        let Value::Object(map) = here else { return false };
        if !map.contains_key(key) && numbers.is_empty() {
            let value = if deeper.is_empty() { candidate.clone() } else { Value::Object(Map::new()) };
            map.insert(key.to_owned(), value);
            if deeper.is_empty() {
                return true;
            }
        }
        let numbers =
            numbers.split_terminator(']').map(|number| number.trim_start_matches('[').parse::<usize>());
        let inner = numbers.fold(map.get_mut(key), |list, number| list?.get_mut(number.ok()?));
        match inner {
            Some(inner) if !deeper.is_empty() => (here, rest) = (inner, deeper),
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mistake_is_within_its_own_place_and_those_around_it() {
        let at = |path: &str| Problem::new(crate::span::Span::default(), path, "code", "no");
        let problems = [at("install.mode"), at("os.users[2].name"), at("a-b")];
        let mistakes = MistakePaths::of(problems.iter());
        for path in ["install", "install.mode", "os", "os.users", "os.users[2]", "a-b"] {
            assert!(mistakes.within(path), "{path}");
        }
        for path in ["", "install.mod", "inst", "os.users[2].name.first", "os.users[1]", "a"] {
            assert!(!mistakes.within(path), "{path}");
        }
    }

    #[test]
    fn a_value_is_put_only_where_there_is_none() {
        let document = json!({"install": {"list": [{}, {"b": 1}]}, "os": 5});
        let filled = |path: &str| {
            let mut document = document.clone();
            fill(&mut document, path, &json!("x")).then_some(document)
        };
        let changed = json!({"install": {"list": [{"b": "x"}, {"b": 1}]}, "os": 5});
        assert_eq!(filled("install.list[0].b"), Some(changed));
        let changed = json!({"install": {"list": [{}, {"b": 1}], "new": {"b": "x"}}, "os": 5});
        assert_eq!(filled("install.new.b"), Some(changed));
        for path in ["install.list[1].b", "install.list[2].b", "install.others[0].b", "os.b", "os"] {
            assert_eq!(filled(path), None, "{path}");
        }
        assert_eq!(without_numbers("a[10].b[3].c"), "a[].b[].c");
    }
}
