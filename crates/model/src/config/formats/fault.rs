//! The outcome of a check of one text. Every check of this folder gives it.

/// What is wrong with a text, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// A clause that continues "the value …".
    pub message: String,
    /// A text that the check would accept.
    pub suggestion: Option<String>,
    /// Whether the text holds something that must not be shown.
    pub sensitive: bool,
}

impl Fault {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggestion: None, sensitive: false }
    }

    /// Adds a text that the check would accept.
    #[must_use]
    pub fn suggest(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }
}

pub type FormatResult = Result<(), Fault>;

/// The fault of a text that is not `ok`.
pub(super) fn ensure(ok: bool, message: impl Into<String>) -> FormatResult {
    if ok { Ok(()) } else { Err(Fault::new(message)) }
}
