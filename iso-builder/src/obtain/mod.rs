//! What a definition names, had on this machine: everything resolved to a digest, downloaded, and checked.
//!
//! [`ReleaseQuery`] has the files of a Kubernetes distribution, [`packages`] Debian packages, both through `download`;
//! [`Locker`] makes the lock file.

mod download;
mod locker;
pub mod packages;
mod release;

pub use locker::Locker;
pub use release::{ObtainedRelease, ReleaseQuery};
