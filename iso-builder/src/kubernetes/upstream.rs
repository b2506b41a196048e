//! A release of upstream Kubernetes, which kubeadm sets up: its programs, its images, and the roles that need them.
//!
//! `configs/kubernetes/build.sh` makes such a release as files. The public one has the programs on a server and the images
//! in a registry, under the names that its kubeadm prints.

use anyhow::Result;
use base::failure::{Class, Failure};
use formats::oci::ImageReference;
use model::config::Role;

use model::architecture::Architecture;
use model::kubernetes::{KubernetesVersion, UpstreamImages};

/// The oldest minor version: since then `kubeadm join phase etcd-join` can be run alone, which makes a witness.
pub(super) const MINOR_MIN: u32 = 35;
/// The programs in the OS image, each with the version of the release.
pub const PROGRAMS: [&str; 3] = ["kubeadm", "kubectl", "kubelet"];
/// A further program, from a release that `configs/kubernetes/build.sh` made. It has a version of its own, and the server of the
/// public release does not have it.
pub const CRICTL: &str = "crictl";
/// The registry of the images. kubeadm asks for them by these names, and nodes do not change that.
const REGISTRY: &str = "registry.k8s.io";
/// The images that have the tag of the release.
const VERSIONED: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"];
const COREDNS: &str = "coredns/coredns";
const ETCD: &str = "etcd";
const PAUSE: &str = "pause";

/// Whether a program has the version of the release in it.
#[must_use]
pub fn has_version_of_release(program: &str) -> bool {
    program != CRICTL
}

/// Where the programs of the public release are.
pub(super) fn public_url(version: &KubernetesVersion, architecture: Architecture) -> String {
    format!("https://dl.k8s.io/release/{version}/bin/linux/{architecture}")
}

/// The archives of a release, one for each image.
pub(super) fn archives() -> Vec<String> {
    let names = VERSIONED.into_iter().chain(["coredns", ETCD, PAUSE]);
    names.map(|name| format!("{name}.tar.zst")).collect()
}

/// The roles whose nodes run an image of the release; empty for every role. Nodes of role `default` may get a control
/// plane.
#[must_use]
pub fn roles(image: &ImageReference) -> Vec<Role> {
    match image.repository().path() {
        ETCD => vec![Role::Default, Role::Management, Role::Witness],
        "kube-apiserver" | "kube-controller-manager" | "kube-scheduler" => {
            vec![Role::Default, Role::Management]
        }
        _ => Vec::new(),
    }
}

/// Finds those that have versions of their own among the images of a release.
///
/// # Errors
/// [`Class::Invalid`] if one of the images of the release `version` is missing, or is that of another release.
pub fn upstream_images(images: &[ImageReference], version: &KubernetesVersion) -> Result<UpstreamImages> {
    let found = |path: &str, tag: Option<&str>| {
        let fits = |image: &&ImageReference| {
            let repository = image.repository();
            (repository.registry(), repository.path()) == (REGISTRY, path)
                && image.tag().is_some_and(|found| tag.is_none_or(|tag| tag == found))
        };
        images.iter().find(fits).cloned().ok_or_else(|| {
            let tag = tag.map(|tag| format!(":{tag}")).unwrap_or_default();
            lacking(&format!("{REGISTRY}/{path}{tag}"), images, version)
        })
    };
    for path in VERSIONED {
        found(path, Some(version.as_str()))?;
    }
    Ok(UpstreamImages {
        pause: found(PAUSE, None)?,
        etcd: found(ETCD, None)?,
        coredns: found(COREDNS, None)?,
    })
}

fn lacking(image: &str, images: &[ImageReference], version: &KubernetesVersion) -> Failure {
    let names: Vec<_> = images.iter().map(ToString::to_string).collect();
    let why = format!("there is no {image}; there are: {}", names.join(", "));
    Failure::new(Class::Invalid, format!("the images are not those of Kubernetes {version}"))
        .because(anyhow::anyhow!("{why}"))
        .hint("Take all files from one release, the one that kubernetes.version names.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images(version: &str) -> Vec<ImageReference> {
        let of = |name: &&str| format!("registry.k8s.io/{name}:{version}").parse().unwrap();
        let mut images: Vec<_> = VERSIONED.iter().map(of).collect();
        for name in ["etcd:3.7.3-0", "coredns/coredns:v1.14.6", "pause:3.10.2"] {
            images.push(format!("registry.k8s.io/{name}").parse().unwrap());
        }
        images
    }

    #[test]
    fn nodes_get_the_images_that_their_role_runs() {
        let of = |role: Role| {
            let runs = |image: &ImageReference| roles(image).is_empty() || roles(image).contains(&role);
            let all = images("v1.37.2");
            let names =
                all.iter().filter(|image| runs(image)).map(|image| image.repository().path().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(of(Role::Worker), ["kube-proxy", "coredns/coredns", "pause"]);
        assert_eq!(of(Role::Witness), ["kube-proxy", "etcd", "coredns/coredns", "pause"]);
        assert_eq!((of(Role::Management).len(), of(Role::Default).len()), (7, 7));
    }

    #[test]
    fn all_images_of_the_release_have_to_be_there() {
        let version = "v1.37.2".parse().unwrap();
        let all = images("v1.37.2");
        let own = upstream_images(&all, &version).unwrap();
        assert_eq!(own.etcd, all[4]);
        for index in 0..all.len() {
            let mut fewer = all.clone();
            let gone = fewer.remove(index);
            let told = base::failure::render(&upstream_images(&fewer, &version).unwrap_err());
            assert!(
                told.contains(&format!("there is no registry.k8s.io/{}", gone.repository().path())),
                "{told}"
            );
        }
        let told = base::failure::render(&upstream_images(&images("v1.37.1"), &version).unwrap_err());
        assert!(told.contains("there is no registry.k8s.io/kube-apiserver:v1.37.2; there are: "), "{told}");
    }
}
