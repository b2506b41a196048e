//! Elements that several pages have.

use base::size::ByteSize;
use maud::{Markup, html};

use crate::moment::Moment;

/// A length of time in one or two units: "12 s", "5 min", "3 h 20 min", "2 d".
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

/// How long ago `then` is, between the words `before` and `after`; the moment itself is the element's title. The script keeps it up
/// to date, so that time alone changes nothing in the page of a fleet.
#[must_use]
pub fn ago(then: Moment, now: Moment, before: &str, after: &str) -> Markup {
    let seconds = now.0.saturating_sub(then.0);
    html! { (before) time.age datetime=(then) title=(then) { (duration(seconds)) } (after) }
}

/// `moment` is in RFC 3339.
#[must_use]
pub fn time(moment: &str) -> Markup {
    html! { time datetime=(moment) { (moment) } }
}

/// An amount of data, with one decimal: "412.5 MiB".
#[must_use]
pub fn bytes(count: u64) -> String {
    ByteSize::bytes(count).to_string()
}

#[must_use]
pub fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// The symbol `name` of [`super::page`]. It is hidden from screen readers: the text beside it says the same.
#[must_use]
pub fn icon(name: &str) -> Markup {
    html! { svg.icon aria-hidden="true" focusable="false" { use href={ "#i-" (name) } {} } }
}

#[must_use]
pub fn joined(elements: &[Markup], between: &str) -> Markup {
    html! {
        @for (index, element) in elements.iter().enumerate() {
            @if index > 0 { (between) }
            (element)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_one_or_two_units() {
        let texts = [0, 59, 60, 3599, 3600, 12_000, 36_000, 172_799, 172_800].map(duration);
        assert_eq!(texts, ["0 s", "59 s", "1 min", "59 min", "1 h", "3 h 20 min", "10 h", "47 h", "2 d"]);
    }
}
