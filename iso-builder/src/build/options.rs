//! What a build is asked for.

use std::path::PathBuf;

use anyhow::Result;
use base::progress::Progress;
use base::size::ByteSize;

use crate::cache::Cache;
use crate::lock::LockPolicy;

/// What a build is asked for.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// What the media are made from.
    pub inputs: InputOptions,
    /// The directory for the media.
    pub output: PathBuf,
    /// The `installer` executable that goes into the OS image.
    pub installer: PathBuf,
    /// The media to make.
    pub targets: Vec<MediumTarget>,
}

/// A definition, and how what it names is had.
#[derive(Clone, Debug)]
pub struct InputOptions {
    /// The definition's file.
    pub definition: PathBuf,
    /// How the lock file and the network are treated.
    pub policy: LockPolicy,
    /// How images are pulled.
    pub pull: PullOptions,
    /// Where steps and downloads are kept.
    pub cache: CacheOptions,
}

/// Where steps and downloads are kept.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// The cache.
    pub directory: PathBuf,
    /// Downloads, if they are kept elsewhere.
    pub downloads: Option<PathBuf>,
}

impl CacheOptions {
    /// Opens the cache, telling when it has to wait.
    pub fn open(&self, progress: &Progress) -> Result<Cache> {
        let wait = || progress.note("cache", "Waiting for another build that uses the same cache");
        Cache::open(&self.directory, self.downloads.as_deref(), wait)
    }
}

/// How images are pulled.
#[derive(Clone, Copy, Debug)]
pub struct PullOptions {
    /// Transfers at the same time.
    pub transfers: usize,
    /// Bytes a second, all transfers together.
    pub rate: Option<ByteSize>,
}

/// What media can be made of one definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum MediumTarget {
    /// The ISO that carries everything.
    Full,
    /// The ISO whose container images come over the network.
    NetInstall,
    /// Kernel, initrd and OS image as files.
    Netboot,
}
