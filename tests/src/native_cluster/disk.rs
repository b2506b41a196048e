//! The disk of a node that is namespaces, as far as an update of the OS writes and reads it: slots, the boot record, and a boot loader
//! that starts a slot by it.
//!
//! Each partition is a loop device. Not as on a machine are: GRUB, for which the function stands that tests hold it against
//! ([`model::boot::loader`]); the kernel's word that the partitions are of one disk, for which the node has files in place of
//! `/sys/class/block`; and what the slot has, which is read and not run: the node's OS is the same whichever slot was started.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use base::cancel::Cancel;
use base::digest::Digest;
use base::progress::Progress;
use base::size::ByteSize;
use install::execute::{OpenSlot, SlotSource, change_record};
use install::plan::{Partition, PartitionName, SectorSize, Target};
use medium::payload_sources::{LocalMedium, read_manifest};
use model::boot::loader::decide;
use model::boot::parameter;
use model::boot::record::{BootRecord, SlotState};
use model::boot::{BootVolume, Slot};
use model::release::{MANIFEST, MediumKind, Payload, Purpose, Release, SIGNATURES};
use model::release_manifest::ReleaseManifest;
use uuid::Uuid;

use crate::programs;

/// The EFI system partition, and what each slot has: the boot volume and an image of some MiB. The files have holes.
const SIZES: [(PartitionName, ByteSize); 4] = [
    (PartitionName::Esp, ByteSize::mib(64)),
    (PartitionName::RootA, ByteSize::mib(400)),
    (PartitionName::RootB, ByteSize::mib(400)),
    (PartitionName::Recovery, ByteSize::mib(400)),
];
/// The kernel's name for the whole disk.
const DISK: &str = "nqdisk";
const SECTOR: u32 = 512;
const LIMIT: Duration = Duration::from_secs(60);

/// The disk, with a boot loader. It lasts while nodes are switched off.
#[derive(Debug)]
pub struct NodeDisk {
    directory: PathBuf,
    parts: Vec<LoopDevice>,
    /// Slots that the boot loader cannot load, as if their kernel did not start.
    pub unloadable: Vec<Slot>,
}

#[derive(Debug)]
struct LoopDevice {
    name: PartitionName,
    size: ByteSize,
    /// `/dev/loopN`.
    device: PathBuf,
    /// Detaches it when it is closed, also by the end of this process.
    _held: fs::File,
}

impl NodeDisk {
    /// Makes it in `directory`, which is new, with the release of `medium` in slot a, known to be good.
    pub(super) fn make(directory: &Path, medium: &Path) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let mut disk = Self { directory: directory.to_owned(), parts: Vec::new(), unloadable: Vec::new() };
        for (name, size) in SIZES {
            let file = directory.join(format!("{}.img", name.as_str()));
            fs::File::create(&file)?.set_len(size.get())?;
            if name == PartitionName::Esp {
                write_record(&file)?;
            }
            disk.parts.push(LoopDevice::attach(&file, name, size)?);
        }
        disk.write_sysfs()?;
        let medium = LocalMedium::new(medium);
        let release = read_manifest(&medium, None)?;
        let (target, partition) = disk.part(PartitionName::RootA)?.as_slot()?;
        static NEVER: AtomicBool = AtomicBool::new(false);
        let slot = OpenSlot::to_write(&target, &[], partition)?;
        slot.place().write(&release, &medium, &Progress::silent(), &Cancel::new(&NEVER))?;
        Ok(disk)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn part(&self, name: PartitionName) -> Result<&LoopDevice> {
        let found = self.parts.iter().find(|part| part.name == name);
        found.with_context(|| format!("there is no partition {}", name.as_str()))
    }

    /// The partitions as sysfs and udev have them.
    fn write_sysfs(&self) -> Result<()> {
        let block = self.directory.join("block");
        let disk = block.join(DISK);
        fs::create_dir_all(disk.join("queue"))?;
        fs::write(disk.join("queue/logical_block_size"), format!("{SECTOR}\n"))?;
        for (number, part) in self.parts.iter().enumerate() {
            let name = part.kernel_name();
            let at = disk.join(&name);
            fs::create_dir_all(at.join("holders"))?;
            fs::write(at.join("partition"), format!("{}\n", number + 1))?;
            fs::write(at.join("size"), format!("{}\n", part.size.get() / 512))?;
            fs::write(at.join("uevent"), format!("DEVNAME={name}\nPARTNAME={}\n", part.name.as_str()))?;
            symlink(format!("{DISK}/{name}"), block.join(&name))?;
        }
        let links = self.directory.join("links/by-partuuid");
        fs::create_dir_all(&links)?;
        let esp = self.part(PartitionName::Esp)?.kernel_name();
        symlink(format!("../../{esp}"), links.join(self.esp_id().to_string()))?;
        Ok(())
    }

    /// The PARTUUID of the EFI system partition.
    fn esp_id(&self) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_URL, self.directory.as_os_str().as_encoded_bytes())
    }

    /// Does what boot loader and initrd do: starts a slot by the boot record, and leaves in files what the node is told of it.
    pub(super) fn boot(&self) -> Result<Slot> {
        let mut start = None;
        let loads = |slot: Slot| !self.unloadable.contains(&slot) && self.release(slot).is_ok();
        let changed = change_record(&[self.part(PartitionName::Esp)?.device.clone()], |record| {
            let decision = decide(&record.to_block(), loads, true);
            (*record, _) = BootRecord::read(&decision.block);
            start = decision.start;
        })?;
        let start = start.context("the boot loader has found nothing to start")?;
        for part in &self.parts {
            // The devices' own numbers; that of the slot which runs is written by the start of the node.
            let number = fs::read_to_string(format!("/sys/block/{}/dev", part.kernel_name()))?;
            fs::write(self.directory.join("block").join(DISK).join(part.kernel_name()).join("dev"), number)?;
        }
        fs::write(self.directory.join("running"), self.part(start.slot.into())?.kernel_name())?;
        let release = self.release(start.slot)?;
        fs::write(self.directory.join(MANIFEST), release.bytes())?;
        let signatures = self.directory.join(SIGNATURES);
        match release.signatures() {
            Some(text) => fs::write(&signatures, text)?,
            None => base::files::removed(fs::remove_file(&signatures))?,
        }
        let counted = if start.trial { parameter::TRIAL } else { parameter::GENERATION };
        let volume = BootVolume::Partition(Uuid::nil());
        let line = format!(
            "{}={} {}={volume} {}={volume} {}={} {counted}={}\n",
            parameter::SLOT,
            start.slot,
            parameter::CONFIG,
            parameter::PERSISTENT,
            parameter::ESP,
            self.esp_id(),
            changed.record.generation
        );
        fs::write(self.directory.join("cmdline"), line)?;
        Ok(start.slot)
    }

    pub fn release(&self, slot: Slot) -> Result<ReleaseManifest> {
        let (target, partition) = self.part(slot.into())?.as_slot()?;
        Ok(SlotSource::open(&target.path, &partition)?.release)
    }
}

/// Makes a file the EFI system partition of a node whose first boots were good.
fn write_record(file: &Path) -> Result<()> {
    let record = BootRecord { a: SlotState::Good, b: SlotState::Empty, ..BootRecord::default() };
    let file = fs::File::options().read(true).write(true).open(file)?;
    fatfs::format_volume(&file, fatfs::FormatVolumeOptions::new())?;
    let volume = fatfs::FileSystem::new(&file, fatfs::FsOptions::new())?;
    let directory = volume.root_dir().create_dir("grub")?;
    directory.create_file("grubenv")?.write_all(&record.to_block())?;
    Ok(())
}

impl LoopDevice {
    fn attach(file: &Path, name: PartitionName, size: ByteSize) -> Result<Self> {
        let mut attach = Command::new("losetup");
        let told = programs::run(attach.args(["--find", "--show"]).arg(file), LIMIT)?.success("losetup")?;
        let device = PathBuf::from(told.trim());
        let held = fs::File::open(&device).with_context(|| format!("opening {}", device.display()))?;
        let mut detach = Command::new("losetup");
        programs::run(detach.arg("--detach").arg(&device), LIMIT)?.success("losetup --detach")?;
        Ok(Self { name, size, device, _held: held })
    }

    fn kernel_name(&self) -> String {
        self.device.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// As the executor is told of a slot.
    fn as_slot(&self) -> Result<(Target, Partition)> {
        let target = Target {
            path: self.device.clone(),
            name: self.kernel_name(),
            size: self.size,
            sector: SectorSize::try_from(SECTOR)?,
            description: self.device.display().to_string(),
            signatures: Vec::new(),
        };
        let (name, size) = (self.name, self.size);
        let partition = Partition { number: 0, name, uuid: Uuid::nil(), start: ByteSize::bytes(0), size };
        Ok((target, partition))
    }
}

/// Writes the directory of a small medium whose release has this version, for nodes that run Kubernetes `kubernetes`; returns the
/// digest of its manifest.
pub fn small_medium(
    directory: &Path,
    version: &str,
    kubernetes: &model::kubernetes::KubernetesVersion,
) -> Result<Digest> {
    let mut payloads = Vec::new();
    for (payload, content) in testing::release::contents() {
        // The images of these nodes are not those of a medium.
        if matches!(payload.purpose, Purpose::ImageBlob | Purpose::ImageMetadata) {
            continue;
        }
        let Payload { path, .. } = payload;
        let path = directory.join(path);
        fs::create_dir_all(base::files::parent(&path))?;
        fs::write(path, content)?;
        payloads.push(payload.clone());
    }
    let release = Release {
        version: version.to_owned(),
        medium: MediumKind::Full,
        payloads,
        images: Vec::new(),
        kubernetes: Some(kubernetes.clone()),
        ..testing::release::release()
    };
    let bytes = release.to_bytes();
    fs::write(directory.join(MANIFEST), &bytes)?;
    Ok(Digest::of(&bytes))
}
