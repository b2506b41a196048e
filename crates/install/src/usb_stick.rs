//! Files that are saved on a USB stick: which volumes of removable disks can take one, and writing it there.
//!
//! A volume is found in an [`Inventory`], so disks and their content are judged by the same rules as for an install. It is
//! mounted for as long as one file is written, in a mount namespace of its own, so that nothing else sees it and no mount
//! outlives this process.

use model::config::disk::Transport;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use crate::execute::own_mount_namespace;
use crate::plan::PartitionName;
use base::failure::{Class, Classify, Failure};
use base::files::write_atomically;
use base::size::ByteSize;
use machine::inventory::{Disk, FoundPartition, Inventory, Signature, SignatureKind};

/// Room that a file system may need beside the content of a file, for its tables and directories.
const SPARE_ROOM: ByteSize = ByteSize::mib(1);

/// MS_NOSYMFOLLOW of mount(2): a symbolic link on a stick is not followed.
const NO_LINKS: nix::libc::c_ulong = 0x100;

/// A file system that the kernel of the OS image mounts for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StickFormat {
    Vfat,
    Exfat,
    /// ext2 to ext4: one driver for all of them.
    Ext4,
}

impl StickFormat {
    fn of(kind: SignatureKind) -> Option<Self> {
        match kind {
            SignatureKind::Vfat => Some(Self::Vfat),
            SignatureKind::Exfat => Some(Self::Exfat),
            SignatureKind::Ext2 | SignatureKind::Ext3 | SignatureKind::Ext4 => Some(Self::Ext4),
            _ => None,
        }
    }

    /// Its name for mount(2), and its options. If files have no mode, the mount gives them one.
    fn mounting(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Vfat => ("vfat", Some("fmask=0177,dmask=0077")),
            Self::Exfat => ("exfat", Some("fmask=0177,dmask=0077")),
            Self::Ext4 => ("ext4", None),
        }
    }
}

/// A volume that can take a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StickVolume {
    /// A partition, or a whole disk.
    pub node: PathBuf,
    pub format: StickFormat,
    pub size: ByteSize,
    pub label: Option<String>,
    /// The identity of the file system, if it has one.
    pub uuid: Option<String>,
    /// The disk: node, size, model and serial number.
    pub disk: String,
}

impl StickVolume {
    /// Node, size, file system and label, for choosing; its disk is shown separately.
    #[must_use]
    pub fn describe(&self) -> String {
        let kind = match self.format {
            StickFormat::Vfat => "FAT",
            StickFormat::Exfat => "exFAT",
            StickFormat::Ext4 => "ext4",
        };
        let label = self.label.as_ref().map(|label| format!(" {label:?}")).unwrap_or_default();
        format!("{}: {}, {kind}{label}", self.node.display(), self.size)
    }
}

/// The volumes of removable disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StickSurvey {
    pub volumes: Vec<StickVolume>,
    /// Why other volumes cannot take a file, a sentence each.
    pub others: Vec<String>,
}

impl StickSurvey {
    /// Surveys an inventory. Disks at `spared` are never written to, nor is a medium, a disk that is in use, or one that holds a
    /// node.
    #[must_use]
    pub fn of(inventory: &Inventory, spared: &[PathBuf]) -> Self {
        let mut survey = Self::default();
        let removable = |disk: &&Disk| disk.removable || disk.transport == Transport::Usb;
        for disk in inventory.disks.iter().filter(removable).filter(|disk| !disk.optical) {
            match obstacle(disk, spared) {
                Some(why) => survey.others.push(format!("{}: {why}", describe_disk(disk))),
                None => survey.look(disk),
            }
        }
        survey
    }

    fn look(&mut self, disk: &Disk) {
        if disk.partitions.is_empty() {
            self.take(disk, &disk.path, disk.size, &disk.signatures);
        }
        for partition in &disk.partitions {
            if is_esp(partition) {
                self.others.push(format!("{}: it is an EFI system partition", partition.path.display()));
            } else {
                self.take(disk, &partition.path, partition.size, &partition.signatures);
            }
        }
    }

    fn take(&mut self, disk: &Disk, node: &Path, size: ByteSize, signatures: &[Signature]) {
        // A boot sector of FAT can look like a table too.
        let found: Vec<_> = signatures.iter().filter(|found| !found.kind.is_table()).collect();
        let only = if let [only] = found[..] {
            StickFormat::of(only.kind).map(|format| (only, format))
        } else {
            None
        };
        match only {
            Some((signature, format)) => self.volumes.push(StickVolume {
                node: node.to_owned(),
                format,
                size,
                label: signature.label.clone(),
                uuid: signature.uuid.clone(),
                disk: describe_disk(disk),
            }),
            None => {
                let names: Vec<_> = found.iter().map(|found| found.kind.name()).collect();
                let why = match &disk.unread {
                    Some(why) if names.is_empty() => format!("it could not be read: {why}"),
                    _ if names.is_empty() => {
                        "it has no file system; FAT, exFAT and ext4 can take files".into()
                    }
                    _ => format!("it has {}; FAT, exFAT and ext4 can take files", names.join(", ")),
                };
                self.others.push(format!("{}: {why}", node.display()));
            }
        }
    }
}

/// Why nothing is written to a disk, whatever is on it.
fn obstacle(disk: &Disk, spared: &[PathBuf]) -> Option<String> {
    // The medium of a system that has been copied to memory is not in use, and has a small FAT of its own.
    let is_image = disk.signatures.iter().any(|found| found.kind == SignatureKind::Iso9660);
    let root = PartitionName::RootA.as_str();
    let is_node = disk.partitions.iter().any(|partition| partition.label.as_deref() == Some(root));
    let own = |path: &PathBuf| disk.is_at(path);
    match disk {
        _ if disk.boot_medium => Some("it is the medium that this system runs from".into()),
        _ if is_image => Some("it holds the image of a medium".into()),
        _ if spared.iter().any(own) => Some("it is a disk of the installation".into()),
        _ if is_node => Some("it holds an installed node".into()),
        _ if disk.read_only => Some("it is read-only".into()),
        _ => disk.holders.first().map(|holder| format!("it is in use: {holder}")),
    }
}

fn is_esp(partition: &FoundPartition) -> bool {
    partition.entry.is_some_and(|entry| entry.kind == PartitionName::Esp.type_guid())
}

/// Node, size, model and serial number.
fn describe_disk(disk: &Disk) -> String {
    Disk { signatures: Vec::new(), ..disk.clone() }.identify()
}

/// Writes a file to the root of a volume, in place of one of that name, with mode 0600 if the file system has modes. When this
/// returns it is on the stick, and the stick can be pulled out.
///
/// # Errors
/// The volume is not in `inventory` any more or may not be written to ([`StickSurvey::of`]); it cannot be mounted; it has no room;
/// writing fails. Each names the device, model and serial number.
pub fn write(
    volume: &StickVolume,
    name: &str,
    content: &[u8],
    inventory: &Inventory,
    spared: &[PathBuf],
) -> Result<()> {
    let what = || format!("saving {name} to {} of {}", volume.describe(), volume.disk);
    if !StickSurvey::of(inventory, spared).volumes.contains(volume) {
        return Err(Failure::new(Class::DiskIo, what())
            .because(anyhow::anyhow!("the volume is no longer there, or is in use"))
            .hint("Look again, and choose a volume that is listed.")
            .into());
    }
    // A mount namespace belongs to a thread, and ends with this one.
    let work = || mounted(volume, |root| put(root, name, content));
    let written = std::thread::scope(|scope| scope.spawn(work).join());
    let written = written.unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that writes has ended")));
    let write_protected = matches!(&written, Err(error) if is_read_only(error));
    written.class(Class::DiskIo, what).map_err(|error| match write_protected {
        true => Failure::new(Class::DiskIo, "nothing was saved")
            .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
            .hint("The stick is write-protected, or its file system is damaged: take another one.")
            .into(),
        false => error,
    })
}

fn is_read_only(error: &anyhow::Error) -> bool {
    let number = |cause: &(dyn std::error::Error + 'static)| {
        let errno = cause.downcast_ref::<nix::errno::Errno>().map(|errno| *errno as i32);
        errno.or_else(|| cause.downcast_ref::<std::io::Error>()?.raw_os_error())
    };
    error.chain().filter_map(number).any(|number| number == nix::libc::EROFS || number == nix::libc::EACCES)
}

/// Runs `work` on the mounted volume and unmounts it in any case.
fn mounted<T>(volume: &StickVolume, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
    own_mount_namespace()?;
    let directory =
        tempfile::tempdir().class(Class::Unexpected, || "making a directory to mount at".into())?;
    let point = directory.path();
    let careful = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
    let flags = careful | MsFlags::from_bits_retain(NO_LINKS);
    let (kind, options) = volume.format.mounting();
    mount(Some(&volume.node), point, Some(kind), flags, options)
        .class(Class::DiskIo, || format!("mounting {} as {kind}", volume.node.display()))?;
    let result = work(point);
    // Unmounting writes everything too, but only this reports errors.
    let written = File::open(point).and_then(|root| Ok(nix::unistd::syncfs(root)?));
    let gone = umount2(point, MntFlags::empty());
    let value = result?;
    written.class(Class::DiskIo, || format!("flushing {}", volume.node.display()))?;
    gone.class(Class::DiskIo, || format!("unmounting {}", volume.node.display()))?;
    Ok(value)
}

/// Writes the file below the root of a mounted volume, if it has room.
fn put(root: &Path, name: &str, content: &[u8]) -> Result<()> {
    let free = base::files::free_space(root)?;
    let needed = ByteSize::bytes(content.len() as u64) + SPARE_ROOM;
    if free < needed {
        let what = format!("the volume has {free} free, and {needed} are needed");
        return Err(Failure::new(Class::DiskIo, what).hint("Use another stick, or make room on it.").into());
    }
    write_atomically(&root.join(name), content, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::disk;
    use base::command::{Invocation, Runner, SystemRunner};
    use base::failure::{class_of, render};
    use machine::inventory::{FoundEntry, Holder, HolderKind};
    use std::os::unix::fs::PermissionsExt;

    fn signature(kind: SignatureKind) -> Signature {
        Signature { kind, label: Some("LOGS".into()), uuid: Some("1234-ABCD".into()), offset: 0 }
    }

    fn partition(disk: &str, number: u32, kind: Option<SignatureKind>) -> FoundPartition {
        FoundPartition {
            name: format!("{disk}{number}"),
            path: format!("/dev/{disk}{number}").into(),
            start: ByteSize::mib(1),
            size: ByteSize::gib(1),
            entry: None,
            label: None,
            signatures: kind.map(signature).into_iter().collect(),
            links: vec![],
        }
    }

    fn stick(name: &str, kind: Option<SignatureKind>) -> Disk {
        let partitions = vec![partition(name, 1, kind)];
        Disk { transport: Transport::Usb, partitions, ..disk(name, ByteSize::gib(8)) }
    }

    fn survey(disks: Vec<Disk>) -> StickSurvey {
        StickSurvey::of(&Inventory { disks, ..Inventory::default() }, &["/dev/sdx".into()])
    }

    fn nodes(survey: &StickSurvey) -> Vec<&str> {
        survey.volumes.iter().filter_map(|volume| volume.node.to_str()).collect()
    }

    #[test]
    fn volumes_of_sticks_are_listed_and_those_of_other_disks_are_not() {
        let whole = Disk {
            removable: true,
            signatures: vec![signature(SignatureKind::MbrEmpty), signature(SignatureKind::Exfat)],
            ..disk("sdb", ByteSize::gib(8))
        };
        let fixed = Disk { transport: Transport::Ata, ..stick("sdc", Some(SignatureKind::Vfat)) };
        let survey = survey(vec![
            stick("sda", Some(SignatureKind::Vfat)),
            whole,
            fixed,
            stick("sdd", Some(SignatureKind::Ext3)),
        ]);
        assert_eq!(nodes(&survey), ["/dev/sda1", "/dev/sdb", "/dev/sdd1"]);
        assert!(survey.others.is_empty());
        let [first, ..] = &survey.volumes[..] else { panic!() };
        assert_eq!(first.describe(), "/dev/sda1: 1 GiB, FAT \"LOGS\"");
        assert_eq!(first.disk, "/dev/sda: 8 GiB, model QEMU HARDDISK, serial serial-sda");
    }

    #[test]
    fn nothing_is_written_to_a_medium_a_disk_of_the_plan_a_node_or_what_is_in_use() {
        let entry = FoundEntry { number: 1, kind: PartitionName::Esp.type_guid(), uuid: uuid::Uuid::nil() };
        let vfat = |name: &str| stick(name, Some(SignatureKind::Vfat));
        let mut node = vfat("sdd");
        node.partitions[0].label = Some("root-a".into());
        let mut esp = vfat("sde");
        esp.partitions[0].entry = Some(entry);
        let mount = Holder {
            on: "/dev/sdf1".into(),
            kind: HolderKind::Mount,
            name: Some("/mnt".into()),
            device: None,
        };
        for (disk, why) in [
            (Disk { boot_medium: true, ..vfat("sda") }, "the medium"),
            (
                Disk { signatures: vec![signature(SignatureKind::Iso9660)], ..vfat("sdb") },
                "the image of a medium",
            ),
            (vfat("sdx"), "a disk of the installation"),
            (node, "an installed node"),
            (esp, "an EFI system partition"),
            (Disk { holders: vec![mount], ..vfat("sdf") }, "in use: /dev/sdf1 is mounted at /mnt"),
            (Disk { read_only: true, ..vfat("sdg") }, "read-only"),
            (stick("sdh", Some(SignatureKind::Ntfs)), "it has NTFS; FAT, exFAT and ext4 can take files"),
            (stick("sdi", None), "it has no file system"),
            (Disk { unread: Some("broken".into()), ..stick("sdj", None) }, "it could not be read: broken"),
        ] {
            let survey = survey(vec![disk]);
            assert!(survey.volumes.is_empty(), "{survey:?}");
            assert!(survey.others.len() == 1 && survey.others[0].contains(why), "{survey:?}: {why}");
        }
    }

    #[test]
    fn a_volume_with_two_file_systems_is_nobodys() {
        let mut disk = stick("sda", Some(SignatureKind::Vfat));
        disk.partitions[0].signatures.push(signature(SignatureKind::MdMember));
        assert!(survey(vec![disk]).volumes.is_empty());
    }

    #[test]
    fn a_volume_that_has_gone_is_not_written_to_and_is_named() {
        let inventory =
            Inventory { disks: vec![stick("sda", Some(SignatureKind::Vfat))], ..Inventory::default() };
        let volume = StickSurvey::of(&inventory, &[]).volumes.remove(0);
        for (now, spared) in [(Inventory::default(), vec![]), (inventory, vec!["/dev/sda".into()])] {
            let error = write(&volume, "a.txt", b"a", &now, &spared).unwrap_err();
            assert_eq!(class_of(&error), Class::DiskIo);
            let text = render(&error);
            assert!(
                text.contains("saving a.txt to /dev/sda1: 1 GiB, FAT \"LOGS\" of /dev/sda: 8 GiB, model"),
                "{text}"
            );
            assert!(text.contains("serial serial-sda") && text.contains("next: Look again"), "{text}");
        }
    }

    #[test]
    fn a_volume_that_cannot_be_mounted_is_named_with_its_disk() {
        let inventory = Inventory {
            disks: vec![stick("nothing-of-that-name", Some(SignatureKind::Vfat))],
            ..Inventory::default()
        };
        let volume = StickSurvey::of(&inventory, &[]).volumes.remove(0);
        let text = render(&write(&volume, "a.txt", b"a", &inventory, &[]).unwrap_err());
        assert!(text.contains("model QEMU HARDDISK, serial serial-nothing"), "{text}");
    }

    #[test]
    fn a_file_takes_the_place_of_the_one_before_and_one_without_room_is_not_begun() {
        let root = tempfile::tempdir().unwrap();
        for content in [&b"one"[..], b"two"] {
            put(root.path(), "report", content).unwrap();
            let path = root.path().join("report");
            assert_eq!(std::fs::read(&path).unwrap(), content);
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        }
        // A full file system in memory: proc(5) takes no file.
        let error = put(Path::new("/proc/self"), "report", b"one").unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        assert!(render(&error).contains("free, and") && render(&error).contains("next: Use another stick"));
    }
    #[test]
    #[ignore = "needs root and loop devices"]
    fn a_file_is_on_the_stick_when_it_has_been_written() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("stick").display().to_string();
        std::fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        let run = |program: &str, args: &[&str]| {
            let invocation = Invocation::new(program).args(args.iter().copied());
            String::from_utf8(SystemRunner.run(&invocation).unwrap()).unwrap().trim().to_owned()
        };
        run("mkfs.ext4", &["-q", &image]);
        let device = run("losetup", &["--find", "--show", &image]);
        let disk = Disk {
            removable: true,
            path: device.clone().into(),
            signatures: vec![signature(SignatureKind::Ext4)],
            ..disk("loop", ByteSize::mib(16))
        };
        let inventory = Inventory { disks: vec![disk], ..Inventory::default() };
        let volume = StickSurvey::of(&inventory, &[]).volumes.remove(0);
        let written = write(&volume, "report", b"what has failed", &inventory, &[]);
        let large = write(&volume, "large", &vec![0; 32 << 20], &inventory, &[]);
        run("losetup", &["--detach", &device]);
        written.unwrap();
        assert!(render(&large.unwrap_err()).contains("free, and 33 MiB are needed"));
        assert_eq!(run("debugfs", &["-R", "cat /report", &image]), "what has failed");
        assert!(run("debugfs", &["-R", "stat /report", &image]).contains("Mode:  0600"));
        assert!(run("debugfs", &["-R", "stat /large", &image]).is_empty());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&device), "nothing of it is seen outside");
    }
}
