//! A limit on the bytes a second of all transfers together.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::size::ByteSize;

/// The longest time of a single read at the limit; short enough that no server gives up on a slow reader.
const SLICE: Duration = Duration::from_millis(100);

/// A limit that all clones keep to together.
#[derive(Clone, Debug)]
pub(super) struct RateLimiter {
    rate: u64,
    /// The time by which all bytes so far are within the limit.
    paid: Arc<Mutex<Instant>>,
}

impl RateLimiter {
    /// `rate` is in bytes a second.
    pub(super) fn new(rate: ByteSize) -> Self {
        Self { rate: rate.get().max(1), paid: Arc::new(Mutex::new(Instant::now())) }
    }

    /// The most bytes that one read takes.
    fn slice(&self) -> usize {
        let bytes = u128::from(self.rate) * SLICE.as_millis() / 1000;
        usize::try_from(bytes).unwrap_or(usize::MAX).max(1)
    }

    /// Waits as long as `bytes` take at the limit. Idle time is not saved up.
    fn pay(&self, bytes: usize) {
        #[allow(clippy::cast_precision_loss)]
        let price = Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let now = Instant::now();
        let until = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            *paid = (*paid).max(now) + price;
            *paid
        };
        std::thread::sleep(until - now);
    }
}

#[derive(Debug)]
pub(super) struct RateLimitedReader<R> {
    inner: R,
    limiter: Option<RateLimiter>,
}

impl<R: Read> RateLimitedReader<R> {
    pub(super) fn new(inner: R, limiter: Option<RateLimiter>) -> Self {
        Self { inner, limiter }
    }
}

impl<R: Read> Read for RateLimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(limiter) = &self.limiter else { return self.inner.read(buffer) };
        let length = buffer.len().min(limiter.slice());
        let count = self.inner.read(&mut buffer[..length])?;
        limiter.pay(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_that_share_a_limit_stay_below_it_together() {
        let limiter = RateLimiter::new(ByteSize::mib(1));
        let begun = Instant::now();
        let reader = || {
            let limiter = Some(limiter.clone());
            std::thread::spawn(|| {
                io::copy(&mut RateLimitedReader::new(io::repeat(0).take(128 << 10), limiter), &mut io::sink())
            })
        };
        let readers = [reader(), reader()];
        for reader in readers {
            assert_eq!(reader.join().unwrap().unwrap(), 128 << 10);
        }
        assert!(begun.elapsed() >= Duration::from_millis(250), "{:?}", begun.elapsed());
    }

    #[test]
    fn without_a_limit_nothing_is_changed() {
        let mut bytes = Vec::new();
        RateLimitedReader::new(&b"abc"[..], None).read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"abc");
    }
}
