//! A change of a key of a converted document.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub kind: ChangeKind,
    /// The line of the document that was converted, from 1.
    pub line: usize,
    /// Dotted key.
    pub path: String,
    /// The change and its reason, without secrets.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// The key has another name or form with the same meaning.
    Changed,
    /// The key had no value, or asked for what happens anyway.
    Dropped,
    /// The key asked for something that is not supported.
    Lost,
}
