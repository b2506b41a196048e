//! The Kubernetes distribution of a definition, and the files of its release.

use std::path::Path;

use document::finding::Finding;
use model::architecture::Architecture;
use model::config::Distribution;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::texts::{ArchiveName, Artifacts};
use super::upstream;
use model::kubernetes::KubernetesVersion;

/// The Kubernetes distribution that the OS image brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// Which distribution.
    pub distribution: Distribution,
    /// The release, as its tag says: `v1.33.1+rke2r1`, `v1.33.1+k3s1`; for kubeadm the version of Kubernetes, `v1.37.2`.
    pub version: KubernetesVersion,
    /// Where the files of the release are: a directory relative to the definition, or a URL. There has to be the list of
    /// checksums that the release publishes with them. Unless given, they come from the public release. `{architecture}` in it stands for the
    /// architecture, such as `arm64`. kubeadm:
    /// `make kubernetes` makes such a directory; from the public release come the programs, and the images from their
    /// registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Artifacts>,
    /// RKE2: which of the release's archives of container images go onto the media, by the part of their name that
    /// differs. Unless given: `core`, `canal` and `multus`, which is what nodes run. K3s has one archive, kubeadm one for
    /// each image that a cluster of it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ArchiveName>>,
}

/// The archives with the images that nodes of RKE2 run: their `config.yaml` asks for multus and canal, and the default ingress is in `core`.
const RKE2_ARCHIVES: [&str; 3] = [CORE_ARCHIVE, "canal", "multus"];
/// The archive with the control plane, and with the image that RKE2 takes its programs from.
const CORE_ARCHIVE: &str = "core";

impl Kubernetes {
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let (distribution, version) = (self.distribution, &self.version);
        if version.distribution() != distribution {
            let (of, name) = (version.distribution().name(), distribution.name());
            let message = format!("{version} is a release of {of}, and `kubernetes.distribution` is {name}");
            found.push(Finding::new("kubernetes.version", "other-distribution", message));
        }
        if distribution == Distribution::Kubeadm && version.minor() < upstream::MINOR_MIN {
            let message = format!(
                "{version} is too old: a witness joins by the phase etcd-join, which kubeadm has since v1.{}",
                upstream::MINOR_MIN
            );
            found.push(Finding::new("kubernetes.version", "too-old", message));
        }
        let images = match (&self.images, distribution) {
            (Some(_), Distribution::K3s) => {
                Some(("superfluous-key", "K3s has one archive of images; leave the key out".to_owned()))
            }
            (Some(_), Distribution::Kubeadm) => {
                let message = "a release of kubeadm has one archive for each of its images; leave the key out, and name \
                               further ones in `images.preload`";
                Some(("superfluous-key", message.to_owned()))
            }
            (Some(names), Distribution::Rke2) if !names.iter().any(|name| name.as_str() == CORE_ARCHIVE) => {
                let message = format!("every node of RKE2 needs `{CORE_ARCHIVE}`; add it");
                Some(("missing-value", message))
            }
            _ => None,
        };
        found.extend(images.map(|(code, message)| Finding::new("kubernetes.images", code, message)));
        found
    }

    #[must_use]
    pub fn artifacts(&self, architecture: Architecture) -> Artifacts {
        self.artifacts.clone().unwrap_or_else(|| {
            Artifacts::Url(match self.distribution {
                Distribution::Kubeadm => upstream::public_url(&self.version, architecture),
                Distribution::Rke2 | Distribution::K3s => {
                    let (owner, name) = self.repository();
                    let version = self.version.as_str().replace('+', "%2B");
                    format!("https://github.com/{owner}/{name}/releases/download/{version}")
                }
            })
        })
    }

    #[must_use]
    pub fn checksums(&self) -> Checksums {
        if self.has_archives() { Checksums::List } else { Checksums::Beside }
    }

    /// True if the images come from archives of the release; otherwise they are pulled.
    #[must_use]
    pub fn has_archives(&self) -> bool {
        self.distribution != Distribution::Kubeadm || self.artifacts.is_some()
    }

    /// Owner and name of the distribution's repository on GitHub.
    #[must_use]
    pub fn repository(&self) -> (&'static str, &'static str) {
        match self.distribution {
            Distribution::Rke2 => ("rancher", "rke2"),
            Distribution::K3s => ("k3s-io", "k3s"),
            Distribution::Kubeadm => ("kubernetes", "kubernetes"),
        }
    }

    /// The directory with the files, where they are in one.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        match &self.artifacts {
            Some(Artifacts::Directory(path)) => Some(path),
            _ => None,
        }
    }

    /// The files that have the distribution's programs: RKE2's archive of an installation, K3s's executable, or those
    /// of upstream Kubernetes.
    #[must_use]
    pub fn programs(&self, architecture: Architecture) -> Vec<String> {
        match self.distribution {
            Distribution::Rke2 => vec![format!("rke2.linux-{architecture}.tar.gz")],
            // Releases for other architectures have it at the end of the name.
            Distribution::K3s if architecture == Architecture::Amd64 => vec!["k3s".into()],
            Distribution::K3s => vec![format!("k3s-{architecture}")],
            Distribution::Kubeadm => {
                let crictl = self.has_archives().then_some(upstream::CRICTL);
                upstream::PROGRAMS.into_iter().chain(crictl).map(String::from).collect()
            }
        }
    }

    /// Those of the programs' files whose program has the version of the release in it.
    #[must_use]
    pub fn versioned_programs(&self, architecture: Architecture) -> Vec<String> {
        let mut programs = self.programs(architecture);
        programs.retain(|name| upstream::has_version_of_release(name));
        programs
    }

    /// All files of the release that are needed, sorted.
    #[must_use]
    pub fn files(&self, architecture: Architecture) -> Vec<String> {
        let mut names = self.archives(architecture);
        names.extend(self.programs(architecture));
        names.sort();
        names
    }

    /// The archives of container images, each once.
    #[must_use]
    pub fn archives(&self, architecture: Architecture) -> Vec<String> {
        match self.distribution {
            Distribution::K3s => return vec![format!("k3s-airgap-images-{architecture}.tar.zst")],
            Distribution::Kubeadm if self.has_archives() => return upstream::archives(),
            Distribution::Kubeadm => return Vec::new(),
            Distribution::Rke2 => {}
        }
        let given = self.images.as_ref().map(|names| names.iter().map(ArchiveName::as_str).collect());
        let names: Vec<&str> = given.unwrap_or_else(|| RKE2_ARCHIVES.to_vec());
        let mut files: Vec<_> =
            names.iter().map(|name| format!("rke2-images-{name}.linux-{architecture}.tar.zst")).collect();
        files.sort();
        files.dedup();
        files
    }
}

/// How a release says which bytes its files have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// In one list of all files.
    List,
    /// In a file `NAME.sha256` beside each file, with nothing but the digest.
    Beside,
}

/// The name of the release's list of checksums.
#[must_use]
pub fn checksums(architecture: Architecture) -> String {
    format!("sha256sum-{architecture}.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Kubernetes {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn a_release_has_the_files_that_its_definition_means() {
        let rke2 = read("{distribution: rke2, version: v1.33.1+rke2r1}");
        assert_eq!(rke2.programs(Architecture::Amd64), ["rke2.linux-amd64.tar.gz"]);
        let archives =
            ["canal", "core", "multus"].map(|name| format!("rke2-images-{name}.linux-amd64.tar.zst"));
        assert_eq!(rke2.archives(Architecture::Amd64), archives);
        let url = "https://github.com/rancher/rke2/releases/download/v1.33.1%2Brke2r1";
        assert_eq!(rke2.artifacts(Architecture::Amd64), Artifacts::Url(url.into()));
        let some = read("{distribution: rke2, version: v1.33.1+rke2r1, images: [core, cilium, core]}");
        assert_eq!(some.archives(Architecture::Amd64).len(), 2);
        let k3s = read("{distribution: k3s, version: v1.33.1+k3s1, artifacts: 'http://lab/k3s/'}");
        assert_eq!(
            [k3s.programs(Architecture::Amd64), k3s.programs(Architecture::Arm64)],
            [["k3s"], ["k3s-arm64"]]
        );
        assert_eq!(k3s.archives(Architecture::Amd64), ["k3s-airgap-images-amd64.tar.zst"]);
        assert_eq!(
            (k3s.artifacts(Architecture::Amd64).to_string().as_str(), k3s.checksums()),
            ("http://lab/k3s", Checksums::List)
        );
        let kubeadm = read("{distribution: kubeadm, version: v1.37.2, artifacts: ../target/kubernetes}");
        assert_eq!(kubeadm.programs(Architecture::Amd64), ["kubeadm", "kubectl", "kubelet", "crictl"]);
        assert_eq!((kubeadm.archives(Architecture::Amd64).len(), kubeadm.checksums()), (7, Checksums::List));
        let public = read("{distribution: kubeadm, version: v1.37.2}");
        for architecture in Architecture::ALL {
            let url = format!("https://dl.k8s.io/release/v1.37.2/bin/linux/{architecture}");
            assert_eq!(public.artifacts(architecture).to_string(), url);
        }
        assert_eq!((public.archives(Architecture::Amd64).len(), public.checksums()), (0, Checksums::Beside));
        assert_eq!(public.programs(Architecture::Amd64), ["kubeadm", "kubectl", "kubelet"]);
    }

    #[test]
    fn what_contradicts_itself_is_told_with_its_key() {
        for (text, told) in [
            (
                "{distribution: k3s, version: v1.33.1+rke2r1}",
                ("kubernetes.version", "v1.33.1+rke2r1 is a release of rke2"),
            ),
            (
                "{distribution: k3s, version: v1.33.1+k3s1, images: [core]}",
                ("kubernetes.images", "K3s has one"),
            ),
            (
                "{distribution: rke2, version: v1.33.1+rke2r1, images: [canal]}",
                ("kubernetes.images", "every node of RKE2 needs"),
            ),
            (
                "{distribution: rke2, version: v1.33.1+rke2r1, images: []}",
                ("kubernetes.images", "every node of RKE2 needs"),
            ),
            (
                "{distribution: rke2, version: v1.33.1}",
                (
                    "kubernetes.version",
                    "v1.33.1 is a release of kubeadm, and `kubernetes.distribution` is rke2",
                ),
            ),
            ("{distribution: kubeadm, version: v1.34.9}", ("kubernetes.version", "v1.34.9 is too old")),
            (
                "{distribution: kubeadm, version: v1.37.2, images: [core]}",
                ("kubernetes.images", "a release of kubeadm has one archive for each"),
            ),
        ] {
            let found = read(text).findings();
            let [finding] = &found[..] else { panic!("{text}: {found:?}") };
            assert!(finding.path == told.0 && finding.message.starts_with(told.1), "{text}: {found:?}");
        }
        for text in
            ["{distribution: k3s, version: v1.33.1+k3s1}", "{distribution: kubeadm, version: v1.35.0}"]
        {
            assert!(read(text).findings().is_empty(), "{text}");
        }
    }

    #[test]
    fn texts_that_mean_nothing_are_refused() {
        for text in [
            "{distribution: k8s, version: v1.33.1+rke2r1}",
            "{distribution: rke2, version: v1.33}",
            "{distribution: rke2}",
            "{distribution: rke2, version: v1.33.1+rke2r1, images: [../core]}",
            "{distribution: rke2, version: v1.33.1+rke2r1, images: [-core]}",
            "{distribution: rke2, version: v1.33.1+rke2r1, artifacts: 'ftp://a/b'}",
            "{distribution: rke2, version: v1.33.1+rke2r1, artifacts: 'https://a/b?c'}",
            "{distribution: rke2, version: v1.33.1+rke2r1, artifacts: ''}",
            "{distribution: rke2, version: v1.33.1+rke2r1, artefacts: x}",
        ] {
            assert!(serde_saphyr::from_str::<Kubernetes>(text).is_err(), "{text}");
        }
    }
}
