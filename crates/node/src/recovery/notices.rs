//! What the recovery system does now, for its page and its commands: a file in memory.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use base::files;
use machine::paths::below;

const NEWS: &str = "/run/nqrust/recovery.json";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryNotices {
    /// What is under way.
    pub doing: Option<String>,
    /// Why a reset could not be carried out.
    pub failed: Option<String>,
    /// What of the node could not be taken over when the system started.
    pub notes: Vec<String>,
}

impl RecoveryNotices {
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = files::read_text(&below(root, NEWS)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn write(&self, root: &Path) -> Result<()> {
        let path = below(root, NEWS);
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
        let news = RecoveryNotices { failed: Some("the disk is worn".into()), ..RecoveryNotices::default() };
        news.write(root.path()).unwrap();
        assert_eq!(RecoveryNotices::read(root.path()), news);
    }
}
