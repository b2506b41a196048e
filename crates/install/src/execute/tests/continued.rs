//! Runs that continue an earlier, interrupted one.

use nqrust_checker::Verdict;
use nqrust_checker::crash::Entry;

use super::crash::{Crash, older_node, verdict};
use super::doubles::copy_data;
use super::*;
use crate::execute::resume::journal::JOURNAL;
use base::failure::render;

const IMAGE: &str = "live/rootfs.squashfs";
const BLOBS: [&str; 2] = ["images/blobs/sha256/one", "images/blobs/sha256/two"];

/// A recorded run from beginning to end on a disk that was empty.
fn whole() -> Crash {
    let crash = Crash::new(512, |_, _| {});
    crash.install().unwrap();
    crash
}

/// Where in `crash` these bytes were written to a partition.
fn place(crash: &Crash, bytes: &[u8], name: PartitionName) -> u64 {
    let recording = crash.disk.recording.as_ref().unwrap().lock().unwrap();
    recording.place_of(bytes, crash.bench.plan.partition(name).unwrap())
}

/// The number of requests before the node document, when all images are stored and read back.
fn before_the_node(crash: &Crash) -> usize {
    let document = place(crash, b"hush-token", PartitionName::Config);
    let recording = crash.disk.recording.as_ref().unwrap().lock().unwrap();
    let writes = |entry: &Entry| matches!(entry, Entry::Write { offset, length, .. } if (*offset..offset + length).contains(&document));
    let written = recording.entries.iter().rposition(writes).unwrap();
    recording.entries[..written].iter().rposition(|entry| *entry == Entry::Flush).unwrap() + 1
}

impl Crash {
    fn fetched(&self, path: &str) -> usize {
        self.bench.medium.openings.lock().unwrap().get(path).copied().unwrap_or_default()
    }

    fn fetched_all(&self) -> [usize; 3] {
        [IMAGE, BLOBS[0], BLOBS[1]].map(|path| self.fetched(path))
    }

    fn said(&self, text: &str) -> bool {
        self.bench.recorder.0.lock().unwrap().iter().any(|event| event.message.contains(text))
    }
}

fn flip(disk: &TestDisk, place: u64) {
    let byte = disk.bytes(place, 1)[0];
    disk.file().write_all_at(&[byte ^ 1], place).unwrap();
}

fn content(path: &str) -> &'static [u8] {
    &contents().iter().find(|(payload, _)| payload.path == path).unwrap().1
}

#[test]
fn what_an_interrupted_install_has_left_is_read_and_only_what_is_missing_or_damaged_is_fetched() {
    let cut = whole();
    let stop = before_the_node(&cut);
    let start = |name| cut.bench.partition(name);
    let journal = place(&cut, b"{\"version\":2", PartitionName::Config);
    let fingerprint = place(&cut, b"\"fingerprint\":", PartitionName::Config) + 15;
    let blob = place(&cut, content(BLOBS[0]), PartitionName::Persistent);
    let end = cut.disk.size().get();
    type Damage<'a> = Box<dyn Fn(&TestDisk) + 'a>;
    let write = |bytes: &'static [u8], place: u64| -> Damage<'_> {
        Box::new(move |disk| disk.file().write_all_at(bytes, place).unwrap())
    };
    let flipped = |place: u64| -> Damage<'_> { Box::new(move |disk| flip(disk, place)) };
    let superblock = |name| start(name) + 1024;
    let cases: [(Damage<'_>, [usize; 3], &str); 11] = [
        (Box::new(|_| {}), [0, 0, 0], "Continuing the install on /dev/vda that was interrupted"),
        (flipped(start(PartitionName::RootA) + 1_000_001), [1, 0, 0], "is incomplete, and is written again"),
        (flipped(blob + 1), [0, 1, 0], "Continuing the install on /dev/vda"),
        (
            write(&[0; 64], superblock(PartitionName::Persistent) + 0x20),
            [0, 1, 1],
            "persistent is made again",
        ),
        (flipped(superblock(PartitionName::Persistent) + 0x68), [0, 1, 1], "it is another file system"),
        (write(&[0; 64], superblock(PartitionName::Config) + 0x20), [1, 1, 1], "is not continued: mounting"),
        (write(&[0xff; 12], journal), [1, 1, 1], "is not continued: its journal is damaged"),
        (write(&[0; 40], journal + 60), [1, 1, 1], "is not continued: its journal is damaged"),
        (write(b"{\"version\":7", journal), [1, 1, 1], "its journal has the version 7"),
        (write(b"00ff00ff00ff00ff", fingerprint), [1, 1, 1], "other partitions or other content"),
        (
            Box::new(|disk| {
                for place in [0, end - (1 << 20)] {
                    disk.file().write_all_at(&vec![0; 1 << 20], place).unwrap();
                }
            }),
            [1, 1, 1],
            "Writing the OS image",
        ),
    ];
    for (damage, fetched, told) in cases {
        let again = cut.again(stop, damage);
        assert_eq!(again.bench.plan.continued, fetched != [1, 1, 1], "{told}");
        again.install().unwrap();
        assert_eq!(again.fetched_all(), fetched, "{told}");
        assert!(again.said(told), "{told}: {:#?}", again.bench.recorder.0.lock().unwrap());
        assert_eq!(verdict(&again), Verdict::Complete, "{told}");
        assert!(!has_journal(&again), "{told}: a node has a journal");
    }
}

/// Whether the configuration partition has a journal in the end.
fn has_journal(crash: &Crash) -> bool {
    let machine = super::doubles::Ext4Machine::new(&crash.disk, &crash.bench.plan);
    let mounted = machine.mount(Path::new("/dev/config"), MountAccess::Read).unwrap();
    assert!(mounted.path().join(DOCUMENT).exists());
    mounted.path().join(JOURNAL).exists()
}

#[test]
fn another_release_begins_anew_and_says_of_which_the_other_was() {
    let cut = whole();
    let mut later = model::release::Release::clone(&cut.bench.plan.release);
    let old = cut.bench.plan.product.clone();
    later.version = "99.1".into();
    let again = cut.again_with(before_the_node(&cut), |_| {}, &later);
    assert!(!again.bench.plan.continued && again.bench.plan.disk_guid != cut.bench.plan.disk_guid);
    assert!(
        again.said(&format!("An earlier install on /dev/vda is not continued: it was an install of {old}"))
    );
    again.install().unwrap();
    assert_eq!(again.fetched_all(), [1, 1, 1]);
    assert_eq!(verdict(&again), Verdict::Complete);
}

#[test]
fn a_power_cut_at_any_moment_of_a_continued_install_leaves_nothing_that_boots_half() {
    let cut = whole();
    // In both what is kept and what is written again.
    let blob = place(&cut, &content(BLOBS[1])[..200], PartitionName::Persistent);
    let again = cut.again(before_the_node(&cut), |disk| flip(disk, blob));
    again.install().unwrap();
    let [_, not_bootable, complete] = again.judge(20);
    assert!(not_bootable > 300 && complete > 20, "{not_bootable} {complete}");
    let length = again.disk.recording.as_ref().unwrap().lock().unwrap().entries.len();
    let mut continued = 0;
    for part in 1..6 {
        let third = again.again(length * part / 6, |_| {});
        third.install().unwrap();
        assert_eq!(verdict(&third), Verdict::Complete, "cut off after {part} sixths");
        continued += usize::from(third.bench.plan.continued);
    }
    assert!(continued > 2, "{continued}");
}

#[test]
fn an_interrupted_install_that_keeps_data_is_continued_and_the_data_is_as_it_was() {
    let node = older_node(512);
    let bench = Bench::with(&[super::keep::scan(&&*node, "vda")], super::keep::keeping());
    let cut = Crash::of(bench, |_, disk| copy_data(node.file(), 0..disk.size().get(), disk.file()));
    cut.install().unwrap();
    let again = cut.again(before_the_node(&cut), |_| {});
    assert!(again.bench.plan.continued && again.bench.plan.kept.is_some());
    again.install().unwrap();
    assert_eq!(again.fetched_all(), [0, 0, 0]);
    let [_, not_bootable, complete] = again.judge(20);
    assert!(not_bootable > 200 && complete > 20, "{not_bootable} {complete}");
    let data = &again.bench.plan.kept.as_ref().unwrap().partition;
    assert!(super::keep::ends(&&*again.disk, data) == super::keep::ends(&&*node, data));
}

#[test]
fn a_failure_says_whether_the_next_run_goes_on_or_begins_anew() {
    let cases = [
        (IMAGE, "starting the install again starts over"),
        (BLOBS[1], "starting the install again continues where this one ended"),
        ("boot/core.img", "starting the install again starts over"),
    ];
    for (path, told) in cases {
        let mut bench = Bench::new();
        (bench.medium.damaged, bench.medium.good_openings) = (Some(path), 1);
        let text = render(&bench.run().unwrap_err());
        assert!(text.contains("is not bootable now") && text.contains(told), "{path}: {text}");
    }
}
