//! The part of a file that a request gets (RFC 9110, sections 13 and 14): a pure function of the request's fields, the
//! file's length and its entity tag.

use hyper::header::{HeaderMap, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE};

/// A half-open range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSpan {
    pub start: u64,
    /// Exclusive.
    pub end: u64,
}

impl ByteSpan {
    #[must_use]
    pub fn length(self) -> u64 {
        self.end - self.start
    }
}

/// Which part of a file is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSelection {
    /// The whole file (200).
    Whole,
    /// A part of it (206).
    Part(ByteSpan),
    /// The file has no such part (416).
    Unsatisfiable,
    /// The client has the file (304).
    NotModified,
}

impl RangeSelection {
    /// The field `Content-Range` of the answer, where it has one, for a file of `length` bytes (RFC 9110, section 14.4).
    #[must_use]
    pub fn content_range(self, length: u64) -> Option<String> {
        match self {
            Self::Part(span) => Some(format!("bytes {}-{}/{length}", span.start, span.end - 1)),
            Self::Unsatisfiable => Some(format!("bytes */{length}")),
            Self::Whole | Self::NotModified => None,
        }
    }
}

/// The header fields of a request that decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct RangeFields<'a> {
    pub range: Option<&'a str>,
    pub if_range: Option<&'a str>,
    pub if_none_match: Option<&'a str>,
}

impl<'a> RangeFields<'a> {
    #[must_use]
    pub fn of(headers: &'a HeaderMap) -> Self {
        let field = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        Self { range: field(RANGE), if_range: field(IF_RANGE), if_none_match: field(IF_NONE_MATCH) }
    }
}

/// The part of a file of `length` bytes with the strong entity tag `tag` (with its quotes) to send. For several ranges the
/// whole file is sent, which RFC 9110 permits.
#[must_use]
pub fn select(fields: RangeFields<'_>, length: u64, tag: &str) -> RangeSelection {
    let same = |known: &str| known.trim().trim_start_matches("W/") == tag;
    let known = |list: &str| list.trim() == "*" || list.split(',').any(same);
    if fields.if_none_match.is_some_and(known) {
        return RangeSelection::NotModified;
    }
    // Dates and weak tags are not enough for parts (RFC 9110, section 13.1.5).
    let fits = fields.if_range.is_none_or(|known| known.trim() == tag);
    fields.range.filter(|_| fits).map_or(RangeSelection::Whole, |range| part(range, length))
}

/// A malformed `Range` is ignored.
fn part(range: &str, length: u64) -> RangeSelection {
    let Some(range) = range.trim().strip_prefix("bytes=").and_then(|set| set.trim().split_once('-')) else {
        return RangeSelection::Whole;
    };
    let (first, last) = (range.0.trim(), range.1.trim());
    let span = match (number(first), number(last)) {
        (Some(start), Some(last)) if start <= last => {
            ByteSpan { start, end: last.saturating_add(1).min(length) }
        }
        (Some(start), None) if last.is_empty() => ByteSpan { start, end: length },
        (None, Some(suffix)) if first.is_empty() => {
            ByteSpan { start: length.saturating_sub(suffix), end: length }
        }
        _ => return RangeSelection::Whole,
    };
    if span.start < span.end { RangeSelection::Part(span) } else { RangeSelection::Unsatisfiable }
}

/// Accepts decimal digits only. A number that is too large becomes the largest.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAG: &str = "\"abc\"";

    fn range(range: &str, length: u64) -> RangeSelection {
        select(RangeFields { range: Some(range), ..RangeFields::default() }, length, TAG)
    }

    #[test]
    fn each_form_of_a_range_gives_its_bytes() {
        let part = |start, end| RangeSelection::Part(ByteSpan { start, end });
        let none = RangeSelection::Unsatisfiable;
        let whole = RangeSelection::Whole;
        for (text, length, expected) in [
            ("bytes=0-0", 10, part(0, 1)),
            ("bytes=2-5", 10, part(2, 6)),
            ("bytes=2-", 10, part(2, 10)),
            ("bytes=-3", 10, part(7, 10)),
            ("bytes=-30", 10, part(0, 10)),
            ("bytes=9-99999999999999999999999", 10, part(9, 10)),
            (" bytes= 1 - 2 ", 10, part(1, 3)),
            ("bytes=10-", 10, none),
            ("bytes=10-12", 10, none),
            ("bytes=99999999999999999999999-", 10, none),
            ("bytes=-0", 10, none),
            ("bytes=0-", 0, none),
            ("bytes=-1", 0, none),
            ("bytes=5-2", 10, whole),
            ("bytes=0-1,4-5", 10, whole),
            ("bytes=", 10, whole),
            ("bytes=-", 10, whole),
            ("bytes=a-b", 10, whole),
            ("bytes=+1-2", 10, whole),
            ("bytes=1", 10, whole),
            ("lines=1-2", 10, whole),
            ("", 10, whole),
        ] {
            assert_eq!(range(text, length), expected, "{text:?} of {length}");
        }
    }

    #[test]
    fn a_part_is_sent_only_of_the_file_that_the_client_has_begun() {
        let part = RangeSelection::Part(ByteSpan { start: 2, end: 10 });
        for (if_range, expected) in [
            (TAG, part),
            ("\"other\"", RangeSelection::Whole),
            ("W/\"abc\"", RangeSelection::Whole),
            ("Tue, 14 Nov 2023 22:13:20 GMT", RangeSelection::Whole),
        ] {
            let fields =
                RangeFields { range: Some("bytes=2-"), if_range: Some(if_range), ..RangeFields::default() };
            assert_eq!(select(fields, 10, TAG), expected, "{if_range}");
        }
    }

    #[test]
    fn a_client_that_has_the_file_is_told_so() {
        for (known, expected) in [
            (TAG, RangeSelection::NotModified),
            ("W/\"abc\"", RangeSelection::NotModified),
            ("\"x\", \"abc\"", RangeSelection::NotModified),
            ("*", RangeSelection::NotModified),
            ("\"x\"", RangeSelection::Whole),
        ] {
            let fields = RangeFields { if_none_match: Some(known), ..RangeFields::default() };
            assert_eq!(select(fields, 10, TAG), expected, "{known}");
        }
    }

    proptest! {
        #[test]
        fn no_range_leaves_the_file(text in "(bytes=)?[0-9 ,-]{0,30}|\\PC*", length in 0..1000_u64) {
            if let RangeSelection::Part(span) = range(&text, length) {
                prop_assert!(span.start < span.end && span.end <= length);
            }
        }
    }
}
