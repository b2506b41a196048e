//! The lengths of an area and its parts, and how they can be damaged. Shared by the readers of the area and of its archive.

use std::io;

use base::digest::Digest;
use base::failure::{Class, Failure};

/// Bytes before the archive: a block of every kind of disk.
pub const HEADER: usize = 4096;
/// Room for the archive in bytes.
pub const CAPACITY: usize = 16 << 20;
/// Length of the file in bytes.
pub const LENGTH: u64 = (HEADER + CAPACITY) as u64;

/// The damage of an area, a clause.
#[derive(Debug, thiserror::Error)]
pub enum AreaDamage {
    /// Neither zeros nor a header.
    #[error("it begins with neither a header nor zeros")]
    NoHeader,
    /// Written by a newer program.
    #[error("its version is {0}, which this program does not support")]
    Version(u32),
    /// It is being written, or power was lost while it was.
    #[error("it was not written to its end")]
    Unfinished,
    /// The header contradicts itself.
    #[error("its header is damaged")]
    Header,
    /// Its length exceeds the area.
    #[error("it should have {0} bytes, and there is room for {CAPACITY}")]
    Length(u64),
    /// The archive has another digest.
    #[error("its archive, from byte {HEADER} on, has the SHA-256 {found} instead of {expected}")]
    Digest { found: Digest, expected: Digest },
    /// The archive has content that is not allowed.
    #[error("its archive is not valid: {0}")]
    Archive(String),
    /// It ends too early, or cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

impl AreaDamage {
    /// The failure of reading the area that `what` names.
    #[must_use]
    pub fn failure(self, what: String) -> Failure {
        let hint = "Run `iso-builder customize` on the medium again, or with --reset.";
        Failure::new(Class::Verification, what).because(self).hint(hint)
    }
}
