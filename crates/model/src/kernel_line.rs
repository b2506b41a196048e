//! The kernel command line as words, split as the kernel itself does (`next_arg` in `lib/cmdline.c`): blanks
//! separate, a `"` anywhere begins or ends a stretch in which they do not, and quotes around a whole word or
//! around its value are no part of it. There is no way to write a quote inside of quotes.
//!
//! Whoever passes words on needs them as they are written ([`split`]), or without quotes for GRUB, which has its own ([`unquoted`]);
//! whoever reads them needs key, value and their places ([`words`]).

use document::span::Span;

/// One word, `key` or `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The text before the first `=`.
    pub key: String,
    pub key_span: Span,
    /// The value and its place; none without a `=`.
    pub value: Option<(String, Span)>,
    /// The whole word with its quotes.
    pub span: Span,
}

/// The place of the characters `start..end` of a line.
pub fn place(start: usize, end: usize) -> Span {
    Span { start, end, line: 1, column: start + 1 }
}

/// The words of a line with their quotes.
pub fn split(line: &str) -> impl Iterator<Item = &str> {
    pieces(line).filter(|piece| !piece.is_empty())
}

/// The words of a line without any quotes.
#[must_use]
pub fn unquoted(line: &str) -> Vec<String> {
    split(line).map(|word| word.replace('"', "")).filter(|word| !word.is_empty()).collect()
}

/// The words of a line with their places.
#[must_use]
pub fn words(line: &str) -> Vec<Word> {
    let characters: Vec<char> = line.chars().collect();
    let mut start = 0;
    let mut words = Vec::new();
    for piece in pieces(line) {
        let end = start + piece.chars().count();
        if start < end {
            words.push(word(&characters, start, end));
        }
        start = end + 1;
    }
    words
}

/// What is between any two blanks, which may be nothing.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    line.split(move |c: char| {
        quoted ^= c == '"';
        c.is_ascii_whitespace() && !quoted
    })
}

fn word(line: &[char], start: usize, end: usize) -> Word {
    let quoted = line[start] == '"';
    let first = if quoted { start + 1 } else { start };
    let mut last = end;
    if quoted && last > first && line[last - 1] == '"' {
        last -= 1;
    }
    let text = |from: usize, to: usize| line[from..to.max(from)].iter().collect::<String>();
    let equals = line[first..last].iter().position(|c| *c == '=').map(|length| first + length);
    let value = equals.map(|equals| {
        let mut from = equals + 1;
        let mut to = last;
        if from < last && line[from] == '"' {
            from += 1;
            if to == end && to > from && line[to - 1] == '"' {
                to -= 1;
            }
        }
        (text(from, to), place(from, to.max(from)))
    });
    let key_end = equals.unwrap_or(last);
    Word { key: text(first, key_end), key_span: place(first, key_end), value, span: place(start, end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(line: &str) -> Vec<(String, Option<String>)> {
        words(line).into_iter().map(|word| (word.key, word.value.map(|(text, _)| text))).collect()
    }

    #[test]
    fn words_are_split_as_the_kernel_splits_them() {
        let pair = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
        for (line, expected) in [
            ("quiet", vec![("quiet".to_owned(), None)]),
            (" a=1\tb=2\n", vec![pair("a", "1"), pair("b", "2")]),
            ("a=\"x y\" b=1", vec![pair("a", "x y"), pair("b", "1")]),
            ("\"a=x y\" b=1", vec![pair("a", "x y"), pair("b", "1")]),
            ("a=x=y", vec![pair("a", "x=y")]),
            ("a= b=\"\"", vec![pair("a", ""), pair("b", "")]),
            ("a={\"k\":\"v w\"} b=1", vec![pair("a", "{\"k\":\"v w\"}"), pair("b", "1")]),
            ("a=x\"y z\" b", vec![pair("a", "x\"y z\""), ("b".to_owned(), None)]),
            ("a=\"never ends", vec![pair("a", "never ends")]),
            ("\"quiet\"", vec![("quiet".to_owned(), None)]),
            ("\"", vec![(String::new(), None)]),
        ] {
            assert_eq!(pairs(line), expected, "{line:?}");
        }
    }

    #[test]
    fn words_are_passed_on_with_quotes_and_without() {
        let line = "  a=1 \"b=two words\"\tc=\"x y\" \"\" ";
        assert_eq!(split(line).collect::<Vec<_>>(), ["a=1", "\"b=two words\"", "c=\"x y\"", "\"\""]);
        assert_eq!(unquoted(line), ["a=1", "b=two words", "c=x y"]);
    }

    #[test]
    fn places_are_those_of_the_text_without_its_quotes() {
        let found = words("ä \"k=v w\" x=\"y\"");
        assert_eq!(found[1].key_span, place(3, 4));
        assert_eq!(found[1].value.as_ref().unwrap().1, place(5, 8));
        assert_eq!(found[2].value.as_ref().unwrap().1, place(13, 14));
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_the_splitting_panic(line in "[a=\" \t\u{e9}]{0,40}") {
            let length = line.chars().count();
            for word in words(&line) {
                let value = word.value.map_or(0, |(_, span)| span.end);
                proptest::prop_assert!(word.span.end <= length && word.key_span.end.max(value) <= length);
            }
        }
    }
}
