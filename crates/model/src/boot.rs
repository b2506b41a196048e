//! The boot contract: the kernel parameters by which the installer tells an installed node which slot runs and where its
//! file systems are. The planner writes them, the node's initrd reads them.

pub mod crash;
mod environment;
pub mod grub;
pub mod loader;
pub mod record;

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;
use uuid::Uuid;

use crate::disk_protocol::DiskProtocol;
use base::failure::{Class, Failure};

/// Kernel parameters that the boot loader or a person gives to our programs, and that are no configuration keys.
pub mod parameter {
    /// The task of the live system: `check` verifies the medium and installs nothing.
    pub const MODE: &str = "nqrust.mode";
    /// The digest of the release manifest that the boot files belong to.
    pub const RELEASE: &str = "nqrust.release";
    /// The digest of the customization area.
    pub const CUSTOM: &str = "nqrust.custom";
    /// The digest of the OS image, for a machine that booted over the network: the initrd checks it.
    pub const ROOTFS: &str = "nqrust.rootfs";
    /// The slot that runs: `a`, `b` or `recovery`.
    pub const SLOT: &str = "nqrust.slot";
    /// The file system with the node document.
    pub const CONFIG: &str = "nqrust.config";
    /// The file system with what lasts.
    pub const PERSISTENT: &str = "nqrust.persistent";
    /// The file system with the data of virtual machines.
    pub const DATA: &str = "nqrust.data";
    /// The URL that an install reports to.
    pub const REPORT: &str = "nqrust.report";
    /// The generation of the boot record that the boot loader read.
    pub const GENERATION: &str = "nqrust.gen";
    /// The same, where the slot is on trial.
    pub const TRIAL: &str = "nqrust.trial";
    /// The unique id of the partition that the boot loader was loaded from.
    pub const ESP: &str = "nqrust.esp";

    /// The WWIDs of the node's disks that have several paths, with commas between them.
    pub const MULTIPATH: &str = "nqrust.multipath";
    /// The file system that a dump is written to: only on the command line of a kernel that another one starts as it crashes.
    pub const CRASH: &str = "nqrust.crash";

    /// What the node reaches over the network: `system`, and `data` by iSCSI or `data-nvme` by NVMe over TCP, with a comma between them.
    pub const NETWORK_DISKS: &str = "nqrust.network_disks";

    pub const ALL: [&str; 15] = [
        MODE,
        RELEASE,
        CUSTOM,
        ROOTFS,
        SLOT,
        CONFIG,
        PERSISTENT,
        DATA,
        REPORT,
        GENERATION,
        TRIAL,
        ESP,
        MULTIPATH,
        CRASH,
        NETWORK_DISKS,
    ];
}

/// The places for an OS image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Slot {
    /// Written by the install.
    A,
    /// Written by the first update.
    B,
    /// The recovery system, which starts if neither slot does.
    Recovery,
}

base::names!(Slot { A = "a", B = "b", Recovery = "recovery" });

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The kernel parameter with the root file system (`Documentation/admin-guide/kernel-parameters.txt`).
const ROOT: &str = "root";

/// The prefix of udev's links to arrays.
const ARRAYS: &str = "/dev/disk/by-id/md-uuid-";

/// Where a file system lies: a partition by the unique id in its GPT entry, or an array by its identity. Written and read
/// as `PARTUUID=` and the id, or as the link that udev makes for an array which runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootVolume {
    Partition(Uuid),
    Array(Uuid),
}

impl BootVolume {
    /// The slot that the kernel parameter `root` of an installed node names.
    ///
    /// # Errors
    /// [`Class::Invalid`] if it names none.
    pub fn of_root(line: &str) -> Result<Self> {
        Self::parse(ROOT, value(line, ROOT).unwrap_or_default())
    }

    /// Where udev puts the link to its device.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        match self {
            Self::Partition(uuid) => format!("/dev/disk/by-partuuid/{uuid}").into(),
            Self::Array(_) => self.to_string().into(),
        }
    }

    fn parse(name: &str, value: &str) -> Result<Self> {
        let partition =
            || value.strip_prefix("PARTUUID=").filter(|id| id.len() == 36)?.parse().ok().map(Self::Partition);
        let array = || read_array_id(value.strip_prefix(ARRAYS)?).map(Self::Array);
        partition().or_else(array).ok_or_else(|| {
            wrong(format!("{name} is {value:?}, neither PARTUUID= and an id nor the link of an array"))
        })
    }
}

impl fmt::Display for BootVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Partition(uuid) => write!(f, "PARTUUID={uuid}"),
            Self::Array(uuid) => write!(f, "{ARRAYS}{}", array_id(*uuid)),
        }
    }
}

/// The identity of an array as the md driver's programs and udev write it: four groups of eight hexadecimal digits.
#[must_use]
pub fn array_id(uuid: Uuid) -> String {
    let digits = uuid.simple().to_string();
    let groups: Vec<_> = (0..4).filter_map(|group| digits.get(group * 8..group * 8 + 8)).collect();
    groups.join(":")
}

fn read_array_id(text: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(&text.replace(':', "")).ok()?;
    (array_id(uuid) == text.to_ascii_lowercase()).then_some(uuid)
}

/// The WWID by which multipathd knows a disk, and which is the name of its map on a node: of SCSI the digit of its format and the name
/// itself (scsi_id(8)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipathId(String);

impl MultipathId {
    /// `None` if a kernel command line, a line of multipath's files or a file name could not have it.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "_-.:+".contains(c);
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        (first && text.len() <= 127 && text.chars().all(fits)).then(|| Self(text.to_owned()))
    }

    /// The value of [`parameter::MULTIPATH`].
    fn list(value: &str) -> Result<Vec<Self>> {
        let read = |text: &str| {
            Self::new(text).ok_or_else(|| {
                wrong(format!("{} is {value:?}, not WWIDs with commas between them", parameter::MULTIPATH))
            })
        };
        value.split(',').map(read).collect()
    }

    /// The node of its map.
    #[must_use]
    pub fn map(&self) -> PathBuf {
        PathBuf::from("/dev/mapper").join(&self.0)
    }
}

impl fmt::Display for MultipathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which disks of a node are reached over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkDiskUse {
    /// By iSCSI.
    pub system: bool,
    pub data: Option<DiskProtocol>,
}

impl NetworkDiskUse {
    const SYSTEM: &'static str = "system";
    const DATA: &'static str = "data";
    const DATA_NVME: &'static str = "data-nvme";

    /// The use that the command line `line` of a node names.
    ///
    /// # Errors
    /// [`Class::Invalid`] if the value has other words.
    pub fn of_line(line: &str) -> Result<Self> {
        let Some(text) = value(line, parameter::NETWORK_DISKS) else { return Ok(Self::default()) };
        let mut read = Self::default();
        for word in text.split(',') {
            match word {
                Self::SYSTEM => read.system = true,
                Self::DATA => read.data = Some(DiskProtocol::Iscsi),
                Self::DATA_NVME => read.data = Some(DiskProtocol::NvmeTcp),
                _ => {
                    let name = parameter::NETWORK_DISKS;
                    return Err(wrong(format!(
                        "{name} is {text:?}, not system, data or data-nvme, or two with a comma"
                    )));
                }
            }
        }
        Ok(read)
    }

    #[must_use]
    pub fn any(self) -> bool {
        self.system || self.data.is_some()
    }

    /// Whether any of the disks is reached by `protocol`.
    #[must_use]
    pub fn by(self, protocol: DiskProtocol) -> bool {
        self.data == Some(protocol) || self.system && protocol == DiskProtocol::Iscsi
    }
}

impl fmt::Display for NetworkDiskUse {
    /// As the kernel argument has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = self.data.map(|protocol| match protocol {
            DiskProtocol::Iscsi => Self::DATA,
            DiskProtocol::NvmeTcp => Self::DATA_NVME,
        });
        let words: Vec<_> = self.system.then_some(Self::SYSTEM).into_iter().chain(data).collect();
        f.write_str(&words.join(","))
    }
}

/// The volumes and the slot that the command line of an installed node names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootParameters {
    pub slot: Slot,
    pub config: BootVolume,
    pub persistent: BootVolume,
    /// Where the data of virtual machines is, if anywhere.
    pub data: Option<BootVolume>,
    /// The PARTUUID of the EFI system partition that the boot loader came from; none if it did not start this kernel.
    pub esp: Option<Uuid>,
    /// The disks of the node that have several paths, and are used through their maps only.
    pub multipath: Vec<MultipathId>,
    /// The disks of the node that are reached over the network.
    pub network_disks: NetworkDiskUse,
}

impl BootParameters {
    /// Reads a command line; `None` where it is not that of an installed node (it has no `nqrust.config`).
    pub fn parse(line: &str) -> Result<Option<Self>> {
        let value = |name: &str| value(line, name);
        let Some(config) = value(parameter::CONFIG) else { return Ok(None) };
        let named = value(parameter::SLOT).unwrap_or_default();
        let slot = Slot::of_name(named)
            .ok_or_else(|| wrong(format!("{} is {named:?}, not a, b or recovery", parameter::SLOT)))?;
        let persistent = value(parameter::PERSISTENT).unwrap_or_default();
        let data = value(parameter::DATA).map(|value| BootVolume::parse(parameter::DATA, value));
        Ok(Some(Self {
            slot,
            config: BootVolume::parse(parameter::CONFIG, config)?,
            persistent: BootVolume::parse(parameter::PERSISTENT, persistent)?,
            data: data.transpose()?,
            esp: value(parameter::ESP).and_then(|id| id.parse().ok()),
            multipath: value(parameter::MULTIPATH).map(MultipathId::list).transpose()?.unwrap_or_default(),
            network_disks: NetworkDiskUse::of_line(line)?,
        }))
    }
}

/// The value of a parameter. Of one that comes twice the last counts, as for the kernel.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().rev().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn wrong(what: String) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("reading the kernel command line: {what}"))
        .hint("Correct the parameters in the boot menu (key e).")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "0A0B0C0D-0000-4000-8000-00000000000A";
    const B: &str = "0a0b0c0d-0000-4000-8000-00000000000b";

    #[test]
    fn the_parameters_of_an_installed_node_are_read() {
        let line =
            format!("root=x ro nqrust.slot=b nqrust.config=PARTUUID={A} nqrust.persistent=PARTUUID={B}\n");
        let installed = BootParameters::parse(&line).unwrap().unwrap();
        assert_eq!(installed.slot, Slot::B);
        assert_eq!(
            installed.config.device(),
            PathBuf::from("/dev/disk/by-partuuid/0a0b0c0d-0000-4000-8000-00000000000a")
        );
        assert_eq!(installed.data, None);
    }

    #[test]
    fn disks_with_several_paths_are_named_by_their_wwids() {
        let line = |value: &str| {
            format!("nqrust.slot=a nqrust.config=PARTUUID={A} nqrust.persistent=PARTUUID={B} {value}\n")
        };
        let read = |value: &str| BootParameters::parse(&line(value)).map(|read| read.unwrap().multipath);
        assert_eq!(read("").unwrap(), []);
        let found = read("nqrust.multipath=3600c0ff0,0QEMU_QEMU_HARDDISK_a-1.2").unwrap();
        let maps: Vec<_> = found.iter().map(MultipathId::map).collect();
        assert_eq!(
            maps,
            ["/dev/mapper/3600c0ff0", "/dev/mapper/0QEMU_QEMU_HARDDISK_a-1.2"].map(PathBuf::from)
        );
        for wrong in ["", "3600,", "../sda", "a/b", "a\"b"] {
            let error = read(&format!("nqrust.multipath={wrong}")).unwrap_err();
            assert!(error.to_string().contains("nqrust.multipath"), "{wrong}: {error}");
        }
    }

    #[test]
    fn disks_over_the_network_are_named_by_their_use() {
        use DiskProtocol::{Iscsi, NvmeTcp};
        for (system, data, text) in [
            (true, None, "system"),
            (false, Some(Iscsi), "data"),
            (true, Some(Iscsi), "system,data"),
            (false, Some(NvmeTcp), "data-nvme"),
            (true, Some(NvmeTcp), "system,data-nvme"),
        ] {
            let used = NetworkDiskUse { system, data };
            assert_eq!(used.to_string(), text);
            assert!(used.any());
            assert_eq!(
                (used.by(Iscsi), used.by(NvmeTcp)),
                (system || data == Some(Iscsi), data == Some(NvmeTcp))
            );
            assert_eq!(
                NetworkDiskUse::of_line(&format!("ro nqrust.network_disks={text} quiet")).unwrap(),
                used
            );
        }
        assert!(!NetworkDiskUse::of_line("ro quiet").unwrap().any());
        for wrong in ["", "root", "system,", "system data,x,y"] {
            let read = NetworkDiskUse::of_line(&format!("nqrust.network_disks={}", wrong.replace(' ', ",")));
            assert!(read.unwrap_err().to_string().contains("nqrust.network_disks"), "{wrong}");
        }
    }

    #[test]
    fn arrays_are_named_by_their_links() {
        let link = "/dev/disk/by-id/md-uuid-0a0b0c0d:00004000:80000000:0000000A";
        let line =
            format!("nqrust.slot=a nqrust.config={link} nqrust.persistent=PARTUUID={B} nqrust.data={link}");
        let installed = BootParameters::parse(&line).unwrap().unwrap();
        assert_eq!(installed.config.device(), PathBuf::from(link.to_ascii_lowercase()));
        assert_eq!(installed.data, Some(installed.config));
    }

    #[test]
    fn the_slot_is_what_the_last_root_names() {
        let line = format!("root=/dev/sda1 BOOT_IMAGE=x root=PARTUUID={A} rootfstype=squashfs");
        assert_eq!(BootVolume::of_root(&line).unwrap(), BootVolume::Partition(A.parse().unwrap()));
        for wrong in ["root=/dev/sda1", "ro", "root=live:CDLABEL=x"] {
            assert!(BootVolume::of_root(wrong).unwrap_err().to_string().contains("root is"), "{wrong}");
        }
    }

    #[test]
    fn a_live_boot_is_not_an_installed_node() {
        assert_eq!(BootParameters::parse("root=live:CDLABEL=x nqrust.configuration=1").unwrap(), None);
    }

    #[test]
    fn parameters_that_cannot_be_right_are_named() {
        let good = format!("nqrust.slot=a nqrust.config=PARTUUID={A} nqrust.persistent=PARTUUID={B}");
        for (from, to, named) in [
            ("slot=a", "slot=c", "nqrust.slot"),
            ("nqrust.slot=a", "", "nqrust.slot"),
            (B, "../../sda", "nqrust.persistent"),
            ("nqrust.persistent", "x", "nqrust.persistent"),
            ("config=PARTUUID=", "config=UUID=", "nqrust.config"),
            ("config=PARTUUID=", "config=/dev/disk/by-id/md-uuid-", "nqrust.config"),
        ] {
            let error = BootParameters::parse(&good.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn what_the_installer_writes_is_what_the_node_reads() {
        let (partition, array) =
            (BootVolume::Partition(A.parse().unwrap()), BootVolume::Array(B.parse().unwrap()));
        let line = format!(
            "{}={} {}={partition} {}={array} {}={array}",
            parameter::SLOT,
            Slot::A,
            parameter::CONFIG,
            parameter::PERSISTENT,
            parameter::DATA
        );
        let read = BootParameters::parse(&line).unwrap().unwrap();
        assert_eq!(
            read,
            BootParameters {
                slot: Slot::A,
                config: partition,
                persistent: array,
                data: Some(array),
                esp: None,
                multipath: Vec::new(),
                network_disks: NetworkDiskUse::default(),
            }
        );
    }
}
