//! The images of the Kubernetes distribution's release.

use anyhow::{Context, Result};
use base::progress::Progress;
use model::config::Distribution;

use super::image_outputs::{STORE_OUTPUT, imported, stored};
use crate::cache::{Cache, StepOutputs};
use crate::definition::Loaded;
use crate::images::Store;
use crate::images::import::ImageImport;
use crate::images::stored_image::StoredImage;
use crate::kubernetes::runtime;
use crate::obtain::ObtainedRelease;

/// A release, with those of its images that do not go into the image store.
#[derive(Debug)]
pub(super) struct ReleaseImages {
    pub(super) release: ObtainedRelease,
    /// RKE2's runtime image, and the store that it is in.
    pub(super) runtime: Option<(Store, StoredImage)>,
}

/// Images, with the store that has them.
type StepImages = Vec<(StepOutputs, Vec<StoredImage>)>;

/// Reads the release's archives of images. All roles get all of them: a release does not say which role runs which
/// image, and the first node of a cluster runs the control plane whatever its role is.
pub(super) fn bring(
    release: ObtainedRelease,
    loaded: &Loaded,
    cache: &Cache,
    progress: &Progress,
) -> Result<(ReleaseImages, StepImages)> {
    let spec = loaded.definition.kubernetes.as_ref().context("a release belongs to a definition")?;
    let architecture = loaded.definition.architecture.debian();
    let mut images = Vec::new();
    for name in spec.archives(architecture) {
        let path = release.path(&name);
        let import = ImageImport { path: &path, references: &[], checksums: None, architecture, roles: &[] };
        let outputs = imported(&import, release.digest(&name)?, cache, progress)?;
        let stored = stored(&outputs)?;
        images.push((outputs, stored));
    }
    let runtime = match spec.distribution {
        Distribution::Rke2 => Some(take_runtime(&mut images, &release)?),
        Distribution::K3s => None,
    };
    Ok((ReleaseImages { release, runtime }, images))
}

/// Takes RKE2's runtime image out of the archives.
fn take_runtime(images: &mut StepImages, release: &ObtainedRelease) -> Result<(Store, StoredImage)> {
    let version = &release.locked.version;
    let mut all: Vec<_> = images.iter().flat_map(|(_, images)| images.clone()).collect();
    let runtime = runtime::take(&mut all, version)?;
    let holder = images.iter().find(|(_, images)| images.contains(&runtime));
    let (outputs, _) = holder.context("an image is in the archive that it came from")?;
    let store = Store::at(&outputs.path(STORE_OUTPUT));
    images.iter_mut().for_each(|(_, images)| images.retain(|image| image.name != runtime.name));
    Ok((store, runtime))
}
