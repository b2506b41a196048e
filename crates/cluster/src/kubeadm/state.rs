//! How far a node is with joining its cluster, in a file that outlasts power cuts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::steps::JoinedPart;
use base::encode;
use base::failure::{Class, Failure};
use base::files;
use machine::paths::{KUBERNETES, below};

/// In bytes; the record has a line for each step.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// What is done, and what had begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JoinRecord {
    pub(super) part: Option<JoinedPart>,
    /// Steps that are done, in their order.
    pub(super) done: Vec<String>,
    /// The current step, which may have been cut off.
    pub(super) begun: Option<String>,
    /// Whether the node has joined as this part.
    pub(super) joined: bool,
    /// The part that it had before, if it was promoted.
    pub(super) promoted_from: Option<JoinedPart>,
}

#[derive(Debug)]
pub(super) struct RecordFile(PathBuf);

impl RecordFile {
    pub(super) fn of(root: &Path) -> Self {
        Self(below(root, KUBERNETES).join("join.json"))
    }

    pub(super) fn read(&self) -> Result<JoinRecord> {
        if !self.0.exists() {
            return Ok(JoinRecord::default());
        }
        let bytes = files::read_at_most(&self.0, RECORD_BYTES_MAX)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Failure::new(Class::Verification, format!("{} is not readable", self.0.display()))
                .because(error)
                .hint("If the node is no member of its cluster, remove the file and start nqrust-kubeadm.service again.")
                .into()
        })
    }

    /// Writes the record after everything that came before is on the disk: kubeadm itself does not wait for that.
    pub(super) fn write(&self, record: &JoinRecord) -> Result<()> {
        nix::unistd::sync();
        let directory = self.0.parent().context("the record is in a directory")?;
        files::make_directory(directory, 0o700)?;
        files::write_atomically(&self.0, encode::json_text(record).as_bytes(), 0o600)
    }
}
