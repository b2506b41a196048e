//! Obtains the inputs of a definition: everything is resolved to a digest, downloaded, and checked.
//!
//! [`ReleaseQuery`] obtains the files of a Kubernetes distribution, [`packages`] Debian packages, both through
//! `download`; [`Locker`] makes the lock file.

mod download;
mod locker;
pub mod packages;
mod release;

pub use locker::{Locker, PackageApproval};
pub(crate) use release::listed;
pub use release::{ObtainedRelease, ReleaseQuery};
