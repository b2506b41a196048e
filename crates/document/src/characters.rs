//! Characters that look like others or like nothing, as word processors, web pages and chat programs put them into text.

/// The first character of a text that is not what it looks like, named for a message with its number in Unicode; none
/// where all are as they look.
#[must_use]
pub(crate) fn unlike(text: &str) -> Option<String> {
    let (c, what) = text.chars().find_map(|c| Some((c, name(c)?)))?;
    let number = u32::from(c);
    Some(match is_seen(c) {
        true => format!("{what} ({c}, U+{number:04X})"),
        false => format!("{what} (U+{number:04X})"),
    })
}

/// The text as it was probably meant: without what is not seen, and with plain quotes, hyphens and blanks.
#[must_use]
pub(crate) fn plain(text: &str) -> String {
    let plain: String = text
        .chars()
        .filter_map(|c| match c {
            c if is_invisible(c) => None,
            c if is_blank(c) => Some(' '),
            c if is_dash(c) => Some('-'),
            c if is_quote(c) => Some('"'),
            c => Some(c),
        })
        .collect();
    // Quotes around the whole were meant for YAML.
    let inner = plain.trim().trim_matches('"');
    if inner.contains('"') { plain.trim().to_owned() } else { inner.to_owned() }
}

fn name(c: char) -> Option<&'static str> {
    match c {
        c if is_quote(c) => Some("a typographic quote"),
        c if is_dash(c) => Some("a dash instead of a hyphen"),
        c if is_blank(c) => Some("a no-break space"),
        c if is_invisible(c) => Some("an invisible character"),
        '…' => Some("an ellipsis"),
        // The letters of these scripts that look like Latin ones are in every confusables table (Unicode UTS 39).
        '\u{0370}'..='\u{03ff}' => Some("a Greek letter"),
        '\u{0400}'..='\u{052f}' => Some("a Cyrillic letter"),
        '\u{ff01}'..='\u{ff5e}' => Some("a full-width character"),
        _ => None,
    }
}

fn is_seen(c: char) -> bool {
    !is_invisible(c) && !is_blank(c)
}

fn is_quote(c: char) -> bool {
    matches!(c, '\u{2018}'..='\u{201f}' | '«' | '»' | '‹' | '›' | '″' | '′')
}

fn is_dash(c: char) -> bool {
    matches!(c, '\u{2010}'..='\u{2015}' | '\u{2212}')
}

fn is_blank(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_what_it_looks_like_is_named_and_made_plain() {
        for (text, named, meant) in [
            ("“node-1”", "a typographic quote (“, U+201C)", "node-1"),
            ("node\u{2013}1", "a dash instead of a hyphen (–, U+2013)", "node-1"),
            ("node-1\u{200b}", "an invisible character (U+200B)", "node-1"),
            ("\u{a0}node-1", "a no-break space (U+00A0)", "node-1"),
            ("n\u{43e}de-1", "a Cyrillic letter (о, U+043E)", "n\u{43e}de-1"),
        ] {
            assert_eq!((unlike(text).as_deref(), plain(text).as_str()), (Some(named), meant), "{text}");
        }
        for text in ["", "node-1", "über", "日本", "a \"b\""] {
            assert_eq!(unlike(text), None, "{text}");
        }
    }
}
