//! Why an image cannot be read.

use std::io;

use crate::iso9660::address::Offset;

/// Why an image, or something in it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("not an ISO 9660 image")]
    NotIso,
    /// An ISO 9660 image that contradicts itself.
    #[error("the ISO 9660 image is damaged: {0}")]
    Damaged(&'static str),
    /// An ISO 9660 image of a kind that this reader does not support.
    #[error("the ISO 9660 image cannot be read: {0}")]
    Unsupported(&'static str),
    /// The image is shorter than its own directories say.
    #[error("the ISO 9660 image is cut off: it has {length} bytes and should have at least {needed}")]
    Truncated {
        /// The end of the requested data, in bytes.
        needed: u64,
        /// Where the image ends, in bytes.
        length: u64,
    },
    #[error("{0} is not in the image")]
    NotFound(String),
    /// A directory, a link or a device where a file is needed.
    #[error("{0} is not a regular file")]
    NotAFile(String),
    #[error("{0} is not a directory")]
    NotADirectory(String),
    /// The file or device that holds the image.
    #[error("reading the image at byte {offset}")]
    Io { offset: Offset, source: io::Error },
}

pub type Result<T> = std::result::Result<T, Error>;

/// A missing file keeps its kind, so that callers can treat images and directories alike.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound(_) => io::ErrorKind::NotFound,
            Error::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Error::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
