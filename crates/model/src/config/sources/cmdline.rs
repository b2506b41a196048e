//! Kernel parameters as a document: `nqrust.KEY=VALUE`, or `harvester.KEY=VALUE`, where `KEY` is the dotted
//! path of a configuration key.
//!
//! What they say becomes a tree with places in the line, which the ordinary walk then checks; only what no
//! tree can hold is found here. One wrong parameter never keeps another from being read.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::boot::parameter;
use crate::config::harvester::ALIASES;
use crate::kernel_line::{Word, place, words};
use document::accepted_spellings::{self, truth};
use document::diagnostic::{Problem, is_word};
use document::shape::{Shape, join};
use document::span::Span;
use document::tree::{self, Key, NodeKind, TreeNode};

/// The prefixes of parameters that are configuration.
pub(in crate::config) const PREFIXES: [&str; 2] = ["nqrust.", "harvester."];

/// Parameters with such a prefix that switch something in the product that this one succeeds, and are no configuration.
pub(in crate::config) const SWITCHES: [&str; 2] = ["harvester.installer.disable", "harvester.serve_iso"];

/// More elements than any list of a command line has.
const MOST: usize = 256;

/// The configuration of a command line.
#[derive(Debug, Default)]
pub struct Parameters {
    /// The document; none where no parameter is configuration.
    pub root: Option<TreeNode>,
    /// Mistakes that the walk cannot find.
    pub problems: Vec<Problem>,
    /// Character offsets that must not be shown: parameters of other programs, and values of unknown keys.
    pub hidden: Vec<Range<usize>>,
}

/// Reads the parameters of `line` that are configuration of this `shape`.
#[must_use]
pub fn parse(line: &str, shape: &Shape) -> Parameters {
    let mut reader = Reader::default();
    let mut root = Branch::new(BranchContent::Group(Vec::new()), Span::default(), "");
    let letters: Vec<char> = line.chars().collect();
    let mut shown = 0;
    for word in words(line) {
        let prefix = PREFIXES.into_iter().find(|prefix| word.key.starts_with(prefix));
        let Some(prefix) = prefix.filter(|_| {
            !(parameter::ALL.contains(&word.key.as_str()) || SWITCHES.contains(&word.key.as_str()))
        }) else {
            continue;
        };
        reader.hide(&letters, shown, word.span.start);
        shown = word.span.end;
        reader.parameter(&word, prefix, shape, &mut root);
    }
    reader.hide(&letters, shown, letters.len());
    let empty = matches!(&root.content, BranchContent::Group(entries) if entries.is_empty());
    let root = if empty { None } else { Some(reader.node(root, shape)) };
    Parameters { root, ..reader.found }
}

#[derive(Clone, Debug)]
enum Step {
    Key(String, Span),
    Index(usize),
}

/// A part of the document that is being gathered.
struct Branch {
    content: BranchContent,
    /// The first place that mentions it.
    span: Span,
    path: String,
}

enum BranchContent {
    Group(Vec<(Key, Branch)>),
    Items(BTreeMap<usize, Branch>),
    Values(Vec<ParameterValue>),
}

struct ParameterValue {
    prefix: &'static str,
    spelling: String,
    node: TreeNode,
    /// True if the parameter has a value; a bare key means `true`.
    written: bool,
}

impl Branch {
    fn new(content: BranchContent, span: Span, path: &str) -> Self {
        Self { content, span, path: path.to_owned() }
    }
}

#[derive(Default)]
struct Reader {
    found: Parameters,
}

impl Reader {
    fn note(&mut self, span: Span, path: &str, code: &'static str, message: impl Into<String>) {
        self.found.problems.push(Problem::new(span, path, code, message));
    }

    /// Hides what others have between two of our parameters; the blanks around it stay.
    fn hide(&mut self, line: &[char], from: usize, to: usize) {
        let shown = |c: &char| !c.is_ascii_whitespace();
        let first = line[from..to].iter().position(shown).map(|at| from + at);
        let last = line[from..to].iter().rposition(shown).map(|at| from + at + 1);
        self.found.hidden.extend(first.zip(last).map(|(first, last)| first..last));
    }

    fn parameter(&mut self, word: &Word, prefix: &'static str, shape: &Shape, root: &mut Branch) {
        let text = &word.key[prefix.len()..];
        let start = word.key_span.start + prefix.len();
        let value = word.value.clone();
        let hide = value.as_ref().map(|(_, span)| span.range());
        let said = value.as_ref().map_or("true", |(text, _)| text);
        let (steps, shape) = match steps(text, start, shape, said) {
            Ok(found) => found,
            Err(message) => {
                self.found.hidden.extend(hide);
                // A value that has slipped into the place of a key could be a secret.
                if !text.chars().all(|c| c.is_ascii_alphanumeric() || "._-[]".contains(c)) {
                    self.found.hidden.push(word.key_span.range());
                }
                let path = if text.split('.').all(is_word) { text } else { "?" };
                return self.note(word.key_span, path, "invalid-parameter", message);
            }
        };
        if shape.is_none() {
            self.found.hidden.extend(hide.clone());
        }
        let (text_of, span) = value.clone().unwrap_or_else(|| ("true".to_owned(), word.key_span));
        // A text is what was typed; only where a number or a truth value is asked for can it be another kind.
        let is_texts = |shape: &Shape| choices(shape).iter().any(is_text);
        let item = shape.and_then(element).filter(|_| !text_of.is_empty());
        let texts = shape.is_some_and(is_texts) || item.is_some_and(is_texts);
        let node = TreeNode { span, kind: NodeKind::Scalar { text: text_of, plain: !texts } };
        let given = ParameterValue { prefix, spelling: text.to_owned(), node, written: value.is_some() };
        let repeats = shape.is_some_and(|shape| choices(shape).iter().any(is_list));
        if let Err((path, code, message)) = insert(root, &steps, given, repeats) {
            self.found.hidden.extend(hide);
            self.note(word.key_span, &path, code, message);
        }
    }

    /// The branch as a node of the document.
    fn node(&mut self, branch: Branch, shape: &Shape) -> TreeNode {
        let Branch { content, span, path } = branch;
        let kind = match content {
            BranchContent::Group(entries) => NodeKind::Map(
                entries
                    .into_iter()
                    .map(|(key, branch)| {
                        let below = below_or_item(shape, &key.text).unwrap_or(&Shape::Truth);
                        let node = self.node(branch, below);
                        (key, node)
                    })
                    .collect(),
            ),
            BranchContent::Items(items) => {
                if items.keys().enumerate().any(|(place, index)| place != *index) {
                    let message = "list elements must be numbered from 0 without gaps";
                    self.note(span, &path, "missing-index", message);
                }
                let item = element(shape).unwrap_or(&Shape::Truth);
                NodeKind::List(items.into_values().map(|branch| self.node(branch, item)).collect())
            }
            BranchContent::Values(values) => return self.values(values, shape, &path),
        };
        TreeNode { span, kind }
    }

    fn values(&mut self, mut values: Vec<ParameterValue>, shape: &Shape, path: &str) -> TreeNode {
        let alone = values.len() == 1 && flow(&values[0]).is_some_and(|open| wants(shape, open));
        let Some(item) = element(shape).filter(|_| !alone) else {
            // Further values of a key that is no list have been refused.
            let first = values.swap_remove(0);
            return self.value(first, shape, path);
        };
        let span = values.first().map(|given| given.node.span).unwrap_or_default();
        let items = values.into_iter().map(|given| self.value(given, item, path));
        TreeNode { span, kind: NodeKind::List(items.collect()) }
    }

    /// One value; text in brackets is YAML where the shape wants what brackets hold.
    fn value(&mut self, given: ParameterValue, shape: &Shape, path: &str) -> TreeNode {
        let NodeKind::Scalar { text, .. } = &given.node.kind else { return given.node };
        let span = given.node.span;
        if !flow(&given).is_some_and(|open| wants(shape, open)) {
            return given.node;
        }
        match tree::read(text) {
            Ok(tree) => tree.root.map_or(given.node, |mut root| {
                shift(&mut root, span.start);
                root
            }),
            Err(mut problem) => {
                problem.span = place(span.start + problem.span.start, span.end);
                problem.path = path.to_owned();
                self.found.problems.push(problem);
                self.found.hidden.push(span.range());
                // An empty document of the kind that is asked for: one mistake is told once.
                let kind = if text.starts_with('[') { NodeKind::List(vec![]) } else { NodeKind::Map(vec![]) };
                TreeNode { span, kind }
            }
        }
    }
}

/// The steps of a dotted path, with the shape at its end if the document has such a key.
fn steps<'s>(
    text: &str,
    start: usize,
    root: &'s Shape,
    value: &str,
) -> Result<(Vec<Step>, Option<&'s Shape>), &'static str> {
    let mut steps = Vec::new();
    let mut shape = Some(root);
    let mut rest = text;
    loop {
        let offset = start + text[..text.len() - rest.len()].chars().count();
        // Keys of a dictionary may have dots; those of groups in a dictionary have none.
        let whole = shape.is_some_and(|shape| {
            choices(shape).iter().any(|shape| match shape {
                Shape::Dictionary { values, .. } => !choices(values).iter().any(is_group),
                _ => false,
            })
        });
        let (part, tail) = match rest.split_once('.') {
            Some((part, tail)) if !whole => (part, Some(tail)),
            _ => (rest, None),
        };
        let (name, indices) = indices(part)?;
        if name.is_empty() {
            return Err("the path of the parameter has an empty part");
        }
        let given = (tail.is_none() && indices.is_empty()).then_some(value);
        let key = shape.and_then(|shape| named(shape, name, given));
        let span = place(offset, offset + name.chars().count());
        let canonical = key.map_or(name, |(canonical, _)| canonical);
        shape = key.map(|(_, shape)| shape).or_else(|| shape.and_then(|shape| below_or_item(shape, name)));
        steps.push(Step::Key(canonical.to_owned(), span));
        for index in indices {
            shape = shape.and_then(element);
            steps.push(Step::Index(index));
        }
        match tail {
            Some(tail) => rest = tail,
            None => return Ok((steps, shape)),
        }
    }
}

/// `name[0][1]` as the name and the numbers.
fn indices(part: &str) -> Result<(&str, Vec<usize>), &'static str> {
    let Some((name, rest)) = part.split_once('[').filter(|_| part.ends_with(']')) else {
        return Ok((part, Vec::new()));
    };
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|index| digits && *index < MOST)
    };
    let numbers = rest[..rest.len() - 1].split("][").map(number).collect::<Option<Vec<_>>>();
    numbers.map(|numbers| (name, numbers)).ok_or("the place in a list is not a number from 0 to 255")
}

type Refusal = (String, &'static str, String);

fn insert(branch: &mut Branch, steps: &[Step], given: ParameterValue, repeats: bool) -> Result<(), Refusal> {
    let path = branch.path.clone();
    let clash = || {
        let message = "another parameter gives this key a value of another kind";
        (path.clone(), "conflicting-parameter", message.to_owned())
    };
    let Some((step, rest)) = steps.split_first() else {
        let BranchContent::Values(values) = &mut branch.content else { return Err(clash()) };
        if let Some(first) = values.first() {
            again(first, &given, repeats).map_err(|(code, message)| (path, code, message.to_owned()))?;
        }
        values.push(given);
        return Ok(());
    };
    let kind = match rest.first() {
        None => BranchContent::Values(Vec::new()),
        Some(Step::Key(..)) => BranchContent::Group(Vec::new()),
        Some(Step::Index(_)) => BranchContent::Items(BTreeMap::new()),
    };
    let next = match (step, &mut branch.content) {
        (Step::Key(name, span), BranchContent::Group(entries)) => {
            let known = entries.iter().position(|(key, _)| key.text == *name);
            let index = known.unwrap_or_else(|| {
                let below = join(&path, if is_word(name) || name.contains('/') { name } else { "?" });
                let key = Key { text: name.clone(), span: *span };
                entries.push((key, Branch::new(kind, *span, &below)));
                entries.len() - 1
            });
            &mut entries[index].1
        }
        (Step::Index(index), BranchContent::Items(items)) => {
            let span = given.node.span;
            items.entry(*index).or_insert_with(|| Branch::new(kind, span, &format!("{path}[{index}]")))
        }
        _ => return Err(clash()),
    };
    insert(next, rest, given, repeats)
}

/// Checks that a key may be given again.
fn again(
    first: &ParameterValue,
    given: &ParameterValue,
    repeats: bool,
) -> Result<(), (&'static str, &'static str)> {
    if first.prefix != given.prefix {
        Err(("both-prefixes", "the parameter is given with `nqrust.` and with `harvester.`; keep one"))
    } else if first.spelling != given.spelling {
        Err(("both-spellings", "another parameter has the same key in another spelling; keep one"))
    } else if !repeats {
        Err(("duplicate-key", "duplicate parameter; only lists can be repeated"))
    } else {
        Ok(())
    }
}

pub(super) fn choices(shape: &Shape) -> &[Shape] {
    match shape {
        Shape::Either(shapes) => shapes,
        single => std::slice::from_ref(single),
    }
}

pub(super) fn is_text(shape: &Shape) -> bool {
    matches!(shape, Shape::Text { .. } | Shape::Choice { .. })
}

pub(super) fn is_list(shape: &Shape) -> bool {
    matches!(shape, Shape::List(_))
}

fn is_group(shape: &Shape) -> bool {
    matches!(shape, Shape::Record(..) | Shape::Dictionary { .. })
}

/// The shape of a list's elements.
pub(super) fn element(shape: &Shape) -> Option<&Shape> {
    choices(shape).iter().find_map(|shape| match shape {
        Shape::List(item) => Some(&**item),
        _ => None,
    })
}

/// The shape below a key, which has its canonical spelling.
pub(super) fn below<'s>(shape: &'s Shape, key: &str) -> Option<&'s Shape> {
    choices(shape).iter().find_map(|shape| shape.at(key))
}

/// The same; in a list the shape of its elements, for older schemes name the elements of one.
pub(in crate::config) fn below_or_item<'s>(shape: &'s Shape, key: &str) -> Option<&'s Shape> {
    below(shape, key).or_else(|| element(shape).filter(|item| is_group(item)))
}

/// The key of a group that `text` names in whatever spelling, where `value` is given to it; none for a key further in.
fn named<'s>(shape: &'s Shape, text: &str, value: Option<&str>) -> Option<&'s (String, Shape)> {
    let suits = |shape: &Shape| match value {
        Some(value) => u8::from(matches!(shape, Shape::Truth) == truth(value).is_some()),
        None => u8::from(!matches!(shape, Shape::Truth)),
    };
    choices(shape).iter().find_map(|shape| match shape {
        Shape::Record(keys, _) => accepted_spellings::find(keys, text, ALIASES, suits),
        _ => None,
    })
}

/// The bracket that text begins with, if it ends with its partner.
pub(super) fn bracket(text: &str) -> Option<char> {
    let ends = |open, close| text.starts_with(open) && text.ends_with(close);
    [('[', ']'), ('{', '}')].into_iter().find(|(open, close)| ends(*open, *close)).map(|(open, _)| open)
}

fn flow(given: &ParameterValue) -> Option<char> {
    match &given.node.kind {
        NodeKind::Scalar { text, .. } if given.written => bracket(text),
        _ => None,
    }
}

/// True if the shape has a place for what such brackets hold.
pub(super) fn wants(shape: &Shape, open: char) -> bool {
    choices(shape).iter().any(|shape| if open == '[' { is_list(shape) } else { is_group(shape) })
}

/// Moves a node of a document of its own to its place in the line.
fn shift(node: &mut TreeNode, by: usize) {
    let moved = |span: Span| place(span.start + by, span.end + by);
    node.span = moved(node.span);
    match &mut node.kind {
        NodeKind::Scalar { .. } => {}
        NodeKind::List(items) => items.iter_mut().for_each(|item| shift(item, by)),
        NodeKind::Map(entries) => entries.iter_mut().for_each(|(key, node)| {
            key.span = moved(key.span);
            shift(node, by);
        }),
    }
}
