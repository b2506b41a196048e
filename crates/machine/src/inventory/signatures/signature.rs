//! The result of a probe, as an inventory shows it.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    pub kind: SignatureKind,
    /// The label of a file system, the name of an array, a pool or a volume group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its identity, in the form that the format's own programs show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The position of its magic bytes, in bytes from the start of the disk or partition.
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum SignatureKind {
    /// A GPT of which both copies are intact.
    Gpt,
    GptEmpty,
    /// The first copy is damaged or missing, the one at the end is intact.
    GptPrimaryDamaged,
    /// The first copy is intact, the one at the end is damaged or missing, as on a disk that grew.
    GptBackupDamaged,
    /// A boot sector that announces a GPT without an intact copy.
    GptLost,
    /// A GPT for sectors of another size than the disk's: nothing sees its partitions.
    GptOtherSectors,
    Mbr,
    /// An MBR without partitions, or a boot sector without a table.
    MbrEmpty,
    SunLabel,
    BsdLabel,
    AppleMap,
    Ext2,
    Ext3,
    Ext4,
    /// The separate journal of an ext file system.
    ExtJournal,
    Xfs,
    Btrfs,
    Vfat,
    Exfat,
    Ntfs,
    Bitlocker,
    Refs,
    Iso9660,
    Udf,
    Squashfs,
    Erofs,
    F2fs,
    Jfs,
    Reiserfs,
    Ocfs2,
    Gfs2,
    Apfs,
    HfsPlus,
    Bcachefs,
    Swap,
    Hibernation,
    LvmVolume,
    MdMember,
    Luks1,
    Luks2,
    ZfsMember,
    VmfsVolume,
    Vmfs,
    CephBluestore,
    /// A member of an array in the format that RAID controllers share.
    DdfMember,
    /// A member of an array of Intel's firmware.
    ImsmMember,
    Drbd,
    Bcache,
    Stratis,
    OracleAsm,
    UbiVolume,
}

impl SignatureKind {
    /// The usual name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        use SignatureKind::*;
        match self {
            Gpt => "partition table (GPT)",
            GptEmpty => "empty partition table (GPT)",
            GptPrimaryDamaged => "partition table (GPT, first copy damaged)",
            GptBackupDamaged => "partition table (GPT, second copy damaged or missing)",
            GptLost => "partition table (GPT, both copies damaged)",
            GptOtherSectors => "partition table (GPT, for sectors of another size)",
            Mbr => "partition table (MBR)",
            MbrEmpty => "boot sector without partitions",
            SunLabel => "partition table (Sun)",
            BsdLabel => "partition table (BSD)",
            AppleMap => "partition table (Apple)",
            Ext2 => "ext2",
            Ext3 => "ext3",
            Ext4 => "ext4",
            ExtJournal => "journal of an ext file system",
            Xfs => "XFS",
            Btrfs => "Btrfs",
            Vfat => "FAT",
            Exfat => "exFAT",
            Ntfs => "NTFS",
            Bitlocker => "BitLocker",
            Refs => "ReFS",
            Iso9660 => "ISO 9660",
            Udf => "UDF",
            Squashfs => "SquashFS",
            Erofs => "EROFS",
            F2fs => "F2FS",
            Jfs => "JFS",
            Reiserfs => "ReiserFS",
            Ocfs2 => "OCFS2",
            Gfs2 => "GFS2",
            Apfs => "APFS",
            HfsPlus => "HFS+",
            Bcachefs => "bcachefs",
            Swap => "swap space",
            Hibernation => "swap space of a hibernated machine",
            LvmVolume => "LVM volume",
            MdMember => "member of a Linux RAID",
            Luks1 => "LUKS1 encryption",
            Luks2 => "LUKS2 encryption",
            ZfsMember => "member of a ZFS pool",
            VmfsVolume => "VMFS volume",
            Vmfs => "VMFS",
            CephBluestore => "Ceph BlueStore",
            DdfMember => "member of a controller's RAID (DDF)",
            ImsmMember => "member of an Intel RAID",
            Drbd => "DRBD",
            Bcache => "bcache",
            Stratis => "Stratis",
            OracleAsm => "Oracle ASM",
            UbiVolume => "UBI",
        }
    }

    /// Whether something is lost with it. An empty table is no loss.
    #[must_use]
    pub fn holds_content(self) -> bool {
        !matches!(self, Self::GptEmpty | Self::MbrEmpty)
    }

    /// A partition table, empty or not.
    #[must_use]
    pub fn is_table(self) -> bool {
        self <= Self::AppleMap
    }
}

impl fmt::Display for Signature {
    /// Kind and name in a few words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        match &self.label {
            Some(label) => write!(f, " {label:?}"),
            None => Ok(()),
        }
    }
}

impl Signature {
    pub(super) fn new(kind: SignatureKind, offset: u64) -> Self {
        Self { kind, label: None, uuid: None, offset }
    }

    pub(super) fn label(mut self, label: Option<String>) -> Self {
        self.label = label;
        self
    }

    pub(super) fn uuid(mut self, uuid: Option<String>) -> Self {
        self.uuid = uuid;
        self
    }
}
