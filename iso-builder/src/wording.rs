//! Wording that several commands share.

use std::fmt::Write as _;

/// Text of a medium, for printing: control characters, which would steer a terminal, are written as escapes.
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

/// Names in a sentence: `a`, `a and b`, `a, b and c`.
pub(crate) fn enumerated<T: std::fmt::Display>(names: &[T]) -> String {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

/// A number with its noun: `1 image`, `2 images`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
