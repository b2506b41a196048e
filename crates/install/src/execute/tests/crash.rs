//! Every moment of an install at which the power may fail, judged by a checker that shares no code with the installer.

use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use nqrust_checker::crash::{Entry, Log, State, StateSelection, every_state};
use nqrust_checker::{BootCode, Expected, File, Hash, Part, Slot, System, Verdict, judge};

use super::doubles::{Ext4Machine, Recording, copy_data};
use super::*;
use crate::execute::install_files;
use crate::plan::{FatContent, PlannedContent, SlotGeometry, Step};
use base::digest::Digest;
use formats::verity::VerityTree;
use model::release::{MANIFEST, Payload, Purpose, Release};
use testing::release::expanded_image;

/// Random parts of the writes between two flushes. `make soak` sets other numbers in `NQRUST_SEED`.
pub(super) fn seeds() -> Vec<u64> {
    let given = std::env::var("NQRUST_SEED").ok().map(|seed| seed.parse().unwrap());
    [6].into_iter().chain(given).collect()
}

/// The identity of a table that no disk of a test has.
const OTHER: uuid::Uuid = uuid::uuid!("5f6d2d3c-7f0e-4c55-8f55-0d2f5a8b9c01");

/// A disk in some old state, on which an install is recorded.
pub(super) struct Crash {
    pub(super) bench: Bench,
    pub(super) disk: Arc<TestDisk>,
    old: tempfile::NamedTempFile,
}

impl Crash {
    /// `prepare` puts the old system onto the disk.
    pub(super) fn new(sector: u32, prepare: impl FnOnce(&Bench, &mut TestDisk)) -> Self {
        Self::of(Bench::with_sector(sector), prepare)
    }

    /// As [`Crash::new`], with the plan of `bench`.
    pub(super) fn of(bench: Bench, prepare: impl FnOnce(&Bench, &mut TestDisk)) -> Self {
        let mut disk = TestDisk::other(&bench.plan.disk, tempfile::NamedTempFile::new().unwrap());
        prepare(&bench, &mut disk);
        disk.acts.get_mut().unwrap().clear();
        disk.recording = Some(Mutex::default());
        let old = tempfile::NamedTempFile::new().unwrap();
        copy_data(disk.file(), 0..disk.size().get(), old.as_file());
        Self { bench, disk: Arc::new(disk), old }
    }

    pub(super) fn install(&self) -> anyhow::Result<()> {
        let machine = Ext4Machine::new(&self.disk, &self.bench.plan);
        self.bench.run_with(&&*self.disk, &machine, &machine)
    }

    /// The next run, from a server, on what is on the disk after the first `stop` requests of this one and after `damage`.
    pub(super) fn again(&self, stop: usize, damage: impl FnOnce(&TestDisk)) -> Self {
        self.again_with(stop, damage, &self.bench.plan.release)
    }

    /// As [`Crash::again`], of another release.
    pub(super) fn again_with(&self, stop: usize, damage: impl FnOnce(&TestDisk), release: &Release) -> Self {
        let recording = self.disk.recording.as_ref().unwrap().lock().unwrap();
        let mut bench = Bench::with_sector(self.disk.sector().into());
        bench.plan = self.bench.plan.clone();
        bench.medium.place = PayloadPlace::Network;
        let mut next = Self::of(bench, |_, disk| {
            copy_data(self.old.as_file(), 0..disk.size().get(), disk.file());
            for entry in &recording.entries[..stop] {
                if let Entry::Write { offset, length, at } = *entry {
                    let (at, length) = (usize::try_from(at).unwrap(), usize::try_from(length).unwrap());
                    disk.file().write_all_at(&recording.data[at..at + length], offset).unwrap();
                }
            }
            damage(disk);
        });
        next.take_up(release);
        next
    }

    /// Makes the plan again, for the disk as it is, and looks for an unfinished install there, as the command does.
    fn take_up(&mut self, release: &Release) {
        let inventory = machine::inventory::Inventory {
            disks: vec![super::keep::scan(&&*self.disk, "vda")],
            ..machine::inventory::Inventory::default()
        };
        let document = &self.bench.plan.document;
        let release = release.clone().into();
        let draft = |guid| crate::plan::plan(document, &inventory, &release, guid);
        let machine = Ext4Machine::new(&self.disk, &self.bench.plan);
        let progress = base::progress::Progress::new(vec![Box::new(self.bench.recorder.clone())]);
        let plan = take_up(draft(OTHER).unwrap(), &&*self.disk, &machine, &progress, &draft);
        self.bench.plan = plan;
    }

    /// Judges every state in between; returns the number of states of each kind: old, not bootable, complete.
    pub(super) fn judge(&self, subsets: usize) -> [usize; 3] {
        self.judge_and(subsets, |_| false)
    }

    /// Like [`Crash::judge`]; `old` says which states still have all of the old system although bytes differ.
    fn judge_and(&self, subsets: usize, old: impl Fn(&State<'_>) -> bool) -> [usize; 3] {
        let recording = self.disk.recording.as_ref().unwrap().lock().unwrap();
        let Recording { entries, data } = &*recording;
        let expected = expected(&self.bench);
        let (mut counts, mut holes, mut furthest) = ([0; 3], Vec::new(), 0);
        let log = Log { entries: entries.clone(), data };
        for seed in seeds() {
            furthest = 0;
            let mut disk = nqrust_checker::Overlay::new(self.old.as_file());
            let choice = StateSelection { sector: self.disk.sector().bytes(), seed, subsets };
            let mut visit = |state: &State<'_>| {
                let kind = match &state.verdict {
                    Verdict::OldState => 0,
                    Verdict::NotBootable => 1,
                    Verdict::Complete => 2,
                    Verdict::Half(_) if old(state) => 0,
                    Verdict::Half(_) => return holes.push(state.to_string()),
                };
                counts[kind] += 1;
                // What is flushed stays.
                if state.writes.is_empty() {
                    assert!(kind >= furthest, "the disk goes back: {state}");
                    furthest = kind;
                }
            };
            every_state(&mut disk, &log, &|disk| judge(disk, &expected), choice, &mut visit).unwrap();
            assert_eq!(judge(&disk, &expected).unwrap(), Verdict::Complete);
        }
        assert!(holes.is_empty(), "{} bad states, such as: {}", holes.len(), holes[0]);
        assert_eq!(furthest, 2, "nothing but the end is complete");
        counts
    }
}

/// Judges the final content of the disk.
pub(super) fn verdict(crash: &Crash) -> Verdict {
    judge(crash.disk.file(), &expected(&crash.bench)).unwrap()
}

pub(super) fn hash(bytes: &[u8]) -> (u64, Hash) {
    (bytes.len() as u64, *Digest::of(bytes).as_bytes())
}

/// The files of a volume, in lower case, as the checker finds them.
pub(super) fn volume_files(content: &FatContent) -> Vec<File> {
    let file = |file: &crate::plan::PlannedFile| {
        let content = match &file.content {
            PlannedContent::Payload(payload) => (payload.size, *payload.sha256.as_bytes()),
            PlannedContent::Text(text) => hash(text.as_bytes()),
            PlannedContent::Secret(text) => hash(text.expose().as_bytes()),
        };
        File { path: file.path.to_lowercase(), content: Some(content) }
    };
    content.files.iter().map(file).collect()
}

/// The expected final content of the bench's disk, from the medium's content and the plan's own texts.
fn expected(bench: &Bench) -> Expected {
    let content = |purpose| &contents().iter().find(|(payload, _)| payload.purpose == purpose).unwrap().1;
    let known = |path: String, payload: &Payload| File {
        path,
        content: Some((payload.size, *payload.sha256.as_bytes())),
    };
    let image = expanded_image();
    let tree = VerityTree::of_image(Digest::of(content(Purpose::Rootfs)), image).unwrap();
    let (mut esp, mut slots) = (Vec::new(), Vec::new());
    let mut stored = Vec::new();
    let store = "lib/containerd/io.containerd";
    for step in &bench.plan.steps {
        match step {
            Step::Esp(content) => esp.extend(volume_files(content)),
            Step::Slot { partition, boot, .. } => {
                let slot = SlotGeometry::of(bench.plan.partition(*partition).unwrap());
                let name = partition.as_str().to_owned();
                let tree = (slot.tree(image.len() as u64), hash(&tree.bytes));
                slots.push(Slot { name, tree, boot: slot.boot.get(), files: volume_files(boot) });
            }
            Step::Images { blobs, metadata } => {
                let path =
                    |blob: &Payload| format!("{store}.content.v1.content/blobs/sha256/{}", blob.sha256);
                stored.extend(blobs.iter().map(|blob| known(path(blob), blob)));
                let metadata = metadata.as_ref().unwrap();
                stored.push(known(format!("{store}.metadata.v1.bolt/meta.db"), metadata));
            }
            _ => {}
        }
    }
    assert!(esp.len() > 5 && slots.len() == 2 && stored.len() == 3);
    let kept = format!("lib/nqrust/release/{}", bench.plan.release.digest());
    let files = install_files(&bench.plan.release);
    stored.extend(files.map(|payload| known(format!("{kept}/{}", payload.path), payload)));
    let (length, digest) = hash(image);
    let file = |path: &str, bytes: &[u8]| File { path: path.into(), content: Some(hash(bytes)) };
    let node = vec![
        file(DOCUMENT, b"token: hush-token\n"),
        file(MANIFEST, &bench.plan.release.to_bytes()),
        File { path: "machine-id".into(), content: None },
    ];
    let system = |part: &str, label: &str, files| System { part: part.into(), label: label.into(), files };
    let boot = (bench.plan.disk.sector == crate::plan::SectorSize::B512).then(|| BootCode {
        boot: content(Purpose::GrubBoot).clone(),
        core: content(Purpose::GrubCore).clone(),
    });
    let part = |part: &crate::plan::Partition| Part {
        name: part.name.as_str().into(),
        start: part.start.get(),
        size: part.size.get(),
    };
    Expected {
        sector: bench.plan.disk.sector.bytes(),
        parts: bench.plan.partitions.iter().map(part).collect(),
        boot,
        image: (length, digest),
        slots,
        esp,
        systems: vec![
            system("config", "NQ_CONFIG", node),
            system("persistent", "NQ_PERSISTENT", stored),
            system("data", "HARV_LH_DEFAULT", vec![]),
        ],
    }
}

/// Whether firmware starts what is on the disk before the install; otherwise the test would show nothing.
fn starts(crash: &Crash) -> bool {
    judge(crash.old.as_file(), &expected(&crash.bench)).unwrap() != Verdict::NotBootable
}

#[test]
fn a_power_cut_at_any_moment_of_an_install_on_an_empty_disk_leaves_nothing_that_boots_half() {
    for sector in [512, 4096] {
        let crash = Crash::new(sector, |_, _| {});
        assert!(!starts(&crash));
        crash.install().unwrap();
        let [_, not_bootable, complete] = crash.judge(20);
        assert!(not_bootable > 300 && complete > 20, "{not_bootable} {complete}");
    }
}

/// A disk with a complete node of an earlier install.
pub(super) fn older_node(sector: u32) -> Arc<TestDisk> {
    let mut older = Bench::with_sector(sector);
    let mut target = super::disk("vda", ByteSize::gib(16));
    target.logical_sector = sector;
    older.plan = crate::plan::plan(
        &older.plan.document,
        &machine::inventory::Inventory { disks: vec![target], ..machine::inventory::Inventory::default() },
        &older.plan.release,
        uuid::uuid!("0f0e0d0c-0b0a-4a4f-9d55-8e1f3c6b7a90"),
    )
    .unwrap();
    let node = Arc::new(TestDisk::other(&older.plan.disk, tempfile::NamedTempFile::new().unwrap()));
    let machine = Ext4Machine::new(&node, &older.plan);
    older.run_with(&&*node, &machine, &machine).unwrap();
    node
}

#[test]
fn a_power_cut_at_any_moment_of_an_install_that_keeps_data_leaves_nothing_that_boots_half() {
    for sector in [512, 4096] {
        let node = older_node(sector);
        let bench = Bench::with(&[super::keep::scan(&*node, "vda")], super::keep::keeping());
        let crash = Crash::of(bench, |_, disk| copy_data(node.file(), 0..disk.size().get(), disk.file()));
        assert!(starts(&crash));
        crash.install().unwrap();
        // The boot code goes first, in one piece. UEFI starts the complete old node until its boot files go, in one piece too.
        let [old, not_bootable, complete] = crash.judge_and(20, |state| state.flushes <= 1);
        assert!(old > 2 && not_bootable > 300 && complete > 20, "{old} {not_bootable} {complete}");
    }
}

#[test]
fn a_power_cut_at_any_moment_over_an_older_node_leaves_that_node_or_nothing_that_boots_half() {
    let crash = Crash::new(512, |bench, disk| {
        // The same layout with other contents: remains of one look right in the other.
        copy_data(older_node(512).file(), 0..disk.size().get(), disk.file());
        disk.file().write_all_at(&[0x5a; 512], bench.partition(PartitionName::RootA) + 8192).unwrap();
    });
    assert!(starts(&crash));
    crash.install().unwrap();
    let [old, not_bootable, complete] = crash.judge(50);
    assert!(old > 2 && not_bootable > 900 && complete > 50, "{old} {not_bootable} {complete}");
}

#[test]
fn a_power_cut_at_any_moment_over_a_foreign_system_leaves_that_system_or_nothing_that_boots_half() {
    let crash = Crash::new(512, |_, disk| foreign(disk));
    assert!(starts(&crash));
    crash.install().unwrap();
    let [old, not_bootable, complete] = crash.judge(50);
    assert!(old > 2 && not_bootable > 900 && complete > 50, "{old} {not_bootable} {complete}");
}

#[test]
fn an_install_that_was_cut_off_is_finished_by_the_next_one() {
    let cut = Crash::new(512, |_, disk| foreign(disk));
    cut.install().unwrap();
    let length = cut.disk.recording.as_ref().unwrap().lock().unwrap().entries.len();
    // All along, more densely where the images are stored, just before the commit and just after it.
    let stops =
        (0..4).map(|part| length * part / 4).chain((length - 60..length - 12).step_by(8)).chain([length]);
    let continued = stops.map(|stop| {
        let again = cut.again(stop, |_| {});
        again.install().unwrap();
        assert_eq!(verdict(&again), Verdict::Complete, "cut off after {stop} of {length}");
        again.bench.plan.continued
    });
    let continued: Vec<_> = continued.collect();
    assert!(!continued[0] && continued.iter().any(|one| *one) && !continued[10], "{continued:?}");
}

#[test]
fn the_checker_finds_damage_to_anything_that_an_install_writes() {
    let crash = Crash::new(512, |_, _| {});
    crash.install().unwrap();
    let recording = crash.disk.recording.as_ref().unwrap().lock().unwrap();
    let expected = expected(&crash.bench);
    let start = |name| crash.bench.partition(name);
    let slot = |name| SlotGeometry::of(crash.bench.plan.partition(name).unwrap());
    let image = expanded_image().len() as u64;
    let planned = crash.bench.plan.steps.iter().find_map(|step| match step {
        Step::VerifyMedium { payloads } => Some(payloads),
        _ => None,
    });
    let written = |purpose: Purpose, name| {
        let wanted = planned.unwrap().iter().find(|payload| payload.purpose == purpose).unwrap();
        let (_, bytes) = contents().iter().find(|(payload, _)| payload == wanted).unwrap();
        recording.place_of(&bytes[bytes.len() / 2..][..200], crash.bench.plan.partition(name).unwrap())
    };
    let text = |text: &[u8], name| recording.place_of(text, crash.bench.plan.partition(name).unwrap());
    let end = crash.disk.size().get();
    let places = [
        (120, "boot sector"),
        (start(PartitionName::Bios) + 1000, "core"),
        (600, "copy of the partition table"),
        (1024 + 56, "copy of the partition table"),
        (end - 440, "copy of the partition table"),
        (start(PartitionName::RootA) + 1_000_001, "OS image"),
        (slot(PartitionName::Recovery).tree(image) + 40, "hash tree"),
        (written(Purpose::Kernel, PartitionName::RootA), "vmlinuz on the boot volume of root-a"),
        (written(Purpose::Initrd, PartitionName::Recovery), "initrd on the boot volume of recovery"),
        (written(Purpose::Shim, PartitionName::Esp), "on the EFI system partition"),
        (text(b"# UEFI firmware carries", PartitionName::Esp), "grub/grub.cfg"),
        (written(Purpose::ImageBlob, PartitionName::Persistent), "on persistent"),
        (written(Purpose::ImageMetadata, PartitionName::Persistent), "on persistent"),
        (text(b"hush-token", PartitionName::Config), "node.yaml"),
        (start(PartitionName::Config) + 1024 + 0x38, "NQ_CONFIG"),
        (start(PartitionName::Data) + 1024 + 0x78, "HARV_LH_DEFAULT"),
    ];
    for (place, told) in places {
        let mut damaged = nqrust_checker::Overlay::new(crash.disk.file());
        let mut byte = [0];
        crash.disk.file().read_exact_at(&mut byte, place).unwrap();
        nqrust_checker::Store::write_at(&mut damaged, place, &[byte[0] ^ 1]).unwrap();
        let verdict = judge(&damaged, &expected).unwrap();
        assert!(matches!(&verdict, Verdict::Half(what) if what.contains(told)), "{told}: {verdict:?}");
    }
}

/// A foreign system: boot code, a table of another program, and an EFI system partition at a place of its own.
fn foreign(disk: &TestDisk) {
    let path = disk.file.path();
    let make = Invocation::new("sgdisk").args(["-n", "1:4196352:+300M", "-t", "1:ef00", "-n", "2:0:0"]);
    base::command::SystemRunner.run(&make.arg(path)).unwrap();
    disk.file().write_all_at(&[0xfa; 440], 0).unwrap();
    let mut esp = formats::fat::DeviceRegion::new(disk.file(), 4_196_352 * 512, 300 << 20);
    let volume = formats::fat::FatVolume {
        label: "OTHER",
        id: 7,
        sector: 512,
        epoch: 1_700_000_000,
        kind: formats::fat::FatKind::Fat32,
    };
    let loader = formats::fat::FatFile::new("EFI/BOOT/BOOTX64.EFI", &b"another loader"[..]);
    formats::fat::write_volume(&mut esp, volume, vec![loader]).unwrap();
}
