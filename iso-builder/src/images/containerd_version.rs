//! Which containerd reads the metadata that another one wrote.
//!
//! containerd upgrades an older schema when it starts, but opens a newer one without an error (`metadata/db.go`,
//! `DB.Init`), and then may not find what is in it. So this has to be known before.

use std::fmt;
use std::str::FromStr;

use base::failure::{Class, Failure};
use serde::{Deserialize, Serialize};

/// The schema of every containerd 1.2 to 1.7. Version 4 came with containerd 2.0.
pub const COMMON_SCHEMA: u64 = 3;

/// A version as `containerd --version` prints it, for instance `1.6.20~ds1` or `v1.7.23-k3s2`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerdVersion {
    text: String,
    series: (u32, u32),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of containerd, such as 1.7.23")]
pub struct ParseVersionError(String);

/// The containerd that wrote a database, and the version of its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseWriter {
    pub version: ContainerdVersion,
    /// The value of the key `version`.
    pub schema: u64,
}

/// The containerd of the nodes, as far as the build knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeContainerd {
    /// The base's own, which also writes.
    OfBase,
    /// Another one, for instance that of a Kubernetes distribution.
    Version(ContainerdVersion),
    /// Another one of unknown version.
    Unknown,
}

impl ContainerdVersion {
    /// Major and minor version. Patches do not change the schema.
    #[must_use]
    pub fn series(&self) -> (u32, u32) {
        self.series
    }

    /// The version in what `containerd --version` prints: program, Go's name of the package, version, revision.
    pub fn from_program(printed: &str) -> Result<Self, ParseVersionError> {
        printed.split_whitespace().nth(2).unwrap_or(printed.trim()).parse()
    }
}

impl FromStr for ContainerdVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |part: Option<&str>| {
            let part = part?;
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part.get(..digits)?.parse().ok()
        };
        let mut parts = text.strip_prefix('v').unwrap_or(text).splitn(3, '.');
        // A major version has digits only; the minor one may be followed by more.
        let major = parts.next().and_then(|major| major.parse().ok());
        match (major, number(parts.next())) {
            (Some(major), Some(minor)) => Ok(Self { text: text.to_owned(), series: (major, minor) }),
            _ => Err(ParseVersionError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for ContainerdVersion {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ContainerdVersion> for String {
    fn from(version: ContainerdVersion) -> Self {
        version.text
    }
}

impl fmt::Display for ContainerdVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.strip_prefix('v').unwrap_or(&self.text))
    }
}

/// Whether the containerd of a node reads what `writer` wrote: it must not be of an older series. Where the node's is
/// not known, only the schema that they all read will do.
pub fn compatible(writer: &DatabaseWriter, node: &NodeContainerd) -> Result<(), Failure> {
    let wrote = format!("containerd {} wrote the metadata of the container images", writer.version);
    let schema = writer.schema;
    match node {
        NodeContainerd::OfBase => Ok(()),
        NodeContainerd::Version(node) if node.series() >= writer.version.series() => Ok(()),
        NodeContainerd::Version(node) => Err(Failure::new(Class::Invalid, wrote)
            .because(anyhow::anyhow!("the nodes run containerd {node}, which is older and may not read it"))
            .hint(format!(
                "Use a base with containerd {} or older, or a Kubernetes distribution with a newer containerd.",
                node
            ))),
        NodeContainerd::Unknown if schema <= COMMON_SCHEMA => Ok(()),
        NodeContainerd::Unknown => Err(Failure::new(Class::Invalid, wrote)
            .because(anyhow::anyhow!(
                "its schema is version {schema}, and which containerd the nodes run is not known; every one reads \
                 version {COMMON_SCHEMA}"
            ))
            .hint("Use a base with containerd 1.7 or older.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> ContainerdVersion {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_read_as_the_programs_print_them() {
        for (printed, shown, series) in [
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n",
                "1.6.20~ds1",
                (1, 6),
            ),
            ("containerd github.com/containerd/containerd/v2 v2.0.5 fb4c30d4ede3\n", "2.0.5", (2, 0)),
            ("containerd github.com/k3s-io/containerd v1.7.23-k3s2 ", "1.7.23-k3s2", (1, 7)),
            (
                "containerd github.com/containerd/containerd/v2 2.3.0-rc.1+unknown",
                "2.3.0-rc.1+unknown",
                (2, 3),
            ),
            ("1.10", "1.10", (1, 10)),
        ] {
            let version = ContainerdVersion::from_program(printed).unwrap();
            assert_eq!((version.to_string().as_str(), version.series()), (shown, series), "{printed}");
        }
        for text in ["", "containerd", "1", "x.y.z", "1.x", "-1.2", "v.1", "99999999999.1", "1~2.3"] {
            assert!(ContainerdVersion::from_program(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_version_survives_json() {
        for node in
            [NodeContainerd::OfBase, NodeContainerd::Unknown, NodeContainerd::Version(version("v1.7.1"))]
        {
            let json = serde_json::to_string(&node).unwrap();
            assert_eq!(serde_json::from_str::<NodeContainerd>(&json).unwrap(), node, "{json}");
        }
        assert!(serde_json::from_str::<NodeContainerd>(r#"{"version": "new"}"#).is_err());
    }

    #[test]
    fn a_node_reads_what_no_newer_containerd_wrote() {
        use NodeContainerd::{OfBase, Unknown, Version};
        for (wrote, schema, node, reads) in [
            ("1.6.20~ds1", 3, Version(version("1.6.4")), true),
            ("1.6.20~ds1", 3, Version(version("v1.7.23-k3s2")), true),
            ("1.6.20~ds1", 3, Version(version("2.1.0")), true),
            ("1.6.20~ds1", 3, Version(version("1.5.18")), false),
            ("1.10.0", 3, Version(version("1.9.9")), false),
            ("1.9.0", 3, Version(version("1.10.0")), true),
            ("2.0.5", 4, Version(version("1.7.23")), false),
            ("2.0.5", 4, Version(version("2.0.0")), true),
            ("1.6.20~ds1", 3, Unknown, true),
            ("1.1.0", 2, Unknown, true),
            ("2.0.5", 4, Unknown, false),
            ("2.0.5", 4, OfBase, true),
        ] {
            let writer = DatabaseWriter { version: version(wrote), schema };
            let result = compatible(&writer, &node);
            assert_eq!(result.is_ok(), reads, "{writer:?} {node:?}");
            if let Err(failure) = result {
                assert_eq!(failure.class(), Class::Invalid);
                let text = base::failure::render(&failure.into());
                assert!(
                    text.contains(&format!("containerd {wrote} wrote")) && text.contains("next: "),
                    "{text}"
                );
            }
        }
    }
}
