//! Decides whether a transfer makes progress: a server that sends next to nothing must not block a program forever.

use std::time::Duration;

/// The minimum in [`WINDOW`], in bytes: some hundred bytes per second.
const LEAST: u64 = 64 << 10;

/// How long a server may be slower than that. Only the time spent waiting for bytes counts.
const WINDOW: Duration = Duration::from_secs(300);

/// A connection that breaks off was useful if it brought this part of the missing bytes, or [`LEAST`]. So the number of
/// connections that bring less than [`LEAST`] grows only with the logarithm of the file's length.
const PART: u64 = 16;

/// Watches one transfer over all of its connections.
#[derive(Debug, Default)]
pub(super) struct ProgressRule {
    /// The time spent waiting and the bytes received since the rate was last checked.
    waited: Duration,
    came: u64,
    /// The bytes of the present connection, and how many make it a success.
    brought: u64,
    enough: u64,
}

impl ProgressRule {
    /// A connection begins; `lacking` bytes are missing, if that is known.
    pub(super) fn connected(&mut self, lacking: Option<u64>) {
        self.brought = 0;
        self.enough = lacking.map_or(LEAST, |lacking| (lacking / PART).clamp(1, LEAST));
    }

    /// Missing bytes have arrived. Returns whether the connection has brought enough.
    pub(super) fn has_helped(&mut self, bytes: u64) -> bool {
        self.brought = self.brought.saturating_add(bytes);
        self.brought >= self.enough
    }

    /// `came` bytes arrived after a wait of this length.
    ///
    /// # Errors
    /// The server is too slow.
    pub(super) fn waited(&mut self, wait: Duration, bytes: u64) -> Result<(), String> {
        self.waited += wait;
        self.came = self.came.saturating_add(bytes);
        if self.waited < WINDOW {
            return Ok(());
        }
        let (waited, came) = (self.waited, self.came);
        (self.waited, self.came) = (Duration::ZERO, 0);
        match came < LEAST {
            true => Err(format!("the server sent only {came} bytes in {} s", waited.as_secs())),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_sends_a_byte_now_and_then_is_too_slow_and_a_slow_line_is_not() {
        let mut rule = ProgressRule::default();
        let found = (0..).find_map(|_| rule.waited(Duration::from_secs(59), 1).err()).unwrap();
        assert_eq!(found, "the server sent only 6 bytes in 354 s");
        // A modem of 2400 bit/s.
        let mut rule = ProgressRule::default();
        assert!((0..10_000).all(|_| rule.waited(Duration::from_secs(1), 300).is_ok()));
    }

    #[test]
    fn a_transfer_that_was_fast_may_not_be_slow_for_ever_afterwards() {
        let mut rule = ProgressRule::default();
        rule.waited(Duration::from_secs(10), 1 << 40).unwrap();
        let slow = (0..100).find(|_| rule.waited(Duration::from_secs(30), 1).is_err());
        assert!(slow.is_some_and(|attempt| attempt < 30), "{slow:?}");
    }

    #[test]
    fn a_connection_that_brings_a_part_of_the_rest_helps_and_one_that_brings_a_byte_does_not() {
        let helps = |lacking, bytes| {
            let mut rule = ProgressRule::default();
            rule.connected(lacking);
            rule.has_helped(bytes)
        };
        for (lacking, bytes, expected) in [
            (Some(1 << 30), 1, false),
            (Some(1 << 30), LEAST, true),
            (None, 1, false),
            (None, LEAST, true),
            (Some(1600), 99, false),
            (Some(1600), 100, true),
            (Some(5), 1, true),
        ] {
            assert_eq!(helps(lacking, bytes), expected, "{lacking:?} {bytes}");
        }
    }
}
