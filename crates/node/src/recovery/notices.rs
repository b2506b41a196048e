//! What the recovery system is doing, for its page and its commands: a file in memory.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use base::files;
use machine::paths::below;

const NOTICES: &str = "/run/nqrust/recovery.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryNotices {
    pub doing: Option<String>,
    /// Why a reset could not be carried out.
    pub failed: Option<String>,
    /// Parts of the node that could not be used when the system started.
    pub notes: Vec<String>,
}

impl RecoveryNotices {
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = files::read_text(&below(root, NOTICES)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn write(&self, root: &Path) -> Result<()> {
        let path = below(root, NOTICES);
        files::make_directory(files::parent(&path), 0o755)?;
        files::write_atomically(&path, &serde_json::to_vec(self)?, 0o644)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_read_as_they_were_written() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(RecoveryNotices::read(root.path()), RecoveryNotices::default());
        let notices =
            RecoveryNotices { failed: Some("the disk is worn".into()), ..RecoveryNotices::default() };
        notices.write(root.path()).unwrap();
        assert_eq!(RecoveryNotices::read(root.path()), notices);
    }
}
