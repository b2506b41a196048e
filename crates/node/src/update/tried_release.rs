//! What became of the release that was staged last, from the boot record and from what runs: a decision without effects.

use model::boot::Slot;
use model::boot::record::{BootFailureWord, BootRecord, SlotState, TRIES, UpdateSlot};

use machine::update_state::UpdateState;

/// The progress of a release from staging to its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriedRelease {
    Nothing,
    /// It is staged, and nobody has asked for its start.
    Staged,
    Armed,
    /// It runs, and there is no verdict yet.
    Runs,
    /// It was tried and does not run; the reason.
    Failed(String),
    /// The boot record knows nothing of it, because it was lost: it was never known to be good.
    Lost,
}

/// Decides from the record as GRUB left it, before anything of this boot is written to it.
#[must_use]
pub fn tried_release(record: &BootRecord, memory: &UpdateState, running: Slot) -> TriedRelease {
    let Some(staged) = &memory.staged else { return TriedRelease::Nothing };
    if running == Slot::from(staged.slot) {
        return TriedRelease::Runs;
    }
    let why = record.why.as_ref().map(BootFailureWord::as_str);
    match record.state(staged.slot) {
        SlotState::Empty => TriedRelease::Staged,
        SlotState::Try if record.left < TRIES && why == Some(BootFailureWord::LOAD) => {
            TriedRelease::Failed(reason(why, None))
        }
        SlotState::Try => TriedRelease::Armed,
        SlotState::Bad => TriedRelease::Failed(reason(why, memory.complaint.as_deref())),
        SlotState::Good => TriedRelease::Lost,
    }
}

fn reason(why: Option<&str>, complaint: Option<&str>) -> String {
    let told = complaint.map(|complaint| format!("; it said: {complaint}")).unwrap_or_default();
    match why {
        Some(BootFailureWord::LOAD) => "GRUB could not load it: a file of its boot volume is damaged or missing, or its kernel's signature is not right".to_owned(),
        Some(BootFailureWord::TRIES) => format!("it was started {TRIES} times and did not become good{told}"),
        Some(BootFailureWord::IMAGE) => "its OS image could not be opened: its manifest is damaged, or not the one that was signed".to_owned(),
        _ => complaint.map_or_else(|| "it did not become good".to_owned(), str::to_owned),
    }
}

/// What the record says after `slot` was found not to be good, while another one runs or will run.
pub fn condemn(record: &mut BootRecord, slot: UpdateSlot, why: &str) {
    record.set_state(slot, SlotState::Bad);
    record.order = slot.other();
    record.left = TRIES;
    record.why = BootFailureWord::new(why);
    if record.once == Some(Slot::from(slot)) {
        record.once = None;
    }
}

/// What a good boot of `slot` changes.
pub fn approve(record: &mut BootRecord, slot: Slot) {
    record.run = None;
    record.miss = 0;
    let Some(slot) = UpdateSlot::of(slot) else { return };
    if record.state(slot) == SlotState::Try {
        record.left = TRIES;
    }
    record.set_state(slot, SlotState::Good);
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::update_state::{ReleaseId, WrittenRelease};

    fn staged() -> UpdateState {
        let release = ReleaseId::of(&testing::release::release().into());
        UpdateState { staged: Some(WrittenRelease::now(release, UpdateSlot::B)), ..UpdateState::default() }
    }

    fn record(b: SlotState, left: u8, why: &str) -> BootRecord {
        BootRecord { b, left, why: BootFailureWord::new(why), order: UpdateSlot::B, ..BootRecord::default() }
    }

    #[test]
    fn the_record_tells_what_became_of_what_was_staged() {
        let memory = UpdateState { complaint: Some("kubelet: it does not answer".into()), ..staged() };
        let now = |record: &BootRecord, running| tried_release(record, &memory, running);
        let default = BootRecord::default();
        assert_eq!(tried_release(&default, &UpdateState::default(), Slot::A), TriedRelease::Nothing);
        assert_eq!(now(&record(SlotState::Empty, 3, ""), Slot::A), TriedRelease::Staged);
        assert_eq!(now(&record(SlotState::Try, 3, ""), Slot::A), TriedRelease::Armed);
        assert_eq!(now(&record(SlotState::Try, 2, ""), Slot::B), TriedRelease::Runs);
        // Somebody has started the other slot by hand.
        assert_eq!(now(&record(SlotState::Try, 2, ""), Slot::A), TriedRelease::Armed);
        assert_eq!(now(&default, Slot::A), TriedRelease::Lost);
        let failed = |record: &BootRecord, running| match now(record, running) {
            TriedRelease::Failed(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(failed(&record(SlotState::Try, 2, "load"), Slot::A).contains("could not load it"));
        let text = failed(&record(SlotState::Bad, 0, "tries"), Slot::Recovery);
        assert_eq!(
            text,
            "it was started 3 times and did not become good; it said: kubelet: it does not answer"
        );
        assert_eq!(failed(&record(SlotState::Bad, 3, "health"), Slot::A), "kubelet: it does not answer");
    }

    #[test]
    fn a_condemned_slot_does_not_start_and_the_other_one_comes_first() {
        let mut bad = BootRecord { once: Some(Slot::B), ..record(SlotState::Try, 2, "") };
        condemn(&mut bad, UpdateSlot::B, "health");
        let start = model::boot::loader::decide(&bad.to_block(), |_| true, true).start.unwrap();
        assert_eq!((start.slot, start.trial), (Slot::A, false));
        let only = model::boot::loader::decide(&bad.to_block(), |slot| slot != Slot::A, true).start.unwrap();
        assert_eq!(only.slot, Slot::Recovery);
    }

    #[test]
    fn a_good_boot_ends_the_trial_of_its_slot_and_nothing_else() {
        let mut record = BootRecord { run: Some(Slot::A), left: 2, ..BootRecord::installed() };
        approve(&mut record, Slot::A);
        let expected = BootRecord { a: SlotState::Good, ..BootRecord::installed() };
        assert_eq!(record, expected);
        let trial = BootRecord { b: SlotState::Try, left: 1, run: Some(Slot::Recovery), miss: 2, ..expected };
        let mut record = trial.clone();
        approve(&mut record, Slot::Recovery);
        assert_eq!(record, BootRecord { run: None, miss: 0, ..trial });
    }
}
