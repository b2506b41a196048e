//! The state of one build: its inputs, its lock, and how its steps run in the sandbox.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use base::progress::Progress;
use base::size::ByteSize;

use super::base_system::check_epoch;
use super::inputs::{BuildInputs, LockUse};
use super::options::InputOptions;
use super::room::{self, NeededRoom};
use crate::cache::Cache;
use crate::definition::LoadedDefinition;
use crate::lock::{Lock, LockPolicy};
use crate::namespaces::remove_tree;
use crate::obtain::{PackageApproval, packages};
use crate::packages::ResolvedPackage;
use crate::product::ProductOverlays;
use crate::sandbox;
use crate::steps::{PackageRepository, StepRequest, StepWork};

#[allow(missing_debug_implementations)]
pub(super) struct Build<'a> {
    pub(super) inputs: BuildInputs,
    pub(super) lock: Lock,
    pub(super) policy: LockPolicy,
    /// The key that signs the modules of extensions.
    pub(super) module_key: Option<PathBuf>,
    /// The product's own files.
    pub(super) product: Arc<ProductOverlays>,
    pub(super) progress: &'a Progress,
}

impl<'a> Build<'a> {
    /// Gathers and locks the inputs of a definition. `approve` sees the packages before a lock file is written.
    pub(super) fn begin(
        loaded: LoadedDefinition,
        options: &InputOptions,
        cache: Cache,
        approve: PackageApproval<'_>,
        progress: &'a Progress,
    ) -> Result<Self> {
        let inputs = BuildInputs::gather(loaded, options, cache, LockUse::Known, progress)?;
        let lock = inputs.lock(options.policy, approve, progress)?;
        let product = Arc::new(ProductOverlays::below(inputs.cache.scratch()));
        let module_key = options.module_key.clone();
        let build = Self { inputs, lock, policy: options.policy, module_key, product, progress };
        build.given_epoch().map_or(Ok(()), check_epoch)?;
        Ok(build)
    }

    /// Fails if the disks have no room for a system that is not made yet and for so many media of it.
    pub(super) fn check_room(&self, output: &Path, media: usize) -> Result<()> {
        let (cache, packages) = (&self.inputs.cache, &self.lock.packages);
        if cache.has(&self.base_key())? {
            return Ok(());
        }
        let scratch = cache.scratch();
        let room = |purpose, directory, size, option| NeededRoom { purpose, directory, size, option };
        let media = ByteSize::bytes(room::of_medium(packages).get().saturating_mul(media as u64));
        room::check(&[
            room("the cache", &*scratch, room::of_system(packages), "--cache-dir"),
            room(
                "downloads",
                cache.downloads(),
                room::of_downloads(packages, cache.downloads()),
                "--downloads",
            ),
            room("the media", output, media, "--output"),
        ])
    }

    /// Does `work` in the sandbox; `out` is the directory for its outputs, whose files have the time `epoch`, in seconds since 1970.
    pub(super) fn sandboxed(&self, work: StepWork, epoch: u64, out: &Path) -> Result<()> {
        let scratch =
            tempfile::tempdir_in(self.inputs.cache.scratch()).context("making a scratch directory")?;
        let request = StepRequest {
            work,
            architecture: self.inputs.loaded.definition.architecture,
            out: out.to_owned(),
            scratch: scratch.path().to_owned(),
            epoch,
        };
        let result = sandbox::run(&request, scratch.path());
        remove_tree(scratch.path())?;
        result
    }

    /// A local repository of these packages of the lock.
    pub(super) fn repository(&self, packages: &[&ResolvedPackage]) -> Result<PackageRepository> {
        packages::fetch(packages, &self.inputs.loaded, &self.inputs.cache, self.policy, self.progress)
    }

    /// The time of all files, in seconds since 1970, if the definition or the lock gives one.
    pub(super) fn given_epoch(&self) -> Option<u64> {
        self.inputs.loaded.definition.epoch.map(u64::from).or(self.lock.epoch)
    }

    /// The time of all files that are made of these packages, in seconds since 1970.
    pub(super) fn epoch_of(&self, packages: &PackageRepository) -> Result<u64> {
        self.given_epoch().map_or_else(|| packages.newest(), Ok)
    }
}
