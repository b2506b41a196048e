//! Findings of the rules about the typed value of a document.

use crate::diagnostic::Severity;

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finding {
    /// An error makes the document unusable.
    pub severity: Severity,
    /// The dotted key to underline; where the document does not have it, the nearest group above it is underlined.
    pub path: String,
    /// Stable name of this kind of mistake.
    pub code: &'static str,
    /// For people. Never holds a secret.
    pub message: String,
    pub suggestion: Option<String>,
}

impl Finding {
    pub fn new(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        let (path, message) = (path.into(), message.into());
        Self { severity: Severity::Error, path, code, message, suggestion: None }
    }

    pub fn warning(path: impl Into<String>, code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(path, code, message) }
    }

    pub fn suggest(self, suggestion: impl Into<String>) -> Self {
        Self { suggestion: Some(suggestion.into()), ..self }
    }
}
