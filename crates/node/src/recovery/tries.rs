//! Which slot an unattended recovery system starts again, and when: a decision without effects, and a count that survives restarts.
//!
//! A temporary fault, such as a disk that appeared late, may have started the recovery system. So each good slot is tried once in a round.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use base::files::{self, Attributes, Root};
use machine::paths::below;
use model::boot::record::UpdateSlot;

/// How long the machine has to be unattended.
pub const ALONE: Duration = Duration::from_secs(15 * 60);
pub const ROUNDS: u8 = 3;

/// Beside the node document: a good boot of a slot removes it.
const TRIES: &str = "/oem/recovery-tries.json";

/// How often each slot was tried since the last good boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotTries {
    a: u8,
    b: u8,
}

impl SlotTries {
    /// The counts of the node at `root`; zero if they cannot be read.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = files::read_text(&below(root, TRIES)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Stores them atomically.
    pub fn write(&self, root: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)?;
        Root::open(root)?.write(TRIES, &text, Attributes { mode: 0o600, owner: None }).map(drop)
    }

    pub fn forget(root: &Path) -> Result<()> {
        Root::open(root)?.remove(TRIES).map(drop)
    }

    /// Counts and returns the next try: the first of the good slots that were tried least. `None` if each had [`ROUNDS`] tries.
    pub fn take(&mut self, good: &[UpdateSlot]) -> Option<UpdateSlot> {
        let slot = *good.iter().min_by_key(|slot| *self.of(**slot))?;
        let tries = self.of(slot);
        if *tries >= ROUNDS {
            return None;
        }
        *tries += 1;
        Some(slot)
    }

    fn of(&mut self, slot: UpdateSlot) -> &mut u8 {
        match slot {
            UpdateSlot::A => &mut self.a,
            UpdateSlot::B => &mut self.b,
        }
    }
}

/// How long the machine has been unattended. Times are since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdleTime {
    since: Duration,
}

impl IdleTime {
    /// Whether the machine has been unattended for [`ALONE`]. `occupied`: somebody is there now; `seen`: the last time somebody was.
    pub fn is_over(&mut self, now: Duration, occupied: bool, seen: Option<Duration>) -> bool {
        if occupied {
            self.since = now;
        }
        self.since = self.since.max(seen.unwrap_or_default().min(now));
        now - self.since >= ALONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use UpdateSlot::{A, B};

    fn order(mut tries: SlotTries, good: &[UpdateSlot]) -> Vec<UpdateSlot> {
        std::iter::from_fn(|| tries.take(good)).collect()
    }

    #[test]
    fn each_good_slot_is_tried_in_each_of_three_rounds() {
        assert_eq!(order(SlotTries::default(), &[B, A]), [B, A, B, A, B, A]);
        assert_eq!(order(SlotTries::default(), &[A]), [A, A, A]);
        assert_eq!(order(SlotTries::default(), &[]), []);
        assert_eq!(order(SlotTries { a: 3, b: 2 }, &[A, B]), [B]);
    }

    #[test]
    fn the_count_lasts_until_it_is_forgotten() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("oem")).unwrap();
        let mut tries = SlotTries::read(root.path());
        tries.take(&[A]);
        tries.write(root.path()).unwrap();
        assert_eq!(SlotTries::read(root.path()), SlotTries { a: 1, b: 0 });
        SlotTries::forget(root.path()).unwrap();
        SlotTries::forget(root.path()).unwrap();
        assert_eq!(SlotTries::read(root.path()), SlotTries::default());
    }

    #[test]
    fn a_key_and_a_session_begin_the_time_anew() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let mut idle = IdleTime::default();
        assert!(!idle.is_over(minutes(14), false, None));
        assert!(!idle.is_over(minutes(15), false, Some(minutes(10))), "a key was pressed");
        assert!(!idle.is_over(minutes(24), true, Some(minutes(10))), "somebody is logged in");
        assert!(!idle.is_over(minutes(38), false, Some(minutes(10))));
        assert!(idle.is_over(minutes(39), false, Some(minutes(10))));
    }

    #[test]
    fn a_clock_that_was_set_does_not_put_it_off() {
        let mut idle = IdleTime::default();
        let later = Some(ALONE * 100);
        assert!(!idle.is_over(Duration::from_secs(60), false, later));
        assert!(idle.is_over(ALONE + Duration::from_secs(60), false, None));
    }
}
