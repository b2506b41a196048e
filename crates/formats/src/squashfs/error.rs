//! Why a squashfs cannot be expanded or compressed.

use std::io;

/// Why an image cannot be read or its expanded form not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    #[error("not a squashfs")]
    NotSquashfs,
    /// A squashfs of a kind that this reader does not support.
    #[error("the squashfs cannot be expanded: {0}")]
    Unsupported(String),
    /// A squashfs that contradicts itself.
    #[error("the squashfs is damaged: {0}")]
    Damaged(&'static str),
    /// A block that cannot be decompressed or is not as long as it should be.
    #[error("the squashfs is damaged: the block at byte {0} does not unpack to what it should")]
    Block(u64),
    /// The image is shorter than its own tables say.
    #[error("the squashfs is cut off: it has {length} bytes and should have at least {needed}")]
    Truncated {
        /// The end of the requested data, in bytes.
        needed: u64,
        /// Where the image ends, in bytes.
        length: u64,
    },
    /// The file or device that holds the image.
    #[error("reading the squashfs at byte {0}")]
    Read(u64, #[source] io::Error),
    #[error("writing the squashfs")]
    Write(#[source] io::Error),
    #[error("compressing a block of the squashfs")]
    Compress(#[source] io::Error),
}

pub type ExpandResult<T> = std::result::Result<T, ExpandError>;
