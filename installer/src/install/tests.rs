//! Whole runs on a disk that is a sparse file, with mounts that are directories.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;

use super::*;
use crate::command::{Invocation, Runner};
use crate::config::{InstallConfig, Secret};
use crate::failure::{Class, class_of, render};
use crate::inventory::Inventory;
use crate::medium::{PayloadSource, Place};
use crate::plan::tests::{GUID, contents, disk, release, trial};
use crate::plan::{Partition, PartitionName, Plan, SectorSize, Target};
use crate::progress::{Progress, State, tests::Recorder};
use crate::release::Payload;
use crate::size::ByteSize;

mod disks;
mod firmware;
mod keep;

/// What happened on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Write { offset: u64, length: usize, esp_empty: bool },
    Flush,
}

/// A disk in a sparse file that remembers every write and fails where it is told to.
struct TestDisk {
    file: tempfile::NamedTempFile,
    size: ByteSize,
    sector: SectorSize,
    esp: u64,
    acts: Mutex<Vec<Act>>,
    writes: AtomicUsize,
    fail_write: Option<usize>,
    /// Reads of this byte see another value.
    rotten: Option<u64>,
}

impl TestDisk {
    fn new(plan: &Plan) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        // An old system that boots.
        file.as_file().write_all_at(&[0xeb; 4096], 0).unwrap();
        let esp = plan.partition(PartitionName::Esp).unwrap().start.get();
        file.as_file().write_all_at(&[0xeb; 512], esp).unwrap();
        Self { esp, ..Self::other(&plan.disk, file) }
    }

    /// A disk that is not the system's.
    fn other(target: &Target, file: tempfile::NamedTempFile) -> Self {
        file.as_file().set_len(target.size.get()).unwrap();
        Self {
            file,
            size: target.size,
            sector: target.sector,
            esp: 0,
            acts: Mutex::default(),
            writes: AtomicUsize::new(0),
            fail_write: None,
            rotten: None,
        }
    }

    fn file(&self) -> &File {
        self.file.as_file()
    }

    fn bytes(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.file().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    fn committed(&self) -> bool {
        self.bytes(self.esp, 512)[510..] == [0x55, 0xaa]
    }

    fn check(&self, offset: u64, length: usize) -> io::Result<()> {
        let sector = self.sector.bytes();
        assert!(offset.is_multiple_of(sector) && (length as u64).is_multiple_of(sector), "{offset} {length}");
        match offset + length as u64 <= self.size.get() {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(nix::libc::ENOSPC)),
        }
    }
}

impl BlockDevice for TestDisk {
    fn size(&self) -> ByteSize {
        self.size
    }

    fn sector(&self) -> SectorSize {
        self.sector
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len())?;
        self.file().read_exact_at(buffer, offset)?;
        let place = self.rotten.and_then(|rotten| usize::try_from(rotten.checked_sub(offset)?).ok());
        if let Some(byte) = place.and_then(|place| buffer.get_mut(place)) {
            *byte ^= 1;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check(offset, bytes.len())?;
        if self.fail_write == Some(self.writes.fetch_add(1, Ordering::Relaxed)) {
            return Err(io::Error::from_raw_os_error(nix::libc::EIO));
        }
        self.file().write_all_at(bytes, offset)?;
        let esp_empty = self.bytes(self.esp, 512).iter().all(|byte| *byte == 0);
        self.acts.lock().unwrap().push(Act::Write { offset, length: bytes.len(), esp_empty });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.acts.lock().unwrap().push(Act::Flush);
        Ok(())
    }
}

impl BlockDevice for &TestDisk {
    fn size(&self) -> ByteSize {
        (**self).size()
    }
    fn sector(&self) -> SectorSize {
        (**self).sector()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, bytes)
    }
    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
}

/// The small medium of the plan's tests, in memory; one payload may be damaged, from one opening on.
#[derive(Default)]
struct TestMedium {
    damaged: Option<&'static str>,
    good_openings: usize,
    openings: Mutex<BTreeMap<String, usize>>,
    stop_at: Option<(&'static str, &'static AtomicBool)>,
}

impl PayloadSource for TestMedium {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let (_, bytes) = contents().iter().find(|(known, _)| known == payload).unwrap();
        let mut openings = self.openings.lock().unwrap();
        let opening = openings.entry(payload.path.clone()).or_default();
        *opening += 1;
        if self.damaged == Some(payload.path.as_str()) && *opening > self.good_openings {
            let mut bad = bytes.clone();
            bad[bytes.len() / 2] ^= 1;
            return Ok(Box::new(io::Cursor::new(bad)));
        }
        if let Some((path, flag)) = self.stop_at
            && path == payload.path
            && *opening == 2
        {
            flag.store(true, Ordering::Relaxed);
        }
        Ok(Box::new(bytes.as_slice()))
    }

    fn place(&self, _: &Payload) -> Option<Place> {
        Some(Place::Here)
    }

    fn probe(&self, _: &Payload) -> Result<()> {
        Ok(())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(release().to_bytes())
    }

    fn describe(&self) -> String {
        "the test medium".into()
    }
}

/// Partition nodes are names, file systems are directories.
struct TestHost {
    root: tempfile::TempDir,
    mounted: AtomicUsize,
    /// The disks whose new tables the kernel was told of.
    told: Mutex<Vec<String>>,
}

struct TestMount<'a>(PathBuf, &'a AtomicUsize);

impl Mounted for TestMount<'_> {
    fn path(&self) -> &Path {
        &self.0
    }
    fn unmount(self: Box<Self>) -> Result<()> {
        self.1.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

impl TestHost {
    fn new() -> &'static Self {
        let root = tempfile::tempdir().unwrap();
        // Mounts borrow the host for as long as they like.
        Box::leak(Box::new(Self { root, mounted: AtomicUsize::new(0), told: Mutex::default() }))
    }

    fn path(&self, partition: &str) -> PathBuf {
        self.root.path().join(partition)
    }
}

impl Host for &'static TestHost {
    fn partition_nodes(
        &self,
        disk: &Target,
        partitions: &[Partition],
    ) -> Result<BTreeMap<PartitionName, PathBuf>> {
        self.told.lock().unwrap().push(disk.name.clone());
        let node = |name: PartitionName| (name, Path::new("/dev").join(name.as_str()));
        Ok(partitions.iter().map(|partition| node(partition.name)).collect())
    }

    fn firmware_variables(&self) -> Option<PathBuf> {
        Some(self.path("efivars")).filter(|path| path.exists())
    }

    fn mount(&self, node: &Path, _: Access) -> Result<Box<dyn Mounted>> {
        let path = self.path(node.file_name().unwrap().to_str().unwrap());
        std::fs::create_dir_all(&path).unwrap();
        self.mounted.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(TestMount(path, &self.mounted)))
    }
}

#[derive(Default)]
struct TestRunner {
    commands: Mutex<Vec<String>>,
    fail: bool,
}

impl Runner for TestRunner {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        self.commands.lock().unwrap().push(invocation.display());
        anyhow::ensure!(!self.fail, "mkfs.ext4 ended with exit status: 1");
        Ok(Vec::new())
    }
}

/// Everything for one run.
struct Bench {
    plan: Plan,
    disk: TestDisk,
    /// Further disks by their names.
    others: BTreeMap<String, TestDisk>,
    medium: TestMedium,
    host: &'static TestHost,
    runner: TestRunner,
    recorder: Recorder,
    stop: &'static AtomicBool,
}

impl Bench {
    fn new() -> Self {
        Self::with_sector(512)
    }

    fn with_sector(sector: u32) -> Self {
        let mut target = disk("vda", ByteSize::gib(16));
        target.logical_sector = sector;
        Self::with(&[target], trial())
    }

    /// An install on the first of `disks`.
    fn with(disks: &[crate::inventory::Disk], mut config: InstallConfig) -> Self {
        let inventory = Inventory { disks: disks.to_vec(), nics: vec![] };
        config.install.device = disks[0].path.to_str().unwrap().parse().ok();
        config.token = Some(Secret::new("hush-token"));
        let plan = crate::plan::plan(&config, &inventory, &release(), GUID).unwrap();
        let data = plan.data_disk.iter().map(|data| &data.disk);
        let others = data.chain(plan.wiped.iter().map(|wiped| &wiped.disk));
        let other = |target: &Target| {
            (target.name.clone(), TestDisk::other(target, tempfile::NamedTempFile::new().unwrap()))
        };
        Self {
            disk: TestDisk::new(&plan),
            others: others.map(other).collect(),
            plan,
            medium: TestMedium::default(),
            host: TestHost::new(),
            runner: TestRunner::default(),
            recorder: Recorder::default(),
            stop: Box::leak(Box::new(AtomicBool::new(false))),
        }
    }

    fn run(&self) -> Result<()> {
        self.run_on(&self.disk)
    }

    fn run_on(&self, device: &dyn BlockDevice) -> Result<()> {
        let document = |config: &InstallConfig| {
            let token = config.token.as_ref().map(Secret::expose).unwrap_or_default();
            Ok(Secret::new(format!("token: {token}\n")))
        };
        let open = |target: &Target| -> Result<Box<dyn BlockDevice + '_>> {
            let disk = self.others.get(&target.name).ok_or_else(|| anyhow::anyhow!("no {}", target.name))?;
            Ok(Box::new(disk))
        };
        let parts = Parts {
            device,
            open: &open,
            source: &self.medium,
            runner: &self.runner,
            host: &self.host,
            progress: &Progress::new(vec![Box::new(self.recorder.clone())]),
            cancel: &Cancel::new(self.stop),
            document: &document,
            unpacking: &Unpacking::of_live_system(),
            preflight: "passed  cpu  a test\n",
        };
        execute(&self.plan, &parts)
    }

    /// Runs to a failure; returns its class and text. Nothing may be mounted after it.
    fn fail(&self) -> (Class, String) {
        let error = self.run().unwrap_err();
        assert_eq!(self.host.mounted.load(Ordering::Relaxed), 0, "a mount was left behind");
        assert!(!self.disk.committed(), "the disk boots after a failure");
        (class_of(&error), render(&error))
    }

    fn acts(&self) -> Vec<Act> {
        self.disk.acts.lock().unwrap().clone()
    }

    fn partition(&self, name: PartitionName) -> u64 {
        self.plan.partition(name).unwrap().start.get()
    }
}

#[test]
fn nothing_is_bootable_before_the_last_write() {
    let bench = Bench::new();
    bench.run().unwrap();
    let acts = bench.acts();
    // First the old boot sector goes, and lasts, before anything else happens.
    assert!(matches!(acts[0], Act::Write { offset: 0, length: 1_048_576, .. }), "{:?}", acts[0]);
    assert_eq!(acts[1], Act::Flush);
    let writes: Vec<_> = acts.iter().filter(|act| matches!(act, Act::Write { .. })).collect();
    let (last, before) = writes.split_last().unwrap();
    let esp = bench.partition(PartitionName::Esp);
    assert_eq!(**last, Act::Write { offset: esp, length: 512, esp_empty: false });
    // From the moment that the old loader's place is erased, its sector stays empty.
    let erased = before.iter().position(|act| matches!(act, Act::Write { offset, .. } if *offset == esp));
    let after = &before[erased.unwrap()..];
    assert!(after.iter().all(|act| matches!(act, Act::Write { esp_empty: true, .. })));
    // The commit stands between two barriers.
    let place = acts.iter().position(|act| act == *last).unwrap();
    assert_eq!((acts[place - 1], acts[place + 1]), (Act::Flush, Act::Flush));
    assert!(bench.disk.committed());
}

#[test]
fn the_disk_holds_what_the_plan_says() {
    let bench = Bench::new();
    bench.run().unwrap();
    for (payload, bytes) in contents() {
        if payload.purpose == crate::release::Purpose::Rootfs {
            assert!(bench.disk.bytes(bench.partition(PartitionName::RootA), bytes.len()) == *bytes);
        }
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let store = bench.host.path("persistent").join("lib/containerd");
    assert_eq!(mode(&store), 0o711);
    let blobs = store.join("io.containerd.content.v1.content/blobs/sha256");
    let names: Vec<_> = std::fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(names.len(), 2);
    for entry in names {
        let bytes = std::fs::read(entry.path()).unwrap();
        assert_eq!(entry.file_name().to_str().unwrap(), crate::digest::Digest::of(&bytes).to_string());
        assert_eq!(mode(&entry.path()), 0o444);
    }
    assert!(store.join("io.containerd.metadata.v1.bolt/meta.db").exists());
    let document = bench.host.path("config").join(DOCUMENT);
    assert_eq!(std::fs::read_to_string(&document).unwrap(), "token: hush-token\n");
    assert_eq!(mode(&document), 0o600);
    let id = std::fs::read_to_string(bench.host.path("config").join("machine-id")).unwrap();
    assert!(id.len() == 33 && id.trim().chars().all(|c| c.is_ascii_hexdigit()));
    let commands = bench.runner.commands.lock().unwrap();
    let uuid = bench.plan.partition(PartitionName::Data).unwrap().uuid.to_string();
    assert!(commands[2].contains("-L HARV_LH_DEFAULT") && commands[2].contains(&uuid), "{commands:?}");
}

#[test]
fn the_log_on_the_node_tells_every_step_and_no_secret() {
    let bench = Bench::new();
    bench.run().unwrap();
    let log = bench.host.path("persistent").join("log/nqrust");
    for name in ["install.log", "install-events.jsonl"] {
        let text = std::fs::read_to_string(log.join(name)).unwrap();
        assert!(!text.contains("hush-token"), "{name}");
        assert!(text.contains("Making the disk bootable"), "{name}");
        assert_eq!(text.contains("passed  cpu  a test"), name == "install.log", "{name}");
    }
    let events = bench.recorder.0.lock().unwrap();
    let done: Vec<_> = events.iter().filter(|e| e.state == State::Done).map(|e| e.step.as_str()).collect();
    let mut expected: Vec<_> = bench.plan.steps.iter().map(crate::plan::Step::id).collect();
    expected.insert(5, "read-back");
    assert_eq!(done, expected);
}

#[test]
fn the_partition_table_satisfies_other_programs_on_both_sector_sizes() {
    for sector in [512, 4096] {
        let bench = Bench::with_sector(sector);
        let Plan { disk_guid, partitions, .. } = &bench.plan;
        table::write(&bench.disk, *disk_guid, partitions).unwrap();
        table::verify(&bench.disk, *disk_guid, partitions).unwrap();
        let path = bench.disk.file.path().to_str().unwrap();
        // Neither program can be told another sector size for a file.
        if sector == 512 {
            let run = |invocation: Invocation| {
                let output = crate::command::SystemRunner.run(&invocation).unwrap();
                String::from_utf8(output).unwrap()
            };
            let text = run(Invocation::new("sgdisk").args(["-v", path]));
            assert!(text.contains("No problems found"), "{text}");
            run(Invocation::new("sfdisk").args(["--verify", path]));
            let text = run(Invocation::new("sfdisk").args(["--json", path]));
            let table: serde_json::Value = serde_json::from_str(&text).unwrap();
            let third = &table["partitiontable"]["partitions"][3];
            assert_eq!(third["name"], "root-a");
            assert_eq!(third["type"], "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709");
        }
    }
}

#[test]
fn a_disk_of_4096_byte_sectors_is_written_in_whole_sectors() {
    let bench = Bench::with_sector(4096);
    bench.run().unwrap();
    let esp = bench.partition(PartitionName::Esp);
    let last = bench.acts().into_iter().rev().find(|act| *act != Act::Flush).unwrap();
    assert_eq!(last, Act::Write { offset: esp, length: 4096, esp_empty: false });
}

#[test]
fn a_damaged_payload_stops_the_install_before_the_first_write() {
    let other = |path: &str| {
        ["witness", "default.db", "witness.db", "worker.db"].iter().any(|end| path.ends_with(end))
    };
    for (payload, _) in contents().iter().filter(|(payload, _)| !other(&payload.path)) {
        let mut bench = Bench::new();
        bench.medium.damaged = Some(&payload.path);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::Verification, "{text}");
        assert!(text.contains(&payload.path) && text.contains("Nothing was written to /dev/vda"), "{text}");
        assert!(bench.acts().is_empty());
    }
}

#[test]
fn a_payload_that_goes_bad_after_the_check_is_found_when_it_is_written() {
    for path in ["live/vmlinuz", "live/rootfs.squashfs", "images/blobs/sha256/two", "boot/core.img"] {
        let mut bench = Bench::new();
        (bench.medium.damaged, bench.medium.good_openings) = (Some(path), 1);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::Verification, "{text}");
        assert!(text.contains(path) && text.contains("is not bootable now"), "{text}");
    }
}

#[test]
fn a_failed_write_at_any_place_is_disk_io_and_never_a_commit() {
    let whole = Bench::new();
    whole.run().unwrap();
    let writes = whole.disk.writes.load(Ordering::Relaxed);
    for number in 0..writes {
        let mut bench = Bench::new();
        bench.disk.fail_write = Some(number);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::DiskIo, "write {number} of {writes}: {text}");
    }
}

#[test]
fn a_disk_that_gives_back_other_bytes_is_found_with_the_place() {
    let mut bench = Bench::new();
    bench.disk.rotten = Some(bench.partition(PartitionName::RootA) + 5_000_001);
    let (class, text) = bench.fail();
    assert_eq!(class, Class::DiskIo);
    assert!(text.contains("differs from byte 5000001 on"), "{text}");
}

#[test]
fn rot_in_table_boot_files_and_boot_code_is_found_before_the_commit() {
    let bench = Bench::new();
    let esp = bench.partition(PartitionName::Esp);
    let end = bench.plan.disk.size.get();
    let core = bench.partition(PartitionName::Bios) + 700;
    // An entry of the table, its second header, a file (the clusters begin after the two tables), core, loader.
    for rotten in [1024 + 40, end - 500, esp + (1 << 20) + (300 << 10), core, 100] {
        let mut bench = Bench::new();
        bench.disk.rotten = Some(rotten);
        let (class, text) = bench.fail();
        assert_eq!(class, Class::DiskIo, "{rotten}: {text}");
    }
}

#[test]
fn a_disk_shorter_than_it_said_is_disk_io() {
    let mut bench = Bench::new();
    bench.disk.size = ByteSize::gib(15);
    assert_eq!(bench.fail().0, Class::DiskIo);
}

#[test]
fn a_failed_mkfs_is_disk_io() {
    let mut bench = Bench::new();
    bench.runner.fail = true;
    let (class, text) = bench.fail();
    assert_eq!(class, Class::DiskIo);
    assert!(text.contains("making a file system on /dev/config (config)"), "{text}");
}

#[test]
fn a_stop_is_heeded_in_the_middle_of_a_step() {
    for path in ["live/vmlinuz", "live/rootfs.squashfs", "images/blobs/sha256/one"] {
        let mut bench = Bench::new();
        bench.medium.stop_at = Some((path, bench.stop));
        let (class, text) = bench.fail();
        assert_eq!(class, Class::Cancelled, "{text}");
        assert!(text.contains("is not bootable now"), "{text}");
    }
    let bench = Bench::new();
    bench.stop.store(true, Ordering::Relaxed);
    let (class, text) = bench.fail();
    assert_eq!(class.exit_code(), 130);
    assert!(text.contains("Nothing was written"), "{text}");
}

/// A loop device over the bench's file, detached at the end.
struct Loop(String);

impl Loop {
    fn new(bench: &Bench, sector: u32) -> Self {
        let attach = Invocation::new("losetup").args(["--find", "--show", "--direct-io=on", "--sector-size"]);
        let attach = attach.arg(sector.to_string()).arg(bench.disk.file.path());
        let output = crate::command::SystemRunner.run(&attach).unwrap();
        Self(String::from_utf8(output).unwrap().trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = crate::command::SystemRunner.run(&Invocation::new("losetup").args(["--detach", &self.0]));
    }
}

#[test]
#[ignore = "needs root and loop devices"]
fn a_real_block_device_takes_direct_writes_and_other_programs_accept_the_result() {
    for sector in [512, 4096] {
        let mut bench = Bench::with_sector(sector);
        let device = Loop::new(&bench, sector);
        bench.plan.disk.path = device.0.clone().into();
        let disk = Disk::open(&bench.plan.disk).unwrap();
        assert!(Disk::open(&bench.plan.disk).is_err(), "a second installer gets in");
        bench.run_on(&disk).unwrap();
        drop(disk);
        assert!(bench.disk.committed());
        let check = Invocation::new("sgdisk").args(["-v", &device.0]);
        let text = crate::command::SystemRunner.run(&check).unwrap();
        assert!(String::from_utf8_lossy(&text).contains("No problems found"));
        drop(device);
        // The volume alone, as a file: the programs know nothing of offsets.
        let esp = bench.plan.partition(PartitionName::Esp).unwrap();
        let volume = tempfile::NamedTempFile::new().unwrap();
        let bytes = bench.disk.bytes(esp.start.get(), usize::try_from(esp.size.get()).unwrap());
        volume.as_file().write_all_at(&bytes, 0).unwrap();
        let check = Invocation::new("sh").args(["-c", "fsck.vfat -n -v \"$0\" >&2"]).arg(volume.path());
        crate::command::SystemRunner.run(&check).unwrap();
    }
}
