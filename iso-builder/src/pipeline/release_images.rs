//! The images of the Kubernetes distribution's release.

use anyhow::{Context, Result};
use base::files;
use base::progress::Progress;
use formats::oci::ImageReference;
use model::architecture::Architecture;
use model::config::Distribution;
use serde_json::json;

use super::image_outputs::{STORE_OUTPUT, imported, stored};
use crate::cache::{Cache, StepKey, StepOutputs};
use crate::definition::LoadedDefinition;
use crate::images::Store;
use crate::images::import::ImageImport;
use crate::images::preload::NeededImage;
use crate::images::stored_image::StoredImage;
use crate::kubernetes::runtime;
use crate::kubernetes::upstream;
use crate::obtain::ObtainedRelease;
use crate::sandbox;
use crate::steps::{IMAGE_NAMES_OUTPUT, StepRequest, StepWork};
use model::kubernetes::UpstreamImages;

/// A release, with those of its images that do not go into the image store.
#[derive(Debug)]
pub(super) struct ReleaseImages {
    pub(super) release: ObtainedRelease,
    /// RKE2's runtime image, and the store that it is in.
    pub(super) runtime: Option<(Store, StoredImage)>,
    /// The images of upstream Kubernetes that nodes ask for by name.
    pub(super) upstream: Option<UpstreamImages>,
    /// The images that come from a registry, because the release has no archives.
    pub(super) pulled: Vec<NeededImage>,
}

type StepImages = Vec<(StepOutputs, Vec<StoredImage>)>;

/// Reads the release's archives of images, or asks its kubeadm for their names. All roles get all images of RKE2 and K3s:
/// their releases do not say which role runs which image, and the first node of a cluster runs the control plane whatever
/// its role is.
pub(super) fn bring(
    release: ObtainedRelease,
    loaded: &LoadedDefinition,
    cache: &Cache,
    progress: &Progress,
) -> Result<(ReleaseImages, StepImages)> {
    let spec = loaded.definition.kubernetes.as_ref().context("a release belongs to a definition")?;
    let architecture = loaded.definition.architecture;
    let mut images = Vec::new();
    for name in spec.archives(architecture) {
        let path = release.path(&name);
        let import = ImageImport {
            path: &path,
            references: &[],
            checksums: None,
            architecture: architecture.debian(),
            roles: &[],
        };
        let outputs = imported(&import, release.digest(&name)?, cache, progress)?;
        let stored = stored(&outputs)?;
        images.push((outputs, stored));
    }
    let mut brought = ReleaseImages { release, runtime: None, upstream: None, pulled: Vec::new() };
    match spec.distribution {
        Distribution::Rke2 => brought.runtime = Some(take_runtime(&mut images, &brought.release)?),
        Distribution::K3s => {}
        Distribution::Kubeadm => {
            brought.add_upstream(&mut images, spec.has_archives(), architecture, cache)?;
        }
    }
    Ok((brought, images))
}

impl ReleaseImages {
    /// The images of upstream Kubernetes, each for the roles that run it.
    fn add_upstream(
        &mut self,
        stored: &mut StepImages,
        archives: bool,
        architecture: Architecture,
        cache: &Cache,
    ) -> Result<()> {
        let names = if archives {
            let images = || stored.iter().flat_map(|(_, images)| images);
            images().map(|image| image.name.clone()).collect()
        } else {
            names_of(&self.release, architecture, cache)?
        };
        self.upstream = Some(upstream::upstream_images(&names, &self.release.locked.version)?);
        for image in stored.iter_mut().flat_map(|(_, images)| images) {
            image.roles = upstream::roles(&image.name);
        }
        if !archives {
            let needed =
                |reference: ImageReference| NeededImage { roles: upstream::roles(&reference), reference };
            self.pulled = names.into_iter().map(needed).collect();
        }
        Ok(())
    }
}

/// The names of the release's images, from its kubeadm.
fn names_of(
    release: &ObtainedRelease,
    architecture: Architecture,
    cache: &Cache,
) -> Result<Vec<ImageReference>> {
    let version = &release.locked.version;
    let inputs = json!({ "kubeadm": release.digest("kubeadm")?, "version": version });
    let outputs = cache.step(&StepKey::new("kubernetes-images", 1, inputs), |out| {
        let scratch = tempfile::tempdir_in(cache.scratch()).context("making a scratch directory")?;
        let work = StepWork::ImageNames(release.path("kubeadm"), version.clone());
        let (out, directory) = (out.to_owned(), scratch.path().to_owned());
        let request = StepRequest { work, architecture, out, scratch: directory, epoch: 0 };
        sandbox::run(&request, scratch.path())
    })?;
    let text = files::read_text(&outputs.path(IMAGE_NAMES_OUTPUT)?)?;
    let name = |line: &str| {
        line.parse().with_context(|| format!("reading {line:?} among the images of Kubernetes {version}"))
    };
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(name).collect()
}

/// Takes RKE2's runtime image out of the archives.
fn take_runtime(images: &mut StepImages, release: &ObtainedRelease) -> Result<(Store, StoredImage)> {
    let version = &release.locked.version;
    let mut all: Vec<_> = images.iter().flat_map(|(_, images)| images.clone()).collect();
    let runtime = runtime::take(&mut all, version)?;
    let holder = images.iter().find(|(_, images)| images.contains(&runtime));
    let (outputs, _) = holder.context("an image is in the archive that it came from")?;
    let store = Store::at(&outputs.path(STORE_OUTPUT)?);
    images.iter_mut().for_each(|(_, images)| images.retain(|image| image.name != runtime.name));
    Ok((store, runtime))
}
