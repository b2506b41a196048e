//! A limit on bytes a second that several readers share.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::size::ByteSize;

/// No reader is given more at once, so that none waits long for the others.
const SIP: usize = 64 << 10;

/// When the next bytes may come.
pub(super) struct Limiter {
    rate: f64,
    free_at: Mutex<Instant>,
}

impl Limiter {
    /// Lets so many bytes a second pass.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn new(rate: ByteSize) -> Self {
        Self { rate: (rate.get() as f64).max(1.0), free_at: Mutex::new(Instant::now()) }
    }

    /// Books bytes that have come; returns how long to wait for it.
    #[allow(clippy::cast_precision_loss)]
    fn book(&self, bytes: usize) -> Duration {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let begin = (*free_at).max(now);
        *free_at = begin + Duration::from_secs_f64(bytes as f64 / self.rate);
        begin - now
    }
}

/// A reader that keeps to a limit.
pub(super) struct Limited<R> {
    inner: R,
    limiter: Arc<Limiter>,
}

impl<R: Read> Limited<R> {
    pub(super) fn new(inner: R, limiter: Arc<Limiter>) -> Self {
        Self { inner, limiter }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let limit = buffer.len().min(SIP);
        let count = self.inner.read(&mut buffer[..limit])?;
        let wait = self.limiter.book(count);
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_readers_together_keep_to_the_rate() {
        let limiter = Arc::new(Limiter::new(ByteSize::bytes(1_000_000)));
        let began = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let limiter = Arc::clone(&limiter);
                scope.spawn(move || {
                    let mut reader = Limited::new(io::repeat(0).take(100_000), limiter);
                    assert_eq!(io::copy(&mut reader, &mut io::sink()).unwrap(), 100_000);
                });
            }
        });
        // The last sip is not waited for.
        let least = Duration::from_millis(400 - 66 - 10);
        assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    }
}
