//! What this node has changed in its cluster in order to leave, and has to change back: a file that is written before each change,
//! so that nothing is forgotten when the node is cut off.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use base::encode::json_text;
use base::files::{self, Attributes, Root};
use machine::paths::below;
use machine::update_state::ReleaseId;

const RECORD: &str = "/var/lib/nqrust/update/rollout.json";
/// The access that the node was given, for as long as there is a record.
const ACCESS: &str = "/var/lib/nqrust/update/rollout.kubeconfig";

const PRIVATE: Attributes = Attributes { mode: 0o600, owner: None };

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// The node's name in its cluster.
    pub node: String,
    /// The release for which it leaves.
    pub release: ReleaseId,
    /// Whether it may have cordoned itself.
    #[serde(default)]
    pub cordoned: bool,
    /// Whether it may have the taint of KubeVirt.
    #[serde(default)]
    pub tainted: bool,
}

impl RolloutRecord {
    /// That of the node at `root`; none if there is nothing to undo. One that cannot be read counts as none: it is written whole
    /// or not at all.
    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        serde_json::from_str(&files::read_text(&below(root, RECORD)).ok()?).ok()
    }

    pub fn write(&self, root: &Path) -> Result<()> {
        Root::open(root)?.write(RECORD, json_text(self).as_bytes(), PRIVATE).map(drop)
    }

    /// Keeps the access that the node was given, or forgets an older one.
    pub fn keep_access(root: &Path, kubeconfig: Option<&[u8]>) -> Result<()> {
        match kubeconfig {
            Some(bytes) => Root::open(root)?.write(ACCESS, bytes, PRIVATE).map(drop),
            None => Root::open(root)?.remove(ACCESS).map(drop),
        }
    }

    /// The access that the node was given.
    #[must_use]
    pub fn kept_access(root: &Path) -> Option<PathBuf> {
        let path = below(root, ACCESS);
        fs::exists(&path).unwrap_or(false).then_some(path)
    }

    /// Everything is undone. The access goes last: without the record it is unused, and the next departure removes it.
    pub fn forget(root: &Path) -> Result<()> {
        let files = Root::open(root)?;
        files.remove(RECORD)?;
        files.remove(ACCESS).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_record_is_kept_with_its_access_and_forgotten_with_it() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(RolloutRecord::read(root.path()), None);
        let release = ReleaseId { digest: Digest::of(b"new"), version: "2".into() };
        let record = RolloutRecord { node: "n1".into(), release, cordoned: true, tainted: false };
        RolloutRecord::keep_access(root.path(), Some(b"secret")).unwrap();
        record.write(root.path()).unwrap();
        assert_eq!(RolloutRecord::read(root.path()), Some(record.clone()));
        let access = RolloutRecord::kept_access(root.path()).unwrap();
        assert_eq!(fs::metadata(&access).unwrap().permissions().mode() & 0o777, 0o600);
        RolloutRecord::keep_access(root.path(), None).unwrap();
        assert_eq!(RolloutRecord::kept_access(root.path()), None);
        RolloutRecord::keep_access(root.path(), Some(b"secret")).unwrap();
        RolloutRecord::forget(root.path()).unwrap();
        assert_eq!(RolloutRecord::read(root.path()), None);
        assert_eq!(RolloutRecord::kept_access(root.path()), None);
    }
}
