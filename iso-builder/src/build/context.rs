//! The state of one build: its inputs, its lock, and how its steps run in the sandbox.

use std::path::Path;

use anyhow::{Context, Result};
use base::progress::Progress;

use super::inputs::{BuildInputs, LockUse};
use super::options::InputOptions;
use crate::lock::{Lock, LockPolicy};
use crate::namespaces::remove_tree;
use crate::obtain::packages;
use crate::sandbox;
use crate::steps::{PackageRepository, StepRequest, StepWork};

#[allow(missing_debug_implementations)]
pub(super) struct Build<'a> {
    pub(super) inputs: BuildInputs,
    pub(super) lock: Lock,
    pub(super) policy: LockPolicy,
    pub(super) progress: &'a Progress,
}

impl<'a> Build<'a> {
    pub(super) fn begin(options: &InputOptions, progress: &'a Progress) -> Result<Self> {
        let inputs = BuildInputs::gather(options, LockUse::Known, progress)?;
        let lock = inputs.lock(options.policy, progress)?;
        Ok(Self { inputs, lock, policy: options.policy, progress })
    }

    /// Does `work` in the sandbox; `out` is the directory for its outputs.
    pub(super) fn sandboxed(&self, work: StepWork, out: &Path) -> Result<()> {
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
    pub(super) fn repository(&self) -> Result<PackageRepository> {
        packages::fetch(&self.lock, &self.inputs.cache, self.policy, self.progress)
    }
}
