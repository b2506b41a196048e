//! What this node remembers of updates: a file that is written whole or not at all. The boot record decides what starts; this says
//! which releases those slots are, and what became of those that were tried. A file that cannot be read counts as none.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::clock;
use super::paths::below;
use base::digest::Digest;
use base::files::{self, Attributes, Root};
use model::boot::Slot;
use model::boot::record::UpdateSlot;
use model::release_manifest::ReleaseManifest;

/// Below `/var`.
const STATE: &str = "/lib/nqrust/update/state.json";

/// The number of verdicts that are kept, the newest.
const VERDICTS_MAX: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseId {
    /// SHA-256 of the release manifest.
    pub digest: Digest,
    pub version: String,
}

impl ReleaseId {
    #[must_use]
    pub fn of(release: &ReleaseManifest) -> Self {
        Self { digest: release.digest(), version: release.version.clone() }
    }
}

/// A release that was written into a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenRelease {
    pub release: ReleaseId,
    pub slot: UpdateSlot,
    /// When, in RFC 3339. For people: the clock may have been wrong.
    pub at: String,
}

impl WrittenRelease {
    #[must_use]
    pub fn now(release: ReleaseId, slot: UpdateSlot) -> Self {
        Self { release, slot, at: clock::now_text() }
    }
}

/// The verdict on a release that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseVerdict {
    pub release: ReleaseId,
    pub slot: UpdateSlot,
    pub good: bool,
    /// Why it is bad; empty for a good one.
    #[serde(default)]
    pub reason: String,
    pub at: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateState {
    /// The release that was written and read back, until there is a verdict. The boot record alone says if it is to be tried.
    pub staged: Option<WrittenRelease>,
    /// The fault that a boot on trial found.
    pub complaint: Option<String>,
    /// The newest last.
    pub verdicts: Vec<ReleaseVerdict>,
}

impl UpdateState {
    /// The state of the node at `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        Self::read_in(&below(root, "/var"))
    }

    /// The state in the file system that is at `/var` of a node.
    #[must_use]
    pub fn read_in(var: &Path) -> Self {
        let text = files::read_text(&below(var, STATE)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Stores it: after a loss of power there is this one or the one before.
    pub fn write(&self, root: &Path) -> Result<()> {
        files::make_directory(&below(root, "/var"), 0o755)?;
        self.write_in(&below(root, "/var"))
    }

    /// The same in the file system that is at `/var` of a node.
    pub fn write_in(&self, var: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        Root::open(var)?.write(STATE, text.as_bytes(), Attributes { mode: 0o600, owner: None }).map(drop)
    }

    #[must_use]
    pub fn verdict(&self, release: Digest) -> Option<&ReleaseVerdict> {
        self.verdicts.iter().rev().find(|verdict| verdict.release.digest == release)
    }

    /// The verdict on what is staged.
    pub fn conclude(&mut self, good: bool, reason: String) {
        self.complaint = None;
        let Some(WrittenRelease { release, slot, .. }) = self.staged.take() else { return };
        self.verdicts.push(ReleaseVerdict { release, slot, good, reason, at: clock::now_text() });
        let surplus = self.verdicts.len().saturating_sub(VERDICTS_MAX);
        self.verdicts.drain(..surplus);
    }
}

/// A line about updates, for people at the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpdateNotice {
    /// The release that it is about.
    pub version: String,
    /// Whether that was taken back.
    pub bad: bool,
    pub text: String,
}

impl UpdateState {
    /// The update that is in progress, or the last release that was rolled back; `None` without either.
    #[must_use]
    pub fn news(&self, running: Option<Slot>) -> Option<UpdateNotice> {
        if let Some(WrittenRelease { release, slot, .. }) = &self.staged {
            let version = release.version.clone();
            let text = match running == Some(Slot::from(*slot)) {
                true => format!("{version} runs, and is not known to be good yet"),
                false => format!("{version} is in slot {slot}"),
            };
            return Some(UpdateNotice { version, bad: false, text });
        }
        let last = self.verdicts.last().filter(|last| !last.good)?;
        let version = last.release.version.clone();
        let text = format!("{version} was taken back: {}", last.reason);
        Some(UpdateNotice { version, bad: true, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried() -> UpdateState {
        let release = ReleaseId::of(&testing::release::release().into());
        UpdateState { staged: Some(WrittenRelease::now(release, UpdateSlot::B)), ..UpdateState::default() }
    }

    #[test]
    fn a_state_is_read_as_it_was_written_and_any_beginning_of_it_counts_as_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(UpdateState::read(root.path()), UpdateState::default());
        let mut state = tried();
        state.conclude(false, "it never came up".into());
        state.write(root.path()).unwrap();
        assert_eq!(UpdateState::read(root.path()), state);
        let file = below(&root.path().join("var"), STATE);
        let text = std::fs::read(&file).unwrap();
        for length in 0..text.len() - 1 {
            std::fs::write(&file, &text[..length]).unwrap();
            assert_eq!(UpdateState::read(root.path()), UpdateState::default(), "{length}");
            let zeroed = [&text[..length], &vec![0; text.len() - length]].concat();
            std::fs::write(&file, zeroed).unwrap();
            assert_eq!(UpdateState::read(root.path()), UpdateState::default(), "{length}");
        }
    }

    #[test]
    fn the_node_tells_what_is_under_way_and_what_was_taken_back() {
        let mut state = tried();
        let told = |state: &UpdateState, running| state.news(Some(running)).map(|news| (news.bad, news.text));
        let version = testing::release::release().version;
        assert_eq!(told(&state, Slot::A), Some((false, format!("{version} is in slot b"))));
        let runs = format!("{version} runs, and is not known to be good yet");
        assert_eq!(told(&state, Slot::B), Some((false, runs)));
        state.conclude(false, "it hung".into());
        assert_eq!(told(&state, Slot::A), Some((true, format!("{version} was taken back: it hung"))));
        state.staged = tried().staged;
        state.conclude(true, String::new());
        assert_eq!(told(&state, Slot::B), None);
    }

    #[test]
    fn the_newest_verdict_on_a_release_counts_and_old_ones_are_dropped() {
        let mut state = tried();
        let digest = state.staged.as_ref().unwrap().release.digest;
        for number in 0..VERDICTS_MAX + 3 {
            state.staged = tried().staged;
            state.conclude(number % 2 == 0, number.to_string());
        }
        assert_eq!(state.verdicts.len(), VERDICTS_MAX);
        assert_eq!(state.verdict(digest).unwrap().reason, (VERDICTS_MAX + 2).to_string());
        assert_eq!(state.verdict(Digest::of(b"another")), None);
        let before = state.clone();
        state.conclude(true, String::new());
        assert_eq!(state, before, "nothing was staged");
    }
}
