//! Words for people that several commands print.

use std::fmt::Write as _;

/// Text of a medium, for printing: what would steer a terminal is spelt out.
pub(crate) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            let _ = write!(clean, "{}", character.escape_default());
        } else {
            clean.push(character);
        }
    }
    clean
}

/// A number of things in words.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
