//! Text of all kinds.

use crate::checks;
use document::format::{FormatFault, FormatResult, ensure};

/// One line of printable text, perhaps empty.
pub fn line(text: &str) -> FormatResult {
    ensure(
        text.len() <= 4096 && !text.chars().any(|c| c.is_control() && c != '\t'),
        "is not one line of text",
    )
}

/// The name of a time zone of the tz database, never a path out of its directory.
pub fn time_zone(text: &str) -> FormatResult {
    let word = |word: &str| {
        let body = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+-".contains(&b));
        body && word.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    ensure(
        text.len() <= 64 && text.split('/').all(word),
        "is not the name of a time zone, such as Europe/Berlin or UTC (`timedatectl list-timezones`)",
    )
}

/// The name of a keymap, or of a layout of XKB with a variant in parentheses.
pub fn keyboard(text: &str) -> FormatResult {
    let word = |word: &str| {
        let body = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b));
        body && word.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    let is_name = |text: &str| match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        Some((layout, variant)) => word(layout.trim_end()) && word(variant),
        None => word(text),
    };
    // A locale, with or without its character set.
    let language = text.split(['.', '@']).next().and_then(|name| name.split_once('_'));
    let country = language.map(|(_, country)| country).filter(|country| {
        country.len() == 2 && country.bytes().all(|b| b.is_ascii_uppercase()) && text.contains('.')
    });
    if let Some(country) = country {
        return Err(
            FormatFault::new("is a locale, not a keyboard layout").suggest(Some(country.to_lowercase()))
        );
    }
    if text.len() <= 64 && is_name(text) {
        return Ok(());
    }
    // Other programs write a variant after a colon, a comma or a space, and several layouts after commas.
    let mut words = text.split([':', ',', ' ', '/']).filter(|part| !part.is_empty());
    let joined = match (words.next(), words.next(), words.next()) {
        (Some(layout), Some(variant), None) if variant.len() > 2 => format!("{layout}({variant})"),
        (Some(layout), ..) => layout.to_owned(),
        _ => String::new(),
    };
    let better = Some(joined).filter(|joined| joined.len() <= 64 && is_name(joined));
    let message = "is not the name of one keyboard layout, such as de, fr, gb or de(nodeadkeys)";
    Err(FormatFault::new(message).suggest(better))
}

/// Any text without control characters other than line ends and tabs.
pub fn text(text: &str) -> FormatResult {
    ensure(text.len() <= 1 << 20, "is longer than 1 MiB")?;
    ensure(!text.chars().any(|c| c.is_control() && !"\n\r\t".contains(c)), "holds a control character")
}

/// A text that must not be seen.
pub fn secret(text: &str) -> FormatResult {
    ensure(text.len() <= 1 << 20 && !text.contains('\0'), "cannot be used as text")
}

/// The name of a variable (POSIX, 8.1).
pub fn environment_name(text: &str) -> FormatResult {
    let body = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let first = text.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    ensure(text.len() <= 255 && body && first, "is not the name of a variable: letters, digits and '_'")
}

/// The name of a field of an HTTP header (RFC 9110, 5.1).
pub fn header_name(text: &str) -> FormatResult {
    let body = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    ensure((1..=256).contains(&text.len()) && body, "is not the name of a header field")
}

/// The value of a field of an HTTP header (RFC 9110, 5.5): visible characters, spaces and tabs. A line end would begin
/// another field, or another request.
pub fn header_value(text: &str) -> FormatResult {
    let printable = !text.chars().any(|c| c.is_control() && c != '\t');
    let message = "holds a line end or another control character, which a header field cannot have";
    ensure(text.len() <= 1 << 16, "is longer than 64 KiB, and no server takes such a header field")?;
    ensure(printable, message)
}

/// Certificates between their `BEGIN` and `END` lines; a private key is no certificate.
pub fn pem(text: &str) -> FormatResult {
    if text.contains("PRIVATE KEY") {
        return Err(FormatFault {
            sensitive: true,
            ..FormatFault::new("is a private key; give the certificate")
        });
    }
    let whole = reqwest::Certificate::from_pem_bundle(text.as_bytes()).is_ok_and(|found| !found.is_empty());
    ensure(whole, "is not a certificate in PEM, from BEGIN CERTIFICATE to END CERTIFICATE")
}

pub fn sha256(text: &str) -> FormatResult {
    ensure(text.parse::<base::digest::Digest>().is_ok(), "is not a SHA-256 digest of 64 hexadecimal digits")
}

pub fn check_name(text: &str) -> FormatResult {
    if checks::NAMES.contains(&text) {
        return Ok(());
    }
    let near = document::nearest::nearest(text, checks::NAMES.into_iter());
    Err(FormatFault::new("is not the name of a check; `installer preflight --list` shows them")
        .suggest(near.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_value_has_no_control_characters() {
        for value in ["a\r\nX-Other: b", "a\nb", "a\rb", "a\0b", "\u{7f}", "\u{1b}[0m", "a\u{85}b"] {
            assert!(header_value(value).is_err(), "{value:?}");
        }
        for value in ["", "Bearer abc", "a\tb", "grüße", "\"q\""] {
            assert_eq!(header_value(value), Ok(()), "{value:?}");
        }
        for name in ["", "X Node", "X-Node:", "X\r\nY", "X\0", "näme", "(x)"] {
            assert!(header_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_misspelt_check_is_answered_with_the_right_one() {
        assert_eq!(check_name("nic-speed"), Ok(()));
        assert_eq!(check_name("nicspeed").unwrap_err().suggestion.as_deref(), Some("nic-speed"));
        assert_eq!(check_name("weather").unwrap_err().suggestion, None);
    }
}
