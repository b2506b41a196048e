//! The decision of the boot loader of an installed node from a boot record: the same decision as in the script that an install
//! writes (`crates/install/src/plan/boot/loader.cfg`), as a function. The installer tells by it what starts next; tests compare it
//! with GRUB.

use super::Slot;
use super::environment;
use super::record::{BootFailureWord, BootRecord, MISSES, SlotState, TRIES, UpdateSlot};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoaderDecision {
    /// None if nothing can be loaded.
    pub start: Option<SlotStart>,
    /// The environment block afterwards.
    pub block: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotStart {
    pub slot: Slot,
    /// True if the kernel is told that this is a trial.
    pub trial: bool,
    /// True if it started only after nothing had been found to start, and a minute of waiting.
    pub waited: bool,
}

/// The slot that starts with this environment block, where `loads` says whether a slot can be loaded, and `saving` whether what GRUB
/// writes gets to the disk. A file that is missing is an empty one.
pub fn decide(block: &[u8], loads: impl Fn(Slot) -> bool, saving: bool) -> LoaderDecision {
    let mut boot = Boot::begin(block, saving);
    for waited in [false, true] {
        if waited {
            boot.begin_again();
        }
        while let Some(candidate) = boot.next() {
            boot.record.run = Some(candidate.slot);
            boot.save();
            if boot.writable || !candidate.only_if_saved {
                if loads(candidate.slot) {
                    let Candidate { slot, trial, .. } = candidate;
                    return LoaderDecision {
                        start: Some(SlotStart { slot, trial, waited }),
                        block: boot.block,
                    };
                }
                boot.record.why = BootFailureWord::new(BootFailureWord::LOAD);
            }
        }
    }
    LoaderDecision { start: None, block: boot.block }
}

/// Where the search for a slot is; each step has at most one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The slot of `nq_once`.
    Once,
    /// The other good slot, after too many boots that were not reported as good.
    Missed,
    /// The recovery system, after these and one more.
    Rescue,
    First,
    Second,
    Recovery,
    End,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    slot: Slot,
    trial: bool,
    only_if_saved: bool,
}

struct Boot {
    block: Vec<u8>,
    saving: bool,
    record: BootRecord,
    sane: bool,
    /// True if what was written until now is on the disk.
    writable: bool,
    step: Step,
    first: UpdateSlot,
    /// The good slot whose boots were missed once too often just now.
    missed: Option<UpdateSlot>,
    rescue: bool,
    /// True if slots are tried even if their state forbids it.
    any: bool,
}

impl Boot {
    fn begin(block: &[u8], saving: bool) -> Self {
        let (mut record, sane) = BootRecord::read_fields(block);
        let unreported =
            record.run.and_then(UpdateSlot::of).filter(|slot| record.state(*slot) == SlotState::Good);
        let (miss, missed, rescue) = match (unreported, record.miss) {
            (None, _) => (0, None, false),
            (Some(_), MISSES) => (0, None, true),
            (Some(slot), miss) if miss + 1 == MISSES => (MISSES, Some(slot), true),
            (Some(_), miss) => (miss + 1, None, false),
        };
        record.miss = miss;
        let first = record.order;
        let block = block.to_vec();
        Self {
            block,
            saving,
            record,
            sane,
            writable: sane,
            step: Step::Once,
            first,
            missed,
            rescue,
            any: false,
        }
    }

    /// After the last candidate: the counters begin anew.
    fn begin_again(&mut self) {
        (self.record.left, self.record.run, self.record.miss) = (TRIES, None, 0);
        (self.writable, self.any, self.step, self.first) = (self.sane, true, Step::First, self.record.order);
    }

    fn next(&mut self) -> Option<Candidate> {
        loop {
            let (next, candidate) = match self.step {
                Step::Once => (Step::Missed, self.wished()),
                Step::Missed => (Step::Rescue, self.after_misses()),
                Step::Rescue => (Step::First, self.rescue.then(|| self.because_of_misses(Slot::Recovery))),
                Step::First => {
                    if self.rescue {
                        self.record.miss = 0;
                    }
                    (Step::Second, self.consider(self.first))
                }
                Step::Second => (Step::Recovery, self.consider(self.first.other())),
                Step::Recovery => {
                    (Step::End, Some(Candidate { slot: Slot::Recovery, trial: false, only_if_saved: false }))
                }
                Step::End => return None,
            };
            self.step = next;
            if candidate.is_some() {
                return candidate;
            }
        }
    }

    fn wished(&mut self) -> Option<Candidate> {
        let slot = self.record.once.take()?;
        let on_trial = UpdateSlot::of(slot).filter(|slot| self.record.state(*slot) == SlotState::Try);
        let candidate = match on_trial {
            Some(slot) => self.consider(slot)?,
            None => Candidate { slot, trial: false, only_if_saved: true },
        };
        Some(Candidate { only_if_saved: true, ..candidate })
    }

    fn after_misses(&mut self) -> Option<Candidate> {
        let other = self.missed?.other();
        (self.record.state(other) == SlotState::Good).then(|| self.because_of_misses(other.into()))
    }

    fn because_of_misses(&mut self, slot: Slot) -> Candidate {
        self.record.why = BootFailureWord::new(BootFailureWord::MISS);
        Candidate { slot, trial: false, only_if_saved: true }
    }

    /// The slot, if its state allows to start it.
    fn consider(&mut self, slot: UpdateSlot) -> Option<Candidate> {
        let state = self.record.state(slot);
        if state != SlotState::Try {
            let allowed = state == SlotState::Good || self.any;
            return allowed.then(|| Candidate { slot: slot.into(), trial: false, only_if_saved: false });
        }
        self.record.miss = 0;
        if self.record.left == 0 {
            self.record.set_state(slot, SlotState::Bad);
            if self.record.order == slot {
                self.record.order = slot.other();
            }
            self.record.why = BootFailureWord::new(BootFailureWord::TRIES);
            return None;
        }
        self.record.left -= 1;
        let good = UpdateSlot::BOTH.into_iter().any(|slot| self.record.state(slot) == SlotState::Good);
        Some(Candidate { slot: slot.into(), trial: true, only_if_saved: good && !self.any })
    }

    /// Writes the record; it counts as written only if what matters reads back.
    fn save(&mut self) {
        self.writable = self.writable && self.saving && self.write();
    }

    fn write(&mut self) -> bool {
        let mut block = self.block.clone();
        let variables = self.record.variables();
        if !variables.iter().all(|(name, value)| environment::set(&mut block, name, value)) {
            return false;
        }
        self.block = block;
        let checked = ["nq_left", "nq_run", "nq_miss", "nq_once"];
        variables.iter().filter(|(name, _)| checked.contains(name)).all(|(name, value)| {
            environment::value(&self.block, name).unwrap_or_default() == value.as_bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots that start one after the other if no boot is reported as good, and the record after the last.
    fn starts(record: &BootRecord, times: usize, loads: impl Fn(Slot) -> bool) -> (String, BootRecord) {
        let mut block = record.to_block().to_vec();
        let mut slots = String::new();
        for _ in 0..times {
            let decision = decide(&block, &loads, true);
            slots.push(decision.start.map_or('-', |start| match (start.slot, start.trial) {
                (Slot::Recovery, _) => 'r',
                (Slot::A, trial) => {
                    if trial {
                        'A'
                    } else {
                        'a'
                    }
                }
                (Slot::B, trial) => {
                    if trial {
                        'B'
                    } else {
                        'b'
                    }
                }
            }));
            block = decision.block;
        }
        (slots, BootRecord::read(&block).0)
    }

    fn update() -> BootRecord {
        BootRecord { generation: 7, order: UpdateSlot::B, b: SlotState::Try, ..BootRecord::default() }
    }

    #[test]
    fn a_slot_on_trial_starts_three_times_and_then_the_other_one() {
        let (slots, record) = starts(&update(), 4, |_| true);
        assert_eq!(slots, "BBBa");
        assert_eq!((record.order, record.b, record.generation), (UpdateSlot::A, SlotState::Bad, 7));
        assert_eq!(record.why.unwrap().as_str(), BootFailureWord::TRIES);
        assert_eq!(starts(&BootRecord::installed(), 4, |_| true).0, "AAAr");
    }

    #[test]
    fn a_slot_that_cannot_be_loaded_gives_way_in_the_same_boot_and_spends_a_try() {
        let (slots, record) = starts(&update(), 1, |slot| slot != Slot::B);
        assert_eq!((slots.as_str(), record.left, record.run), ("a", 2, Some(Slot::A)));
        assert_eq!(record.why.unwrap().as_str(), BootFailureWord::LOAD);
    }

    #[test]
    fn after_five_boots_without_a_report_others_start_once_and_then_it_again() {
        assert_eq!(starts(&BootRecord::default(), 15, |_| true).0, "aaaaabraaaaabra");
        let alone = BootRecord { b: SlotState::Bad, ..BootRecord::default() };
        assert_eq!(starts(&alone, 12, |_| true).0, "aaaaaraaaaar");
    }

    #[test]
    fn a_wish_is_granted_once() {
        let record = BootRecord { once: Some(Slot::Recovery), ..BootRecord::default() };
        assert_eq!(starts(&record, 3, |_| true).0, "raa");
    }

    #[test]
    fn without_a_record_that_can_be_written_neither_wish_nor_trial_starts_beside_a_good_slot() {
        let wish = BootRecord { once: Some(Slot::Recovery), ..update() };
        let decision = decide(&wish.to_block(), |_| true, false);
        assert_eq!(decision.start.unwrap().slot, Slot::A);
        assert_eq!(decision.block, wish.to_block());
        let only = decide(&BootRecord::installed().to_block(), |_| true, false);
        assert_eq!(only.start, Some(SlotStart { slot: Slot::A, trial: true, waited: false }));
    }

    #[test]
    fn a_count_that_cannot_be_read_back_is_not_taken_for_written() {
        let mut block = update().to_block();
        let end = block.windows(8).position(|bytes| bytes == b"nq_miss=").unwrap() - 1;
        // `nq_run` without its `=` becomes a part of the name that follows: GRUB still finds the line of `nq_miss`, and
        // changes it, but does not read it.
        block[end - 1] = b'_';
        let decision = decide(&block, |_| true, true);
        assert_ne!(decision.block, block);
        assert_eq!(decision.start.unwrap().slot, Slot::A);
    }

    #[test]
    fn whatever_the_record_something_starts_if_anything_can_be_loaded() {
        for state in SlotState::ALL {
            for loaded in Slot::ALL {
                let record = BootRecord { a: state, b: state, left: 0, ..BootRecord::default() };
                let start = decide(&record.to_block(), |slot| slot == loaded, true).start;
                assert_eq!(start.map(|start| start.slot), Some(loaded), "{state:?}");
            }
        }
        for bytes in [&[][..], &[0; 1023], &[0xff; 1025]] {
            assert_eq!(decide(bytes, |_| true, true).start.unwrap().slot, Slot::A);
            assert_eq!(decide(bytes, |slot| slot == Slot::B, true).start.unwrap().slot, Slot::B);
        }
    }
}
