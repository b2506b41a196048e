//! A reader whose progress is reported.

use std::io::{self, Read};

/// Reports how many bytes each read gave.
#[allow(missing_debug_implementations)]
pub struct ReportingReader<R, F> {
    inner: R,
    on_bytes: F,
}

impl<R: Read, F: FnMut(u64)> ReportingReader<R, F> {
    pub fn new(inner: R, on_bytes: F) -> Self {
        Self { inner, on_bytes }
    }
}

impl<R: Read, F: FnMut(u64)> Read for ReportingReader<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        (self.on_bytes)(count as u64);
        Ok(count)
    }
}
