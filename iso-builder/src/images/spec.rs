//! Container images in the image definition.

use std::fmt;
use std::str::FromStr;

use garde::Validate;
use installer::config::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A container image that the definition builds from Debian packages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Validate)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct ImageSpec {
    /// The full reference that nodes use, with a tag: `localhost/nqrust/tools:1.0`.
    pub name: ImageName,
    /// The roles whose nodes get the image; empty means every role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// The layers, lowest first. Images whose first layers name the same packages share these layers.
    #[garde(length(min = 1), dive)]
    #[schemars(length(min = 1))]
    pub layers: Vec<LayerSpec>,
    /// The program that a container starts, with its fixed arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments that a container may replace, or the program where there is no entry point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Environment variables, each `NAME=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
}

/// One layer: the files of packages and of what they depend on, without those that lower layers have already.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema, Validate,
)]
#[serde(deny_unknown_fields)]
#[garde(allow_unvalidated)]
pub struct LayerSpec {
    /// Names of Debian packages. Their files are unpacked; no maintainer script runs.
    #[garde(length(min = 1))]
    #[schemars(length(min = 1))]
    pub packages: Vec<PackageName>,
}

/// Text that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseSpecError {
    text: String,
    expected: &'static str,
}

/// A string type whose values match a check; text and schema pattern say what it is.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $check:path, $expected:literal, $pattern:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseSpecError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                if $check(&text) { Ok(Self(text)) } else { Err(ParseSpecError { text, expected: $expected }) }
            }
        }

        impl FromStr for $name {
            type Err = ParseSpecError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

checked_text! {
    /// A full image reference: registry host, repository, tag.
    ImageName, is_image_name,
    "a full image reference with a lower-case repository and a tag, such as localhost/nqrust/tools:1.0",
    r"^[A-Za-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+((\.|_{1,2}|-+)[a-z0-9]+)*)+:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
}

checked_text! {
    /// The name of a Debian package.
    PackageName, is_package_name,
    "the name of a Debian package (lower-case letters, digits, '+', '-', '.')",
    r"^[a-z0-9][a-z0-9+.-]+$"
}

checked_text! {
    /// An environment variable with its value.
    EnvVar, is_env_var,
    "an environment variable of the form NAME=value",
    r"^[A-Za-z_][A-Za-z0-9_]*=[^\u0000]*$"
}

impl ImageName {
    /// The tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        self.0.rsplit_once(':').map_or("", |(_, tag)| tag)
    }
}

/// The grammar of image references, the host being required as containerd requires it: the first part is a
/// host when it has a dot or a port, or is `localhost`.
fn is_image_name(text: &str) -> bool {
    let Some((path, tag)) = text.rsplit_once(':') else { return false };
    let Some((host, repository)) = path.split_once('/') else { return false };
    text.len() <= 255 && is_host(host) && repository.split('/').all(is_path_component) && is_tag(tag)
}

fn is_host(host: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let label = |label: &str| {
        let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    let named = name == "localhost" || name.contains('.') || port.is_some();
    let port_is_number = port.is_none_or(|port| port.parse::<u16>().is_ok());
    named && name.split('.').all(label) && port_is_number
}

/// Runs of lower-case letters and digits, joined by one dot, one or two underscores, or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = |text: &str| text.bytes().next().is_some_and(alphanumeric);
    let joined = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends(component)
        && component.bytes().next_back().is_some_and(alphanumeric)
        && joined
            .into_iter()
            .all(|join| matches!(join, "" | "." | "_" | "__") || join.bytes().all(|b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=128).contains(&tag.len())
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_package_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() >= 2
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || matches!(byte, b'+' | b'-' | b'.'))
}

fn is_env_var(text: &str) -> bool {
    let Some((name, value)) = text.split_once('=') else { return false };
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let named = name.bytes().all(word) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    named && !value.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_references_with_a_tag_are_accepted() {
        for name in [
            "localhost/nqrust/tools:1.0",
            "localhost:5000/tools:latest",
            "registry.example.org/a/b-c/d__e.f:v1_2.3-x",
            "127.0.0.1:443/a---b:1",
        ] {
            assert!(name.parse::<ImageName>().is_ok(), "{name}");
        }
        assert_eq!("localhost:5000/tools:latest".parse::<ImageName>().unwrap().tag(), "latest");
    }

    #[test]
    fn short_upper_case_and_untagged_references_are_refused() {
        let long = format!("localhost/a:{}", "x".repeat(129));
        for name in [
            "",
            "tools",
            "tools:1",
            "nqrust/tools:1",
            "localhost/tools",
            "localhost:5000/tools",
            "localhost/Tools:1",
            "localhost/a//b:1",
            "localhost/a..b:1",
            "localhost/a___b:1",
            "localhost/-a:1",
            "localhost/a:",
            "localhost/a:-x",
            "localhost/a:b@sha256",
            "localhost:x/a:1",
            "local host.x/a:1",
            &long,
        ] {
            assert!(name.parse::<ImageName>().is_err(), "{name}");
        }
    }

    #[test]
    fn package_names_cannot_be_options_or_paths() {
        for (name, good) in
            [("libc6", true), ("g++-12", true), ("-o", false), ("./x.deb", false), ("a,b", false)]
        {
            assert_eq!(name.parse::<PackageName>().is_ok(), good, "{name}");
        }
    }

    #[test]
    fn an_image_needs_layers_and_a_layer_needs_packages() {
        for (layers, good) in
            [("[]", false), (r#"[{"packages": []}]"#, false), (r#"[{"packages": ["dash"]}]"#, true)]
        {
            let text = format!(r#"{{"name": "localhost/a:1", "layers": {layers}}}"#);
            let image: ImageSpec = serde_json::from_str(&text).unwrap();
            assert_eq!(image.validate().is_ok(), good, "{layers}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error() {
        let text = r#"{"name": "localhost/a:1", "layers": [{"packages": ["dash"], "from": "x"}]}"#;
        assert!(serde_json::from_str::<ImageSpec>(text).unwrap_err().to_string().contains("from"));
    }
}
