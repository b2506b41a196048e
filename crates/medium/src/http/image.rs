//! The bytes of an ISO on a server that sends parts of files.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

use base::url::shown;
use formats::iso9660::address::{Offset, Source};
use transfer::download::{Download, Downloader};

/// The image is read in windows of so many bytes.
const WINDOW_BYTES: u64 = 64 << 10;
const WINDOWS_MAX: usize = 64;
/// After so many consecutive windows, the rest of the image is requested as a whole to save round trips. Directories are
/// shorter.
const SEQUENCE: u32 = 16;

/// The bytes of a file on a server.
pub struct HttpImage {
    url: String,
    downloader: Downloader,
    length: u64,
    reading: Mutex<ReadState>,
}

/// The cached windows, and the state of a sequential read.
#[derive(Default)]
struct ReadState {
    windows: BTreeMap<u64, Arc<[u8]>>,
    /// The number of the next window in a row, and how many came in that row.
    next: u64,
    row: u32,
    /// The rest of the image from the window `next` on.
    rest: Option<Download>,
}

impl fmt::Debug for HttpImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpImage").field("length", &self.length).finish_non_exhaustive()
    }
}

impl HttpImage {
    /// Requests the first byte: the response tells the length of the file.
    pub fn open(url: &str, downloader: Downloader) -> Result<Self> {
        let mut image = Self { url: url.to_owned(), downloader, length: 0, reading: Mutex::default() };
        let mut first = image.part(0..1);
        first.connect_patiently()?;
        image.length = first.total().with_context(|| format!("{} has no length", shown(url)))?;
        Ok(image)
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// These bytes of the image; no request is made yet.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Download {
        self.downloader.part(&self.url, range)
    }

    fn lock(&self) -> MutexGuard<'_, ReadState> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window(&self, number: u64) -> io::Result<Arc<[u8]>> {
        let (mut rest, row) = {
            let mut reading = self.lock();
            if let Some(window) = reading.windows.get(&number) {
                return Ok(Arc::clone(window));
            }
            match reading.next == number {
                true => (reading.rest.take(), reading.row),
                false => (None, 0),
            }
        };
        let start = number * WINDOW_BYTES;
        let end = self.length.min(start + WINDOW_BYTES);
        if rest.is_none() && row >= SEQUENCE {
            rest = Some(self.part(start..self.length));
        }
        let mut bytes = Vec::new();
        match &mut rest {
            Some(rest) => rest.take(end - start).read_to_end(&mut bytes)?,
            None => self.part(start..end).read_to_end(&mut bytes)?,
        };
        let window: Arc<[u8]> = bytes.into();
        let mut reading = self.lock();
        if reading.windows.len() >= WINDOWS_MAX {
            reading.windows.clear();
        }
        reading.windows.insert(number, Arc::clone(&window));
        (reading.next, reading.row, reading.rest) = (number + 1, row + 1, rest);
        Ok(window)
    }
}

impl Source for HttpImage {
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize> {
        if offset.0 >= self.length || buffer.is_empty() {
            return Ok(0);
        }
        let window = self.window(offset.0 / WINDOW_BYTES)?;
        // Within a window, so that it fits.
        let from = usize::try_from(offset.0 % WINDOW_BYTES).unwrap_or(usize::MAX).min(window.len());
        let count = buffer.len().min(window.len() - from);
        buffer[..count].copy_from_slice(&window[from..from + count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::http::{Answer, Fake};
    use transfer::download::RetryPolicy;

    #[test]
    fn a_whole_image_takes_few_requests_and_places_in_it_take_one_each() {
        let bytes: Vec<u8> = (0..4_000_001_u32).map(|n| (n % 251) as u8).collect();
        let content = bytes.clone();
        let fake = Fake::start(move |request| Answer::range(&content, request));
        let url = format!("{}/a.iso", fake.url());
        let open = || {
            let downloader = Downloader::trusting(&url, RetryPolicy::default(), "hint", &[]).unwrap();
            HttpImage::open(&url, downloader).unwrap()
        };
        let image = open();
        let (mut read, mut buffer) = (Vec::new(), vec![0; 300_000]);
        loop {
            let count = image.read_at(&mut buffer, Offset(read.len() as u64)).unwrap();
            if count == 0 {
                break;
            }
            read.extend_from_slice(&buffer[..count]);
        }
        assert!(read == bytes);
        assert_eq!(fake.requests("a.iso").len() as u32, SEQUENCE + 2);
        let (image, before) = (open(), fake.sent());
        for at in [3_999_999, 70_000, 2_000_000, 70_001] {
            let mut byte = [0];
            image.read_at(&mut byte, Offset(at)).unwrap();
            assert_eq!(u64::from(byte[0]), at % 251);
        }
        assert!(fake.sent() - before < 4 * WINDOW_BYTES);
    }
}
