//! Versions of Kubernetes, and what an OS image says of the one that it brings.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use formats::oci::ImageReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Distribution;

/// Where an OS image says which Kubernetes it brings: a [`KubernetesRelease`] in JSON.
pub const KUBERNETES_RELEASE: &str = "/usr/lib/nqrust/kubernetes.json";

/// Digits of a number in a version; no release has as many.
const DIGITS_MAX: usize = 5;

/// A release of a distribution, such as `v1.33.1+rke2r1`; of upstream Kubernetes without a word behind it. Later releases of one
/// distribution are greater.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KubernetesVersion {
    text: String,
    distribution: Distribution,
    /// Major, minor, patch.
    numbers: [u32; 3],
    stage: Stage,
    /// The distribution's own count, from `+rke2r1`; 0 for upstream Kubernetes.
    build: u32,
}

/// The order of pre-releases, and the release itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha(u32),
    Beta(u32),
    Candidate(u32),
    Released,
}

/// Text that names no release of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a release of RKE2, K3s or Kubernetes, such as v1.33.1+rke2r1, v1.33.1+k3s1 or v1.37.2")]
pub struct ParseKubernetesVersionError(String);

impl KubernetesVersion {
    /// The text that a version has in a document, as a regular expression.
    const PATTERN: &str =
        r"^v[0-9]+\.[0-9]+\.[0-9]+((-rc[0-9]+)?\+(rke2r|k3s)[0-9]+|(-(alpha|beta|rc)\.[0-9]+)?)$";

    /// Whose release it is.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// The major version of Kubernetes, 1 for `v1.37.2`.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.numbers[0]
    }

    /// The minor version of Kubernetes, 37 for `v1.37.2`.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.numbers[1]
    }

    /// The version as tags of container images have it, where `+` cannot stand.
    #[must_use]
    pub fn tag(&self) -> String {
        self.text.replace('+', "-")
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Ord for KubernetesVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |version: &Self| (version.numbers, version.stage, version.build);
        // The text decides between distributions, whose releases have no order among them.
        key(self).cmp(&key(other)).then_with(|| self.text.cmp(&other.text))
    }
}

impl PartialOrd for KubernetesVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FromStr for KubernetesVersion {
    type Err = ParseKubernetesVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parsed(text).ok_or_else(|| ParseKubernetesVersionError(text.to_owned()))
    }
}

/// `vMAJOR.MINOR.PATCH`, perhaps a pre-release, and for RKE2 and K3s `+`, the distribution's word and a number.
fn parsed(text: &str) -> Option<KubernetesVersion> {
    let (kubernetes, build) = match text.strip_prefix('v')?.split_once('+') {
        Some((kubernetes, build)) => (kubernetes, Some(build)),
        None => (text.strip_prefix('v')?, None),
    };
    let (kubernetes, stage) = match (kubernetes.split_once('-'), build) {
        (None, _) => (kubernetes, Stage::Released),
        (Some((kubernetes, of)), Some(_)) => (kubernetes, Stage::Candidate(number(of.strip_prefix("rc")?)?)),
        (Some((kubernetes, of)), None) => {
            let (word, count) = of.split_once('.')?;
            let count = number(count)?;
            let stage = match word {
                "alpha" => Stage::Alpha(count),
                "beta" => Stage::Beta(count),
                "rc" => Stage::Candidate(count),
                _ => return None,
            };
            (kubernetes, stage)
        }
    };
    let numbers: Vec<u32> = kubernetes.split('.').map(number).collect::<Option<_>>()?;
    let (distribution, build) = match build {
        None => (Distribution::Kubeadm, 0),
        Some(build) => match build.strip_prefix("rke2r") {
            Some(build) => (Distribution::Rke2, number(build)?),
            None => (Distribution::K3s, number(build.strip_prefix("k3s")?)?),
        },
    };
    Some(KubernetesVersion {
        text: text.to_owned(),
        distribution,
        numbers: numbers.try_into().ok()?,
        stage,
        build,
    })
}

/// A number as Semantic Versioning 2.0.0 (2) has them: without zeros before it, so that each has one text.
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.len() <= DIGITS_MAX && text.bytes().all(|b| b.is_ascii_digit());
    let one = text == "0" || !text.starts_with('0');
    (digits && one).then(|| text.parse().ok())?
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for KubernetesVersion {
    type Error = ParseKubernetesVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<KubernetesVersion> for String {
    fn from(version: KubernetesVersion) -> Self {
        version.text
    }
}

impl JsonSchema for KubernetesVersion {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KubernetesVersion".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": Self::PATTERN })
    }
}

/// The Kubernetes of an OS image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesRelease {
    pub version: KubernetesVersion,
    /// The files and directories of the image that belong to this version and to no other, from the root and without a slash
    /// before: its programs, and what names it. A node that goes on with this version under another OS image takes them along.
    #[serde(default)]
    pub files: Vec<String>,
    /// With upstream Kubernetes only: RKE2 and K3s know their images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<UpstreamImages>,
}

/// The images of upstream Kubernetes that have versions of their own, which nodes ask for by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamImages {
    pub pause: ImageReference,
    pub etcd: ImageReference,
    pub coredns: ImageReference,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_again_and_names_no_directory(
            text in "(v[0-9.]{1,8}(-rc)?[+a-z0-9/.]{0,9}|.{0,20})",
        ) {
            if let Ok(version) = text.parse::<KubernetesVersion>() {
                prop_assert_eq!(version.to_string(), text.clone());
                prop_assert!(!text.contains('/') && !version.tag().contains('+'));
            }
        }

        #[test]
        fn versions_have_the_order_of_their_numbers(
            one in proptest::array::uniform4(0_u32..30), other in proptest::array::uniform4(0_u32..30),
        ) {
            let of = |[major, minor, patch, build]: [u32; 4]| version(&format!("v{major}.{minor}.{patch}+k3s{build}"));
            prop_assert_eq!(of(one).cmp(&of(other)), one.cmp(&other));
        }
    }

    #[test]
    fn a_version_is_a_release_of_one_of_the_distributions() {
        for (text, expected) in [
            ("v1.33.1+rke2r1", Some(Distribution::Rke2)),
            ("v1.33.10-rc2+rke2r12", Some(Distribution::Rke2)),
            ("v1.33.1+k3s1", Some(Distribution::K3s)),
            ("v1.37.2", Some(Distribution::Kubeadm)),
            ("v1.38.0-rc.1", Some(Distribution::Kubeadm)),
            ("v1.38.0-alpha.12", Some(Distribution::Kubeadm)),
            ("1.33.1+k3s1", None),
            ("1.37.2", None),
            ("v1.33+k3s1", None),
            ("v1.37", None),
            ("v1.37.02", None),
            ("v1.33.1-rke2r1", None),
            ("v1.33.1+rke2r", None),
            ("v1.33.1+rke2r1/../..", None),
            ("v1.37.2/../..", None),
            ("v1.33.1-rc+k3s1", None),
            ("v1.37.0-rc.", None),
            ("v1.37.0-rc1", None),
            ("v1.33.1-rc.1+k3s1", None),
            ("v1.37.2+", None),
            ("v1.33.1+k3s1+k3s1", None),
            ("latest", None),
        ] {
            let read = text.parse::<KubernetesVersion>().ok().map(|version| version.distribution());
            assert_eq!(read, expected, "{text}");
        }
        assert_eq!((version("v1.37.2").major(), version("v1.37.2").minor()), (1, 37));
    }

    #[test]
    fn later_releases_are_greater() {
        for ascending in [
            ["v1.37.9", "v1.37.10", "v1.38.0-alpha.3", "v1.38.0-beta.0", "v1.38.0-rc.1", "v1.38.0", "v2.0.0"]
                .as_slice(),
            &["v1.33.1-rc2+rke2r1", "v1.33.1+rke2r1", "v1.33.1+rke2r2", "v1.33.1+rke2r10", "v1.33.2+rke2r1"],
        ] {
            for pair in ascending.windows(2) {
                assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
            }
        }
    }

    #[test]
    fn an_image_may_say_no_more_than_its_version() {
        let read = |text: &str| serde_json::from_str::<KubernetesRelease>(text);
        let release = read(r#"{"version": "v1.37.2"}"#).unwrap();
        assert!(release.files.is_empty() && release.images.is_none());
        assert!(read(r#"{"version": "newest"}"#).is_err());
    }
}
