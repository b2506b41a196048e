//! Which version of Kubernetes runs on a node, apart from its OS: the OS image brings a version, and the node may go on with another.
//!
//! | Module | What it does |
//! |---|---|
//! | [`kept`] | the versions that the node keeps on its persistent partition, and the one of them that is to run |
//! | [`boot`] | in the initrd, puts that version in the place of the image's |
//! | [`data`] | the version that the data of the node was last worked on by, and whether another one may start on it |
//! | [`image`] | what the OS image says of its Kubernetes, and its files where another version lies over them |
//!
//! Paths below `/usr` always lead to the running version: units, scripts and people need not know where it comes from.

pub mod boot;
pub mod data;
pub mod image;
pub mod kept;

use std::path::Path;

use serde::Serialize;

use self::data::DataVersion;
use machine::node_release as release;
use model::kubernetes::KubernetesVersion;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeKubernetes {
    /// The running version.
    pub runs: KubernetesVersion,
    /// That of the running OS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brought: Option<KubernetesVersion>,
    /// Why it is not started, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl NodeKubernetes {
    /// The versions of the node at `root`; none where its OS has no Kubernetes.
    #[must_use]
    pub fn look(root: &Path) -> Option<Self> {
        let runs = image::read(root).ok()??.version;
        let refused = DataVersion::read(root).check(&runs).err().map(|failure| failure.to_string());
        let brought = release::read(root).ok().and_then(|release| release.kubernetes);
        Some(Self { runs, brought, refused })
    }

    #[must_use]
    pub fn text(&self) -> String {
        let Self { runs, brought, refused } = self;
        match (refused, brought) {
            (Some(why), _) => format!("NOT STARTED: {why}"),
            (None, Some(brought)) if brought > runs => {
                format!("{runs}; the OS brings {brought}: installer update kubernetes")
            }
            (None, Some(brought)) if brought < runs => {
                format!("{runs}; the OS brings {brought}, which is older and not used")
            }
            (None, _) => runs.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_what_runs_and_what_could() {
        let of = |brought: Option<&str>| NodeKubernetes {
            runs: "v1.37.2".parse().unwrap(),
            brought: brought.map(|text| text.parse().unwrap()),
            refused: None,
        };
        assert_eq!(of(None).text(), "v1.37.2");
        assert_eq!(of(Some("v1.37.2")).text(), "v1.37.2");
        assert_eq!(of(Some("v1.38.0")).text(), "v1.37.2; the OS brings v1.38.0: installer update kubernetes");
        assert!(of(Some("v1.36.9")).text().contains("older and not used"));
        let refused = NodeKubernetes { refused: Some("data".into()), ..of(None) };
        assert_eq!(refused.text(), "NOT STARTED: data");
    }
}
