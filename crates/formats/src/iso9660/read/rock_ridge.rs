//! The system use entries of a directory record: POSIX names and types (SUSP 1.12, RRIP 1.12).

use super::error::{Error, Result};
use super::source::read_exactly;
use crate::iso9660::address::{Block, Source};

/// Where a record's entries continue elsewhere, they do so at most this often...
const MAX_CONTINUATIONS: usize = 8;
/// ...and with at most this many bytes.
const MAX_CONTINUATION: u32 = 8 * 1024;
/// Linux stops at 255.
const MAX_NAME: usize = 1024;

/// `S_IFMT` of the mode, and the two types that matter here.
const TYPE_MASK: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

/// The Rock Ridge attributes of a record.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    pub(super) name: Option<Vec<u8>>,
    mode: Option<u32>,
    symlink: bool,
    /// The directory is elsewhere, because it would be too deep here.
    pub(super) child: Option<Block>,
    /// The directory is only stored here; its place in the tree is elsewhere.
    pub(super) relocated: bool,
    /// The content is compressed (zisofs).
    pub(super) compressed: bool,
}

impl Attributes {
    /// Reads the entries of `system_use` after the first `skip` bytes, which belong to another extension.
    pub(super) fn read(source: &impl Source, image_length: u64, system_use: &[u8], skip: u8) -> Result<Self> {
        let mut attributes = Self::default();
        let mut next = attributes.take(system_use.get(usize::from(skip)..).unwrap_or_default())?;
        for _ in 0..MAX_CONTINUATIONS {
            let Some(area) = next else { return Ok(attributes) };
            if area.length > MAX_CONTINUATION {
                return Err(Error::Damaged("a directory record continues for too long"));
            }
            let at = area.block.offset().plus(u64::from(area.offset));
            next = attributes.take(&read_exactly(source, image_length, at, area.length)?)?;
        }
        match next {
            None => Ok(attributes),
            Some(_) => Err(Error::Damaged("a directory record continues in a circle")),
        }
    }

    /// True if the record is a plain file and not a link, device or socket.
    pub(super) fn is_regular(&self) -> bool {
        !self.symlink && self.mode.is_none_or(|mode| mode & TYPE_MASK == REGULAR)
    }

    pub(super) fn is_symlink(&self) -> bool {
        self.symlink || self.mode.is_some_and(|mode| mode & TYPE_MASK == SYMLINK)
    }

    fn take(&mut self, area: &[u8]) -> Result<Option<Continuation>> {
        let mut next = None;
        for (signature, data) in entries(area) {
            match signature {
                b"NM" => self.take_name(data)?,
                b"PX" => self.mode = word(data, 0),
                b"SL" => self.symlink = true,
                b"CL" => self.child = word(data, 0).map(Block),
                b"RE" => self.relocated = true,
                b"ZF" => self.compressed = true,
                b"CE" => next = Continuation::parse(data),
                b"ST" => break,
                _ => {}
            }
        }
        Ok(next)
    }

    fn take_name(&mut self, data: &[u8]) -> Result<()> {
        // Bit 0 says that another NM follows; pieces simply add up. Bits 1 and 2 mean `.` and `..`.
        let Some((flags, piece)) = data.split_first() else { return Ok(()) };
        if flags & 0b110 != 0 {
            return Ok(());
        }
        let name = self.name.get_or_insert_default();
        name.extend_from_slice(piece);
        if name.len() > MAX_NAME { Err(Error::Damaged("a file name is too long")) } else { Ok(()) }
    }
}

/// How many bytes precede the entries of each record, from the `SP` entry of the root directory's own
/// record. `None`: the image has no system use entries.
pub(super) fn skip_length(system_use: &[u8]) -> Option<u8> {
    entries(system_use).find_map(|(signature, data)| match (signature, data) {
        (b"SP", [0xBE, 0xEF, skip, ..]) => Some(*skip),
        _ => None,
    })
}

#[derive(Debug)]
struct Continuation {
    block: Block,
    offset: u32,
    length: u32,
}

impl Continuation {
    fn parse(data: &[u8]) -> Option<Self> {
        Some(Self { block: Block(word(data, 0)?), offset: word(data, 8)?, length: word(data, 16)? })
    }
}

/// The little-endian half of the both-endian number at `position`.
fn word(data: &[u8], position: usize) -> Option<u32> {
    data.get(position..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// Signature and data of each entry: two letters, length of the whole, version, data. What is too short
/// to be an entry ends the area.
fn entries(area: &[u8]) -> impl Iterator<Item = (&[u8; 2], &[u8])> {
    let mut rest = area;
    std::iter::from_fn(move || {
        let (signature, _) = rest.split_first_chunk::<2>()?;
        let length = usize::from(*rest.get(2)?);
        let data = rest.get(4..length)?;
        rest = &rest[length..];
        Some((signature, data))
    })
}
