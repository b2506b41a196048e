//! One source's document.

use std::ops::Range;

use serde_json::Value;

use super::{SourceKind, cmdline};
use crate::config::kind;
use document::diagnostic::{Invalid, Problem, Source};
use document::shape::Shape;
use document::span::Span;
use document::tree::{self, TreeNode};

/// The name of the kernel command line in diagnostics.
pub const COMMAND_LINE: &str = "kernel command line";

/// A document with the name that diagnostics give it.
#[derive(Debug)]
pub struct Document {
    kind: SourceKind,
    name: String,
    text: String,
    content: Result<DocumentContent, Problem>,
    refused: Vec<ForbiddenKey>,
    part: Option<DocumentPart>,
    in_use: bool,
}

/// A document that has some keys only, each of which it replaces as a whole.
#[derive(Debug)]
pub(super) struct DocumentPart {
    /// Their dotted paths.
    pub(super) keys: &'static [&'static str],
    /// The message about any other key.
    pub(super) message: &'static str,
}

impl DocumentPart {
    /// True if the key at `path` is one of the part, is in one of its keys, or holds one of them.
    pub(super) fn has(&self, path: &str) -> bool {
        let holds = |group: &str, path: &str| {
            path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        path.is_empty() || self.keys.iter().any(|key| holds(key, path) || holds(path, key))
    }
}

#[derive(Debug)]
pub(super) struct DocumentContent {
    pub(super) root: Option<TreeNode>,
    pub(super) comments: Vec<Span>,
    pub(super) problems: Vec<Problem>,
    pub(super) hidden: Vec<Range<usize>>,
}

/// A key that this source must not have.
#[derive(Debug)]
pub(super) struct ForbiddenKey {
    pub(super) path: &'static str,
    pub(super) code: &'static str,
    pub(super) message: &'static str,
}

impl Document {
    /// A YAML document. That it is none comes to light when it is checked.
    #[must_use]
    pub fn yaml(kind: SourceKind, name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let content = tree::read(&text).map(|tree| DocumentContent {
            root: tree.root,
            comments: tree.comments,
            problems: Vec::new(),
            hidden: Vec::new(),
        });
        Self { kind, name: name.into(), text, content, refused: Vec::new(), part: None, in_use: false }
    }

    /// The parameters of a kernel command line that are configuration of this `shape`.
    #[must_use]
    pub fn command_line(line: &str, shape: &Shape) -> Self {
        // A line is one line, whatever somebody has pasted.
        let text = line.trim_end().replace(['\n', '\r'], " ");
        let cmdline::Parameters { root, problems, hidden } = cmdline::parse(&text, shape);
        let content = Ok(DocumentContent { root, comments: Vec::new(), problems, hidden });
        let (kind, name) = (SourceKind::KernelParameters, COMMAND_LINE.to_owned());
        Self { kind, name, text, content, refused: Vec::new(), part: None, in_use: false }
    }

    /// The answers from the console: a part of a configuration with canonical keys.
    #[must_use]
    pub fn answers(answers: &Value) -> Self {
        Self::yaml(SourceKind::Console, "answers on the console", base::encode::yaml(answers))
    }

    /// Says that what the document chooses is in use already, so that a choice which a new install must not make is a
    /// warning.
    #[must_use]
    pub fn in_use(self) -> Self {
        Self { in_use: true, ..self }
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.in_use
    }

    /// Makes the key at `path` a mistake in this document.
    #[must_use]
    pub(super) fn refuse(mut self, path: &'static str, code: &'static str, message: &'static str) -> Self {
        self.refused.push(ForbiddenKey { path, code, message });
        self
    }

    /// Says that this document has only `keys`, dotted paths, and replaces each of them as a whole, also where it is a
    /// group; any other key is a mistake, of which `message` is said.
    #[must_use]
    pub fn part(mut self, keys: &'static [&'static str], message: &'static str) -> Self {
        self.part = Some(DocumentPart { keys, message });
        self
    }

    #[must_use]
    pub fn kind(&self) -> SourceKind {
        self.kind
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(&self.content, Ok(DocumentContent { root: None, problems, .. }) if problems.is_empty())
    }

    pub(super) fn content(&self) -> Result<&DocumentContent, &Problem> {
        self.content.as_ref()
    }

    pub(super) fn refused(&self) -> &[ForbiddenKey] {
        &self.refused
    }

    pub(super) fn only(&self) -> Option<&DocumentPart> {
        self.part.as_ref()
    }

    /// Refuses a document that says nothing, or that is of another kind.
    pub fn is_configuration(&self) -> Result<(), Invalid> {
        let fault = self.content.as_ref().ok().and_then(|content| kind::fault(content.root.as_ref()));
        fault.map_or(Ok(()), |problem| Err(self.source(Vec::new()).diagnose(vec![problem])))
    }

    /// The text, for excerpts, with what must not be shown of it.
    pub(super) fn source(&self, hidden: Vec<Range<usize>>) -> Source<'_> {
        match &self.content {
            Ok(content) => Source::new(&self.name, &self.text, hidden, &content.comments),
            Err(_) => Source::unread(&self.name, &self.text),
        }
    }
}
