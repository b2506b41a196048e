//! The texts of the key `kubernetes`: versions, places of a release, names of archives.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use model::config::Distribution;
use model::config::formats::{Fault, FormatResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A release of a distribution, such as `v1.33.1+rke2r1`; of upstream Kubernetes without a word behind it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    text: String,
    distribution: Distribution,
    /// The minor version of Kubernetes.
    minor: u32,
}

impl Version {
    /// Whose release it is.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }

    /// The minor version of Kubernetes, 37 for `v1.37.2`.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.minor
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

impl ArchiveName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

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
        parsed(text).ok_or_else(|| ParseError {
            text: text.to_owned(),
            expected: "a release of RKE2, K3s or Kubernetes, such as v1.33.1+rke2r1, v1.33.1+k3s1 or v1.37.2",
        })
    }
}

/// `vMAJOR.MINOR.PATCH`, perhaps a pre-release, and for RKE2 and K3s `+`, the distribution's word and a number.
fn parsed(text: &str) -> Option<Version> {
    let number = |text: &str| !text.is_empty() && text.len() < 6 && text.bytes().all(|b| b.is_ascii_digit());
    let (kubernetes, build) = match text.strip_prefix('v')?.split_once('+') {
        Some((kubernetes, build)) => (kubernetes, Some(build)),
        None => (text.strip_prefix('v')?, None),
    };
    let (kubernetes, candidate) = match (kubernetes.split_once('-'), build) {
        (None, _) => (kubernetes, "0"),
        (Some((kubernetes, of)), Some(_)) => (kubernetes, of.strip_prefix("rc")?),
        (Some((kubernetes, of)), None) => {
            (kubernetes, ["alpha.", "beta.", "rc."].into_iter().find_map(|word| of.strip_prefix(word))?)
        }
    };
    let numbers: Vec<_> = kubernetes.split('.').collect();
    let [_, minor, _] = numbers[..] else { return None };
    if !numbers.into_iter().chain([candidate]).all(number) {
        return None;
    }
    let distribution = match build {
        None => Distribution::Kubeadm,
        Some(build) => {
            let (distribution, build) = match build.strip_prefix("rke2r") {
                Some(build) => (Distribution::Rke2, build),
                None => (Distribution::K3s, build.strip_prefix("k3s")?),
            };
            number(build).then_some(distribution)?
        }
    };
    Some(Version { text: text.to_owned(), distribution, minor: minor.parse().ok()? })
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

written_as_text!(
    Version,
    r"^v[0-9]+\.[0-9]+\.[0-9]+((-rc[0-9]+)?\+(rke2r|k3s)[0-9]+|(-(alpha|beta|rc)\.[0-9]+)?)$"
);
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
            assert_eq!(
                text.parse::<Version>().ok().map(|version| version.distribution()),
                expected,
                "{text}"
            );
        }
        assert_eq!("v1.37.2".parse::<Version>().unwrap().minor(), 37);
    }
}
