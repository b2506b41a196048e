//! Checks of single texts. A check sees one text and says what is wrong with it, without repeating it: the user's line is
//! shown underlined, and the text may be a secret.

/// Divides a text into the elements of a list; none if it is no list.
pub type SplitElements = fn(&str) -> Option<Vec<&str>>;

/// A named check of texts, and the forms that these texts may have in documents.
#[derive(Debug)]
pub struct Format {
    /// The `format` of the JSON Schema.
    pub name: &'static str,
    /// The stable code of a diagnostic.
    pub code: &'static str,
    pub check: fn(&str) -> FormatResult,
    /// True if texts may have several lines.
    pub has_lines: bool,
    /// True if a text is words, which a list may have one by one.
    pub has_words: bool,
    /// For a key that has a default which rules judge: texts between which every other one lies, to find out what follows
    /// from the default alone.
    pub extremes: &'static [&'static str],
    /// The first words of lines whose second word is the text, as configuration files of other programs have it.
    pub directives: &'static [&'static str],
    /// The canonical spelling, for names of keys that have several.
    pub canonical: Option<fn(&str) -> Option<String>>,
    /// The elements of a list that one text holds; `None` if it is one element.
    pub elements: Option<SplitElements>,
}

impl Format {
    pub const fn new(name: &'static str, code: &'static str, check: fn(&str) -> FormatResult) -> Self {
        Self {
            name,
            code,
            check,
            has_lines: false,
            has_words: false,
            extremes: &[],
            directives: &[],
            canonical: None,
            elements: None,
        }
    }
}

/// The mistake in a text, and the text to write instead.
#[derive(Debug, PartialEq, Eq)]
pub struct FormatFault {
    /// A clause that continues "the value …".
    pub message: String,
    /// A text that the check would accept.
    pub suggestion: Option<String>,
    /// True if the text holds something that must not be shown.
    pub sensitive: bool,
}

impl FormatFault {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), suggestion: None, sensitive: false }
    }

    /// Adds a text that the check would accept.
    #[must_use]
    pub fn suggest(self, suggestion: Option<String>) -> Self {
        Self { suggestion, ..self }
    }
}

pub type FormatResult = Result<(), FormatFault>;

pub fn ensure(ok: bool, message: impl Into<String>) -> FormatResult {
    if ok { Ok(()) } else { Err(FormatFault::new(message)) }
}
