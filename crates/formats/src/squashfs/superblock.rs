//! The first 96 bytes of an image.

use super::bytes::{array, u16_at, u32_at, u64_at};
use super::error::{ExpandError, ExpandResult};

/// Its length in bytes; data follows it.
pub(super) const LENGTH: u64 = 96;
/// Where a table would begin that an image does not have.
pub(super) const ABSENT: u64 = u64::MAX;

const MAGIC: u32 = 0x7371_7368;
const ZSTD: u16 = 6;
const COMPRESSORS: [&str; 6] = ["gzip", "lzma", "lzo", "xz", "lz4", "zstd"];

/// Inodes, attributes and identifiers are stored as they are. These tell what a writer did and bind no reader: each block says for itself
/// whether it is compressed.
const STORED_TABLES: u16 = 1 | 1 << 8 | 1 << 11;
/// The same of data and fragments.
const STORED_DATA: u16 = 1 << 1 | 1 << 3;
/// Equal files share their data, and there is a table from the numbers of inodes to their places.
const SHARED_AND_EXPORTED: u16 = 1 << 6 | 1 << 7;
/// Options of the compressor follow the superblock. They are for programs that add to an image.
const OPTIONS: u16 = 1 << 10;

#[derive(Clone, Debug)]
pub(super) struct Superblock {
    pub(super) inodes: u32,
    made: u32,
    pub(super) block_size: u32,
    pub(super) fragments: u32,
    block_log: u16,
    flags: u16,
    pub(super) ids: u16,
    pub(super) root: u64,
    pub(super) bytes_used: u64,
    pub(super) id_table: u64,
    pub(super) xattr_table: u64,
    pub(super) inode_table: u64,
    pub(super) directory_table: u64,
    pub(super) fragment_table: u64,
    pub(super) export_table: u64,
}

impl Superblock {
    /// That of an image without anything in it, made at `made`, in seconds since 1970.
    pub(super) fn new(made: u32, block_size: u32) -> Self {
        // At most 20.
        #[allow(clippy::cast_possible_truncation)]
        let block_log = block_size.ilog2() as u16;
        Self {
            inodes: 0,
            made,
            block_size,
            fragments: 0,
            block_log,
            flags: SHARED_AND_EXPORTED,
            ids: 0,
            root: 0,
            bytes_used: 0,
            id_table: ABSENT,
            xattr_table: ABSENT,
            inode_table: 0,
            directory_table: 0,
            fragment_table: ABSENT,
            export_table: ABSENT,
        }
    }

    pub(super) fn read(bytes: &[u8]) -> ExpandResult<Self> {
        if u32_at(bytes, 0)? != MAGIC {
            return Err(ExpandError::NotSquashfs);
        }
        let version = (u16_at(bytes, 28)?, u16_at(bytes, 30)?);
        if version != (4, 0) {
            return Err(ExpandError::Unsupported(format!(
                "it has version {}.{}, not 4.0",
                version.0, version.1
            )));
        }
        let compressor = u16_at(bytes, 20)?;
        if compressor != ZSTD {
            let name =
                COMPRESSORS.get(usize::from(compressor).wrapping_sub(1)).unwrap_or(&"an unknown program");
            return Err(ExpandError::Unsupported(format!("it is compressed by {name}, not by zstd")));
        }
        let (block_size, block_log) = (u32_at(bytes, 12)?, u16_at(bytes, 22)?);
        if !(12..=20).contains(&block_log) || block_size != 1 << block_log {
            return Err(ExpandError::Damaged("its blocks have a size that is not allowed"));
        }
        Ok(Self {
            inodes: u32_at(bytes, 4)?,
            made: u32_at(bytes, 8)?,
            block_size,
            fragments: u32_at(bytes, 16)?,
            block_log,
            flags: u16_at(bytes, 24)?,
            ids: u16_at(bytes, 26)?,
            root: u64_at(bytes, 32)?,
            bytes_used: u64_at(bytes, 40)?,
            id_table: u64_at(bytes, 48)?,
            xattr_table: u64_at(bytes, 56)?,
            inode_table: u64_at(bytes, 64)?,
            directory_table: u64_at(bytes, 72)?,
            fragment_table: u64_at(bytes, 80)?,
            export_table: u64_at(bytes, 88)?,
        })
    }

    /// The superblock of an expanded image. It tells nothing of how the image was compressed before.
    pub(super) fn expanded(&self) -> ExpandResult<[u8; LENGTH as usize]> {
        self.with_flags(self.flags | STORED_TABLES | STORED_DATA)
    }

    /// That of an image whose data is compressed.
    pub(super) fn compressed(&self) -> ExpandResult<[u8; LENGTH as usize]> {
        self.with_flags((self.flags | STORED_TABLES) & !STORED_DATA)
    }

    fn with_flags(&self, flags: u16) -> ExpandResult<[u8; LENGTH as usize]> {
        let mut bytes = Vec::new();
        for number in [MAGIC, self.inodes, self.made, self.block_size, self.fragments] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [ZSTD, self.block_log, flags & !OPTIONS, self.ids, 4, 0] {
            bytes.extend(number.to_le_bytes());
        }
        for number in [
            self.root,
            self.bytes_used,
            self.id_table,
            self.xattr_table,
            self.inode_table,
            self.directory_table,
            self.fragment_table,
            self.export_table,
        ] {
            bytes.extend(number.to_le_bytes());
        }
        array(&bytes, 0)
    }
}
