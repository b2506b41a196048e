//! The texts of the key `kubernetes`: places of a release, names of archives.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use document::format::{FormatFault, FormatResult};
use model::architecture::Architecture;
use model::kubernetes::KubernetesVersion;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the files of a release are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Artifacts {
    Directory(PathBuf),
    /// The URL above the files, without a slash at its end.
    Url(String),
}

/// Stands for Debian's name of the architecture in the place of a release.
const ARCHITECTURE: &str = "{architecture}";

/// The place of a release with the name of `architecture` where the text leaves room for one.
#[must_use]
pub(crate) fn architecture_named(text: &str, architecture: Architecture) -> String {
    text.replace(ARCHITECTURE, architecture.debian())
}

impl Artifacts {
    /// The place of the release for one architecture.
    #[must_use]
    pub(crate) fn for_architecture(self, architecture: Architecture) -> Self {
        match self {
            Self::Directory(path) => {
                Self::Directory(architecture_named(&path.to_string_lossy(), architecture).into())
            }
            Self::Url(url) => Self::Url(architecture_named(&url, architecture)),
        }
    }
}

/// The variable part in the names of RKE2's image archives: `core`, `canal`, `multus`, …
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArchiveName(String);

impl ArchiveName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Text that is not of the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseError {
    text: String,
    expected: &'static str,
}

impl From<ParseError> for FormatFault {
    fn from(error: ParseError) -> Self {
        Self::new(format!("is not {}", error.expected))
    }
}

/// The check of texts that a type of this file is made from.
pub(crate) fn written<T: FromStr<Err = ParseError>>(text: &str) -> FormatResult {
    text.parse::<T>().map(drop).map_err(FormatFault::from)
}

pub(crate) fn version(text: &str) -> FormatResult {
    let expected = "a release of RKE2, K3s or Kubernetes, such as v1.33.1+rke2r1, v1.33.1+k3s1 or v1.37.2";
    let read = text.parse::<KubernetesVersion>();
    read.map(drop).map_err(|_| FormatFault::from(ParseError { text: text.to_owned(), expected }))
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

written_as_text!(Artifacts, r"^(https?://[^?# ]+|[^:]+)$");
written_as_text!(ArchiveName, r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_read_is_written_again_and_names_no_directory(text in "([a-z0-9-]{1,8}|.{0,20})") {
            if let Ok(name) = text.parse::<ArchiveName>() {
                prop_assert!(name.to_string() == text && !text.contains(['/', '.']));
            }
        }
    }
}
