//! A file that a server gives to its clients: in memory, or spans of a file or drive of this machine.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use base::digest::Digest;

use crate::range::{ByteSpan, RangeFields, RangeSelection, select};

#[derive(Clone)]
pub struct ServedFile {
    content: Content,
    /// In bytes.
    pub length: u64,
    /// SHA-256 of the content, from the release manifest.
    pub sha256: Digest,
}

#[derive(Clone)]
enum Content {
    Memory(Arc<[u8]>),
    /// The spans of `file` that are the content, in their order.
    File {
        file: Arc<File>,
        spans: Arc<[ByteSpan]>,
    },
}

impl fmt::Debug for ServedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedFile").field("length", &self.length).field("sha256", &self.sha256).finish()
    }
}

impl ServedFile {
    #[must_use]
    pub fn in_memory(bytes: Vec<u8>) -> Self {
        let (length, sha256) = (bytes.len() as u64, Digest::of(&bytes));
        Self { content: Content::Memory(bytes.into()), length, sha256 }
    }

    /// The first `length` bytes of `file`. Their digest is not checked.
    #[must_use]
    pub fn whole(file: File, length: u64, sha256: Digest) -> Self {
        Self::spans(Arc::new(file), [ByteSpan { start: 0, end: length }].into(), sha256)
    }

    /// These spans of `file`, one after the other. Their digest is not checked.
    #[must_use]
    pub fn spans(file: Arc<File>, spans: Arc<[ByteSpan]>, sha256: Digest) -> Self {
        let length = spans.iter().map(|span| span.length()).sum();
        Self { content: Content::File { file, spans }, length, sha256 }
    }

    /// The strong entity tag of the content, with its quotes (RFC 9110, section 8.8.3).
    #[must_use]
    pub fn tag(&self) -> String {
        format!("\"{}\"", self.sha256)
    }

    /// Which part a request with these fields gets. Ranges apply to GET only (RFC 9110, section 14.2); `head` is for
    /// HEAD.
    #[must_use]
    pub fn select(&self, fields: RangeFields<'_>, head: bool) -> RangeSelection {
        let range = fields.range.filter(|_| !head);
        select(RangeFields { range, ..fields }, self.length, &self.tag())
    }

    /// Reads bytes from `position` on: fewer than `buffer` holds at the end of a span, none at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        match self.at(position) {
            ContentLocation::Memory(bytes) => {
                let count = buffer.len().min(bytes.len());
                buffer[..count].copy_from_slice(&bytes[..count]);
                Ok(count)
            }
            ContentLocation::File { file, span } => {
                let count = buffer.len().min(usize::try_from(span.length()).unwrap_or(usize::MAX));
                file.read_at(&mut buffer[..count], span.start)
            }
        }
    }

    /// Where the bytes from `position` to the end of their span are; no bytes at the end of the file.
    #[must_use]
    pub fn at(&self, position: u64) -> ContentLocation<'_> {
        match &self.content {
            Content::Memory(bytes) => {
                let start = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
                ContentLocation::Memory(&bytes[start..])
            }
            Content::File { file, spans } => {
                let mut before = 0;
                for span in spans.iter() {
                    let inside = position - before;
                    if inside < span.length() {
                        let span = ByteSpan { start: span.start + inside, end: span.end };
                        return ContentLocation::File { file, span };
                    }
                    before += span.length();
                }
                ContentLocation::Memory(&[])
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum ContentLocation<'a> {
    Memory(&'a [u8]),
    /// In a file or a drive of this machine.
    File {
        file: &'a Arc<File>,
        span: ByteSpan,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn spans_of_a_file_are_read_as_one_from_any_position() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"..cd....abXX").unwrap();
        let spans = [ByteSpan { start: 8, end: 10 }, ByteSpan { start: 2, end: 4 }];
        let served = ServedFile::spans(Arc::new(file), spans.into(), Digest::of(b"abcd"));
        assert_eq!((served.length, served.tag()), (4, format!("\"{}\"", Digest::of(b"abcd"))));
        for (position, expected) in [(0, "ab"), (1, "b"), (2, "cd"), (3, "d"), (4, ""), (9, "")] {
            let mut buffer = [0; 8];
            let count = served.read_at(&mut buffer, position).unwrap();
            assert_eq!(&buffer[..count], expected.as_bytes(), "from {position}");
        }
    }

    #[test]
    fn a_range_counts_for_get_only() {
        let served = ServedFile::in_memory(b"abcd".to_vec());
        let fields = RangeFields { range: Some("bytes=1-"), ..RangeFields::default() };
        assert_eq!(served.select(fields, false), RangeSelection::Part(ByteSpan { start: 1, end: 4 }));
        assert_eq!(served.select(fields, true), RangeSelection::Whole);
    }
}
