//! The clock of this machine: the present moment as files and events have it, and the offset to another clock.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// An API server accepts a service account token up to a minute before its issue time, and no earlier. Half of that leaves room
/// for the clocks to drift before they are set, and for a Date in whole seconds.
pub const CLUSTER_TOLERANCE: Duration = Duration::from_secs(30);

/// The present moment in RFC 3339, UTC, to the second: `2026-12-01T03:04:05Z`. For files and events that people read.
#[must_use]
pub fn now_text() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    pub by: Duration,
    /// Whether this machine's clock is behind.
    pub behind: bool,
}

impl ClockOffset {
    /// The offset of a clock that shows `own` while another shows `other`.
    #[must_use]
    pub fn between(own: SystemTime, other: SystemTime) -> Self {
        match other.duration_since(own) {
            Ok(by) => Self { by, behind: true },
            Err(error) => Self { by: error.duration(), behind: false },
        }
    }

    /// In words; `server` is whose clock the other one is.
    #[must_use]
    pub fn text(self, server: &str) -> String {
        let seconds = self.by.as_secs();
        let by = match seconds {
            0 => return format!("within a second of {server}"),
            1..=119 => format!("{seconds} s"),
            120..=7199 => format!("{} min", seconds / 60),
            7200..=172_799 => format!("{} h", seconds / 3600),
            _ => format!("{} days", seconds / 86400),
        };
        format!("the clock is {by} {} {server}", if self.behind { "behind" } else { "ahead of" })
    }
}

/// The value of the header `Date`, a server's clock to the second (RFC 9110, section 5.6.7).
#[must_use]
pub fn http_date(value: &str) -> Option<SystemTime> {
    jiff::fmt::rfc2822::parse(value.trim()).ok().map(|date| date.timestamp().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_moment_is_written_to_the_second_in_utc() {
        let before = Timestamp::now().as_second();
        let text = now_text();
        let read: Timestamp = text.parse().unwrap();
        assert!((before..=Timestamp::now().as_second()).contains(&read.as_second()), "{text}");
        assert!(text.len() == 20 && text.ends_with('Z'), "{text}");
    }

    #[test]
    fn a_clock_is_behind_ahead_or_right() {
        let date = http_date("Mon, 23 Nov 2026 17:37:49 GMT").unwrap();
        assert_eq!(date.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(), 1_795_455_469);
        let told = |own| ClockOffset::between(own, date).text("S");
        assert_eq!(told(date), "within a second of S");
        assert_eq!(told(date - Duration::from_secs(3600)), "the clock is 60 min behind S");
        assert_eq!(told(date + Duration::from_secs(90)), "the clock is 90 s ahead of S");
        assert!(http_date("yesterday").is_none());
    }
}
