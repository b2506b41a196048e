//! The work in the sandbox, one file per kind. Here the builder is root in namespaces of its own.
//!
//! A [`StepRequest`] carries everything: absolute paths, parameters, and the directory for outputs. The pipeline decides
//! what is built.

mod base_image;
mod bootstrap;
mod distribution;
mod extension;
mod hardware;
mod kernel;
mod limit;
mod memory;
mod metadata;
mod modules;
mod outcome;
mod repository;
mod request;
mod resolve;
mod rootfs;
mod tree;
mod within;

use std::path::Path;

use anyhow::{Context, Result};
use base::files;

use crate::emulation::{self, PreparedSandbox};

pub(crate) use base_image::layout::layers as layers_of_layout;
pub use base_image::{EPOCH_OUTPUT, SURVEY_OUTPUT, SurveyedDirectory, keep_epoch};
pub use distribution::{IMAGE_NAMES_OUTPUT, OVERLAY_OUTPUT};
pub use extension::{EXTENSION_INITRD, EXTENSION_OUTPUT, EXTENSION_ROOTFS};
pub use hardware::COVERAGE_OUTPUT;
#[cfg(test)]
pub(crate) use hardware::coverage_of;
pub(crate) use kernel::only_kernel;
pub(crate) use memory::available_memory;
pub use metadata::{WRITTEN_OUTPUT, WrittenMetadata};
pub use outcome::StepOutcome;
pub use repository::{PackageRepository, RepositoryFile};
pub use request::{
    BaseSource, DistributionSource, ExtensionSource, MetadataSource, ModuleFiles, ModuleSigner,
    ProductIdentity, RootfsSource, StepRequest, StepWork,
};
pub use rootfs::{IMAGE_HASHES_OUTPUT, IMAGE_OUTPUT, ImageCompression, ImageHashes};

/// The hidden command `step`: carries out the request file; a failure goes into the outcome file. Returns the exit
/// code.
pub fn main(request: &Path, outcome: &Path) -> u8 {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    crate::namespaces::mount_proc();
    let carried_out = read(request).and_then(|step| {
        match emulation::prepare(step.architecture, &[Path::new("step"), request, outcome])? {
            PreparedSandbox::Here => run(&step).map(|()| 0),
            PreparedSandbox::Elsewhere(code) => Ok(code),
        }
    });
    match carried_out {
        Ok(code) => code,
        Err(error) => {
            let bytes = base::encode::json_line(&StepOutcome::of(&error));
            let _ = std::fs::write(outcome, bytes);
            1
        }
    }
}

fn read(path: &Path) -> Result<StepRequest> {
    let bytes = files::read_at_most(path, 16 << 20)?;
    serde_json::from_slice(&bytes).context("reading the request")
}

fn run(request: &StepRequest) -> Result<()> {
    match &request.work {
        StepWork::Resolve { suite, mirrors, wanted, firmware, files } => {
            resolve::resolve(request, (suite, mirrors), wanted, firmware, files)
        }
        StepWork::Bootstrap { suite, repository, include } => {
            bootstrap::bootstrap(request, suite, repository, include)
        }
        StepWork::Extract { suite, repository, include } => {
            bootstrap::extract(request, suite, repository, include)
        }
        StepWork::ModuleTools { suite, repository, include } => {
            bootstrap::module_tools(request, suite, repository, include)
        }
        StepWork::Extension(source) => extension::make(request, source),
        StepWork::Import { source, epoch } => base_image::import(request, source, *epoch),
        StepWork::Survey(directory) => base_image::survey(request, directory),
        StepWork::Kernel { base, overlays } => kernel::make(request, base, overlays),
        StepWork::Distribution(from) => distribution::make(request, from),
        StepWork::ImageNames(kubeadm, version) => distribution::image_names(request, kubeadm, version),
        StepWork::Rootfs(rootfs) => rootfs::make(request, rootfs),
        StepWork::Metadata(from) => metadata::make(request, from),
    }
}
