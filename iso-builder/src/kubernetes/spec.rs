//! What a definition says about its Kubernetes distribution, and which files of the release that means.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::config::Distribution;
use model::config::formats::{Fault, FormatResult};
use model::config::rules::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Kubernetes distribution that the OS image brings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kubernetes {
    /// Which distribution.
    pub distribution: Distribution,
    /// The release, as its tag says: `v1.33.1+rke2r1`, `v1.33.1+k3s1`.
    pub version: Version,
    /// Where the files of the release are: a directory relative to the definition, or a URL. There has to be the list of
    /// checksums that the release publishes with them. Unless given, they come from the public release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Artifacts>,
    /// RKE2: which of the release's archives of container images go onto the media, by the part of their name that
    /// differs. Unless given: `core`, `canal` and `multus`, which is what nodes run. K3s has one archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ArchiveName>>,
}

/// What nodes of RKE2 run: their `config.yaml` asks for multus and canal, and the default ingress is in `core`.
const RKE2_ARCHIVES: [&str; 3] = [CORE_ARCHIVE, "canal", "multus"];
/// The archive with the control plane, and with the image that RKE2 takes its programs from.
const CORE_ARCHIVE: &str = "core";

impl Kubernetes {
    /// What of it contradicts itself.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let (distribution, version) = (self.distribution, &self.version);
        if version.distribution != distribution {
            let (of, name) = (version.distribution.name(), distribution.name());
            let message = format!("{version} is a release of {of}, and `kubernetes.distribution` is {name}");
            found.push(Finding::new("kubernetes.version", "other-distribution", message));
        }
        match (&self.images, distribution) {
            (Some(_), Distribution::K3s) => {
                let message = "K3s has one archive of images; leave the key out";
                found.push(Finding::new("kubernetes.images", "superfluous-key", message));
            }
            (Some(names), Distribution::Rke2) if !names.iter().any(|name| name.0 == CORE_ARCHIVE) => {
                let message = format!("no node of RKE2 starts without `{CORE_ARCHIVE}`; add it");
                found.push(Finding::new("kubernetes.images", "missing-value", message));
            }
            _ => {}
        }
        found
    }

    /// Where the files are.
    #[must_use]
    pub fn artifacts(&self) -> Artifacts {
        self.artifacts.clone().unwrap_or_else(|| {
            let (owner, name) = self.repository();
            let version = self.version.text.replace('+', "%2B");
            Artifacts::Url(format!("https://github.com/{owner}/{name}/releases/download/{version}"))
        })
    }

    /// Owner and name of the distribution's repository on GitHub.
    #[must_use]
    pub fn repository(&self) -> (&'static str, &'static str) {
        match self.distribution {
            Distribution::Rke2 => ("rancher", "rke2"),
            Distribution::K3s => ("k3s-io", "k3s"),
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

    /// The file that has the distribution's program: RKE2's archive of an installation, or K3s's executable.
    #[must_use]
    pub fn program(&self, architecture: &str) -> String {
        match self.distribution {
            Distribution::Rke2 => format!("rke2.linux-{architecture}.tar.gz"),
            // Releases for other architectures have it at the end of the name.
            Distribution::K3s if architecture == "amd64" => "k3s".into(),
            Distribution::K3s => format!("k3s-{architecture}"),
        }
    }

    /// The archives of container images, each once.
    #[must_use]
    pub fn archives(&self, architecture: &str) -> Vec<String> {
        if self.distribution == Distribution::K3s {
            return vec![format!("k3s-airgap-images-{architecture}.tar.zst")];
        }
        let given = self.images.as_ref().map(|names| names.iter().map(|name| name.0.as_str()).collect());
        let names: Vec<&str> = given.unwrap_or_else(|| RKE2_ARCHIVES.to_vec());
        let mut files: Vec<_> =
            names.iter().map(|name| format!("rke2-images-{name}.linux-{architecture}.tar.zst")).collect();
        files.sort();
        files.dedup();
        files
    }
}

/// The name of the release's list of checksums.
#[must_use]
pub fn checksums(architecture: &str) -> String {
    format!("sha256sum-{architecture}.txt")
}

/// A release of a distribution, such as `v1.33.1+rke2r1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    text: String,
    distribution: Distribution,
}

impl Version {
    /// Whose release it is.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// The version as tags of container images have it, where `+` cannot stand.
    #[must_use]
    pub fn tag(&self) -> String {
        self.text.replace('+', "-")
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Where the files of a release are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Artifacts {
    /// A directory.
    Directory(PathBuf),
    /// The URL above the files, without a slash at its end.
    Url(String),
}

/// What differs between the names of RKE2's archives of images: `core`, `canal`, `multus`, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArchiveName(String);

/// Text that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl From<ParseError> for Fault {
    fn from(error: ParseError) -> Self {
        Self::new(format!("is not {}", error.expected))
    }
}

/// The check of texts that a type of this file is made from.
pub(crate) fn written<T: FromStr<Err = ParseError>>(text: &str) -> FormatResult {
    text.parse::<T>().map(drop).map_err(Fault::from)
}

impl FromStr for Version {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        distribution_of(text).map(|distribution| Self { text: text.to_owned(), distribution }).ok_or_else(
            || ParseError {
                text: text.to_owned(),
                expected: "a release of RKE2 or K3s, such as v1.33.1+rke2r1 or v1.33.1+k3s1",
            },
        )
    }
}

/// Whose release `text` is: `vMAJOR.MINOR.PATCH`, perhaps `-rcN`, `+`, the distribution's word and a number.
fn distribution_of(text: &str) -> Option<Distribution> {
    let number = |text: &str| !text.is_empty() && text.len() < 6 && text.bytes().all(|b| b.is_ascii_digit());
    let (kubernetes, build) = text.strip_prefix('v')?.split_once('+')?;
    let (kubernetes, candidate) = kubernetes.split_once("-rc").unwrap_or((kubernetes, "0"));
    let numbers: Vec<_> = kubernetes.split('.').collect();
    if numbers.len() != 3 || !numbers.into_iter().chain([candidate]).all(number) {
        return None;
    }
    let (distribution, build) = match build.strip_prefix("rke2r") {
        Some(build) => (Distribution::Rke2, build),
        None => (Distribution::K3s, build.strip_prefix("k3s")?),
    };
    number(build).then_some(distribution)
}

impl FromStr for Artifacts {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.split_once("://") {
            Some(("http" | "https", rest)) if !rest.is_empty() && !rest.contains(['?', '#', ' ']) => {
                Ok(Self::Url(text.trim_end_matches('/').to_owned()))
            }
            None if !text.is_empty() => Ok(Self::Directory(text.into())),
            _ => Err(ParseError {
                text: text.to_owned(),
                expected: "a directory, or a URL that begins with https:// or http://",
            }),
        }
    }
}

impl FromStr for ArchiveName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let named = text.bytes().all(|byte| letter(byte) || byte == b'-')
            && [text.bytes().next(), text.bytes().last()].into_iter().all(|byte| byte.is_some_and(letter));
        if named {
            return Ok(Self(text.to_owned()));
        }
        let expected = "the name of an archive of RKE2's images, such as core, canal or multus";
        Err(ParseError { text: text.to_owned(), expected })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for Artifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Url(url) => f.write_str(url),
        }
    }
}

impl fmt::Display for ArchiveName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A type that documents write as a text, with the pattern of it.
macro_rules! written_as_text {
    ($name:ident, $pattern:literal) => {
        impl TryFrom<String> for $name {
            type Error = ParseError;

            fn try_from(text: String) -> Result<Self, ParseError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                concat!("Kubernetes", stringify!($name)).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

written_as_text!(Version, r"^v[0-9]+\.[0-9]+\.[0-9]+(-rc[0-9]+)?\+(rke2r|k3s)[0-9]+$");
written_as_text!(Artifacts, r"^(https?://[^?# ]+|[^:]+)$");
written_as_text!(ArchiveName, r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_again_and_names_no_directory(text in "(v[0-9.]{1,8}(-rc)?[+a-z0-9/.]{0,9}|.{0,20})") {
            if let Ok(version) = text.parse::<Version>() {
                prop_assert_eq!(version.to_string(), text.clone());
                prop_assert!(!text.contains('/') && !version.tag().contains('+'));
            }
            if let Ok(name) = text.parse::<ArchiveName>() {
                prop_assert!(name.to_string() == text && !text.contains(['/', '.']));
            }
        }
    }

    fn read(text: &str) -> Kubernetes {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn a_version_is_a_release_of_one_of_the_distributions() {
        for (text, expected) in [
            ("v1.33.1+rke2r1", Some(Distribution::Rke2)),
            ("v1.33.10-rc2+rke2r12", Some(Distribution::Rke2)),
            ("v1.33.1+k3s1", Some(Distribution::K3s)),
            ("1.33.1+k3s1", None),
            ("v1.33+k3s1", None),
            ("v1.33.1", None),
            ("v1.33.1-rke2r1", None),
            ("v1.33.1+rke2r", None),
            ("v1.33.1+rke2r1/../..", None),
            ("v1.33.1-rc+k3s1", None),
            ("v1.33.1+k3s1+k3s1", None),
            ("latest", None),
        ] {
            assert_eq!(
                text.parse::<Version>().ok().map(|version| version.distribution()),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn a_release_has_the_files_that_its_definition_means() {
        let rke2 = read("{distribution: rke2, version: v1.33.1+rke2r1}");
        assert_eq!(rke2.program("amd64"), "rke2.linux-amd64.tar.gz");
        let archives =
            ["canal", "core", "multus"].map(|name| format!("rke2-images-{name}.linux-amd64.tar.zst"));
        assert_eq!(rke2.archives("amd64"), archives);
        let url = "https://github.com/rancher/rke2/releases/download/v1.33.1%2Brke2r1";
        assert_eq!(rke2.artifacts(), Artifacts::Url(url.into()));
        let some = read("{distribution: rke2, version: v1.33.1+rke2r1, images: [core, cilium, core]}");
        assert_eq!(some.archives("amd64").len(), 2);
        let k3s = read("{distribution: k3s, version: v1.33.1+k3s1, artifacts: 'http://lab/k3s/'}");
        assert_eq!((k3s.program("amd64").as_str(), k3s.program("arm64").as_str()), ("k3s", "k3s-arm64"));
        assert_eq!(k3s.archives("amd64"), ["k3s-airgap-images-amd64.tar.zst"]);
        assert_eq!(k3s.artifacts().to_string(), "http://lab/k3s");
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
                ("kubernetes.images", "no node"),
            ),
            ("{distribution: rke2, version: v1.33.1+rke2r1, images: []}", ("kubernetes.images", "no node")),
        ] {
            let found = read(text).findings();
            let [finding] = &found[..] else { panic!("{text}: {found:?}") };
            assert!(finding.path == told.0 && finding.message.starts_with(told.1), "{text}: {found:?}");
        }
        assert!(read("{distribution: k3s, version: v1.33.1+k3s1}").findings().is_empty());
    }

    #[test]
    fn texts_that_mean_nothing_are_refused() {
        for text in [
            "{distribution: k8s, version: v1.33.1+rke2r1}",
            "{distribution: rke2, version: v1.33.1}",
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
