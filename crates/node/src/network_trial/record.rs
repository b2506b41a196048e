//! The record of a trial, and how the last one ended. Both are in memory and are lost when the machine stops.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::networks::{NetworkDifference, Networks};
use super::span::TrialSpan;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files::{self, Attributes, Root};

/// The current trial, from the root. Readable by root only, like the profiles in it.
const TRIAL: &str = "run/nqrust/network-trial.json";
/// The last one that ended, from the root.
const LAST: &str = "run/nqrust/network-trial-last.json";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialState {
    SettingUp,
    /// The new network is set up, and has to be confirmed.
    Running,
}

/// A file that a trial changes, as it is before or during the trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrialFile {
    /// From the root.
    pub(super) path: String,
    pub(super) mode: u32,
    /// Its content; `None` if there is no such file.
    pub(super) text: Option<String>,
}

/// The networks before a trial, or those on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkSide {
    pub(super) networks: Networks,
    pub(super) files: Vec<TrialFile>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    /// When it ends, in seconds since the machine started: the time of day may be set meanwhile.
    pub(super) until: u64,
    pub(super) span: TrialSpan,
    /// Digest of the document when the trial began.
    pub(super) document: Digest,
    /// Digest of the document that confirming writes.
    pub(super) confirmed: Digest,
    pub(super) before: NetworkSide,
    pub(super) after: NetworkSide,
    pub(super) state: TrialState,
    pub(super) notes: Vec<String>,
}

impl Trial {
    pub(super) fn read(root: &Path) -> Result<Option<Self>> {
        read(&root.join(TRIAL))
    }

    pub(super) fn write(&self, root: &Path) -> Result<()> {
        keep(root, TRIAL, &serde_json::to_string(self)?)
    }

    pub(super) fn end(root: &Path, ended: &EndedTrial) -> Result<()> {
        keep(root, LAST, &serde_json::to_string(ended)?)?;
        Self::forget(root)
    }

    pub(super) fn forget(root: &Path) -> Result<()> {
        Root::open(root)?.remove(TRIAL).map(drop)
    }

    /// The remaining seconds.
    pub(super) fn left(&self, root: &Path) -> Result<u64> {
        Ok(self.until.saturating_sub(uptime(root)?))
    }

    fn now(&self, root: &Path) -> Result<CurrentTrial> {
        let differences = self.before.networks.differences(&self.after.networks);
        let (span, state, notes) = (self.span, self.state, self.notes.clone());
        Ok(CurrentTrial { left: self.left(root)?, span, state, notes, differences })
    }
}

/// Writes a file below `root` that only root can read.
pub(super) fn keep(root: &Path, path: &str, text: &str) -> Result<()> {
    Root::open(root)?.write(path, text.as_bytes(), Attributes { mode: 0o600, owner: None }).map(drop)
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = files::read_text(path)?;
    let read = serde_json::from_str(&text).map_err(|error| {
        Failure::new(Class::Unexpected, format!("reading {}", path.display()))
            .because(error)
            .hint("Restart the machine: it comes up with the network of its node document.")
    })?;
    Ok(Some(read))
}

/// Seconds since the machine started, from proc_uptime(5).
pub(super) fn uptime(root: &Path) -> Result<u64> {
    let text = files::read_text(&root.join("proc/uptime"))?;
    let seconds = text.split(['.', ' ']).next().and_then(|seconds| seconds.parse().ok());
    seconds.context("reading the time since the start from /proc/uptime")
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CurrentTrial {
    /// Seconds until the old network is restored.
    pub left: u64,
    pub span: TrialSpan,
    pub state: TrialState,
    /// Messages of setting up the new network; warnings are marked.
    pub notes: Vec<String>,
    /// The values on trial.
    pub differences: Vec<NetworkDifference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialEnding {
    Confirmed,
    Reverted,
    /// It was not confirmed in time.
    Expired,
    /// The new network could not be set up.
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedTrial {
    pub how: TrialEnding,
    /// Its messages; warnings are marked.
    pub notes: Vec<String>,
}

impl fmt::Display for EndedTrial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.how {
            TrialEnding::Confirmed => "The new network stays: the node document has it.",
            TrialEnding::Reverted => "The old network is back.",
            TrialEnding::Expired => "The new network was not confirmed in time: the old one is back.",
            TrialEnding::Failed => "The new network could not be set up: the old one is back.",
        })?;
        self.notes.iter().try_for_each(|note| write!(f, "\n{note}"))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialStatus {
    /// There was none since the machine started.
    #[default]
    None,
    Now(CurrentTrial),
    Ended(EndedTrial),
}

/// The state of the trials of the node at `root`. Cheap.
pub fn trial_status(root: &Path) -> Result<TrialStatus> {
    if let Some(trial) = Trial::read(root)? {
        return trial.now(root).map(TrialStatus::Now);
    }
    Ok(read(&root.join(LAST))?.map_or(TrialStatus::None, TrialStatus::Ended))
}
