//! HTML out of text that may be hostile: names and messages come from machines.

use std::fmt;

use base::size::ByteSize;

use crate::moment::Moment;

/// Text in an element or in a quoted attribute.
#[derive(Clone, Copy, Debug)]
pub struct HtmlText<'a>(pub &'a str);

impl fmt::Display for HtmlText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // Characters that change the direction of what follows make one text look like another.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                    f.write_str("\u{fffd}")?
                }
                '\n' | '\t' => write!(f, "{c}")?,
                c if c.is_control() => f.write_str("\u{fffd}")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// An optional piece: nothing where there is none.
pub fn maybe<T>(value: Option<T>, piece: impl FnOnce(T) -> String) -> String {
    value.map(piece).unwrap_or_default()
}

/// A length of time as people say it: "12 s", "5 min", "3 h 20 min", "2 d".
#[must_use]
pub fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min"),
        3600..36_000 if minutes % 60 > 0 => format!("{hours} h {} min", minutes % 60),
        3600..172_800 => format!("{hours} h"),
        _ => format!("{days} d"),
    }
}

/// How long ago `then` is, as an element that also says when it was.
#[must_use]
pub fn ago(then: Moment, now: Moment, before: &str, after: &str) -> String {
    let seconds = now.0.saturating_sub(then.0);
    format!(r#"<time datetime="{then}" title="{then}">{before}{}{after}</time>"#, duration(seconds))
}

/// An amount of data, with one decimal: "412.5 MiB".
#[must_use]
pub fn bytes(count: u64) -> String {
    ByteSize::bytes(count).to_string()
}

/// A picture of the page's sheet of pictures; it says nothing that text beside it does not.
#[must_use]
pub fn icon(name: &str) -> String {
    format!(r##"<svg class="icon" aria-hidden="true" focusable="false"><use href="#i-{name}"/></svg>"##)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        let hostile = "<script>&\"'\u{202e}\u{0}a\nb\u{200f}";
        let shown = HtmlText(hostile).to_string();
        assert_eq!(shown, "&lt;script&gt;&amp;&quot;&#39;\u{fffd}\u{fffd}a\nb\u{fffd}");
    }

    #[test]
    fn times_are_said_in_one_or_two_units() {
        let texts = [0, 59, 60, 3599, 3600, 12_000, 36_000, 172_799, 172_800].map(duration);
        assert_eq!(texts, ["0 s", "59 s", "1 min", "59 min", "1 h", "3 h 20 min", "10 h", "47 h", "2 d"]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_brings_markup(text in "\\PC{0,40}|.{0,40}") {
            let shown = HtmlText(&text).to_string();
            proptest::prop_assert!(!shown.contains(['<', '>', '"', '\'']));
        }
    }
}
