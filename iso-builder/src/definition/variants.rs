//! The variants of a definition: what differs between images that have all else in common, such as those of sites, roles or hardware.
//! Each is a part of a definition over the rest of the document, as a definition is over the one that it extends. Those of a
//! definition that is extended are not inherited.

use document::diagnostic::Problem;
use document::shape::join;
use document::span::Span;
use document::tree::{Key, NodeKind, TreeNode};
use model::architecture::Architecture;

use super::shape::{EXTENDS, VARIANTS};

/// The longest name, in characters: it is a part of file names.
const LENGTH_MAX: usize = 63;

/// A variant as it is written.
#[derive(Debug)]
pub(super) struct Variant {
    pub name: String,
    /// What differs.
    pub part: TreeNode,
}

/// The variants in a value of `variants`; none where it is left empty.
pub(super) fn listed(node: TreeNode, problems: &mut Vec<Problem>) -> Vec<Variant> {
    let noun = node.noun();
    let entries = match node.kind {
        _ if node.is_nothing() => return Vec::new(),
        NodeKind::Map(entries) => entries,
        _ => {
            let message = format!("expected names with what differs in each, found {noun}");
            problems.push(Problem::new(node.span, VARIANTS, "wrong-type", message));
            return Vec::new();
        }
    };
    if entries.is_empty() {
        let message = "the definition has no variant; name one, or leave the key out";
        problems.push(Problem::new(node.span, VARIANTS, "no-variant", message));
    }
    let mut variants: Vec<Variant> = Vec::new();
    for (key, part) in entries {
        let path = join(VARIANTS, &key.text);
        if let Some((code, message)) = refusal(&key.text, &variants) {
            problems.push(Problem::new(key.span, path, code, message));
            continue;
        }
        match part_of(part, &path, problems) {
            Ok(part) => variants.push(Variant { name: key.text, part }),
            Err(problem) => problems.push(problem),
        }
    }
    variants
}

/// What is wrong with the name of a variant beside these others.
fn refusal(name: &str, others: &[Variant]) -> Option<(&'static str, String)> {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if others.iter().any(|other| other.name == name) {
        Some(("repeated-key", format!("the variant `{name}` is there twice; remove one or rename it")))
    } else if name.is_empty() || name.len() > LENGTH_MAX || !name.chars().all(letter) || name.starts_with('-')
    {
        let message = format!(
            "the name of a variant may only have a-z, 0-9 and -, and {LENGTH_MAX} characters: its outputs go to a directory of this name"
        );
        Some(("invalid-variant", message))
    } else if Architecture::ALL.iter().any(|architecture| architecture.debian() == name) {
        let message =
            format!("`{name}` is the name of an architecture, whose outputs have a directory of this name");
        Some(("invalid-variant", message))
    } else {
        None
    }
}

/// The part of a variant, without the keys that only a whole definition can have.
fn part_of(mut part: TreeNode, path: &str, problems: &mut Vec<Problem>) -> Result<TreeNode, Problem> {
    if part.is_nothing() {
        part.kind = NodeKind::Map(Vec::new());
    }
    let noun = part.noun();
    let NodeKind::Map(entries) = &mut part.kind else {
        let message = format!("expected what differs in this variant, found {noun}");
        return Err(Problem::new(part.span, path, "wrong-type", message));
    };
    let mut whole_only = |key: &Key| {
        let is = [EXTENDS, VARIANTS].contains(&key.text.as_str());
        if is {
            let message =
                format!("a variant cannot have `{}`, which is a key of the whole definition", key.text);
            problems.push(Problem::new(key.span, join(path, &key.text), "superfluous-key", message));
        }
        is
    };
    entries.retain(|(key, _)| !whole_only(key));
    Ok(part)
}

/// The problems of a document whose variant is `name`, written at `place`: paths of what the variant itself has begin with its own.
pub(super) fn located(problems: Vec<Problem>, name: &str, place: Span) -> Vec<Problem> {
    let own = join(VARIANTS, name);
    let located = |problem: Problem| {
        let is_own = place.range().contains(&problem.span.start);
        let path = match (is_own, problem.path.is_empty()) {
            (true, false) => join(&own, &problem.path),
            (true, true) => own.clone(),
            (false, _) => problem.path,
        };
        Problem { path, ..problem }
    };
    problems.into_iter().map(located).collect()
}
