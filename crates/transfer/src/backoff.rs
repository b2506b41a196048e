//! Exponential backoff.

use std::time::Duration;

/// The pause after `failed` (at least one) failed attempts in a row: `first`, doubled for each further one, at most `longest`.
#[must_use]
pub fn backoff(first: Duration, failed: u32, longest: Duration) -> Duration {
    let factor = 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let seconds = |failed| backoff(Duration::from_secs(1), failed, Duration::from_secs(30)).as_secs();
        assert_eq!([1, 2, 3, 5, 6, 40, u32::MAX].map(seconds), [1, 2, 4, 16, 30, 30, 30]);
    }
}
