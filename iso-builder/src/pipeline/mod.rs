//! A build: from a definition to media, as a graph of steps.
//!
//! ```text
//! packages ─ base ┬ kernel (kernel, loaders) ─ initrd (installer) ┐
//! distribution ───┼ rootfs (overlays, installer) ──────────────┼ media
//! packages ─ built images ┐                                    │
//! archives and layouts ───┼ image store ─ metadata (containerd)┘
//! registries ─ blobs ─────┘
//! ```
//!
//! Each step is keyed by the digests of what goes into it, so a change rebuilds only what depends on it.

mod base_contents;
mod base_listing;
mod builder_image;
mod check;
mod configuration;
mod context;
mod disk;
mod host_programs;
mod image_outputs;
mod image_report;
mod images;
mod initrd;
mod inputs;
mod kubernetes;
mod media;
mod options;
mod os;
mod output;
mod program;
mod provenance;
mod record;
mod release_images;
mod report;
mod room;
mod runner_image;
mod sbom;
mod signing;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use base::progress::Progress;
use medium::build_output::REPORT;

pub use self::builder_image::{BuilderImageOptions, builder_image};
pub use self::check::{BuildCheck, CheckOptions, CheckReport, CheckState, check};
use self::context::Build;
pub use self::image_report::ImageReport;
use self::inputs::{BuildInputs, LockUse};
pub use self::media::BuiltFile;
pub use self::options::{BuildOptions, CacheOptions, InputOptions, PullOptions};
use self::output::OutputDirectory;
use self::program::BuildInstaller;
pub use self::program::InstallerChoice;
use self::provenance::MadeOutputs;
use self::report::Recording;
pub use self::report::{BuildReport, check_summary};
pub use self::runner_image::{runner_image, runner_image_name};
use self::signing::BuildSigning;
pub use self::signing::{BuildSigners, KnownSignatures};
use crate::definition::LoadedDefinition;
use crate::images::stored_image::StoredImage;
use crate::lock::Lock;
use crate::packages::ResolvedPackage;

/// Builds the media; returns the files of those that were requested, and the report that is written beside them.
pub fn build(options: &BuildOptions, progress: &Progress) -> Result<(Vec<BuiltFile>, BuildReport)> {
    let recording = Recording::begin();
    progress.add(Box::new(recording.warnings.clone()));
    // Everything that can be known is checked before anything that takes time or writes a lock file.
    let loaded = LoadedDefinition::read(&options.inputs.definition)?;
    let architecture = loaded.definition.architecture;
    let installer = BuildInstaller::of(&options.installer.path(architecture)?, architecture)?;
    let wanted: BTreeSet<_> =
        options.only.as_ref().unwrap_or(&loaded.definition.outputs).iter().copied().collect();
    host_programs::check_disks(&wanted)?;
    let scratch = tempfile::tempdir().context("making a scratch directory")?;
    let configuration = configuration::payloads(&loaded, scratch.path())?;
    configuration::disk(&loaded, &wanted)?;
    if let Some(warning) = configuration::unreachable_images(&loaded, &wanted) {
        progress.warn("configuration", &warning);
    }
    // A host that cannot build gets no directory.
    host_programs::check(architecture)?;
    let signing = BuildSigning::begin(&loaded, &options.signers, progress)?;
    let outputs = OutputDirectory::open(&options.output, progress)?;
    options.inputs.check_room(Some(&options.output))?;
    let approve = |packages: &[ResolvedPackage]| base_contents::check_packages(&loaded, packages);
    let build = Build::begin(loaded.clone(), &options.inputs, &approve, progress)?;
    build.check_room(&options.output, wanted.len())?;
    let distribution = build.distribution()?;
    let base = build.base()?;
    build.check_base(&base)?;
    let kernel = build.kernel(&base)?;
    let initrd = build.initrd(&kernel, &installer.path, &signing.store)?;
    let rootfs = build.rootfs(&base, distribution.as_ref(), &installer.path, &signing.store)?;
    let images = build.images(&base)?;
    let parts =
        media::MediumParts::collect(architecture, kernel, &initrd, &rootfs, images.as_ref(), configuration)?;
    let sbom = build.sbom(&base, images.as_ref())?;
    let sign = |manifest: &[u8]| signing.sign(manifest, build.lock.epoch);
    let tools = report::tools();
    let describe = |outputs: &MadeOutputs| build.provenance(outputs, &installer, &tools, &signing);
    let made = build.media(&parts, &sbom, &outputs, (&wanted, &installer), (&sign, &describe))?;
    let report = recording.end(&build, installer.sha256, tools, &made)?;
    outputs.write(REPORT, &report.to_bytes()?)?;
    outputs.commit(&made.stale)?;
    made.record.write()?;
    Ok((made.files, report))
}

/// Resolves every input of a definition anew and writes its lock file.
pub fn relock(options: &InputOptions, progress: &Progress) -> Result<Lock> {
    let loaded = LoadedDefinition::read(&options.definition)?;
    host_programs::check(loaded.definition.architecture)?;
    options.check_room(None)?;
    BuildInputs::gather(loaded, options, LockUse::Anew, progress)?.relock(progress)
}

/// The images that a definition preloads, with their blobs and roles. From registries only manifests are pulled, no
/// blobs.
pub fn list_images(options: &InputOptions, progress: &Progress) -> Result<Vec<StoredImage>> {
    let loaded = LoadedDefinition::read(&options.definition)?;
    host_programs::check(loaded.definition.architecture)?;
    options.check_room(None)?;
    let build = Build::begin(loaded, options, &|_| Ok(()), progress)?;
    let built = build.built_images()?;
    let images = build.all_images(built.as_ref())?;
    build.check_completeness(&images)?;
    Ok(images)
}
