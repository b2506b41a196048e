//! What became of a key of a document that was converted.

use serde::Serialize;

/// What became of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub kind: ChangeKind,
    /// The line of the document that was converted, from 1.
    pub line: usize,
    /// Dotted key.
    pub path: String,
    /// What was done and why. Never holds a secret.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It says the same in other words.
    Changed,
    /// It said nothing, or what happens anyway.
    Dropped,
    /// It asked for something that there is not here.
    Lost,
}
