//! What is wrong with a configuration, as people and programs read it: file, line, column, dotted path, a
//! stable code, a message, a suggestion, and the user's own line underlined.
//!
//! Secrets stay out: [`Source`] knows which stretches of the text must not be shown, and comments never are.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use super::tree::Span;

/// The widest excerpt, in characters.
const WIDTH: usize = 100;
/// What stands for hidden text.
pub(crate) const HIDDEN: &str = "[hidden]";

/// Whether a configuration can be used all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but somebody should know.
    Warning,
}

/// One mistake, before it is tied to a file.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Whether it is one.
    pub severity: Severity,
    /// Where it is.
    pub span: Span,
    /// Dotted key, such as `install.device`; empty for the document.
    pub path: String,
    /// Stable name of this kind of mistake.
    pub code: &'static str,
    /// For people. Never holds a secret.
    pub message: Box<str>,
    /// What to write instead.
    pub suggestion: Option<String>,
}

impl Problem {
    /// A mistake without a suggestion.
    pub fn new(span: Span, path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into().into_boxed_str());
        Self { severity: Severity::Error, span, path, code, message, suggestion: None }
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn suggest(mut self, suggestion: Option<impl Into<String>>) -> Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }
}

/// One mistake in one file. Serialises to the contract of `installer validate --format json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Whether it is an error or a warning.
    pub severity: Severity,
    /// The file, as the caller named it.
    pub file: String,
    /// From 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// From 1; 0 where the file as a whole is meant.
    pub column: usize,
    /// Dotted key.
    pub path: String,
    /// Stable name of this kind of mistake.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// What to write instead.
    pub suggestion: Option<String>,
    #[serde(skip)]
    excerpt: Option<Excerpt>,
}

/// A line of the source with the place to underline.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    offset: usize,
    length: usize,
}

impl Diagnostic {
    /// A mistake about a file as a whole, for instance one that cannot be read.
    pub fn of_file(file: &str, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            line: 0,
            column: 0,
            path: String::new(),
            code,
            message: message.into(),
            suggestion: None,
            excerpt: None,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        let kind = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(f, ": {kind}{} [{}]", self.message, self.code)?;
        if let Some(excerpt) = &self.excerpt {
            let number = self.line.to_string();
            let (gutter, blank) = (" ".repeat(number.len()), " ".repeat(excerpt.offset));
            write!(f, "\n  {number} | {}\n", excerpt.text)?;
            write!(f, "  {gutter} | {blank}{}", "^".repeat(excerpt.length.max(1)))?;
        }
        match &self.suggestion {
            Some(suggestion) => write!(f, "\n  try: {suggestion}"),
            None => Ok(()),
        }
    }
}

/// Every mistake of one document, in the order of its lines, and the warnings among them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", list(.0))]
pub struct Invalid(pub Vec<Diagnostic>);

impl Invalid {
    /// How many are mistakes, not warnings.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.0.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count()
    }
}

fn list(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The text of a document and what of it must not be shown.
#[derive(Debug)]
pub struct Source<'a> {
    name: &'a str,
    text: &'a str,
    secrets: Vec<Range<usize>>,
    comments: Vec<usize>,
    blind: bool,
}

impl<'a> Source<'a> {
    /// A document whose secrets are at `secrets`, in character offsets.
    pub fn new(name: &'a str, text: &'a str, secrets: Vec<Range<usize>>, comments: &[Span]) -> Self {
        let comments = comments.iter().map(|comment| comment.start).collect();
        Self { name, text, secrets, comments, blind: false }
    }

    /// A document that could not be read, so that nobody knows where its secrets are: no value is shown.
    pub fn unread(name: &'a str, text: &'a str) -> Self {
        Self { name, text, secrets: Vec::new(), comments: Vec::new(), blind: true }
    }

    /// Ties the problems to this document and sorts them.
    #[must_use]
    pub fn diagnose(&self, mut problems: Vec<Problem>) -> Invalid {
        problems.sort_by_key(|problem| problem.span.start);
        Invalid(problems.into_iter().map(|problem| self.tie(problem)).collect())
    }

    fn tie(&self, problem: Problem) -> Diagnostic {
        Diagnostic {
            severity: problem.severity,
            file: self.name.to_owned(),
            line: problem.span.line,
            column: problem.span.column,
            path: problem.path,
            code: problem.code,
            message: problem.message.into(),
            suggestion: problem.suggestion,
            excerpt: self.excerpt(problem.span),
        }
    }

    fn excerpt(&self, span: Span) -> Option<Excerpt> {
        let line = self.text.lines().nth(span.line.checked_sub(1)?)?;
        let column = span.column.saturating_sub(1);
        let start = span.start.saturating_sub(column);
        let length = line.chars().count();
        let from = column.min(length);
        let to = (span.end.saturating_sub(start)).clamp(from, length);
        let shown = if self.blind { blind(line) } else { self.mask(line, start) };
        let text: String = shown.iter().map(|(_, c)| *c).collect();
        // Where the shown text holds the first and past the last underlined character.
        let place = |column: usize| shown.iter().position(|(at, _)| *at >= column).unwrap_or(shown.len());
        let (offset, end) = (place(from), place(to));
        Some(clip(&text, offset, end - offset))
    }

    /// The characters to show, each with the column that it stands for.
    fn mask(&self, line: &str, start: usize) -> Vec<(usize, char)> {
        let mut shown = Vec::new();
        let mut hiding = false;
        for (column, c) in line.chars().enumerate() {
            let offset = start + column;
            if self.comments.contains(&offset) {
                break;
            }
            let secret = self.secrets.iter().any(|range| range.contains(&offset));
            if secret && !hiding {
                shown.extend(HIDDEN.chars().map(|c| (column, c)));
            } else if !secret {
                shown.push((column, printable(c)));
            }
            hiding = secret;
        }
        while shown.last().is_some_and(|(_, c)| *c == ' ') {
            shown.pop();
        }
        shown
    }
}

/// A line of a document that is not YAML: its key, and nothing that could be a value.
fn blind(line: &str) -> Vec<(usize, char)> {
    let key = match line.split_once(':') {
        Some((key, _)) if is_word(key.trim().trim_start_matches("- ")) => key.chars().count() + 1,
        _ => line.chars().take_while(|c| c.is_whitespace()).count(),
    };
    let mut shown: Vec<_> = line.chars().take(key).map(printable).enumerate().collect();
    if line.chars().skip(key).any(|c| !c.is_whitespace()) {
        if shown.last().is_some_and(|(_, c)| *c == ':') {
            shown.push((key, ' '));
        }
        shown.extend(HIDDEN.chars().map(|c| (key, c)));
    }
    shown
}

/// Whether text looks like a key and not like a value that has slipped into a key's place.
#[must_use]
pub fn is_word(text: &str) -> bool {
    (1..=40).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// Control characters would let a document steer the terminal.
fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

/// A window of [`WIDTH`] characters that holds the beginning of the underlined part.
fn clip(text: &str, offset: usize, length: usize) -> Excerpt {
    let total = text.chars().count();
    let first = if offset < WIDTH * 3 / 4 { 0 } else { offset - WIDTH / 4 };
    let window: String = text.chars().skip(first).take(WIDTH).collect();
    let (before, after) = (first > 0, first + WIDTH < total);
    let lead = if before { "… " } else { "" };
    let text = format!("{lead}{window}{}", if after { " …" } else { "" });
    let offset = offset - first;
    Excerpt { text, offset: offset + lead.chars().count(), length: length.min(WIDTH.saturating_sub(offset)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: usize, end: usize, line: usize, column: usize) -> Span {
        Span { start, end, line, column }
    }

    fn show(source: &Source<'_>, span: Span) -> String {
        source.diagnose(vec![Problem::new(span, "p", "code", "message")]).to_string()
    }

    #[test]
    fn the_line_is_shown_and_underlined() {
        let source = Source::new("f.yaml", "os:\n  mtu: nine\n", vec![], &[]);
        assert_eq!(
            show(&source, span(11, 15, 2, 8)),
            "f.yaml:2:8: message [code]\n  2 |   mtu: nine\n    |        ^^^^"
        );
    }

    #[test]
    fn hidden_text_keeps_the_underline_in_its_place() {
        let source = Source::new("f", "{token: hunter2, nam: x}", std::iter::once(8..15).collect(), &[]);
        assert_eq!(
            show(&source, span(17, 20, 1, 18)),
            "f:1:18: message [code]\n  1 | {token: [hidden], nam: x}\n    |                   ^^^"
        );
        assert_eq!(
            show(&source, span(8, 15, 1, 9)),
            "f:1:9: message [code]\n  1 | {token: [hidden], nam: x}\n    |         ^^^^^^^^"
        );
    }

    #[test]
    fn comments_are_not_shown() {
        let source = Source::new("f", "mtu: x # was hunter2", vec![], &[span(7, 20, 1, 8)]);
        assert!(!show(&source, span(5, 6, 1, 6)).contains("hunter2"));
    }

    #[test]
    fn an_unread_document_shows_keys_only() {
        for text in ["password: \"hunter2", "  hunter2", "{password: hunter2", "- hunter2: x"] {
            let shown = show(&Source::unread("f", text), span(3, 3, 1, 4));
            assert!(text.starts_with("- ") || !shown.contains("hunter2"), "{shown}");
        }
        let shown = show(&Source::unread("f", "os: [a"), span(6, 6, 1, 7));
        assert!(shown.contains("| os: [hidden]\n"), "{shown}");
    }

    #[test]
    fn long_lines_are_cut_around_the_underline() {
        let text = format!("{}here{}", "a".repeat(300), "b".repeat(300));
        let shown = show(&Source::new("f", &text, vec![], &[]), span(300, 304, 1, 301));
        let lines: Vec<_> = shown.lines().collect();
        let at = lines[2].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[1].chars().skip(at).take(4).collect::<String>(), "here");
        assert!(lines[1].chars().count() < 120);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let source = Source::new("f", "a: \u{1b}[31mred", vec![], &[]);
        assert!(!show(&source, span(3, 11, 1, 4)).contains('\u{1b}'));
    }
}
