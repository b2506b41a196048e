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
mod context;
mod host_programs;
mod image_outputs;
mod images;
mod inputs;
mod kubernetes;
mod media;
mod options;
mod os;
mod program;
mod record;
mod release_images;
mod sbom;

use anyhow::{Context, Result};
use base::files;
use base::progress::Progress;

use self::context::Build;
use self::inputs::{BuildInputs, LockUse};
pub use self::media::BuiltFile;
pub use self::options::{BuildOptions, CacheOptions, InputOptions, MediumTarget, PullOptions};
pub(crate) use self::program::standard;
use crate::images::stored_image::StoredImage;
use crate::lock::Lock;

/// Builds the media and returns the files of those that were requested.
pub fn build(options: &BuildOptions, progress: &Progress) -> Result<Vec<BuiltFile>> {
    let build = Build::begin(&options.inputs, progress)?;
    // Mistakes in a configuration, a release or the installer are reported before anything that takes time.
    let installer = program::check(&options.installer, build.inputs.loaded.definition.architecture)?;
    let scratch = tempfile::tempdir_in(build.inputs.cache.scratch()).context("making a scratch directory")?;
    let configuration = configuration::payloads(&build.inputs.loaded, scratch.path())?;
    files::make_directory(&options.output, 0o755)?;
    let distribution = build.distribution()?;
    let base = build.base()?;
    build.check_base(&base)?;
    let kernel = build.kernel(&base)?;
    let rootfs = build.rootfs(&base, distribution.as_ref(), &installer)?;
    let images = build.images(&base)?;
    let parts = media::MediumParts::collect(kernel, &rootfs, images.as_ref(), configuration)?;
    let sbom = build.sbom(&base, images.as_ref())?;
    build.media(&parts, &sbom, &options.output, &options.targets)
}

/// Resolves every input of a definition anew and writes its lock file.
pub fn relock(options: &InputOptions, progress: &Progress) -> Result<Lock> {
    BuildInputs::gather(options, LockUse::Anew, progress)?.relock(progress)
}

/// The images that a definition preloads, with their blobs and roles. From registries only manifests are pulled, no
/// blobs.
pub fn list_images(options: &InputOptions, progress: &Progress) -> Result<Vec<StoredImage>> {
    let build = Build::begin(options, progress)?;
    let built = build.built_images()?;
    let images = build.all_images(built.as_ref())?;
    build.check_completeness(&images)?;
    Ok(images)
}
