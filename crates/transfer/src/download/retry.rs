//! Retries: the limits of attempts and pauses that all transfers share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::backoff::backoff;
use base::notes;
use base::url::shown;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest accepted `Retry-After`. If a server asks for more, the transfer fails.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The default time limit for a document of a few MiB, all attempts together, so that a server that trickles cannot block a
/// program forever.
const DOCUMENT: Duration = Duration::from_secs(600);

/// The shortest pause that is reported: shorter ones are over before anyone reads it.
const NOTED: Duration = Duration::from_secs(2);

/// The step of notes about pauses.
const STEP: &str = "transfer";

static ONCE: AtomicBool = AtomicBool::new(false);

/// Disables retries in this process, for interactive use: the user sees the error at once and can retry.
pub fn try_once() {
    ONCE.store(true, Ordering::Relaxed);
}

#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// How long connecting may take.
    pub connect: Duration,
    /// How long the next bytes may take.
    pub read: Duration,
    /// Attempts in a row that bring no byte, or next to none, before giving up.
    pub attempts: u32,
    /// The pause after the first failed attempt; each further one is twice as long, up to 30 seconds.
    pub pause: Duration,
    /// How long a whole file may take, all attempts together.
    pub limit: Option<Duration>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            read: Duration::from_secs(60),
            attempts: 7,
            pause: Duration::from_secs(1),
            limit: None,
        }
    }
}

impl RetryPolicy {
    /// For interactive commands that can be repeated: failures are reported at once.
    pub fn at_once() -> Self {
        Self { attempts: 1, ..Self::default() }
    }

    /// For interactive commands that transfer much: a download survives a short interruption.
    pub fn attended() -> Self {
        Self { attempts: 3, ..Self::default() }
    }

    /// With a limit for the whole, as small files have.
    pub fn for_documents(self) -> Self {
        Self { limit: self.limit.or(Some(DOCUMENT)), ..self }
    }

    /// The pause after so many failed attempts in a row.
    fn after(&self, failed: u32) -> Duration {
        backoff(self.pause, failed, LONGEST_PAUSE)
    }
}

#[derive(Debug)]
pub struct TemporaryError {
    why: String,
    /// The `Retry-After` of the server.
    wait: Option<Duration>,
}

impl TemporaryError {
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), wait: None }
    }

    /// Adds the `Retry-After` of a response.
    pub fn asking(mut self, headers: &HeaderMap) -> Self {
        self.wait = asked_wait(headers);
        self
    }
}

/// The `Retry-After` of a response.
pub(crate) fn asked_wait(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?))
}

/// Seconds, or a date (RFC 9110, 10.2.3).
fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    let wait = Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or_default();
    // This machine's clock may be wrong, so a date far away is no reason to give up.
    Some(wait.min(LONGEST_WAIT))
}

#[derive(Debug)]
pub struct Attempts {
    retry: RetryPolicy,
    /// The server, as notes name it.
    server: String,
    /// Failed attempts in a row.
    failed: u32,
    deadline: Option<Instant>,
}

impl Attempts {
    /// Attempts at something of the server of `url`. The time for the whole begins now.
    pub fn new(retry: RetryPolicy, url: &str) -> Self {
        let deadline = retry.limit.map(|limit| Instant::now() + limit);
        let shown = shown(url);
        let server = shown.split_once("://").map_or(&*shown, |(_, rest)| rest);
        let server = server.split('/').next().unwrap_or(server).to_owned();
        Self { retry, server, failed: 0, deadline }
    }

    /// Resets the count, because bytes arrived.
    pub fn succeeded(&mut self) {
        self.failed = 0;
    }

    /// True if the time limit has passed, or will have after a pause.
    pub fn is_late(&self, pause: Duration) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() + pause >= deadline)
    }

    /// Waits before the next attempt; the error says why there is none.
    pub fn pause(&mut self, trouble: TemporaryError) -> Result<(), String> {
        let TemporaryError { why, wait } = trouble;
        self.failed += 1;
        if ONCE.load(Ordering::Relaxed) {
            return Err(why);
        }
        let wait = wait.unwrap_or_default();
        if wait > LONGEST_WAIT {
            return Err(format!("{why} and asks to come back in {} seconds", wait.as_secs()));
        }
        let pause = self.retry.after(self.failed).max(wait);
        if self.failed >= self.retry.attempts || self.is_late(pause) {
            return Err(format!("{why}; gave up after {} attempts", self.failed));
        }
        let attempts = self.retry.attempts;
        let (server, next, seconds) = (&self.server, self.failed + 1, pause.as_secs());
        let note = || format!("{server}: {why}; attempt {next} of {attempts} in {seconds} s");
        if pause < NOTED {
            notes::detail(STEP, note);
        } else {
            notes::tell(STEP, note);
        }
        std::thread::sleep(pause);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_stop_growing() {
        let retry = RetryPolicy::default();
        let seconds = |failed| retry.after(failed).as_secs();
        assert_eq!([seconds(1), seconds(2), seconds(3), seconds(6), seconds(60)], [1, 2, 4, 30, 30]);
    }

    #[test]
    fn a_server_says_when_to_come_back_in_seconds_or_as_a_date() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("soon"), None);
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let later = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(100);
        let later = later.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let wait = retry_after(&later).unwrap().as_secs();
        assert!((98..=100).contains(&wait), "{wait}");
    }

    #[test]
    fn a_pause_that_is_asked_for_is_made_and_one_without_reason_is_not() {
        let retry = RetryPolicy { pause: Duration::ZERO, ..RetryPolicy::default() };
        let asking = |wait| TemporaryError { why: "busy".into(), wait: Some(Duration::from_millis(wait)) };
        let begun = Instant::now();
        Attempts::new(retry, "https://example.org/a").pause(asking(60)).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(60));
        let refused = Attempts::new(retry, "https://example.org/a").pause(asking(3_600_000)).unwrap_err();
        assert_eq!(refused, "busy and asks to come back in 3600 seconds");
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
