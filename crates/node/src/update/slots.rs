//! The slots of this node: the partitions of the disk that GRUB was loaded from, from sysfs. Disks of other installs do not count,
//! whatever their partitions are called.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use uuid::Uuid;

use base::cancel::Cancel;
use base::failure::{Class, Failure};
use base::files::read_text;
use base::progress::Progress;
use base::size::ByteSize;
use formats::partition_table;
use install::execute::{ChangedRecord, OpenSlot, SlotCheck, SlotSource, change_record, require_slot_room};
use install::plan::{Partition, PartitionName, SectorSize, Target};
use machine::inventory::{map_of_partition, map_partitions};
use machine::mounted::mounted;
use machine::paths::below;
use model::boot::record::BootRecord;
use model::boot::{BootParameters, BootVolume, Slot};
use model::release_manifest::ReleaseManifest;

#[derive(Clone, Debug)]
pub struct SlotDevices {
    pub slot: Slot,
    /// The partition, or the array that it is a half of.
    pub whole: Target,
    /// The partitions of the array that are there; empty without a mirror.
    pub halves: Vec<Target>,
    /// The bytes of the slot, from the start of each of these.
    partition: Partition,
}

/// The slots of a node, and where it is written which one starts.
#[derive(Clone, Debug)]
pub struct NodeSlots {
    pub running: Slot,
    /// In the order of [`Slot::ALL`].
    slots: [SlotDevices; 3],
    /// The EFI system partition that GRUB was loaded from, then that of the other disk of a mirror.
    pub esps: Vec<PathBuf>,
}

impl NodeSlots {
    /// The slots of the node at `root` with the command line `installed`.
    ///
    /// # Errors
    /// [`Class::Hardware`] if GRUB did not start this system, or another disk than its own is mounted.
    pub fn find(root: &Path, installed: &BootParameters) -> Result<Self> {
        let found = Self::look(root, installed).map_err(|error| {
            Failure::new(Class::Hardware, "finding the slots of this node")
                .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
                .hint("Restart the machine from its disk, so that its boot loader starts this system.")
        })?;
        found.check_running(root)?;
        Ok(found)
    }

    /// Like [`Self::find`], for the initrd, in which the system is not mounted at `/` yet.
    pub fn look(root: &Path, installed: &BootParameters) -> Result<Self> {
        let esp = installed.esp.context("the boot loader of this disk did not start this system")?;
        let sys = Sysfs { root };
        let disk = sys.disk_of(&sys.by_uuid(esp)?)?;
        let mut disks = BTreeSet::from([disk.clone()]);
        let mut devices = |slot: Slot| -> Result<SlotDevices> {
            let devices = sys.devices(slot, &sys.partition(&disk, slot.into())?)?;
            let halves = devices.halves.iter().map(|half| sys.disk_of(&half.name));
            disks.extend(halves.collect::<Result<Vec<_>>>()?);
            Ok(devices)
        };
        let slots = [devices(Slot::A)?, devices(Slot::B)?, devices(Slot::Recovery)?];
        let mut esps = vec![node(&sys.by_uuid(esp)?)];
        for other in disks.iter().filter(|other| **other != disk) {
            esps.push(node(&sys.partition(other, PartitionName::Esp)?));
        }
        Ok(Self { running: installed.slot, slots, esps })
    }

    /// Fails unless the slot of the command line is mounted at `/`.
    fn check_running(&self, root: &Path) -> Result<()> {
        let whole = &self.slot(self.running).whole;
        let mounts = read_text(&below(root, "/proc/self/mountinfo"))?;
        let mount = mounted(&mounts, "/").ok_or_else(|| "nothing is mounted at /".to_owned());
        mount.and_then(|mount| mount.is_on(root, &whole.path)).map_err(|why| {
            let (slot, device) = (self.running, whole.path.display());
            Failure::new(
                Class::Hardware,
                format!("the running system is not on {device}, the partition of slot {slot}"),
            )
            .because(why)
            .hint("Restart the machine from its disk. Nothing was written.")
            .into()
        })
    }

    pub fn change_record(&self, change: impl FnOnce(&mut BootRecord)) -> Result<ChangedRecord> {
        change_record(&self.esps, change)
    }

    #[must_use]
    pub fn slot(&self, slot: Slot) -> &SlotDevices {
        &self.slots[slot as usize]
    }
}

impl SlotDevices {
    /// The slot of `root=`, whoever started this system; for the initrd too.
    pub fn of_root(root: &Path, slot: Slot, volume: &BootVolume) -> Result<Self> {
        let sys = Sysfs { root };
        sys.devices(slot, &sys.part_of(volume)?)
    }

    /// The other slots of the disk on which the slot of `root=` is, as far as they are there.
    #[must_use]
    pub fn beside_root(root: &Path, slot: Slot, volume: &BootVolume) -> Vec<Self> {
        let sys = Sysfs { root };
        let Ok(disk) = sys.part_of(volume).and_then(|part| sys.disk_of(&part)) else { return Vec::new() };
        let others = Slot::ALL.into_iter().filter(|other| *other != slot);
        others
            .filter_map(|other| sys.devices(other, &sys.partition(&disk, other.into()).ok()?).ok())
            .collect()
    }

    /// Reads the slot, which has to hold `release` and may run, and repairs its image from those of `others` that can be read. The kernel
    /// reads again then what was damaged.
    pub fn mend(
        &self,
        others: &[Self],
        release: &ReleaseManifest,
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<SlotCheck> {
        let donors: Vec<_> = others.iter().filter_map(|other| other.open_to_read().ok()).collect();
        let places: Vec<_> = donors.iter().map(OpenSlot::place).collect();
        let opened = OpenSlot::to_mend(&self.whole, &self.halves, self.partition.clone())?;
        let check = opened.place().mend(release, &places, progress, cancel)?;
        if !check.damage.is_empty() {
            forget_blocks();
        }
        Ok(check)
    }

    /// Fails if `release` is larger than the slot.
    ///
    /// # Errors
    /// [`Class::Hardware`], with both sizes; [`Class::Verification`] if the manifest does not name all parts of an OS.
    pub fn require_room(&self, release: &ReleaseManifest) -> Result<()> {
        require_slot_room(release, &self.partition)
    }

    pub fn open_to_write(&self) -> Result<OpenSlot> {
        OpenSlot::to_write(&self.whole, &self.halves, self.partition.clone())
    }

    pub fn open_to_read(&self) -> Result<OpenSlot> {
        OpenSlot::to_read(&self.whole, &self.halves, self.partition.clone())
    }

    pub fn source(&self) -> Result<SlotSource> {
        SlotSource::open(&self.whole.path, &self.partition)
    }

    /// The release of its boot volume; `None` if that is incomplete.
    #[must_use]
    pub fn release(&self) -> Option<ReleaseManifest> {
        self.source().ok().map(|source| source.release)
    }
}

/// Blocks of the hash tree that the kernel has read stay in its memory for minutes, wrong ones too (`Documentation/admin-guide/sysctl/vm.rst`,
/// `drop_caches`). A failure only means that they stay so long.
fn forget_blocks() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

/// The names in a directory, in their order.
fn names(directory: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

struct Sysfs<'a> {
    root: &'a Path,
}

impl Sysfs<'_> {
    /// The directory of sysfs with all disks, partitions and devices of the device mapper.
    fn block(&self) -> PathBuf {
        below(self.root, "/sys/class/block")
    }

    fn class(&self, name: &str) -> PathBuf {
        self.block().join(name)
    }

    fn by_uuid(&self, uuid: Uuid) -> Result<String> {
        let link = below(self.root, "/dev/disk/by-partuuid").join(uuid.to_string());
        let node = fs::canonicalize(&link).with_context(|| format!("there is no partition {uuid}"))?;
        Ok(node.file_name().context("a device without a name")?.to_string_lossy().into_owned())
    }

    /// A partition that a volume is, or is made of.
    fn part_of(&self, volume: &BootVolume) -> Result<String> {
        let name = match volume {
            BootVolume::Partition(uuid) => return self.by_uuid(*uuid),
            BootVolume::Array(_) => {
                let link = below(self.root, &volume.to_string());
                let node = fs::canonicalize(&link)
                    .with_context(|| format!("there is no array {}", link.display()))?;
                node.file_name().context("a device without a name")?.to_string_lossy().into_owned()
            }
        };
        let mut members = names(self.class(&name).join("slaves")).into_iter();
        members.next().with_context(|| format!("the array {name} has no partition"))
    }

    /// The slot in a partition, or in the array that the partition is a half of.
    fn devices(&self, slot: Slot, part: &str) -> Result<SlotDevices> {
        let members = self.members(part);
        let whole = members.as_ref().map_or(part, |(array, _)| array);
        let halves = members.iter().flat_map(|(_, members)| members);
        let partition = Partition {
            number: 0,
            name: slot.into(),
            uuid: Uuid::nil(),
            start: ByteSize::bytes(0),
            size: self.size(part)?,
        };
        Ok(SlotDevices {
            slot,
            whole: self.target(whole)?,
            halves: halves.map(|half| self.target(half)).collect::<Result<_>>()?,
            partition,
        })
    }

    fn disk_of(&self, partition: &str) -> Result<String> {
        if let Some(map) = map_of_partition(&self.block(), partition) {
            return Ok(map);
        }
        let real =
            fs::canonicalize(self.class(partition)).with_context(|| format!("looking at {partition}"))?;
        let disk = real.parent().and_then(Path::file_name).context("a partition without a disk")?;
        Ok(disk.to_string_lossy().into_owned())
    }

    /// The partition of a disk that the table gives this name.
    fn partition(&self, disk: &str, name: PartitionName) -> Result<String> {
        let entry = format!("PARTNAME={}", name.as_str());
        let children = fs::read_dir(self.class(disk)).with_context(|| format!("looking at {disk}"))?;
        for child in children {
            let child = child?;
            let event = read_text(&child.path().join("uevent")).unwrap_or_default();
            if child.path().join("partition").exists() && event.lines().any(|line| line == entry) {
                return Ok(child.file_name().to_string_lossy().into_owned());
            }
        }
        self.mapped_partition(disk, name)?
            .with_context(|| format!("/dev/{disk} has no partition {}", name.as_str()))
    }

    /// The partition of a map of several paths with this name: sysfs has only its number, so that the table on the map tells it.
    fn mapped_partition(&self, map: &str, name: PartitionName) -> Result<Option<String>> {
        let partitions = map_partitions(&self.block(), map);
        if partitions.is_empty() {
            return Ok(None);
        }
        let node = below(self.root, &node(map).to_string_lossy());
        let file = fs::File::open(&node).with_context(|| format!("opening /dev/{map}"))?;
        let read = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
        let tables = partition_table::read(&read, self.size(map)?, self.sector(map)?.bytes());
        let table = tables.valid().with_context(|| format!("/dev/{map} has no partition table"))?;
        let entry = table.entries.iter().find(|entry| entry.name == name.as_str());
        let named = |number: u32| partitions.into_iter().find(|(found, _)| *found == number);
        Ok(entry.and_then(|entry| named(entry.number)).map(|(_, name)| name))
    }

    /// The array that a partition is a half of, and its members. One that is being filled, or that the kernel has given up, does not count:
    /// it may have anything.
    fn members(&self, partition: &str) -> Option<(String, Vec<String>)> {
        let array =
            names(self.class(partition).join("holders")).into_iter().find(|name| name.starts_with("md"))?;
        let in_sync = |member: &String| {
            let state = self.class(&array).join("md").join(format!("dev-{member}")).join("state");
            read_text(&state).is_ok_and(|state| state.trim().split(',').any(|word| word == "in_sync"))
        };
        let members = names(self.class(&array).join("slaves")).into_iter().filter(in_sync).collect();
        Some((array, members))
    }

    fn size(&self, name: &str) -> Result<ByteSize> {
        let sectors: u64 = read_text(&self.class(name).join("size"))?.trim().parse()?;
        Ok(ByteSize::bytes(sectors * 512))
    }

    fn target(&self, name: &str) -> Result<Target> {
        let path = node(name);
        Ok(Target {
            description: path.display().to_string(),
            path,
            name: name.to_owned(),
            size: self.size(name)?,
            sector: self.sector(name)?,
            signatures: Vec::new(),
        })
    }

    fn sector(&self, name: &str) -> Result<SectorSize> {
        let real = fs::canonicalize(self.class(name))?;
        // A partition has no queue of its own.
        let places = [real.join("queue"), real.join("../queue")];
        let sector = places.iter().find_map(|queue| read_text(&queue.join("logical_block_size")).ok());
        let bytes: u32 = sector.as_deref().map_or(Ok(512), |text| text.trim().parse())?;
        Ok(SectorSize::try_from(bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use std::os::unix::fs::symlink;
    use testing::specimens::Specimen;

    const ESP: &str = "0a0b0c0d-0000-4000-8000-000000000002";

    /// A machine with the disks `vda`, the node's, and `vdb`, of an older install with the same names.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (disk, major) in [("vda", 254), ("vdb", 253)] {
            let at = root.path().join("sys/devices").join(disk);
            fs::create_dir_all(at.join("queue")).unwrap();
            fs::write(at.join("queue/logical_block_size"), "4096\n").unwrap();
            class(root.path(), disk, &at);
            for (number, name) in [(2, "esp"), (4, "root-a"), (5, "root-b"), (6, "recovery")] {
                let part = format!("{disk}{number}");
                let at = at.join(&part);
                fs::create_dir_all(at.join("holders")).unwrap();
                fs::write(at.join("partition"), number.to_string()).unwrap();
                fs::write(at.join("uevent"), format!("DEVNAME={part}\nPARTN={number}\nPARTNAME={name}\n"))
                    .unwrap();
                fs::write(at.join("size"), "4194304\n").unwrap();
                fs::write(at.join("dev"), format!("{major}:{number}\n")).unwrap();
                class(root.path(), &part, &at);
            }
        }
        fs::create_dir_all(root.path().join("dev/disk/by-partuuid")).unwrap();
        symlink("../../vda2", root.path().join("dev/disk/by-partuuid").join(ESP)).unwrap();
        mount(root.path(), "254:4");
        root
    }

    fn class(root: &Path, name: &str, at: &Path) {
        fs::create_dir_all(root.join("sys/class/block")).unwrap();
        symlink(at, root.join("sys/class/block").join(name)).unwrap();
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::write(root.join("dev").join(name), "").unwrap();
    }

    fn mount(root: &Path, device: &str) {
        fs::create_dir_all(root.join("proc/self")).unwrap();
        let text =
            format!("20 1 {device} / / ro - squashfs /dev/root ro\n21 20 254:8 / /var rw - ext4 /dev/x rw\n");
        fs::write(root.join("proc/self/mountinfo"), text).unwrap();
    }

    /// Makes arrays of the slots of both disks.
    fn mirror(root: &Path) {
        for (number, array) in [(4, "md124"), (5, "md125"), (6, "md126")] {
            let at = root.join("sys/devices/virtual").join(array);
            fs::create_dir_all(at.join("slaves")).unwrap();
            fs::create_dir_all(at.join("queue")).unwrap();
            fs::write(at.join("queue/logical_block_size"), "4096\n").unwrap();
            fs::write(at.join("size"), "4192256\n").unwrap();
            fs::write(at.join("dev"), format!("9:{number}\n")).unwrap();
            class(root, array, &at);
            for disk in ["vda", "vdb"] {
                let part = format!("{disk}{number}");
                let member = root.join("sys/devices").join(disk).join(&part);
                fs::write(at.join("slaves").join(&part), "").unwrap();
                let state = at.join("md").join(format!("dev-{part}"));
                fs::create_dir_all(&state).unwrap();
                fs::write(state.join("state"), "in_sync\n").unwrap();
                fs::write(member.join("holders").join(array), "").unwrap();
            }
        }
    }

    fn installed(slot: Slot, esp: Option<&str>) -> BootParameters {
        let volume = model::boot::BootVolume::Partition(Uuid::nil());
        let esp = esp.map(|esp| esp.parse().unwrap());
        BootParameters {
            slot,
            config: volume,
            persistent: volume,
            data: None,
            esp,
            multipath: Vec::new(),
            network_disks: Default::default(),
        }
    }

    #[test]
    fn the_slots_are_those_of_the_disk_that_grub_was_loaded_from() {
        let root = machine();
        let slots = NodeSlots::find(root.path(), &installed(Slot::A, Some(ESP))).unwrap();
        for (slot, name) in [(Slot::A, "vda4"), (Slot::B, "vda5"), (Slot::Recovery, "vda6")] {
            let devices = slots.slot(slot);
            assert_eq!((devices.slot, devices.whole.name.as_str()), (slot, name));
            assert_eq!((devices.whole.size, devices.whole.sector), (ByteSize::gib(2), SectorSize::B4096));
            assert!(devices.halves.is_empty());
        }
        assert_eq!(slots.esps, [Path::new("/dev/vda2")]);
    }

    #[test]
    fn a_mirror_is_written_through_its_array_and_read_from_its_halves() {
        let root = machine();
        mirror(root.path());
        mount(root.path(), "9:4");
        let slots = NodeSlots::find(root.path(), &installed(Slot::A, Some(ESP))).unwrap();
        let b = slots.slot(Slot::B);
        let names: Vec<_> = b.halves.iter().map(|half| half.name.as_str()).collect();
        assert_eq!((b.whole.name.as_str(), names), ("md125", vec!["vda5", "vdb5"]));
        // The boot volume is counted from the end of the partition, not of the array.
        assert!(b.whole.size < b.partition.size);
        assert_eq!(slots.esps, ["/dev/vda2", "/dev/vdb2"].map(Path::new));
    }

    /// The disk of the node behind two paths, `vda` being one of them: its partitions are devices of the device mapper, as kpartx makes
    /// them, and udev has removed those of the paths.
    fn several_paths() -> (tempfile::TempDir, Specimen) {
        let root = machine();
        let disk = Specimen::new(ByteSize::gib(16).get(), 4096);
        let parts = ["bios", "esp", "config", "root-a", "root-b", "recovery"];
        let at = |index: usize| (1 << 20) + ((index as u64) << 31);
        let parts: Vec<_> =
            parts.iter().enumerate().map(|(index, name)| (at(index), 1 << 31, *name)).collect();
        disk.gpt(&parts);
        let put = |path: String, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for number in 0..=6 {
            let name = format!("dm-{number}");
            let at = format!("sys/devices/virtual/block/{name}");
            let (uuid, size) = match number {
                0 => ("mpath-3600c0ff0".to_owned(), ByteSize::gib(16)),
                _ => (format!("part{number}-mpath-3600c0ff0"), ByteSize::gib(2)),
            };
            put(format!("{at}/dm/uuid"), &uuid);
            put(format!("{at}/size"), &(size.get() / 512).to_string());
            put(format!("{at}/dev"), &format!("253:{}", 10 + number));
            put(format!("{at}/queue/logical_block_size"), "4096\n");
            class(root.path(), &name, &root.path().join(&at));
            match number {
                0 => put(format!("{at}/slaves/vda"), ""),
                _ => {
                    put(format!("{at}/slaves/dm-0"), "");
                    put(format!("sys/devices/virtual/block/dm-0/holders/{name}"), "");
                }
            }
        }
        for number in [2, 4, 5, 6] {
            fs::remove_dir_all(root.path().join(format!("sys/devices/vda/vda{number}"))).unwrap();
        }
        let map = root.path().join("dev/dm-0");
        fs::remove_file(&map).unwrap();
        symlink(&disk.path, map).unwrap();
        let esp = root.path().join("dev/disk/by-partuuid").join(ESP);
        fs::remove_file(&esp).unwrap();
        symlink("../../dm-2", esp).unwrap();
        mount(root.path(), "253:14");
        (root, disk)
    }

    #[test]
    fn the_slots_of_a_disk_with_several_paths_are_partitions_of_its_map() {
        let (root, _disk) = several_paths();
        let slots = NodeSlots::find(root.path(), &installed(Slot::A, Some(ESP))).unwrap();
        for (slot, name) in [(Slot::A, "dm-4"), (Slot::B, "dm-5"), (Slot::Recovery, "dm-6")] {
            let whole = &slots.slot(slot).whole;
            assert_eq!(
                (whole.name.as_str(), whole.size, whole.sector),
                (name, ByteSize::gib(2), SectorSize::B4096)
            );
        }
        assert_eq!(slots.esps, [Path::new("/dev/dm-2")]);
        let uuid = "0a0b0c0d-0000-4000-8000-000000000004";
        symlink("../../dm-4", root.path().join("dev/disk/by-partuuid").join(uuid)).unwrap();
        let others =
            SlotDevices::beside_root(root.path(), Slot::A, &BootVolume::Partition(uuid.parse().unwrap()));
        assert_eq!(
            others.iter().map(|other| other.whole.name.as_str()).collect::<Vec<_>>(),
            ["dm-5", "dm-6"]
        );
    }

    #[test]
    fn a_partition_that_a_map_lacks_is_named_and_so_is_one_that_kpartx_has_not_made() {
        let (root, disk) = several_paths();
        let refused =
            |root: &Path| render(&NodeSlots::find(root, &installed(Slot::A, Some(ESP))).unwrap_err());
        fs::remove_file(root.path().join("sys/devices/virtual/block/dm-0/holders/dm-6")).unwrap();
        let text = refused(root.path());
        assert!(text.contains("/dev/dm-0 has no partition recovery"), "{text}");
        disk.put(0, &[0; 1 << 16]).put(disk.size - (1 << 16), &[0; 1 << 16]);
        let text = refused(root.path());
        assert!(text.contains("/dev/dm-0 has no partition table"), "{text}");
    }

    #[test]
    fn a_half_that_is_being_filled_is_not_read() {
        let root = machine();
        mirror(root.path());
        mount(root.path(), "9:4");
        for array in ["md124", "md125", "md126"] {
            let number = array[4..].parse::<u32>().unwrap();
            let state = root.path().join(format!("sys/class/block/{array}/md/dev-vdb{number}/state"));
            fs::write(state, "spare\n").unwrap();
        }
        let slots = NodeSlots::find(root.path(), &installed(Slot::A, Some(ESP))).unwrap();
        let halves = slots.slot(Slot::B).halves.iter().map(|half| half.name.as_str());
        assert_eq!(halves.collect::<Vec<_>>(), ["vda5"]);
        // Nothing starts from that disk yet.
        assert_eq!(slots.esps, [Path::new("/dev/vda2")]);
    }

    #[test]
    fn the_slot_that_runs_is_known_by_root_alone() {
        let (root, uuid) = (machine(), "0a0b0c0d-0000-4000-8000-000000000004");
        symlink("../../vda4", root.path().join("dev/disk/by-partuuid").join(uuid)).unwrap();
        let volume = BootVolume::Partition(uuid.parse().unwrap());
        let of_root = |volume| SlotDevices::of_root(root.path(), Slot::A, volume).unwrap();
        assert_eq!(of_root(&volume).whole.name, "vda4");
        let others = |volume| {
            let others = SlotDevices::beside_root(root.path(), Slot::A, volume);
            others.into_iter().map(|other| (other.slot, other.whole.name)).collect::<Vec<_>>()
        };
        let [b, recovery] =
            [(Slot::B, "vda5"), (Slot::Recovery, "vda6")].map(|(slot, name)| (slot, name.to_owned()));
        assert_eq!(others(&volume), [b, recovery.clone()]);
        fs::remove_dir_all(root.path().join("sys/devices/vda/vda5")).unwrap();
        assert_eq!(others(&volume), [recovery]);
    }

    #[test]
    fn the_slot_that_runs_from_an_array_is_known_by_root_too() {
        let root = machine();
        mirror(root.path());
        let volume = BootVolume::Array("0a0b0c0d-0000-4000-8000-000000000004".parse().unwrap());
        let link = root.path().join(volume.to_string().trim_start_matches('/'));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink("../../md124", &link).unwrap();
        let a = SlotDevices::of_root(root.path(), Slot::A, &volume).unwrap();
        assert_eq!((a.whole.name.as_str(), a.halves.len()), ("md124", 2));
        let others = SlotDevices::beside_root(root.path(), Slot::A, &volume);
        assert_eq!(
            others.iter().map(|other| other.whole.name.as_str()).collect::<Vec<_>>(),
            ["md125", "md126"]
        );
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refused = |root: &Path, slot, esp| {
            let error = NodeSlots::find(root, &installed(slot, esp)).unwrap_err();
            assert_eq!(class_of(&error), Class::Hardware);
            render(&error)
        };
        let root = machine();
        let text = refused(root.path(), Slot::B, Some(ESP));
        assert!(text.contains("not on") && text.contains("vda5, the partition of slot b"), "{text}");
        let text = refused(root.path(), Slot::A, None);
        assert!(text.contains("the boot loader of this disk did not start this system"), "{text}");
        let text = refused(root.path(), Slot::A, Some("0a0b0c0d-0000-4000-8000-000000000009"));
        assert!(text.contains("there is no partition"), "{text}");
        fs::remove_dir_all(root.path().join("sys/devices/vda/vda6")).unwrap();
        let text = refused(root.path(), Slot::A, Some(ESP));
        assert!(text.contains("/dev/vda has no partition recovery"), "{text}");
    }
}
