//! Percentage and rate, computed alike for lines, screens and pages.

use std::time::Duration;

/// Percent done, rounded down, at most 100; 100 for a total of 0.
#[must_use]
pub fn percent(done: u64, total: u64) -> u64 {
    let hundredths = (u128::from(done) * 100).checked_div(u128::from(total)).unwrap_or(100);
    u64::try_from(hundredths).unwrap_or(100).min(100)
}

/// Average bytes per second; none before the first byte and the first millisecond.
#[must_use]
pub fn per_second(bytes: u64, elapsed: Duration) -> Option<u64> {
    let rate = (u128::from(bytes) * 1000).checked_div(elapsed.as_millis())?;
    (bytes > 0).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hundredths_are_rounded_down_and_end_at_a_hundred() {
        for (done, total, hundredths) in
            [(0, 3, 0), (1, 3, 33), (3, 3, 100), (4, 3, 100), (0, 0, 100), (u64::MAX, u64::MAX, 100)]
        {
            assert_eq!(percent(done, total), hundredths, "{done} of {total}");
        }
    }

    #[test]
    fn a_rate_needs_bytes_and_time() {
        assert_eq!(per_second(3000, Duration::from_secs(2)), Some(1500));
        assert_eq!(per_second(0, Duration::from_secs(2)), None);
        assert_eq!(per_second(3000, Duration::from_micros(900)), None);
        assert_eq!(per_second(u64::MAX, Duration::from_millis(1)), Some(u64::MAX));
    }
}
