//! What is on a disk or partition, told from its bytes: partition tables, file systems, volumes, members of arrays.
//!
//! Each family of formats is a file with its facts and their source; a probe reads a few blocks and never writes.
//! It says what would be lost, not whether that is whole: checksums are looked at only where the mark alone
//! is too short, or where the state itself is the news, as with partition tables.

mod boot_sector;
mod btrfs;
mod bytes;
mod ceph;
mod drbd;
mod ext;
mod firmware_raid;
mod image;
mod luks;
mod lvm;
mod marks;
mod md;
mod swap;
mod table;
mod vmfs;
mod xfs;
mod zfs;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use base::size::ByteSize;
use bytes::Bytes;

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// What it is.
    pub kind: Kind,
    /// Its name: the label of a file system, the name of an array, a pool or a volume group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its identity, in the form that the format's own programs show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Where its mark is, in bytes from the start of the disk or partition.
    pub offset: u64,
}

/// What a signature is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Kind {
    /// A GPT of which both copies are right.
    Gpt,
    /// The same, with no partition in it.
    GptEmpty,
    /// The first copy is damaged or missing, the one at the end is right.
    GptPrimaryDamaged,
    /// The first copy is right, the one at the end is damaged or missing, as on a disk that grew.
    GptBackupDamaged,
    /// A boot sector that announces a GPT, of which no copy is right.
    GptLost,
    /// A GPT for sectors of another size than the disk's: nothing sees its partitions.
    GptOtherSectors,
    /// A table of the old kind.
    Mbr,
    /// The same, with no partition in it, or a boot sector without a table.
    MbrEmpty,
    SunLabel,
    BsdLabel,
    AppleMap,
    Ext2,
    Ext3,
    Ext4,
    /// The journal of an ext file system elsewhere.
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
    /// An image of a machine that sleeps.
    Hibernation,
    LvmVolume,
    /// A member of a Linux software RAID.
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

impl Kind {
    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        use Kind::*;
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
            Hibernation => "swap space of a sleeping machine",
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

    /// Whether something is lost with it. An empty table is none's loss.
    #[must_use]
    pub fn holds_content(self) -> bool {
        !matches!(self, Self::GptEmpty | Self::MbrEmpty)
    }

    /// A table of partitions, empty or not.
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
    fn new(kind: Kind, offset: u64) -> Self {
        Self { kind, label: None, uuid: None, offset }
    }

    fn label(mut self, label: Option<String>) -> Self {
        self.label = label;
        self
    }

    fn uuid(mut self, uuid: Option<String>) -> Self {
        self.uuid = uuid;
        self
    }
}

/// Where bytes come from: a device node, or a file in its place.
pub trait ReadAt {
    /// Fills `buffer` from byte `offset`.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

/// A device, or a part of one.
pub(super) struct Window {
    file: File,
    start: u64,
}

impl Window {
    pub(super) fn whole(file: File) -> Self {
        Self { file, start: 0 }
    }

    pub(super) fn at(file: File, start: ByteSize) -> Self {
        Self { file, start: start.get() }
    }
}

impl ReadAt for Window {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(&self.file, buffer, self.start.saturating_add(offset))
    }
}

/// A disk or partition to look at.
pub(super) struct Volume<'a> {
    source: &'a dyn ReadAt,
    size: u64,
    sector: u64,
    /// The first bytes, where most marks are: one read instead of many, which matters on disks that seek.
    head: Vec<u8>,
}

/// As much as the mark of Btrfs needs, which is the last at the start.
const HEAD: u64 = 68 << 10;

impl<'a> Volume<'a> {
    /// # Errors
    /// The start cannot be read.
    pub(super) fn new(source: &'a dyn ReadAt, size: ByteSize, sector: u32) -> io::Result<Self> {
        let mut head = vec![0; usize::try_from(size.get().min(HEAD)).unwrap_or(0)];
        source.read_exact_at(&mut head, 0)?;
        Ok(Self { source, size: size.get(), sector: u64::from(sector.max(512)), head })
    }

    /// The bytes at `offset`; as many as there are, none beyond the end.
    fn at(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let length = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(length).min(length);
        if length == 0 {
            return Ok(Bytes::new(Vec::new()));
        }
        if let Ok(start) = usize::try_from(offset)
            && let Some(known) = start.checked_add(length).and_then(|end| self.head.get(start..end))
        {
            return Ok(Bytes::new(known.to_vec()));
        }
        let mut bytes = vec![0; length];
        self.source.read_exact_at(&mut bytes, offset)?;
        Ok(Bytes::new(bytes))
    }

    /// The bytes that begin so far before the end; none where the volume is shorter.
    fn before_end(&self, distance: u64, length: usize) -> io::Result<(u64, Bytes)> {
        match self.size.checked_sub(distance) {
            Some(offset) => Ok((offset, self.at(offset, length)?)),
            None => Ok((0, Bytes::new(Vec::new()))),
        }
    }
}

/// What a probe finds.
type Found = io::Result<Option<Signature>>;

/// One probe a format; what several find is told in this order.
const PROBES: [fn(&Volume<'_>) -> Found; 16] = [
    md::at_start,
    md::at_end,
    firmware_raid::ddf,
    firmware_raid::imsm,
    lvm::probe,
    luks::probe,
    zfs::probe,
    ceph::probe,
    drbd::probe,
    vmfs::volume,
    vmfs::file_system,
    ext::probe,
    xfs::probe,
    btrfs::probe,
    image::probe,
    swap::probe,
];

/// What is on a disk or partition, as far as it could be read.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) signatures: Vec<Signature>,
    /// Why some of it could not be read.
    pub(super) trouble: Option<io::Error>,
}

impl Content {
    /// Everything on a whole disk. `partitions` are their ranges in bytes: what lies there is theirs.
    pub(super) fn of_disk(volume: &Volume<'_>, partitions: &[Range<u64>]) -> Self {
        let mut content = Self::default();
        let boot = boot_sector::probe(volume);
        let taken = matches!(boot, Ok(Some(_)));
        content.take(table::probe(volume, taken));
        content.take(boot);
        content.probe(volume);
        let theirs = |found: &Signature| partitions.iter().any(|range| range.contains(&found.offset));
        content.signatures.retain(|found| found.kind.is_table() || !theirs(found));
        content
    }

    /// Everything on a partition; a table in it nobody reads.
    pub(super) fn of_partition(volume: &Volume<'_>) -> Self {
        let mut content = Self::default();
        content.take(boot_sector::probe(volume));
        content.probe(volume);
        content
    }

    fn probe(&mut self, volume: &Volume<'_>) {
        for probe in PROBES {
            self.take(probe(volume));
        }
        self.take(marks::probe(volume));
    }

    fn take(&mut self, found: io::Result<impl IntoIterator<Item = Signature>>) {
        match found {
            Ok(found) => self.signatures.extend(found),
            Err(error) => self.trouble = self.trouble.take().or(Some(error)),
        }
    }
}

#[cfg(test)]
mod tests;
