//! The image that RKE2 takes its programs and charts from.
//!
//! When RKE2 starts, it needs the content of `rancher/rke2-runtime` in `/bin` (containerd, kubelet, kubectl, runc, …)
//! and in `/charts` as directories below `/var/lib/rancher/rke2/data/TAG-HASH`. If they are missing it looks for the
//! image in archives in `agent/images`, and then asks a registry; it never looks into the store of the containerd that
//! it has yet to start (rke2 `pkg/bootstrap/bootstrap.go`, `Stage`). So the image is of no use in the image store: the
//! build puts its files into the OS image, and at each boot the directories link to them ([`super::system`]).

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};

use crate::images::stored_image::StoredImage;
use model::kubernetes::KubernetesVersion;

/// The repository of RKE2's runtime image, in any registry.
const RUNTIME_REPOSITORY: &str = "rancher/rke2-runtime";

/// The name of the directory in which RKE2 looks for its programs: the tag, and the beginning of the SHA-256 of the
/// image's reference as it is compiled in, which has no registry (`releaseRefDigest`).
#[must_use]
pub fn data_directory(version: &KubernetesVersion) -> String {
    let tag = version.tag();
    let digest = Digest::of(format!("{RUNTIME_REPOSITORY}:{tag}").as_bytes()).to_string();
    let hash: String = digest.chars().take(12).collect();
    format!("{tag}-{hash}")
}

/// Takes the runtime image of `version` out of the images of its release. Fails if it is not among them, or is that of
/// another release.
pub fn take(images: &mut Vec<StoredImage>, version: &KubernetesVersion) -> Result<StoredImage> {
    let is_runtime = |image: &StoredImage| image.name.repository().path() == RUNTIME_REPOSITORY;
    let fits = |image: &StoredImage| is_runtime(image) && image.name.tag() == Some(&version.tag());
    if let Some(index) = images.iter().position(fits) {
        return Ok(images.remove(index));
    }
    let others: Vec<_> =
        images.iter().filter(|image| is_runtime(image)).map(|image| image.name.to_string()).collect();
    let why = match others.as_slice() {
        [] => format!("they have no image {RUNTIME_REPOSITORY}"),
        others => format!("they have {}", others.join(", ")),
    };
    Err(Failure::new(Class::Invalid, format!("the archives of images are not those of RKE2 {version}"))
        .because(anyhow::anyhow!("{why}"))
        .hint("Take all files from one release, the one that kubernetes.version names.")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::blob::Blob;
    use crate::images::stored_image::ImageDocument;

    fn image(name: &str) -> StoredImage {
        let blob = Blob { digest: Digest::of(name.as_bytes()), size: 1 };
        let manifest = ImageDocument { media_type: "m".into(), blob };
        StoredImage {
            name: name.parse().unwrap(),
            roles: vec![],
            indexes: Vec::new(),
            siblings: Vec::new(),
            manifest,
            config: blob,
            layers: vec![],
        }
    }

    #[test]
    fn the_directory_is_the_one_that_nodes_of_rke2_have() {
        // From the process lists of real nodes.
        for (version, directory) in [
            ("v1.24.9+rke2r2", "v1.24.9-rke2r2-154c18a3ccf5"),
            ("v1.25.12+rke2r1", "v1.25.12-rke2r1-15557ace5a8f"),
            ("v1.29.0+rke2r1", "v1.29.0-rke2r1-491b1a599021"),
            ("v1.33.8+rke2r1", "v1.33.8-rke2r1-1b2872361ec5"),
        ] {
            assert_eq!(data_directory(&version.parse().unwrap()), directory);
        }
    }

    #[test]
    fn the_runtime_image_of_the_release_is_taken_out_and_another_is_refused() {
        let version = "v1.33.1+rke2r1".parse().unwrap();
        let all = ["rancher/mirrored-pause:3.6", "rancher/rke2-runtime:v1.33.1-rke2r1"];
        let mut images = all.map(image).to_vec();
        assert_eq!(take(&mut images, &version).unwrap().name, all[1].parse().unwrap());
        assert_eq!(images, [image(all[0])]);
        let told = |images: &[&str]| {
            let mut images: Vec<_> = images.iter().map(|name| image(name)).collect();
            let error = take(&mut images, &version).unwrap_err();
            assert_eq!(base::failure::class_of(&error), Class::Invalid);
            base::failure::render(&error)
        };
        assert!(told(&all[..1]).contains("they have no image rancher/rke2-runtime"));
        let other = told(&["rancher/rke2-runtime:v1.33.2-rke2r1"]);
        assert!(other.contains("not those of RKE2 v1.33.1+rke2r1"), "{other}");
        assert!(other.contains("they have docker.io/rancher/rke2-runtime:v1.33.2-rke2r1"), "{other}");
    }
}
