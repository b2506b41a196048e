//! A requested reset of this node and its progress: a file beside the node document, written atomically. The recovery system carries it
//! out and removes the file last. A file that cannot be read is ignored.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use base::files::{self, Attributes, Root};
use machine::clock;
use machine::paths::below;

pub const REQUEST: &str = "/oem/reset.json";

/// How much of the node is made new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ResetLevel {
    /// The node document and what was put beside it: the node asks for one again. Data and /var stay.
    Config,
    /// What has come together in /var: container images, membership in the cluster, logs. The node document and the data volume stay.
    State,
    /// /var and the data volume. The node document stays.
    Full,
}

impl ResetLevel {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::State => "state",
            Self::Full => "full",
        }
    }

    /// The steps in their order. The data volume is first: /var is useless without it.
    #[must_use]
    pub fn steps(self) -> &'static [ResetStep] {
        match self {
            Self::Config => &[ResetStep::Configuration],
            Self::State => &[ResetStep::Persistent],
            Self::Full => &[ResetStep::Data, ResetStep::Persistent],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetStep {
    /// Everything beside the machine's identity is removed from the configuration partition.
    Configuration,
    /// A new file system on the data volume, if the node has one.
    Data,
    Persistent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReset {
    pub level: ResetLevel,
    /// The time of the request (RFC 3339). For people only: the clock may have been wrong.
    pub at: String,
    /// Something may have been erased. From then on the node starts only the recovery system until all steps are done.
    begun: bool,
    done: Vec<ResetStep>,
}

impl PendingReset {
    #[must_use]
    pub fn new(level: ResetLevel) -> Self {
        Self { level, at: clock::now_text(), begun: false, done: Vec::new() }
    }

    #[must_use]
    pub fn read(root: &Path) -> Option<Self> {
        let text = files::read_text(&below(root, REQUEST)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Stores it atomically.
    pub fn write(&self, root: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        Root::open(root)?.write(REQUEST, text.as_bytes(), Attributes { mode: 0o600, owner: None }).map(drop)
    }

    pub fn clear(root: &Path) -> Result<()> {
        Root::open(root)?.remove(REQUEST).map(drop)
    }

    pub fn begin(&mut self) {
        self.begun = true;
    }

    pub fn has_done(&mut self, step: ResetStep) {
        self.done.push(step);
    }

    /// The next step; none if all are done.
    #[must_use]
    pub fn next(&self) -> Option<ResetStep> {
        self.level.steps().iter().copied().find(|step| !self.done.contains(step))
    }

    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Something has been erased and not been made anew yet.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        self.begun && self.next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_as_it_was_written_and_any_beginning_of_it_counts_as_none() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("oem")).unwrap();
        assert_eq!(PendingReset::read(root.path()), None);
        let mut pending = PendingReset::new(ResetLevel::Full);
        pending.begin();
        pending.has_done(ResetStep::Data);
        pending.write(root.path()).unwrap();
        assert_eq!(PendingReset::read(root.path()), Some(pending.clone()));
        assert!(pending.is_under_way());
        let text = std::fs::read(below(root.path(), REQUEST)).unwrap();
        for length in 0..text.len() - 1 {
            std::fs::write(below(root.path(), REQUEST), &text[..length]).unwrap();
            assert_eq!(PendingReset::read(root.path()), None, "{length}");
        }
        PendingReset::clear(root.path()).unwrap();
        assert!(!below(root.path(), REQUEST).exists());
    }

    #[test]
    fn a_wish_is_under_way_from_its_beginning_to_its_last_step() {
        for level in [ResetLevel::Config, ResetLevel::State, ResetLevel::Full] {
            let mut pending = PendingReset::new(level);
            assert!(!pending.is_under_way());
            pending.begin();
            for step in level.steps() {
                assert!(pending.is_under_way());
                assert_eq!(pending.next(), Some(*step));
                pending.has_done(*step);
            }
            assert!(!pending.is_under_way() && pending.next().is_none());
        }
    }
}
