//! Places in the text of a document.

use std::ops::Range;

use serde_saphyr::granit_parser::{Marker, Span as ParserSpan};

/// A stretch of the source, from its first character to one past its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first character, counted in characters.
    pub start: usize,
    /// Offset past the last character.
    pub end: usize,
    /// Line of the first character, from 1.
    pub line: usize,
    /// Column of the first character, from 1.
    pub column: usize,
}

impl Span {
    /// The place of `mark`, with no extent.
    pub(crate) fn at(mark: &Marker) -> Self {
        Self { start: mark.index(), end: mark.index(), line: mark.line(), column: mark.col() + 1 }
    }

    /// In characters.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// From the beginning of this span to the end of `other`.
    pub(crate) fn to(self, other: Self) -> Self {
        Self { end: other.end.max(self.end), ..self }
    }
}

impl From<ParserSpan> for Span {
    fn from(span: ParserSpan) -> Self {
        Self { end: span.end.index().max(span.start.index()), ..Self::at(&span.start) }
    }
}
