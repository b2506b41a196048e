//! What is done inside the sandbox, one file per kind of work. Here the builder is root in namespaces of its own.
//!
//! A [`Request`] carries everything: absolute paths, parameters, and the directory for outputs. Nothing here
//! decides what is to be built; `build` does.

mod base_image;
mod bootstrap;
mod distribution;
mod kernel;
mod metadata;
mod packages;
mod rootfs;
mod tree;
mod within;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::files;
use serde::{Deserialize, Serialize};

use crate::sandbox::Outcome;

pub use packages::{Resolved, Wanted};

/// One piece of work in the sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// What to do.
    pub work: Work,
    /// Where outputs go; exists and is empty.
    pub out: PathBuf,
    /// Where trees may be unpacked; exists.
    pub scratch: PathBuf,
    /// The time stamp of everything made.
    pub epoch: u64,
}

/// The kinds of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Asks apt which packages, in which versions, satisfy each list; writes `resolved.json`.
    Resolve {
        /// Debian's name of the release.
        suite: String,
        /// Mirrors, as for `mmdebstrap`.
        mirrors: Vec<String>,
        /// The lists.
        wanted: Vec<Wanted>,
    },
    /// Puts a root file system together from a local repository; writes `base.tar`.
    Bootstrap {
        /// Debian's name of the release.
        suite: String,
        /// The packages: files named as in their repository, with their digests' files to link to.
        repository: packages::Repository,
        /// Packages to include.
        include: Vec<String>,
    },
    /// Extracts packages without installing them; writes `layer.tar`.
    Extract {
        /// Debian's name of the release.
        suite: String,
        /// The packages.
        repository: packages::Repository,
        /// Packages to extract, with what they depend on.
        include: Vec<String>,
    },
    /// Makes `base.tar` from another source than Debian packages.
    Import(base_image::Source),
    /// Writes the digest of a directory that a base is made from, to [`SURVEY`].
    Survey(PathBuf),
    /// Makes `vmlinuz`, `initrd`, `kernel-release` and `loaders/` from `base.tar`.
    Kernel {
        /// The base.
        base: PathBuf,
        /// Directories laid over the tree before dracut runs.
        overlays: Vec<PathBuf>,
    },
    /// Lays out what a release of the Kubernetes distribution brings to the OS image, to [`OVERLAY`].
    Distribution(distribution::Distribution),
    /// Makes `rootfs.squashfs` from `base.tar`.
    Rootfs(rootfs::Rootfs),
    /// Makes containerd's metadata for an image store, with the base's own containerd.
    Metadata(metadata::Metadata),
}

pub use base_image::{SURVEY, Source};
pub use distribution::{Distribution, OVERLAY};
pub use metadata::{Metadata, WRITTEN, Written};
pub use packages::Repository;
pub use rootfs::{Identity, Rootfs};

/// The hidden command `step`: does what the request file says; a failure goes into the outcome file.
pub fn main(request: &Path, outcome: &Path) -> u8 {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    match read(request).and_then(|request| request.run()) {
        Ok(()) => 0,
        Err(error) => {
            let bytes = base::encode::json_line(&Outcome::of(&error));
            let _ = std::fs::write(outcome, bytes);
            1
        }
    }
}

fn read(path: &Path) -> Result<Request> {
    let bytes = files::read_at_most(path, 16 << 20)?;
    serde_json::from_slice(&bytes).context("reading the request")
}

impl Request {
    fn run(self) -> Result<()> {
        match &self.work {
            Work::Resolve { suite, mirrors, wanted } => packages::resolve(&self, suite, mirrors, wanted),
            Work::Bootstrap { suite, repository, include } => {
                bootstrap::bootstrap(&self, suite, repository, include)
            }
            Work::Extract { suite, repository, include } => {
                bootstrap::extract(&self, suite, repository, include)
            }
            Work::Import(source) => base_image::import(&self, source),
            Work::Survey(directory) => base_image::survey(&self, directory),
            Work::Kernel { base, overlays } => kernel::make(&self, base, overlays),
            Work::Distribution(from) => distribution::make(&self, from),
            Work::Rootfs(rootfs) => rootfs::make(&self, rootfs),
            Work::Metadata(from) => metadata::make(&self, from),
        }
    }
}
