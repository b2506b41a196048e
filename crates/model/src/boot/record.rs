//! The boot record: which slots there are to start and how often, in GRUB's environment block on the EFI system partition.
//!
//! The node writes it and GRUB changes it. All of it is in the first 512 bytes, so that a power cut leaves the old one or
//! the new one: a disk writes a sector whole or not at all.

use std::fmt;

use super::Slot;
use super::environment::{self, FILLER, SIGNATURE};

/// The length of the block; GRUB writes it in place and never changes its size.
pub const BLOCK_BYTES: usize = 1024;
/// How many times a slot on trial is started.
pub const TRIES: u8 = 3;
/// After so many boots of a good slot in a row that were not reported as good, another one is started.
pub const MISSES: u8 = 5;
/// The largest generation; GRUB's script takes no longer number for one.
pub const GENERATION_MAX: u32 = 999_999_999;

/// The version of the record, `nq_v`.
const VERSION: &str = "1";

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateSlot {
    A,
    B,
}

impl UpdateSlot {
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// None for the recovery system.
    #[must_use]
    pub fn of(slot: Slot) -> Option<Self> {
        Self::BOTH.into_iter().find(|this| Slot::from(*this) == slot)
    }
}

impl fmt::Display for UpdateSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Slot::from(*self).fmt(f)
    }
}

impl From<UpdateSlot> for Slot {
    fn from(slot: UpdateSlot) -> Self {
        match slot {
            UpdateSlot::A => Self::A,
            UpdateSlot::B => Self::B,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotState {
    /// Never written, or being written.
    Empty,
    /// Written, and started at most [`TRIES`] times before it is known to be good.
    Try,
    Good,
    Bad,
}

base::names!(SlotState { Empty = "empty", Try = "try", Good = "good", Bad = "bad" });

/// Why a boot did not go as wished: one word of at most sixteen lower-case letters.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct BootFailureWord(String);

impl BootFailureWord {
    /// GRUB's word for a slot on trial that was started as often as it may be.
    pub const TRIES: &str = "tries";
    /// GRUB's word for a slot that could not be loaded.
    pub const LOAD: &str = "load";
    /// GRUB's word for a good slot whose boots were not reported as good.
    pub const MISS: &str = "miss";
    /// The initrd's word for a slot whose OS image could not be opened by the hashes of its release.
    pub const IMAGE: &str = "image";

    const LONGEST: usize = 16;

    /// None for anything but one such word.
    #[must_use]
    pub fn new(word: &str) -> Option<Self> {
        let fits = (1..=Self::LONGEST).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_lowercase());
        fits.then(|| Self(word.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BootFailureWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The state of the slots that the boot loader reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootRecord {
    /// How many records the node has written; GRUB never changes it. At most [`GENERATION_MAX`].
    pub generation: u32,
    /// The slot that comes first.
    pub order: UpdateSlot,
    pub a: SlotState,
    pub b: SlotState,
    /// How many more times the slot on trial is started, at most [`TRIES`].
    pub left: u8,
    /// The slot of the boot under way: set by GRUB, cleared by the node when the boot is good.
    pub run: Option<Slot>,
    /// How many boots of a good slot in a row were not reported as good, at most [`MISSES`].
    pub miss: u8,
    /// The slot to start next, once.
    pub once: Option<Slot>,
    pub why: Option<BootFailureWord>,
}

/// The result of comparing a block with the record that it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordCondition {
    Whole,
    /// Something is missing, unreadable or too much. It starts something all the same, but is to be written anew.
    Damaged,
}

impl Default for BootRecord {
    /// The record of a node without one: both slots are started if they can be loaded.
    fn default() -> Self {
        Self {
            generation: 0,
            order: UpdateSlot::A,
            a: SlotState::Good,
            b: SlotState::Good,
            left: TRIES,
            run: None,
            miss: 0,
            once: None,
            why: None,
        }
    }
}

impl BootRecord {
    /// The record that an install writes: the first boots are counted like those after an update.
    #[must_use]
    pub fn installed() -> Self {
        Self { a: SlotState::Try, b: SlotState::Empty, ..Self::default() }
    }

    #[must_use]
    pub fn state(&self, slot: UpdateSlot) -> SlotState {
        match slot {
            UpdateSlot::A => self.a,
            UpdateSlot::B => self.b,
        }
    }

    pub fn set_state(&mut self, slot: UpdateSlot, state: SlotState) {
        match slot {
            UpdateSlot::A => self.a = state,
            UpdateSlot::B => self.b = state,
        }
    }

    /// Reads a block as GRUB's script does: what is missing or is no value of ours takes its default.
    #[must_use]
    pub fn read(block: &[u8]) -> (Self, RecordCondition) {
        let (record, _) = Self::read_fields(block);
        let whole = record.to_block() == block;
        (record, if whole { RecordCondition::Whole } else { RecordCondition::Damaged })
    }

    /// The record, and whether every value that the block has is one of ours.
    pub(super) fn read_fields(block: &[u8]) -> (Self, bool) {
        let mut fields = Fields { block, sane: true };
        let slots = |text: &str| match text {
            "" => Some(None),
            name => Slot::of_name(name).map(Some),
        };
        let usual = Self::default();
        fields.read("nq_v", (), |text| (text == VERSION).then_some(()));
        let record = Self {
            generation: fields.read("nq_gen", usual.generation, |text| number(text, GENERATION_MAX)),
            order: fields
                .read("nq_order", usual.order, |text| slots(text).flatten().and_then(UpdateSlot::of)),
            a: fields.read("nq_a", usual.a, SlotState::of_name),
            b: fields.read("nq_b", usual.b, SlotState::of_name),
            left: fields.read("nq_left", usual.left, |text| number(text, TRIES)),
            run: fields.read("nq_run", usual.run, slots),
            miss: fields.read("nq_miss", usual.miss, |text| number(text, MISSES)),
            once: fields.read("nq_once", usual.once, slots),
            why: fields.read("nq_why", usual.why, |text| match text {
                "" => Some(None),
                word => BootFailureWord::new(word).map(Some),
            }),
        };
        (record, fields.sane)
    }

    #[must_use]
    pub fn to_block(&self) -> [u8; BLOCK_BYTES] {
        let lines = self.variables().map(|(name, value)| format!("{name}={value}\n")).concat();
        let mut block = [FILLER; BLOCK_BYTES];
        let head = SIGNATURE.iter().chain(lines.as_bytes());
        block.iter_mut().zip(head).for_each(|(byte, text)| *byte = *text);
        block
    }

    /// All of it as GRUB's variables, in the order in which they are written.
    pub(super) fn variables(&self) -> [(&'static str, String); 10] {
        let slot = |slot: Option<Slot>| slot.map(|slot| slot.to_string()).unwrap_or_default();
        [
            ("nq_v", VERSION.to_owned()),
            ("nq_gen", self.generation.min(GENERATION_MAX).to_string()),
            ("nq_order", Slot::from(self.order).to_string()),
            ("nq_a", self.a.name().to_owned()),
            ("nq_b", self.b.name().to_owned()),
            ("nq_left", self.left.min(TRIES).to_string()),
            ("nq_run", slot(self.run)),
            ("nq_miss", self.miss.min(MISSES).to_string()),
            ("nq_once", slot(self.once)),
            ("nq_why", self.why.as_ref().map(BootFailureWord::to_string).unwrap_or_default()),
        ]
    }
}

/// Reads the values of a block one by one, and notes what was none of ours.
struct Fields<'a> {
    block: &'a [u8],
    sane: bool,
}

impl Fields<'_> {
    fn read<T>(&mut self, name: &str, usual: T, parse: impl Fn(&str) -> Option<T>) -> T {
        let Some(value) = environment::value(self.block, name) else { return usual };
        let parsed = std::str::from_utf8(&value).ok().and_then(parse);
        self.sane &= parsed.is_some();
        parsed.unwrap_or(usual)
    }
}

/// A number as it is written: digits, and no zero before others.
fn number<T: std::str::FromStr + PartialOrd + ToString>(text: &str, most: T) -> Option<T> {
    text.parse().ok().filter(|number: &T| *number <= most && number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slot() -> impl Strategy<Value = Option<Slot>> {
        prop_oneof![Just(None), Just(Some(Slot::A)), Just(Some(Slot::B)), Just(Some(Slot::Recovery))]
    }

    prop_compose! {
        fn record()(
            generation in 0..=GENERATION_MAX,
            order in 0usize..2,
            (a, b) in (0usize..4, 0usize..4),
            (left, miss) in (0..=TRIES, 0..=MISSES),
            (run, once) in (slot(), slot()),
            why in "[a-z]{0,16}",
        ) -> BootRecord {
            let (order, why) = (UpdateSlot::BOTH[order], BootFailureWord::new(&why));
            let (a, b) = (SlotState::ALL[a], SlotState::ALL[b]);
            BootRecord { generation, order, a, b, left, run, miss, once, why }
        }
    }

    proptest! {
        #[test]
        fn a_record_reads_back_as_it_was_written_from_its_first_sector_alone(record in record()) {
            let block = record.to_block();
            prop_assert_eq!(BootRecord::read(&block), (record.clone(), RecordCondition::Whole));
            prop_assert!(block[512..].iter().all(|byte| *byte == b'#'));
            prop_assert_eq!(BootRecord::read(&block[..512]), (record, RecordCondition::Damaged));
        }

        #[test]
        fn any_bytes_read_as_some_record_and_only_its_own_block_is_whole(
            head in any::<bool>(),
            bytes in prop::collection::vec(any::<u8>(), 0..1100),
        ) {
            let head = if head { SIGNATURE } else { &[] };
            let bytes = [head, &bytes].concat();
            let (record, condition) = BootRecord::read(&bytes);
            prop_assert_eq!(condition == RecordCondition::Whole, bytes == record.to_block());
            prop_assert_eq!(BootRecord::read(&record.to_block()).0, record);
        }

        #[test]
        fn one_wrong_value_takes_its_default_and_leaves_the_others(
            record in record(),
            wrong in "[A-Z5-9 -]{1,300}",
            field in 1usize..10,
        ) {
            let block = record.to_block();
            let mut damaged = block.to_vec();
            let (name, _) = record.variables()[field];
            let wrong = format!("-{wrong}");
            prop_assert!(environment::set(&mut damaged, name, &wrong));
            let (read, sane) = BootRecord::read_fields(&damaged);
            prop_assert!(!sane);
            let variables = |record: &BootRecord| record.variables();
            for (index, (name, value)) in variables(&read).into_iter().enumerate() {
                let expected = if index == field { variables(&BootRecord::default()) } else { variables(&record) };
                prop_assert_eq!(&value, &expected[index].1, "{}", name);
            }
        }
    }

    #[test]
    fn the_longest_record_ends_before_the_second_sector() {
        let longest = BootRecord {
            generation: u32::MAX,
            a: SlotState::Empty,
            b: SlotState::Empty,
            run: Some(Slot::Recovery),
            once: Some(Slot::Recovery),
            why: BootFailureWord::new("abcdefghijklmnop"),
            ..BootRecord::default()
        };
        let block = longest.to_block();
        assert!(block[256..].iter().all(|byte| *byte == b'#'));
        assert!(BootRecord::read(&block).0.why.is_some());
        assert_eq!(BootFailureWord::new("abcdefghijklmnopq"), None);
    }

    #[test]
    fn an_install_leaves_a_counted_trial_of_its_only_slot() {
        let block = BootRecord::installed().to_block();
        let text = "# GRUB Environment Block\nnq_v=1\nnq_gen=0\nnq_order=a\nnq_a=try\nnq_b=empty\nnq_left=3\nnq_run=\n\
                    nq_miss=0\nnq_once=\nnq_why=\n###";
        assert!(block.starts_with(text.as_bytes()), "{}", String::from_utf8_lossy(&block));
    }

    #[test]
    fn blocks_of_wrong_lengths_and_without_content_are_damaged() {
        let block = BootRecord::installed().to_block();
        let long = [&block[..], &[FILLER; 3072]].concat();
        for bytes in [&block[..1023], &long[..1025], &long[..]] {
            assert_eq!(BootRecord::read(bytes), (BootRecord::installed(), RecordCondition::Damaged));
        }
        for bytes in [&[][..], &[0; 1024], &[FILLER; 1024]] {
            assert_eq!(BootRecord::read(bytes), (BootRecord::default(), RecordCondition::Damaged));
        }
    }
}
