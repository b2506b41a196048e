//! Updates of a slot of an installed disk: what a power cut leaves, and what damaged disks do.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;

use nqrust_checker::crash::{Log, State, StateSelection, every_state};
use nqrust_checker::{Hash, Overlay, Slot as CheckedSlot, Verdict, judge_slot};

use super::crash::{hash, seeds, volume_files};
use super::doubles::{Fault, Recording, TestMedium, copy_data};
use super::*;
use crate::execute::SlotSource;
use crate::execute::slot_update::SlotPlace;
use crate::plan::{Partition, Target, boot_volume};
use base::cancel::Cancel;
use base::digest::Digest;
use base::failure::render;
use base::progress::Progress;
use formats::verity::VerityTree;
use medium::payload_sources::PayloadSource;
use model::boot::Slot;
use model::boot::loader::decide;
use model::boot::record::{BootRecord, SlotState};
use model::release::{ExpandedImage, MANIFEST, Payload, Release, SIGNATURES};
use model::release_manifest::ReleaseManifest;
use testing::release::expanded_image;

/// A release that the test medium has.
pub(super) fn version(version: &str) -> Release {
    Release { version: version.into(), ..crate::plan::tests::release() }
}

pub(super) fn root_b(bench: &Bench) -> &Partition {
    bench.plan.partition(PartitionName::RootB).unwrap()
}

pub(super) fn place<'a>(bench: &'a Bench, disk: &'a TestDisk) -> SlotPlace<'a> {
    SlotPlace { whole: disk, halves: Vec::new(), partition: root_b(bench) }
}

pub(super) fn write(bench: &Bench, disk: &TestDisk, release: &Release) -> anyhow::Result<()> {
    write_release(bench, disk, &release.clone().into())
}

fn write_release(bench: &Bench, disk: &TestDisk, release: &ReleaseManifest) -> anyhow::Result<()> {
    let progress = Progress::new(vec![Box::new(bench.recorder.clone())]);
    place(bench, disk).write(release, &bench.medium, &progress, &Cancel::new(bench.stop))
}

/// The release of [`version`] with a file of signatures.
fn signed(number: &str, signatures: &str) -> ReleaseManifest {
    ReleaseManifest::parse(version(number).to_bytes(), Some(signatures.into())).unwrap()
}

/// What slot b has to hold, for the checker.
struct ExpectedSlot {
    /// Of the partition, in bytes.
    start: u64,
    slot: CheckedSlot,
    image: (u64, Hash),
}

impl ExpectedSlot {
    fn judge(&self, disk: &dyn nqrust_checker::Bytes) -> Verdict {
        judge_slot(disk, self.start, &self.slot, self.image).unwrap()
    }
}

fn expected(bench: &Bench, release: &ReleaseManifest) -> ExpectedSlot {
    let payload = |purpose| release.payload(purpose).unwrap();
    let image = expanded_image();
    let geometry = SlotGeometry::of(root_b(bench));
    let tree = VerityTree::of_image(payload(Purpose::Rootfs).sha256, image).unwrap();
    let slot = CheckedSlot {
        name: "root-b".into(),
        tree: (geometry.tree(image.len() as u64), hash(&tree.bytes)),
        boot: geometry.boot.get(),
        files: volume_files(&boot_volume(release, payload(Purpose::Kernel), payload(Purpose::Initrd))),
    };
    ExpectedSlot { start: geometry.start.get(), slot, image: hash(image) }
}

fn judged(bench: &Bench, disk: &dyn nqrust_checker::Bytes, release: &Release) -> Verdict {
    expected(bench, &release.clone().into()).judge(disk)
}

/// The records with which a machine may start while a slot is written: the right one, one that was lost, and damaged ones.
fn records() -> Vec<Vec<u8>> {
    let writing = BootRecord { b: SlotState::Empty, ..BootRecord::default() }.to_block();
    let torn = [&writing[..300], &[0; 724]].concat();
    vec![writing.to_vec(), Vec::new(), vec![0; 1024], torn]
}

/// Writes `new` over what `old` says is in slot b, and judges every state in between; how many of each kind: old, not bootable,
/// complete.
fn every_cut(sector: u32, old: Option<&ReleaseManifest>, new: &ReleaseManifest) -> [usize; 3] {
    let bench = Bench::with_sector(sector);
    let mut disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
    if let Some(old) = old {
        write_release(&bench, &disk, old).unwrap();
        assert_eq!(expected(&bench, old).judge(disk.file()), Verdict::Complete);
    }
    let before = tempfile::NamedTempFile::new().unwrap();
    copy_data(disk.file(), 0..disk.size().get(), before.as_file());
    disk.recording = Some(Mutex::default());
    write_release(&bench, &disk, new).unwrap();
    let recording = disk.recording.as_ref().unwrap().lock().unwrap();
    let Recording { entries, data } = &*recording;
    let log = Log { entries: entries.clone(), data };
    let complete = expected(&bench, new);
    let mut counts = [0; 3];
    for seed in seeds() {
        let mut state = Overlay::new(before.as_file());
        let choice = StateSelection { sector: u64::from(sector), seed, subsets: 180 };
        let mut visit = |state: &State<'_>| {
            let (kind, whole) = match &state.verdict {
                Verdict::OldState => (0, old.is_some()),
                Verdict::NotBootable => (1, false),
                Verdict::Complete => (2, true),
                Verdict::Half(_) => panic!("{state}"),
            };
            counts[kind] += 1;
            for record in records() {
                // Slot a was not touched, and the recovery system neither.
                let start = decide(&record, |slot| slot != Slot::B || whole, true).start.unwrap();
                assert!(start.slot == Slot::A, "{state}");
            }
        };
        every_state(&mut state, &log, &|disk| Ok(complete.judge(disk)), choice, &mut visit).unwrap();
        assert_eq!(complete.judge(&state), Verdict::Complete);
    }
    counts
}

#[test]
fn a_slot_gives_its_manifest_and_its_signatures_as_they_came() {
    let bench = Bench::new();
    let disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
    write(&bench, &disk, &version("2")).unwrap();
    let source = || slot_source(&bench, &disk);
    assert_eq!(source().manifest().unwrap(), version("2").to_bytes());
    assert_eq!(source().signatures().unwrap(), None);
    // The next release has signatures, and other bytes than this program would write; the one after it has none again.
    let bytes = [&version("3").to_bytes()[..], b"\n"].concat();
    let signed = ReleaseManifest::parse(bytes.clone(), Some(b"signed\n".to_vec())).unwrap();
    let (progress, cancel) = (Progress::silent(), Cancel::new(bench.stop));
    place(&bench, &disk).write(&signed, &bench.medium, &progress, &cancel).unwrap();
    assert_eq!(source().manifest().unwrap(), bytes);
    assert_eq!(source().signatures().unwrap().as_deref(), Some(&b"signed\n"[..]));
    assert!(place(&bench, &disk).holds(&signed, &progress, &cancel).unwrap());
    write(&bench, &disk, &version("4")).unwrap();
    assert_eq!(source().signatures().unwrap(), None);
}

/// Other machines get these from a node that serves its release, so the room behind the image is left as it is.
#[test]
fn a_slot_has_the_os_in_the_form_of_media_after_it_was_written_from_that() {
    let bench = Bench::new();
    let disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
    write(&bench, &disk, &version("2")).unwrap();
    let source = slot_source(&bench, &disk);
    for (payload, bytes) in testing::release::contents() {
        let served = source.served(payload).unwrap();
        let in_slot = [Purpose::Rootfs, Purpose::Kernel, Purpose::Initrd].contains(&payload.purpose);
        assert_eq!(served.is_some(), in_slot, "{}", payload.path);
        let Some(served) = served else { continue };
        let (mut found, mut piece) = (Vec::new(), vec![0; 100_000]);
        while let count @ 1.. = served.read_at(&mut piece, found.len() as u64).unwrap() {
            found.extend_from_slice(&piece[..count]);
        }
        assert!(found == *bytes, "{}", payload.path);
    }
}

fn slot_source(bench: &Bench, disk: &TestDisk) -> SlotSource {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(disk.file()));
    SlotSource::open(path.as_ref(), root_b(bench)).unwrap()
}

#[test]
fn a_power_cut_at_any_moment_of_an_update_leaves_a_slot_that_grub_passes_over_or_a_complete_one() {
    let (old, new) = (signed("1.0.0", "of the old one\n"), signed("1.1.0", "of the new one\n"));
    // The manifest, its signatures, the hash tree and the image of a slot that starts are of one release.
    let ExpectedSlot { slot, .. } = expected(&Bench::new(), &new);
    for name in [MANIFEST, SIGNATURES] {
        assert!(slot.files.iter().any(|file| file.path.ends_with(name)), "{name}");
    }
    let mut states = 0;
    for sector in [512, 4096] {
        for before in [None, Some(&old)] {
            let [untouched, not_bootable, complete] = every_cut(sector, before, &new);
            assert!(
                untouched > 0 && not_bootable > 200 && complete > 10,
                "{untouched} {not_bootable} {complete}"
            );
            states += untouched + not_bootable + complete;
        }
    }
    assert!(states > 2000, "{states}");
}

#[test]
fn what_is_in_the_slot_is_known_again_and_every_wrong_byte_of_it_is_found() {
    let bench = Bench::new();
    let disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
    let (one, other) = (version("1.1.0"), version("1.2.0"));
    let (progress, cancel) = (Progress::silent(), Cancel::new(bench.stop));
    let holds =
        |release: &Release| place(&bench, &disk).holds(&release.clone().into(), &progress, &cancel).unwrap();
    assert!(!holds(&one));
    write(&bench, &disk, &one).unwrap();
    assert!(holds(&one) && !holds(&other));
    let geometry = SlotGeometry::of(root_b(&bench));
    let image = one.expanded.size;
    let kernel = {
        let (_, bytes) = contents().iter().find(|(payload, _)| payload.purpose == Purpose::Kernel).unwrap();
        let there = disk.bytes(geometry.boot.get(), 8 << 20);
        geometry.boot.get() + there.windows(64).position(|here| *here == bytes[..64]).unwrap() as u64
    };
    for place in [
        geometry.start.get() + image - 1,
        geometry.tree(image) + 99,
        kernel + 300_000,
        geometry.boot.get() + 11,
    ] {
        let byte = disk.bytes(place, 1)[0];
        disk.file().write_all_at(&[byte ^ 4], place).unwrap();
        assert!(!holds(&one), "{place}");
        disk.file().write_all_at(&[byte], place).unwrap();
    }
    assert!(holds(&one));
    place(&bench, &disk).erase_mark().unwrap();
    assert!(!holds(&one));
    assert_eq!(judged(&bench, disk.file(), &one), Verdict::NotBootable);
}

#[test]
fn a_disk_that_fails_or_loses_writes_leaves_a_slot_without_its_mark() {
    let new = version("1.1.0");
    let whole = Bench::new();
    write(&whole, &whole.disk, &new).unwrap();
    let count = |counter: &std::sync::atomic::AtomicUsize| counter.load(Ordering::Relaxed);
    let (writes, reads) = (count(&whole.disk.writes), count(&whole.disk.reads));
    let spread = |count: usize| (0..count).step_by(count.div_ceil(12)).chain([count - 1]);
    let faults = spread(writes).flat_map(|one| [Fault::Write(one, 5), Fault::Vanish(one), Fault::Tear(one)]);
    for fault in faults.chain(spread(reads).map(|one| Fault::Read(one, 5))) {
        let bench = Bench::new();
        let mut disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
        disk.fault = Some(fault);
        match write(&bench, &disk, &new) {
            // Zeros on zeros, or what is not read.
            Ok(()) => assert_eq!(judged(&bench, disk.file(), &new), Verdict::Complete, "{fault:?}"),
            Err(error) => {
                assert_eq!(class_of(&error), Class::DiskIo, "{}", render(&error));
                assert_eq!(judged(&bench, disk.file(), &new), Verdict::NotBootable, "{fault:?}");
            }
        }
    }
}

#[test]
fn a_release_that_does_not_fit_or_is_damaged_leaves_a_slot_without_its_mark() {
    let mut bench = Bench::new();
    let disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
    let old = version("1.0.0");
    write(&bench, &disk, &old).unwrap();
    let mut large = version("1.1.0");
    large.expanded.size = 3 << 30;
    assert_eq!(class_of(&write(&bench, &disk, &large).unwrap_err()), Class::Hardware);
    // Nothing was written for it.
    assert_eq!(judged(&bench, disk.file(), &old), Verdict::Complete);
    let another = Digest::of(b"another");
    let wrong = Release {
        expanded: ExpandedImage { root_hash: another, ..version("1.1.0").expanded },
        ..version("1.1.0")
    };
    assert_eq!(class_of(&write(&bench, &disk, &wrong).unwrap_err()), Class::Verification);
    assert_eq!(judged(&bench, disk.file(), &old), Verdict::NotBootable);
    for damaged in ["live/rootfs.squashfs", "live/initrd"] {
        bench.medium = TestMedium { damaged: Some(damaged), ..TestMedium::default() };
        let error = write(&bench, &disk, &version("1.1.0")).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
        assert_eq!(judged(&bench, disk.file(), &version("1.1.0")), Verdict::NotBootable);
    }
}

#[test]
fn an_image_of_another_length_than_its_release_says_is_refused_and_no_disk_is_blamed() {
    let bench = Bench::new();
    let disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
    let (image, os) = (expanded_image(), version("1.1.0"));
    let os = os.payload(Purpose::Rootfs).unwrap().sha256;
    let length = image.len() as u64;
    for size in
        [length - 1, length - 4096, length - 100_000, 4096, length + 1, length + 4096, length + 900_000]
    {
        // The root hash is that of what would be in the slot.
        let kept = usize::try_from(size.min(length)).unwrap();
        let root_hash = VerityTree::of_image(os, &image[..kept]).unwrap().root;
        let lying = Release { expanded: ExpandedImage { size, root_hash }, ..version("1.1.0") };
        let error = write(&bench, &disk, &lying).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Verification, "{size}: {text}");
        assert!(text.contains(&format!("not {size} as the release manifest says")), "{text}");
        assert_eq!(judged(&bench, disk.file(), &lying), Verdict::NotBootable, "{size}");
    }
}

#[test]
fn both_halves_of_a_mirror_are_read_back() {
    let new = version("1.1.0");
    let write = |rotten: Option<u64>| {
        let bench = Bench::new();
        let mut halves =
            [(); 2].map(|()| TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap()));
        halves[1].rotten = rotten;
        let whole = Both(&halves);
        let place = SlotPlace {
            whole: &whole,
            halves: halves.iter().map(|half| half as &dyn BlockDevice).collect(),
            partition: root_b(&bench),
        };
        let written =
            place.write(&new.clone().into(), &bench.medium, &Progress::silent(), &Cancel::new(bench.stop));
        let verdicts = [0, 1].map(|half| judged(&bench, halves[half].file(), &new));
        (written, verdicts)
    };
    let (written, verdicts) = write(None);
    written.unwrap();
    assert_eq!(verdicts, [Verdict::Complete, Verdict::Complete]);
    let bench = Bench::new();
    let geometry = SlotGeometry::of(root_b(&bench));
    for rotten in [geometry.start.get() + 1_500_000, geometry.boot.get() + 100] {
        let (written, _) = write(Some(rotten));
        assert_eq!(class_of(&written.unwrap_err()), Class::DiskIo, "{rotten}");
    }
    let (_, verdicts) = write(Some(geometry.start.get() + 1_500_000));
    assert_eq!(verdicts, [Verdict::NotBootable, Verdict::NotBootable]);
}

/// An array of two disks that reads from the first.
pub(super) struct Both<'a>(pub(super) &'a [TestDisk; 2]);

impl BlockDevice for Both<'_> {
    fn target(&self) -> &Target {
        &self.0[0].target
    }

    fn describe(&self) -> String {
        "the array".into()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.0[0].read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.iter().try_for_each(|half| half.write_at(offset, bytes))
    }

    fn flush(&self) -> std::io::Result<()> {
        self.0.iter().try_for_each(|half| half.flush())
    }
}

/// A source that has the image of the test medium expanded, or something else in its place.
struct Expanded<'a>(&'a TestMedium, Vec<u8>);

impl PayloadSource for Expanded<'_> {
    fn open(&self, payload: &Payload) -> anyhow::Result<Box<dyn Read + Send>> {
        assert!(payload.purpose != Purpose::Rootfs);
        self.0.open(payload)
    }
    fn has_expanded(&self, _: &Payload) -> bool {
        true
    }
    fn write_expanded(&self, _: &Payload, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(out.write_all(&self.1)?)
    }
    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        self.0.place(payload)
    }
    fn probe(&self, _: &Payload) -> anyhow::Result<()> {
        Ok(())
    }
    fn manifest(&self) -> anyhow::Result<Vec<u8>> {
        self.0.manifest()
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[test]
fn an_image_that_comes_expanded_is_good_by_its_root_hash_alone() {
    let bench = Bench::new();
    let new = version("1.1.0");
    let right = expanded_image().to_vec();
    let mut flipped = right.clone();
    flipped[1_800_000] ^= 1;
    let other = [right.clone(), vec![1; 5 << 20]].concat();
    for (image, good) in [
        (right.clone(), true),
        (flipped, false),
        (right[..right.len() - 8192].to_vec(), false),
        (vec![], false),
        (other, false),
    ] {
        let disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
        write(&bench, &disk, &version("1.0.0")).unwrap();
        let source = Expanded(&bench.medium, image);
        let (progress, cancel) = (Progress::silent(), Cancel::new(bench.stop));
        let written = place(&bench, &disk).write(&new.clone().into(), &source, &progress, &cancel);
        let verdict = judged(&bench, disk.file(), &new);
        match good {
            true => assert_eq!((written.is_ok(), verdict), (true, Verdict::Complete)),
            false => {
                assert!(written.is_err(), "{verdict:?}");
                assert_eq!(verdict, Verdict::NotBootable);
            }
        }
    }
}
