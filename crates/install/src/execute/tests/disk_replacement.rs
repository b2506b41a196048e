//! A disk of a mirror that is replaced while the node runs from the other one.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::execute::disk_replacement::{
    FirmwareEntry, ReplacementEffects, await_arrays, replace_disk, was_started_alone,
};
use crate::plan::{DiskReplacement, JoinedArray, Partition, ReplacementKind};
use base::cancel::Cancel;
use base::failure::render;
use base::progress::Progress;
use machine::arrays::{ArrayState, ArrayStatus};

/// A node on `vda`, and the disk `vdc` that takes the place of the second one.
struct Replacing {
    node: Bench,
    disk: TestDisk,
    plan: DiskReplacement,
    /// The arrays as the kernel shows them, which `mdadm --add` changes.
    arrays: &'static Mutex<Vec<ArrayStatus>>,
    runner: ScriptedRunner,
}

const SYSTEM: [&str; 4] = ["config", "root-a", "root-b", "recovery"];

impl Replacing {
    fn new(kind: ReplacementKind) -> Self {
        let node = Bench::mirrored(512);
        node.run().unwrap();
        let plan = &node.plan;
        let mut target = plan.disk.clone();
        (target.name, target.path) = ("vdc".into(), "/dev/vdc".into());
        let guid = Uuid::new_v5(&GUID, b"replacement");
        // What its files need: tests of all of it would only take longer.
        let short = |part: &Partition| match part.name {
            PartitionName::Esp => Partition { size: ByteSize::mib(8), ..part.clone() },
            _ => part.clone(),
        };
        let source_partitions: Vec<_> = plan.partitions.iter().map(short).collect();
        let named = |part: &Partition| Partition { uuid: part.name.uuid_in(guid), ..part.clone() };
        let names = plan.mirror.iter().flat_map(|mirror| &mirror.arrays).map(|array| array.partition);
        let names: Vec<_> = names.collect();
        let array = |name: &PartitionName| ArrayStatus {
            name: name.as_str().into(),
            device: format!("md-{}", name.as_str()),
            state: ArrayState::Degraded,
            disks: 2,
            members: vec!["vda".into()],
            filled: Vec::new(),
            percent: None,
        };
        let arrays: &_ = Box::leak(Box::new(Mutex::new(names.iter().map(array).collect::<Vec<_>>())));
        let join = |partition| JoinedArray { partition, device: format!("md-{}", partition.as_str()) };
        let replacement = DiskReplacement {
            kind,
            source: plan.disk.clone(),
            disk: target.clone(),
            erased: Vec::new(),
            disk_guid: guid,
            partitions: source_partitions.iter().map(named).collect(),
            source_partitions,
            nodes: match kind {
                ReplacementKind::New => BTreeMap::new(),
                _ => names.iter().map(|name| (*name, Path::new("/dev").join(name.as_str()))).collect(),
            },
            arrays: names.into_iter().map(join).collect(),
        };
        let disk = TestDisk::other(&target, tempfile::NamedTempFile::new().unwrap());
        let esp = node.partition(PartitionName::Esp);
        let runner = ScriptedRunner::silent().reply("-add ", move |invocation| {
            let device = invocation.args[0].to_str().unwrap().replace("/dev/", "");
            let mut arrays = arrays.lock().unwrap();
            let array = arrays.iter_mut().find(|array| array.device == device).unwrap();
            (array.state, array.filled) = (ArrayState::Rebuilding, vec!["vdc".into()]);
            Ok(Vec::new())
        });
        Self { node, disk: TestDisk { esp, ..disk }, plan: replacement, arrays, runner }
    }

    fn run(&self) -> Result<(), (Class, String)> {
        // The kernel fills one array between two looks.
        let look = || {
            let mut arrays = self.arrays.lock().unwrap();
            if let Some(filled) = arrays.iter_mut().find(|array| !array.filled.is_empty()) {
                (filled.state, filled.filled) = (ArrayState::Whole, Vec::new());
            }
            arrays.clone()
        };
        self.run_with(&look)
    }

    fn run_with(&self, look: &dyn Fn() -> Vec<ArrayStatus>) -> Result<(), (Class, String)> {
        let effects = ReplacementEffects {
            open_source: &|_| Ok(Box::new(&self.node.disk)),
            open: &|_| Ok(Box::new(&self.disk)),
            open_in_use: &|_| Ok(Box::new(&self.disk)),
            host: &self.node.host,
            runner: &self.runner,
            arrays: look,
            progress: &Progress::new(vec![Box::new(self.node.recorder.clone())]),
            cancel: &Cancel::new(self.node.stop),
            pause: Duration::from_millis(1),
        };
        let entry = FirmwareEntry { title: "NQRust Hypervisor", present: &[] };
        replace_disk(&self.plan, &entry, &effects).map_err(|error| (class_of(&error), render(&error)))
    }

    fn added(&self) -> Vec<String> {
        let commands = self.runner.commands().into_iter();
        commands.filter(|command| command.contains("-add ")).collect()
    }

    /// Whether firmware reads the same from both disks.
    fn check_boot_files(&self) {
        for name in [PartitionName::Esp, PartitionName::Bios] {
            let partition = self.plan.source_partitions.iter().find(|part| part.name == name).unwrap();
            let length = usize::try_from(partition.size.get()).unwrap();
            let [own, other] =
                [&self.disk, &self.node.disk].map(|disk| disk.bytes(partition.start.get(), length));
            assert!(own == other, "{}", name.as_str());
        }
        let [own, other] = [&self.disk, &self.node.disk].map(|disk| disk.bytes(0, 512));
        assert!(own[..440] == other[..440] && own[446..] == other[446..]);
    }
}

#[test]
fn a_new_disk_gets_table_boot_files_and_its_half_of_each_array() {
    let replacing = Replacing::new(ReplacementKind::New);
    let before = replacing.node.disk.writes.load(Ordering::Relaxed);
    replacing.run().unwrap();
    table::verify(&replacing.disk, replacing.plan.disk_guid, &replacing.plan.partitions).unwrap();
    replacing.check_boot_files();
    assert!(replacing.disk.committed());
    let joined: Vec<_> = SYSTEM.iter().chain(&["persistent"]).collect();
    let expected = joined.iter().map(|name| format!("mdadm /dev/md-{name} --add /dev/{name}"));
    assert!(replacing.added().into_iter().take(5).eq(expected), "{:?}", replacing.added());
    assert_eq!(replacing.node.disk.writes.load(Ordering::Relaxed), before, "the other disk was written");
}

#[test]
fn the_machine_starts_from_it_only_once_its_system_is_filled() {
    let replacing = Replacing::new(ReplacementKind::New);
    let looks = Mutex::new(0);
    let look = || {
        let mut looks = looks.lock().unwrap();
        *looks += 1;
        let mut arrays = replacing.arrays.lock().unwrap();
        let system = |array: &&mut ArrayStatus| SYSTEM.contains(&array.name.as_str());
        let filling = arrays.iter_mut().filter(system).find(|array| !array.filled.is_empty());
        assert!(filling.is_none() || !replacing.disk.committed(), "it starts before its slots are filled");
        if *looks % 3 == 0
            && let Some(array) = filling
        {
            (array.state, array.filled) = (ArrayState::Whole, Vec::new());
        }
        arrays.clone()
    };
    replacing.run_with(&look).unwrap();
    assert!(replacing.disk.committed() && *looks.lock().unwrap() > 10);
    // The one with data is left to the kernel.
    let arrays = replacing.arrays.lock().unwrap();
    let persistent = arrays.iter().find(|array| array.name == "persistent").unwrap();
    assert_eq!(persistent.filled, ["vdc"]);
    assert!(!replacing.added().last().unwrap().contains("recovery"));
}

#[test]
fn a_failed_write_at_any_place_leaves_a_disk_from_which_nothing_starts_and_the_next_run_completes_it() {
    let whole = Replacing::new(ReplacementKind::New);
    whole.run().unwrap();
    let count = whole.disk.writes.load(Ordering::Relaxed);
    assert!(count > 20, "{count}");
    for number in (0..count).step_by(count / 3).chain([count - 1]) {
        let mut replacing = Replacing::new(ReplacementKind::New);
        replacing.disk.fail_write = Some(number);
        let (class, text) = replacing.run().unwrap_err();
        assert!(class == Class::DiskIo && text.contains("/dev/vda"), "write {number}: {text}");
        assert!(!replacing.disk.committed(), "write {number}: {text}");
        replacing.disk.fail_write = None;
        replacing.run().unwrap();
        replacing.check_boot_files();
        assert!(replacing.disk.committed());
    }
}

#[test]
fn a_member_that_the_kernel_gives_up_is_an_error_and_nothing_starts_from_the_disk() {
    let replacing = Replacing::new(ReplacementKind::New);
    let look = || {
        let mut arrays = replacing.arrays.lock().unwrap();
        arrays.iter_mut().for_each(|array| (array.state, array.filled) = (ArrayState::Degraded, Vec::new()));
        arrays.clone()
    };
    let (class, text) = replacing.run_with(&look).unwrap_err();
    assert!(class == Class::DiskIo && text.contains("filling the array config ended"), "{text}");
    assert!(text.contains("journalctl -k") && !replacing.disk.committed(), "{text}");
}

#[test]
fn a_disk_that_was_away_keeps_its_table_and_gets_what_has_changed() {
    let replacing = Replacing::new(ReplacementKind::Returned);
    table::write(&replacing.disk, replacing.plan.disk_guid, &replacing.plan.partitions).unwrap();
    replacing.runner.set_failure("/dev/md-root-b --re-add", "mdadm ended with exit status: 1");
    replacing.run().unwrap();
    table::verify(&replacing.disk, replacing.plan.disk_guid, &replacing.plan.partitions).unwrap();
    replacing.check_boot_files();
    // Its table is in use, and the kernel would refuse to read it again.
    assert!(!replacing.node.host.told.lock().unwrap().contains(&"vdc".to_owned()));
    let commands = replacing.runner.commands();
    let has = |wanted: &str| commands.iter().any(|command| command == wanted);
    assert!(
        has("mdadm /dev/md-config --re-add /dev/config") && !has("mdadm /dev/md-config --add /dev/config")
    );
    // All of an array is copied that takes it in no other way.
    assert!(
        has("mdadm --zero-superblock --force /dev/root-b") && has("mdadm /dev/md-root-b --add /dev/root-b")
    );
}

#[test]
fn a_disk_that_was_started_alone_is_known_by_its_superblocks() {
    let replacing = Replacing::new(ReplacementKind::Returned);
    for partition in &replacing.plan.partitions {
        let mut superblock = [0; 4096];
        superblock[220..224].copy_from_slice(&4_u32.to_le_bytes());
        superblock[256..264].copy_from_slice(&[0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff]);
        replacing.disk.file().write_all_at(&superblock, partition.end().get() - 8192).unwrap();
    }
    assert!(!was_started_alone(&replacing.plan, &replacing.disk).unwrap());
    let data = replacing.plan.partitions.iter().find(|part| part.name == PartitionName::Persistent).unwrap();
    // The other member is faulty, for this one.
    replacing.disk.file().write_all_at(&[0xfe, 0xff], data.end().get() - 8192 + 256).unwrap();
    assert!(was_started_alone(&replacing.plan, &replacing.disk).unwrap());
}

#[test]
fn the_wait_for_all_arrays_ends_when_they_are_whole() {
    let replacing = Replacing::new(ReplacementKind::New);
    replacing.run().unwrap();
    let look = || {
        let mut arrays = replacing.arrays.lock().unwrap();
        arrays.iter_mut().for_each(|array| (array.state, array.filled) = (ArrayState::Whole, Vec::new()));
        arrays.clone()
    };
    let effects = ReplacementEffects {
        open_source: &|_| Ok(Box::new(&replacing.node.disk)),
        open: &|_| Ok(Box::new(&replacing.disk)),
        open_in_use: &|_| Ok(Box::new(&replacing.disk)),
        host: &replacing.node.host,
        runner: &replacing.runner,
        arrays: &look,
        progress: &Progress::silent(),
        cancel: &Cancel::new(replacing.node.stop),
        pause: Duration::from_millis(1),
    };
    await_arrays(&PartitionName::ALL, &effects).unwrap();
}

#[test]
fn the_firmware_starts_it_after_the_other_disk() {
    let replacing = Replacing::new(ReplacementKind::New);
    let variables = replacing.node.host.path("efivars");
    std::fs::create_dir(&variables).unwrap();
    replacing.run().unwrap();
    let told = replacing
        .node
        .recorder
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|event| event.message.clone())
        .collect::<Vec<_>>();
    assert!(
        told.iter().any(|line| line.contains("The firmware starts /dev/vdc if the other disk is missing")),
        "{told:?}"
    );
    assert_eq!(std::fs::read_dir(&variables).unwrap().count(), 2, "the entry and the order");
}
