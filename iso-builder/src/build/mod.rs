//! A build: from a definition to media, as a graph of steps.
//!
//! ```text
//! packages ─ base ┬ kernel (kernel, initrd, loaders) ──────────┐
//! distribution ───┼ rootfs (overlays, installer) ──────────────┼ media
//! packages ─ built images ┐                                    │
//! archives and layouts ───┼ image store ─ metadata (containerd)┘
//! registries ─ blobs ─────┘
//! ```
//!
//! Each step is keyed by the digests of what goes into it, so a change rebuilds only what depends on it.

mod configuration;
mod host_programs;
mod images;
mod inputs;
mod kubernetes;
pub(crate) mod media;
mod os;
mod program;
mod record;
mod sbom;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::progress::Progress;
use serde::Serialize;

use crate::cache::{Cache, Outputs};
use crate::images::image::StoredImage;
use crate::lock::{Lock, LockPolicy};
use crate::namespaces::remove_tree;
use crate::obtain::packages;
use crate::sandbox;
use crate::steps::{PackageRepository, StepRequest, StepWork};

pub use inputs::PullOptions;
use inputs::{Inputs, Pins};
pub use media::Target;
pub(crate) use program::standard;

/// What a build is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the media are made from.
    pub inputs: InputOptions,
    /// The directory for the media.
    pub output: PathBuf,
    /// The `installer` executable that goes into the OS image.
    pub installer: PathBuf,
    /// The media to make.
    pub targets: Vec<Target>,
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

/// One build under way.
#[allow(missing_debug_implementations)]
struct Build<'a> {
    inputs: Inputs,
    lock: Lock,
    policy: LockPolicy,
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
    let build = Build::begin(&options.inputs, progress)?;
    // What is wrong with a configuration, a release or the installer is told before anything that takes time.
    let installer = program::check(&options.installer, build.inputs.loaded.definition.architecture)?;
    let scratch = tempfile::tempdir_in(build.inputs.cache.scratch()).context("making a scratch directory")?;
    let configuration = configuration::payloads(&build.inputs.loaded, scratch.path())?;
    files::make_directory(&options.output, 0o755)?;
    let distribution = build.distribution()?;
    let base = build.base()?;
    let kernel = build.kernel(&base)?;
    let rootfs = build.rootfs(&base, distribution.as_ref(), &installer)?;
    let images = build.images(&base)?;
    let parts = media::Parts::collect(kernel, &rootfs, images.as_ref(), configuration)?;
    let sbom = build.sbom(&base, images.as_ref())?;
    build.media(&parts, &sbom, &options.output, &options.targets)
}

/// Resolves every input of a definition anew and writes its lock file.
pub fn relock(options: &InputOptions, progress: &Progress) -> Result<Lock> {
    Inputs::gather(options, Pins::Anew, progress)?.relock(progress)
}

/// The images that a definition preloads, with their blobs and roles. Of images from registries the manifests are
/// pulled, and not the blobs.
pub fn list_images(options: &InputOptions, progress: &Progress) -> Result<Vec<StoredImage>> {
    let build = Build::begin(options, progress)?;
    let built = build.built_images()?;
    let images = build.all_images(built.as_ref())?;
    build.check_completeness(&images)?;
    Ok(images)
}

impl<'a> Build<'a> {
    fn begin(options: &InputOptions, progress: &'a Progress) -> Result<Self> {
        let inputs = Inputs::gather(options, Pins::Known, progress)?;
        let lock = inputs.lock(options.policy, progress)?;
        Ok(Self { inputs, lock, policy: options.policy, progress })
    }

    /// Does `work` in the sandbox, with outputs to `out`.
    fn sandboxed(&self, work: StepWork, out: &Path) -> Result<()> {
        let scratch =
            tempfile::tempdir_in(self.inputs.cache.scratch()).context("making a scratch directory")?;
        let request = StepRequest {
            work,
            out: out.to_owned(),
            scratch: scratch.path().to_owned(),
            epoch: self.lock.epoch,
        };
        let result = sandbox::run(&request, scratch.path());
        remove_tree(scratch.path())?;
        result
    }

    /// The local repository of the locked packages.
    fn repository(&self) -> Result<PackageRepository> {
        packages::fetch(&self.lock, &self.inputs.cache, self.policy, self.progress)
    }
}
