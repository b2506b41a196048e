//! Reading one file of an image.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use crate::iso9660::address::{Extent, Source};

/// The content of a file, extent after extent. Independent of the image it came from and of other readers.
pub struct FileReader<S> {
    source: Arc<S>,
    extents: std::vec::IntoIter<Extent>,
    current: Option<Extent>,
    done: u32,
}

impl<S> fmt::Debug for FileReader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileReader").field("current", &self.current).field("done", &self.done).finish()
    }
}

impl<S: Source> FileReader<S> {
    pub(super) fn new(source: Arc<S>, extents: Vec<Extent>) -> Self {
        let mut extents = extents.into_iter();
        let current = extents.next();
        Self { source, extents, current, done: 0 }
    }
}

impl<S: Source> Read for FileReader<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while let Some(extent) = self.current {
            let left = extent.length - self.done;
            if left == 0 {
                self.current = self.extents.next();
                self.done = 0;
                continue;
            }
            let wanted = buffer.len().min(left as usize);
            let at = extent.start.offset().plus(u64::from(self.done));
            let count = self.source.read_at(&mut buffer[..wanted], at)?;
            if count == 0 {
                let message = format!("the image ends at byte {at}, before the end of the file");
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
            }
            // At most `left`, which is a u32.
            self.done += u32::try_from(count).unwrap_or(left);
            return Ok(count);
        }
        Ok(0)
    }
}
