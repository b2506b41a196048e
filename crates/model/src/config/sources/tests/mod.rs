//! The sources together.

mod documents;
mod gathering;
mod parameters;

use super::{Document, SourceKind, combine};
use crate::config::{Diagnostic, shape};

fn yaml(kind: SourceKind, text: &str) -> Document {
    Document::yaml(kind, kind.to_string(), text)
}

fn line(text: &str) -> Document {
    Document::command_line(text, shape::install_config())
}

/// Every mistake, or none.
fn mistakes(documents: &[Document]) -> Vec<Diagnostic> {
    combine(documents).err().map(|invalid| invalid.0).unwrap_or_default()
}

/// Document, column, code and path of every mistake.
fn rows(documents: &[Document]) -> Vec<(String, usize, &'static str, String)> {
    let row = |d: Diagnostic| (d.file, d.column, d.code, d.path);
    mistakes(documents).into_iter().map(row).collect()
}
