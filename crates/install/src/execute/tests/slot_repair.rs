//! Repairs of the slot that runs: each kind of damage, and every place from which the right bytes can come.

use std::os::unix::fs::FileExt;

use super::doubles::Fault;
use super::slot_update::{Both, place, root_b, version, write};
use super::*;
use crate::execute::slot_repair::{DamagedPart, SlotCheck};
use crate::execute::slot_update::SlotPlace;
use base::cancel::Cancel;
use base::progress::Progress;
use formats::verity::BLOCK_BYTES;
use model::release::Release;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Disks whose slot b holds a release.
struct Slots {
    bench: Bench,
    disks: [TestDisk; 2],
    release: Release,
}

impl Slots {
    fn new() -> Self {
        let (bench, release) = (Bench::new(), version("1.1.0"));
        let disks =
            [(); 2].map(|()| TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap()));
        disks.iter().for_each(|disk| write(&bench, disk, &release).unwrap());
        Self { bench, disks, release }
    }

    fn image(&self) -> u64 {
        root_b(&self.bench).start.get()
    }

    fn blocks(&self) -> u64 {
        self.release.expanded.size / BLOCK
    }

    fn tree(&self) -> u64 {
        SlotGeometry::of(root_b(&self.bench)).tree(self.release.expanded.size)
    }

    fn flip(&self, disk: usize, at: u64) {
        let byte = self.disks[disk].bytes(at, 1)[0];
        self.disks[disk].file().write_all_at(&[byte ^ 4], at).unwrap();
    }

    /// Repairs the first disk from the second.
    fn mend(&self) -> SlotCheck {
        let donor = place(&self.bench, &self.disks[1]);
        self.mend_at(&place(&self.bench, &self.disks[0]), &[donor])
    }

    fn mend_at(&self, place: &SlotPlace<'_>, donors: &[SlotPlace<'_>]) -> SlotCheck {
        let (progress, cancel) = (Progress::silent(), Cancel::new(self.bench.stop));
        place.mend(&self.release.clone().into(), donors, &progress, &cancel).unwrap()
    }

    fn holds(&self, disk: usize) -> bool {
        let (progress, cancel) = (Progress::silent(), Cancel::new(self.bench.stop));
        let place = place(&self.bench, &self.disks[disk]);
        place.holds(&self.release.clone().into(), &progress, &cancel).unwrap()
    }
}

fn parts(check: &SlotCheck) -> Vec<(DamagedPart, bool)> {
    check.damage.iter().map(|damage| (damage.part.clone(), damage.repaired)).collect()
}

#[test]
fn a_whole_slot_is_left_as_it_is() {
    let slots = Slots::new();
    let writes = || slots.disks[0].writes.load(Ordering::Relaxed);
    let before = writes();
    assert_eq!(slots.mend(), SlotCheck::default());
    assert_eq!(writes(), before);
}

#[test]
fn damaged_blocks_are_written_anew_from_another_slot_with_the_same_image() {
    let slots = Slots::new();
    let places = [0, 7, slots.blocks() - 1];
    places.iter().for_each(|block| slots.flip(0, slots.image() + block * BLOCK + 99));
    // The other slot is damaged too, elsewhere.
    slots.flip(1, slots.image() + 8 * BLOCK);
    let check = slots.mend();
    assert_eq!(parts(&check), [(DamagedPart::Blocks(places.to_vec()), true)]);
    assert!(check.is_repaired() && slots.holds(0) && !slots.holds(1));
}

#[test]
fn the_hash_tree_is_made_again_even_if_blocks_are_damaged_too() {
    let slots = Slots::new();
    // Its root block is right behind the superblock.
    for block in [1, 3] {
        slots.flip(0, slots.tree() + block * BLOCK + 5);
        assert_eq!(parts(&slots.mend()), [(DamagedPart::HashTree, true)], "block {block}");
        assert!(slots.holds(0));
    }
    slots.flip(0, slots.tree() + 3 * BLOCK + 5);
    slots.flip(0, slots.image() + 5);
    // Its superblock, of which nothing counts but that it is there.
    slots.flip(0, slots.tree());
    let parts = parts(&slots.mend());
    assert_eq!(parts, [(DamagedPart::Blocks(vec![0]), true), (DamagedPart::HashTree, true)]);
    assert!(slots.holds(0));
}

#[test]
fn what_is_damaged_everywhere_stays_and_the_rest_is_repaired() {
    let slots = Slots::new();
    for disk in [0, 1] {
        slots.flip(disk, slots.image() + 3 * BLOCK);
    }
    slots.flip(0, slots.image() + 4 * BLOCK);
    let check = slots.mend();
    assert_eq!(parts(&check), [(DamagedPart::Blocks(vec![4]), true), (DamagedPart::Blocks(vec![3]), false)]);
    assert!(!check.is_repaired());
    assert_eq!(parts(&slots.mend()), [(DamagedPart::Blocks(vec![3]), false)]);
}

#[test]
fn another_release_in_the_other_slot_still_gives_the_blocks_that_both_have() {
    let slots = Slots::new();
    let other = version("1.2.0");
    write(&slots.bench, &slots.disks[1], &other).unwrap();
    slots.flip(0, slots.image() + 3 * BLOCK);
    // The test's releases have the same image.
    assert_eq!(parts(&slots.mend()), [(DamagedPart::Blocks(vec![3]), true)]);
}

#[test]
fn without_a_tree_anywhere_nobody_knows_which_block_is_wrong() {
    let slots = Slots::new();
    slots.flip(0, slots.image());
    slots.flip(0, slots.tree() + 3 * BLOCK);
    let check = slots.mend_at(&place(&slots.bench, &slots.disks[0]), &[]);
    assert_eq!(parts(&check), [(DamagedPart::Blocks(Vec::new()), false)]);
}

#[test]
fn a_damaged_boot_volume_is_told_and_not_touched() {
    let slots = Slots::new();
    let boot = SlotGeometry::of(root_b(&slots.bench)).boot.get();
    slots.flip(0, boot + 11);
    let check = slots.mend();
    assert_eq!(parts(&check), [(DamagedPart::BootVolume, false)]);
}

#[test]
fn a_disk_that_cannot_read_a_block_gets_it_written_anew() {
    let slots = Slots::new();
    *slots.disks[0].unreadable.lock().unwrap() = Some(slots.image() + 5 * BLOCK);
    let check = slots.mend();
    assert_eq!(parts(&check), [(DamagedPart::Blocks(vec![5]), true)]);
    assert!(slots.holds(0));
}

#[test]
fn a_disk_that_takes_nothing_keeps_its_damage() {
    let mut slots = Slots::new();
    slots.flip(0, slots.image());
    let writes = slots.disks[0].writes.load(Ordering::Relaxed);
    slots.disks[0].fault = Some(Fault::Write(writes, 5));
    assert_eq!(parts(&slots.mend()), [(DamagedPart::Blocks(vec![0]), false)]);
}

#[test]
fn each_half_of_a_mirror_is_repaired_from_the_other() {
    let slots = Slots::new();
    let whole = Both(&slots.disks);
    let place = SlotPlace {
        whole: &whole,
        halves: slots.disks.iter().map(|half| half as &dyn BlockDevice).collect(),
        partition: root_b(&slots.bench),
    };
    slots.flip(0, slots.image());
    slots.flip(1, slots.image() + BLOCK);
    slots.flip(1, slots.tree() + 3 * BLOCK);
    let check = slots.mend_at(&place, &[]);
    let expected = [
        (DamagedPart::Blocks(vec![0]), true),
        (DamagedPart::Blocks(vec![1]), true),
        (DamagedPart::HashTree, true),
    ];
    assert_eq!(parts(&check), expected);
    assert!(slots.holds(0) && slots.holds(1));
}
