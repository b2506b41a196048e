//! NetworkManager's keyfile format (nm-settings-keyfile(5)).

use std::fmt::Write as _;

#[derive(Default)]
pub(super) struct Keyfile(pub(super) String);

impl Keyfile {
    pub(super) fn section(&mut self, name: &str) {
        let gap = if self.0.is_empty() { "" } else { "\n" };
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{gap}[{name}]");
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        let _ = writeln!(self.0, "{key}={}", escape(value));
    }

    pub(super) fn list(&mut self, key: &str, values: impl Iterator<Item = String>) {
        let values: String = values.map(|value| escape(&value).replace(';', "\\;") + ";").collect();
        let _ = writeln!(self.0, "{key}={values}");
    }
}

/// A value as GLib's key files write it: backslashes, line breaks and tabs as escapes, and also leading spaces, which would be
/// dropped.
fn escape(text: &str) -> String {
    let body = text.trim_start_matches(' ');
    let mut escaped = "\\s".repeat(text.len() - body.len());
    for c in body.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The reverse of [`escape`], as in GLib.
    fn unescape(text: &str) -> String {
        let mut plain = String::new();
        let mut letters = text.chars();
        while let Some(c) = letters.next() {
            plain.push(match (c, if c == '\\' { letters.next() } else { None }) {
                ('\\', Some('s')) => ' ',
                ('\\', Some('n')) => '\n',
                ('\\', Some('r')) => '\r',
                ('\\', Some('t')) => '\t',
                ('\\', Some(other)) => other,
                (other, _) => other,
            });
        }
        plain
    }

    proptest! {
        #[test]
        fn an_escaped_value_is_one_line_and_reads_back(value in "[ \\\\;=a\n\r\t\\[\\]#é]{0,30}") {
            let escaped = escape(&value);
            prop_assert!(!escaped.contains(['\n', '\r', '\t']) && !escaped.starts_with(' '));
            prop_assert_eq!(unescape(&escaped), value);
        }
    }
}
