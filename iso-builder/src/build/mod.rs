//! A build: from a definition to media, as a graph of steps.
//!
//! ```text
//! packages ─ base ┬ kernel (kernel, initrd, loaders) ────────────┐
//!                 ├ rootfs (overlays, installer) ────────────────┼ media
//! packages ─ layers ─ image store ─ metadata (base's containerd) ┘
//! ```
//!
//! Each step is keyed by the digests of what goes into it, so a change rebuilds only what depends on it.

mod configuration;
mod images;
mod media;
mod os;
mod record;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use installer::digest::Digest;
use installer::files;
use installer::progress::Progress;
use serde::Serialize;

use crate::cache::{Cache, Outputs};
use crate::definition::Loaded;
use crate::lock::Lock;
use crate::packages::{self, Policy};
use crate::sandbox;
use crate::steps::{Repository, Request, Work};

pub use media::Target;

/// What a build is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The definition's file.
    pub definition: PathBuf,
    /// The directory for the media.
    pub output: PathBuf,
    /// The `installer` executable that goes into the OS image.
    pub installer: PathBuf,
    /// The media to make.
    pub targets: Vec<Target>,
    /// How the lock file and the network are treated.
    pub policy: Policy,
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

/// One build under way.
#[derive(Debug)]
struct Build<'a> {
    loaded: Loaded,
    lock: Lock,
    cache: Cache,
    options: &'a Options,
    progress: &'a Progress,
}

/// A file that a build has made, or found up to date.
#[derive(Clone, Debug, Serialize)]
pub struct Medium {
    /// Where it is.
    pub path: PathBuf,
    /// Its length in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Digest,
}

/// Builds the media and says which there are now.
pub fn build(options: &Options, progress: &Progress) -> Result<Vec<Medium>> {
    let loaded = Loaded::read(&options.definition)?;
    crate::tools::check()?;
    files::make_directory(&options.output, 0o755)?;
    let cache = options.cache.open(progress)?;
    let lock = packages::lock(&loaded, &cache, options.policy, progress)?;
    let build = Build { loaded, lock, cache, options, progress };
    let base = build.base()?;
    let kernel = build.kernel(&base)?;
    let rootfs = build.rootfs(&base)?;
    let images = build.images(&base)?;
    let parts = media::Parts::collect(&build, kernel, &rootfs, images.as_ref())?;
    build.media(&parts, &options.targets)
}

impl Build<'_> {
    /// Does `work` in the sandbox, with outputs to `out`.
    fn sandboxed(&self, work: Work, out: &Path) -> Result<()> {
        let scratch = tempfile::tempdir_in(self.cache.scratch()).context("making a scratch directory")?;
        let request =
            Request { work, out: out.to_owned(), scratch: scratch.path().to_owned(), epoch: self.lock.epoch };
        let result = sandbox::run(&request, scratch.path());
        sandbox::remove_tree(scratch.path())?;
        result
    }

    /// The local repository of the locked packages.
    fn repository(&self) -> Result<Repository> {
        packages::fetch(&self.lock, &self.cache, self.options.policy, self.progress)
    }
}
