//! Directory records (ECMA-119, 9.1).

use super::error::{Error, Result};
use crate::iso9660::address::{BLOCK_SIZE, Block, Extent};

/// Length of a record up to its name.
const HEAD: usize = 33;

#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) extent: Extent,
    flags: u8,
    interleaved: bool,
    /// The name as ISO 9660 has it; one byte, 0 or 1, for the directory itself and its parent.
    pub(super) name: &'a [u8],
    /// The bytes after the name, where Rock Ridge is.
    pub(super) system_use: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`, which must begin with its length and hold it whole.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        const SHORT: Error = Error::Damaged("a directory record is cut off");
        let length = usize::from(*bytes.first().ok_or(SHORT)?);
        let record = bytes.get(..length).ok_or(SHORT)?;
        let head: &[u8; HEAD] = record.first_chunk().ok_or(SHORT)?;
        let name_length = usize::from(head[32]);
        let name = record.get(HEAD..HEAD + name_length).ok_or(SHORT)?;
        // A byte of padding keeps the system use area at an even position.
        let system_use = record.get(HEAD + name_length + (name_length + 1) % 2..).unwrap_or_default();
        let start = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
        let attributes = u32::from(head[1]);
        let start = start.checked_add(attributes).ok_or(Error::Damaged("a file is outside the image"))?;
        let length = u32::from_le_bytes([head[10], head[11], head[12], head[13]]);
        Ok(Self {
            extent: Extent { start: Block(start), length },
            flags: head[25],
            interleaved: head[26] != 0 || head[27] != 0,
            name,
            system_use,
        })
    }

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// True if the record stands for the directory itself or its parent.
    pub(super) fn is_dot(&self) -> bool {
        matches!(self.name, [0 | 1])
    }

    /// An error for a file whose blocks alternate with gaps, a relic of slow drives.
    pub(super) fn refuse_interleaved(&self) -> Result<()> {
        if self.interleaved { Err(Error::Unsupported("it has interleaved files")) } else { Ok(()) }
    }

    /// The name without version and the dot of an empty extension: `README.;1` is `README`.
    pub(super) fn plain_name(&self) -> String {
        let name = String::from_utf8_lossy(self.name);
        let name = name.split_once(';').map_or(&*name, |(name, _)| name);
        name.strip_suffix('.').unwrap_or(name).to_owned()
    }
}

/// The records of a directory's content. A record does not cross a block; zeros fill up the rest of one.
pub(super) fn records(directory: &[u8]) -> impl Iterator<Item = Result<Record<'_>>> {
    directory.chunks(BLOCK_SIZE as usize).flat_map(|block| {
        let mut rest = block;
        std::iter::from_fn(move || {
            let length = usize::from(*rest.first()?);
            if length == 0 {
                return None;
            }
            let record = Record::parse(rest);
            rest = rest.get(length..).unwrap_or_default();
            Some(record)
        })
    })
}
