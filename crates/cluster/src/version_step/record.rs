//! How far a node is with the step to another version of Kubernetes, in a file that outlasts power cuts. It exists as long as the
//! step is unfinished.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use base::encode;
use base::files::{self, Attributes, Root};
use machine::paths::below;
use model::kubernetes::KubernetesVersion;

const RECORD: &str = "/var/lib/nqrust/kubernetes/move.json";

/// A step that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRecord {
    pub from: KubernetesVersion,
    pub to: KubernetesVersion,
    /// The parts that are done, in their order.
    pub done: Vec<String>,
    /// Why the last attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Where the datastore is as it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

impl MoveRecord {
    #[must_use]
    pub fn new(from: KubernetesVersion, to: KubernetesVersion) -> Self {
        Self { from, to, done: Vec::new(), failed: None, snapshot: None }
    }

    /// The one of the node at `root`; none if no step was begun, and for a file that cannot be read: each part finds out again what is
    /// left of it.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        serde_json::from_str(&files::read_text(&below(root, RECORD)).ok()?).ok()
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let text = encode::json_text(self);
        Root::open(root)?.write(RECORD, text.as_bytes(), Attributes { mode: 0o600, owner: None }).map(drop)
    }

    pub(super) fn remove(root: &Path) -> Result<()> {
        Root::open(root)?.remove(RECORD).map(drop)
    }
}

impl fmt::Display for MoveRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, done, failed, .. } = self;
        write!(f, "the step from {from} to {to} is unfinished")?;
        if let Some(last) = done.last() {
            write!(f, " after the part {last}")?;
        }
        failed.iter().try_for_each(|why| write!(f, ": {why}"))
    }
}
