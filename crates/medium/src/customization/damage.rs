//! How long an area and its parts are, and what can be wrong with them. The area as a whole and the archive in it are read
//! in files of their own.

use std::io;

use base::digest::Digest;
use base::failure::{Class, Failure};

/// Bytes before the archive: a block of every kind of disk.
pub const HEADER: usize = 4096;
/// Room for the archive in bytes.
pub const CAPACITY: usize = 16 << 20;
/// Length of the file in bytes.
pub const LENGTH: u64 = (HEADER + CAPACITY) as u64;

/// What is wrong with an area, a clause.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// Neither zeros nor a header.
    #[error("it begins with neither a header nor zeros")]
    NotOne,
    /// Made by another program than this one.
    #[error("it is of version {0}, which this program does not know")]
    Version(u32),
    /// It is being written, or power was lost while it was.
    #[error("writing it was begun and not finished")]
    Unfinished,
    /// The header contradicts itself.
    #[error("its header is damaged")]
    Header,
    /// Its length is more than there is room for.
    #[error("it should have {0} bytes, and there is room for {CAPACITY}")]
    Length(u64),
    /// The bytes are others than were written.
    #[error("its archive, from byte {HEADER} on, has the SHA-256 {found} instead of {expected}")]
    Digest {
        /// What they have.
        found: Digest,
        /// What the header says.
        expected: Digest,
    },
    /// An archive that holds what it must not.
    #[error("its archive is not as it should be: {0}")]
    Archive(String),
    /// It ends too early, or cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

impl Damage {
    /// The failure of reading the area that `what` names.
    #[must_use]
    pub fn failure(self, what: String) -> Failure {
        let hint = "Run `iso-builder customize` on the medium again, or with --reset.";
        Failure::new(Class::Verification, what).because(self).hint(hint)
    }
}
