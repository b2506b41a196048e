//! Mistakes in a document, as people and programs read them: file, line, column, dotted path, a
//! stable code, a message, a suggestion, and the user's own line underlined.
//!
//! Secrets stay out: [`Source`] knows which stretches of the text must not be shown, and comments never are.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::secret::is_secretive;
use crate::span::Span;
use base::failure::{Class, Failure};

/// The widest excerpt, in characters.
const WIDTH: usize = 100;
/// How far from the underlined place a line is looked at for its excerpt, in characters: enough to fill [`WIDTH`] on
/// either side, and no more of a document that is one long line.
const REACH: usize = 4 * WIDTH;
/// How many mistakes of one document are listed, and as many warnings; the rest is counted.
pub const LISTED: usize = 100;
/// The text that replaces hidden text.
pub const HIDDEN: &str = "[hidden]";

/// How serious a problem is: a document with warnings alone can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
}

/// One mistake, before it is tied to a file.
#[derive(Clone, Debug)]
pub struct Problem {
    pub severity: Severity,
    pub span: Span,
    /// Dotted key, such as `install.device`; empty for the document.
    pub path: String,
    /// Stable name of this kind of mistake.
    pub code: &'static str,
    /// For people. Never holds a secret.
    pub message: Box<str>,
    pub suggestion: Option<String>,
}

impl Problem {
    /// A mistake without a suggestion.
    pub fn new(span: Span, path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into().into_boxed_str());
        Self { severity: Severity::Error, span, path, code, message, suggestion: None }
    }

    /// A warning: the document can be used all the same.
    pub fn warning(
        span: Span,
        path: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::new(span, path, code, message) }
    }

    /// The problem of a value that its format accepts and its type refuses. That is a defect of the program, but the document
    /// must not be accepted.
    pub fn unusable(span: Span) -> Self {
        Self::new(span, "", "invalid-value", "the document has an unusable value")
    }

    #[must_use]
    pub fn suggest(mut self, suggestion: Option<impl Into<String>>) -> Self {
        self.suggestion = suggestion.map(Into::into);
        self
    }
}

/// One mistake in one file. Serialises to the contract of `installer validate --format json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
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
    pub message: String,
    pub suggestion: Option<String>,
    /// How many further mistakes or warnings this entry stands for, in the one that ends the list of a document with
    /// more than [`LISTED`] of them; absent in all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
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
            count: None,
            excerpt: None,
        }
    }

    /// The same about a line of another text, 0 for the text as a whole; what is shown of this one is left out.
    pub fn at_line(self, line: usize) -> Self {
        Self { line, column: usize::from(line > 0), excerpt: None, ..self }
    }

    /// The entry for `count` mistakes or warnings of a file that are not listed.
    fn unlisted(file: &str, severity: Severity, count: usize) -> Self {
        let (code, noun) = match severity {
            Severity::Error => ("more-mistakes", "mistake"),
            Severity::Warning => ("more-warnings", "warning"),
        };
        let plural = if count == 1 { "" } else { "s" };
        let message = format!("and {count} more {noun}{plural}");
        Self { severity, count: Some(count), ..Self::of_file(file, code, message) }
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
            Some(suggestion) if suggestion.contains('\n') => {
                write!(f, "\n  try:")?;
                suggestion.lines().try_for_each(|line| write!(f, "\n    {line}"))
            }
            Some(suggestion) => write!(f, "\n  try: {suggestion}"),
            None => Ok(()),
        }
    }
}

/// The mistakes of one document, in the order of its lines, and the warnings among them. Of more than [`LISTED`] the
/// last entry tells only how many more there are.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", list(.0))]
pub struct Invalid(pub Vec<Diagnostic>);

impl Invalid {
    /// How many are mistakes, not warnings, those included that are not listed.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.number(Severity::Error)
    }

    /// How many are warnings, those included that are not listed.
    #[must_use]
    pub fn warnings(&self) -> usize {
        self.number(Severity::Warning)
    }

    /// The failure of reading `what`, such as `the configuration a.yaml`; it tells all of them.
    #[must_use]
    pub fn failure(self, what: &str) -> Failure {
        let count = self.errors();
        let mistakes = if count == 1 { "a mistake".to_owned() } else { format!("{count} mistakes") };
        Failure::new(Class::Invalid, format!("{what} has {mistakes}\n{self}")).places(&self.0).because(self)
    }

    fn number(&self, severity: Severity) -> usize {
        let of = self.0.iter().filter(|diagnostic| diagnostic.severity == severity);
        of.map(|diagnostic| diagnostic.count.unwrap_or(1)).sum()
    }
}

fn list(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Ranges of character offsets, to be asked whether one of them has an offset.
#[derive(Debug, Default)]
pub struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// `ranges` in any order, overlapping or not.
    pub fn new(mut ranges: Vec<Range<usize>>) -> Self {
        ranges.sort_unstable_by_key(|range| range.start);
        let mut apart: Vec<Range<usize>> = Vec::new();
        for range in ranges {
            match apart.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => apart.push(range),
            }
        }
        Self(apart)
    }

    pub fn contains(&self, offset: usize) -> bool {
        let after = self.0.partition_point(|range| range.start <= offset);
        after.checked_sub(1).is_some_and(|at| self.0[at].contains(&offset))
    }
}

/// The text of a document and what of it must not be shown.
#[derive(Debug)]
pub struct Source<'a> {
    name: &'a str,
    text: &'a str,
    secrets: Ranges,
    /// Where comments begin, sorted.
    comments: Vec<usize>,
    blind: bool,
}

impl<'a> Source<'a> {
    /// A document whose secrets are at `secrets`, in character offsets.
    pub fn new(name: &'a str, text: &'a str, secrets: Vec<Range<usize>>, comments: &[Span]) -> Self {
        let mut comments: Vec<_> = comments.iter().map(|comment| comment.start).collect();
        comments.sort_unstable();
        Self { name, text, secrets: Ranges::new(secrets), comments, blind: false }
    }

    /// A document that could not be read, so that its secrets are not known: what could be one is not shown.
    pub fn unread(name: &'a str, text: &'a str) -> Self {
        Self { name, text, secrets: Ranges::default(), comments: Vec::new(), blind: true }
    }

    /// Ties the problems to this document and sorts them; lists the first [`LISTED`] mistakes and as many warnings, and
    /// counts the others.
    #[must_use]
    pub fn diagnose(&self, mut problems: Vec<Problem>) -> Invalid {
        // The scheme of the document comes first: it explains many of the others.
        problems.sort_by_key(|problem| (problem.code != "older-scheme", problem.span.start));
        let lines: Vec<_> = self.text.lines().collect();
        let (mut errors, mut warnings) = (0_usize, 0_usize);
        let mut listed = Vec::new();
        for problem in problems {
            let number = if problem.severity == Severity::Error { &mut errors } else { &mut warnings };
            *number += 1;
            if *number <= LISTED {
                listed.push(self.tie(problem, &lines));
            }
        }
        for (severity, number) in [(Severity::Error, errors), (Severity::Warning, warnings)] {
            if number > LISTED {
                listed.push(Diagnostic::unlisted(self.name, severity, number - LISTED));
            }
        }
        Invalid(listed)
    }

    fn tie(&self, problem: Problem, lines: &[&str]) -> Diagnostic {
        Diagnostic {
            severity: problem.severity,
            file: self.name.to_owned(),
            line: problem.span.line,
            column: problem.span.column,
            path: problem.path,
            code: problem.code,
            message: problem.message.into(),
            suggestion: problem.suggestion,
            count: None,
            excerpt: self.excerpt(problem.span, lines),
        }
    }

    fn excerpt(&self, span: Span, lines: &[&str]) -> Option<Excerpt> {
        let line = lines.get(span.line.checked_sub(1)?)?;
        let column = span.column.saturating_sub(1);
        let start = span.start.saturating_sub(column);
        let length = line.chars().count();
        let from = column.min(length);
        let to = (span.end.saturating_sub(start)).clamp(from, length);
        let window = from.saturating_sub(REACH)..length.min(from + REACH);
        let cut = (window.start > 0, length > window.end);
        let hidden = match self.blind {
            true => blind(lines, span.line - 1),
            false => None,
        };
        let shown = self.mask(line, start, window, hidden);
        let text: String = shown.iter().map(|(_, c)| *c).collect();
        // The underlined part of the shown text: everything that stands for an underlined character.
        let offset = shown.iter().position(|(columns, _)| columns.end > from).unwrap_or(shown.len());
        let underlined = shown.iter().skip(offset).take_while(|(columns, _)| columns.start < to);
        Some(clip(&text, offset, underlined.count(), cut))
    }

    /// The characters of the columns in `window` to show, each with the columns that it stands for. Nothing is shown
    /// from the column `blind` on.
    fn mask(
        &self,
        line: &str,
        start: usize,
        window: Range<usize>,
        blind: Option<usize>,
    ) -> Vec<(Range<usize>, char)> {
        let mut shown: Vec<(Range<usize>, char)> = Vec::new();
        // A comment is a secret to its end, also where the window begins inside it.
        let comments = self.comments.partition_point(|comment| *comment < start);
        let end = self.comments.get(comments).map_or(window.end, |comment| window.end.min(comment - start));
        let indentation = line.chars().take_while(|c| c.is_whitespace()).count();
        let mut hiding = None;
        for (column, c) in line.chars().enumerate().take(end).skip(window.start) {
            let secret = self.secrets.contains(start + column) || blind.is_some_and(|from| column >= from);
            match hiding {
                _ if !secret || column < indentation => {
                    shown.push((column..column + 1, printable(c)));
                    hiding = None;
                }
                // One `[hidden]` replaces the whole stretch.
                Some(first) => shown[first..].iter_mut().for_each(|(columns, _)| columns.end = column + 1),
                None => {
                    hiding = Some(shown.len());
                    shown.extend(HIDDEN.chars().map(|c| (column..column + 1, c)));
                }
            }
        }
        while shown.last().is_some_and(|(_, c)| *c == ' ') {
            shown.pop();
        }
        shown
    }
}

/// From which column on a line of a document that is not YAML must not be shown: what is behind a key whose value may be a
/// secret, behind a `#`, or, where the line has no key, all of it if the key above may have one.
fn blind(lines: &[&str], at: usize) -> Option<usize> {
    let line = lines[at];
    let key = |line: &str| -> Option<String> {
        let (key, _) = line.split_once(':')?;
        let key = key
            .trim_start_matches(|c: char| c.is_whitespace() || "-{[\"'".contains(c))
            .trim_end_matches(['"', '\'']);
        is_word(key).then(|| key.to_owned())
    };
    let depth = |line: &str| line.chars().take_while(|c| c.is_whitespace()).count();
    // The keys that the line is below, from the inside out, as far as indentation tells.
    let mut least = if key(line).is_some() { depth(line) } else { usize::MAX };
    for above in lines[..at].iter().rev().filter(|line| !line.trim().is_empty()) {
        if depth(above) >= least {
            continue;
        }
        let Some(name) = key(above) else { continue };
        if is_secretive(&name) {
            return Some(0);
        }
        least = depth(above);
        if least == 0 {
            break;
        }
    }
    let mut word = String::new();
    for (column, c) in line.chars().enumerate() {
        if c == '#' || c == '@' || c == ':' && is_secretive(&word) {
            // A URL with an `@` is hidden as a whole.
            let url = line.chars().position(|c| c == '/').filter(|_| c == '@');
            let value = || line.chars().skip(column + 1).take_while(|c| c.is_whitespace()).count();
            return Some(if c == ':' {
                column + 1 + value()
            } else {
                url.map_or(column, |url| column.min(url))
            });
        }
        match c.is_alphanumeric() || "_-.".contains(c) {
            true => word.push(c),
            false if c == '"' || c == '\'' => {}
            false => word.clear(),
        }
    }
    None
}

/// True if text looks like a key and not like a value that has slipped into a key's place.
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

/// A window of [`WIDTH`] characters that holds the beginning of the underlined part. `cut` tells whether the line has
/// more before and after `text`.
fn clip(text: &str, offset: usize, length: usize, cut: (bool, bool)) -> Excerpt {
    let total = text.chars().count();
    let first = if offset < WIDTH * 3 / 4 { 0 } else { offset - WIDTH / 4 };
    let window: String = text.chars().skip(first).take(WIDTH).collect();
    let (before, after) = (first > 0 || cut.0, first + WIDTH < total || cut.1);
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
    fn an_unread_document_shows_all_but_what_could_be_a_secret() {
        for text in [
            "password: \"hunter2",
            "{password: hunter2",
            "{ \"password\": hunter2",
            "- agentToken: hunter2",
            "a: x # hunter2",
            "a: http://me:hunter2@b/",
            "token: |\n  some\n  hunter2",
            "os:\n  write_files:\n  - content: |\n      a\n      pw: hunter2",
            "token:\n  hunter2",
            "system_settings:\n  a: b\n  c: hunter2",
        ] {
            let last = text.lines().count();
            let start = text.rfind('\n').map_or(0, |end| end + 1);
            let shown = show(&Source::unread("f", text), span(start + 3, start + 3, last, 4));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        for (text, column) in [("os: [a", 7), ("  mtu: nine}", 12)] {
            let shown = show(&Source::unread("f", text), span(column - 1, column - 1, 1, column));
            assert!(shown.contains(&format!("| {text}\n")), "{shown}");
        }
        let shown = show(&Source::unread("f", "token: [a, b"), span(11, 12, 1, 12));
        assert!(shown.ends_with("| token: [hidden]\n    |        ^^^^^^^^"), "{shown}");
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
    fn a_place_deep_in_a_long_line_is_shown_without_the_secrets_around_it() {
        let text = format!("{{token: {}, nam: x, k: {}}}", "s".repeat(5000), "b".repeat(5000));
        let at = text.find("nam").unwrap();
        let source = Source::new("f", &text, std::iter::once(8..5008).collect(), &[]);
        let shown = show(&source, span(at, at + 3, 1, at + 1));
        assert!(shown.contains("… [hidden], nam: x, k: bbb") && shown.contains(" …\n"), "{shown}");
        let lines: Vec<_> = shown.lines().collect();
        assert!(!lines[1].contains("ss"), "{shown}");
        assert_eq!(lines[2].find('^').unwrap(), lines[1].replace('…', ".").find("nam").unwrap());
    }

    #[test]
    fn ranges_know_their_offsets_whatever_their_order() {
        let ranges = Ranges::new(vec![20..30, 0..3, 2..5, 5..6, 40..40]);
        let inside: Vec<_> = (0..50).filter(|at| ranges.contains(*at)).collect();
        assert_eq!(inside, (0..6).chain(20..30).collect::<Vec<_>>());
    }

    #[test]
    fn more_than_a_hundred_mistakes_are_counted() {
        let text = "a\n".repeat(300);
        let problem =
            |line: usize| Problem::new(span(2 * line, 2 * line + 1, line + 1, 1), "p", "code", "no");
        let warning = |line| Problem { severity: Severity::Warning, ..problem(line) };
        let source = Source::new("f", &text, vec![], &[]);
        let found = source.diagnose((0..250).map(problem).chain((250..252).map(warning)).collect());
        assert_eq!((found.0.len(), found.errors(), found.warnings()), (103, 250, 2));
        assert!(found.to_string().ends_with("\nf: and 150 more mistakes [more-mistakes]"), "{found}");
        let json = serde_json::to_value(&found.0).unwrap();
        assert_eq!((&json[0]["count"], &json[102]["count"]), (&serde_json::Value::Null, &150.into()));
        assert_eq!(json[102]["line"], 0);
        assert_eq!(source.diagnose((0..100).map(problem).collect()).0.len(), 100);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let source = Source::new("f", "a: \u{1b}[31mred", vec![], &[]);
        assert!(!show(&source, span(3, 11, 1, 4)).contains('\u{1b}'));
    }
}
