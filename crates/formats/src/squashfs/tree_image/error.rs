//! Why a tree cannot become an image.

use std::io;
use std::path::PathBuf;

use crate::squashfs::error::ExpandError;

/// Why a tree cannot be laid out. Paths are those in the image.
#[derive(Debug, thiserror::Error)]
pub enum TreeImageError {
    #[error("reading {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Another length than before.
    #[error("{} has changed while it was read", .0.display())]
    Changed(PathBuf),
    /// More than the format has numbers for.
    #[error("the tree does not fit into a squashfs")]
    TooLarge(#[source] ExpandError),
}

/// There is more of something than numbers in which the format counts it.
pub(super) fn too_many() -> ExpandError {
    ExpandError::Unsupported("it has more files, owners or fragments than the format can number".into())
}
