//! Which containerd reads the metadata that another one wrote.
//!
//! containerd upgrades an older schema when it starts, but opens a newer one without an error (`metadata/db.go`,
//! `DB.Init`), and then may not find what is in it. So this has to be known before.

use base::containerd::ContainerdVersion;
use base::failure::{Class, Failure};
use serde::{Deserialize, Serialize};

/// The schema of every containerd 1.2 to 1.7. Version 4 came with containerd 2.0.
pub const COMMON_SCHEMA: u64 = 3;

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

/// Checks that the containerd of a node can read what `writer` wrote: it must not be of an older series. Where the node's is
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
