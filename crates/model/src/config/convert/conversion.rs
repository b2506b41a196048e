//! A document on its way: round after round until nothing changes, and the check at the end.

use super::change::{Change, ChangeKind};
use super::draft::{self, Comment, RenderedDraft};
use super::{stages, translate};
use crate::config::sources::{Document, SourceKind};
use crate::config::{kind, read};
use document::diagnostic::{Diagnostic, Invalid, Problem, Source};
use document::tree::{self, NodeKind, Tree};

/// More rounds than any document takes.
const ROUNDS: usize = 12;

/// A document of ours, and what became of the one that it was made from.
#[derive(Debug)]
pub struct ConvertedDocument {
    /// The document. It holds the secrets that the other one has.
    pub text: String,
    /// In the order in which they were made; none where the document is as it was.
    pub changes: Vec<Change>,
    /// The warnings of the reader about the new document.
    pub warnings: Vec<Diagnostic>,
}

/// Converts a document; `name` is what messages call it. A document that cannot be used even then comes back as its mistakes,
/// at the places that they have in `text`.
pub fn document(text: &str, name: &str) -> Result<ConvertedDocument, Invalid> {
    let mut conversion = Conversion::of(text);
    conversion.links().map_err(|problem| Source::unread(name, text).diagnose(vec![problem]))?;
    conversion.finish(name)
}

#[derive(Debug)]
pub(super) struct Conversion<'a> {
    source: &'a str,
    text: String,
    /// For each line the line of the source that it comes from.
    origins: Vec<usize>,
    changes: Vec<Change>,
}

impl<'a> Conversion<'a> {
    pub(super) fn of(source: &'a str) -> Self {
        let origins = (1..=source.lines().count()).collect();
        Self { source, text: source.to_owned(), origins, changes: Vec::new() }
    }

    /// Writes out what aliases stand for, which documents of ours do not have.
    fn links(&mut self) -> Result<(), Problem> {
        if !matches!(tree::read(&self.text), Err(problem) if problem.code == "yaml-unsupported") {
            return Ok(());
        }
        let tree = tree::read_linked(&self.text)?;
        let message = "what aliases stand for is written out: documents of ours have no anchors";
        let change =
            Change { kind: ChangeKind::Changed, line: 1, path: String::new(), message: message.to_owned() };
        let mut entries = translate::unchanged(&tree);
        if let Some(first) = entries.first_mut() {
            first.notes.push(format!("changed: {message}"));
        }
        let written = draft::write(&entries, comments(&tree, &self.text));
        self.take(written, vec![change]);
        Ok(())
    }

    /// Goes on with what a round has written.
    pub(super) fn take(&mut self, written: RenderedDraft, changes: Vec<Change>) {
        let origin = |line: usize| self.origins.get(line - 1).copied().unwrap_or(line);
        let changes: Vec<_> =
            changes.into_iter().map(|change| Change { line: origin(change.line), ..change }).collect();
        self.origins = written.origins.into_iter().map(origin).collect();
        self.changes.extend(changes);
        self.text = written.text;
    }

    /// Round after round until nothing changes, then the check.
    pub(super) fn finish(mut self, name: &str) -> Result<ConvertedDocument, Invalid> {
        for _ in 0..ROUNDS {
            let Ok(tree) = tree::read(&self.text) else { break };
            let Some(root) = &tree.root else { break };
            let of_ours = kind::fault(Some(root)).is_none();
            let NodeKind::Map(entries) = &root.kind else { break };
            let (entries, changes) = match stages::entries(entries) {
                Some(translated) => translated,
                None if of_ours => {
                    let document = Document::yaml(SourceKind::File, name, self.text.clone());
                    translate::round(root, &self.text, document)
                }
                None => break,
            };
            if changes.is_empty() {
                break;
            }
            let written = draft::write(&entries, comments(&tree, &self.text));
            self.take(written, changes);
        }
        if matches!(tree::read(&self.text), Ok(Tree { root: None, .. })) && !self.changes.is_empty() {
            let message = "nothing is left of the document: all that it says has no meaning here";
            let left = Diagnostic::of_file(name, "nothing-left", message);
            // The problem of a misplaced key names the places where it fits.
            let original = read::check(self.source, name).err().map(|invalid| invalid.0).unwrap_or_default();
            return Err(Invalid(std::iter::once(left).chain(original).collect()));
        }
        match read::check(&self.text, name) {
            Ok(accepted) => {
                Ok(ConvertedDocument { text: self.text, changes: self.changes, warnings: accepted.warnings })
            }
            Err(left) => Err(self.placed(left, name)),
        }
    }

    /// The mistakes that are left, as the reader tells them of the document that was converted, or else at the line there that
    /// they come from.
    fn placed(&self, left: Invalid, name: &str) -> Invalid {
        let original = match read::check(self.source, name) {
            Err(original) => original.0,
            Ok(_) => Vec::new(),
        };
        // A missing key may be in a group without any of our keys.
        let missing = left.0.iter().any(|diagnostic| diagnostic.code == "missing-value");
        let elsewhere: Vec<_> =
            original.iter().filter(|other| missing && other.code == "unknown-key").cloned().collect();
        let place = |diagnostic: Diagnostic| {
            let same = |other: &&Diagnostic| other.path == diagnostic.path && other.code == diagnostic.code;
            if let Some(original) = original.iter().find(same) {
                return original.clone();
            }
            let line = diagnostic.line.checked_sub(1).and_then(|line| self.origins.get(line));
            diagnostic.at_line(line.copied().unwrap_or_default())
        };
        let mut all: Vec<_> = left.0.into_iter().map(place).chain(elsewhere).collect();
        all.sort_by_key(|diagnostic| diagnostic.line);
        Invalid(all)
    }
}

/// The comments of a document in the order of their lines.
fn comments(tree: &Tree, text: &str) -> Vec<Comment> {
    let letters: Vec<char> = text.chars().collect();
    let mut comments: Vec<_> = tree
        .comments
        .iter()
        .map(|span| {
            let text: String = letters.get(span.range()).unwrap_or_default().iter().collect();
            let text = text.trim_end();
            let text = if text.starts_with('#') { text.to_owned() } else { format!("#{text}") };
            Comment { line: span.line, column: span.column - 1, text }
        })
        .collect();
    comments.sort_by_key(|comment| comment.line);
    comments
}
