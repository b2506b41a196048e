//! The place of each partition: pure arithmetic.

use model::boot::Slot;
use model::config::sizes::PartitionSizes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use base::size::ByteSize;
use machine::inventory::FoundPartition;

/// Partitions begin and end on multiples of this: right for every sector, stripe and erase block size in use.
pub const ALIGNMENT: ByteSize = ByteSize::mib(1);

/// The partition entries of a table at either end of a disk, in bytes, whatever the sector size (UEFI 2.10, 5.3).
const TABLE_BYTES: u64 = 16 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum SectorSize {
    B512,
    B4096,
}

#[derive(Debug, thiserror::Error)]
#[error("sectors of {0} bytes are not supported, only of 512 and of 4096")]
pub struct SectorSizeError(u32);

impl TryFrom<u32> for SectorSize {
    type Error = SectorSizeError;
    fn try_from(bytes: u32) -> Result<Self, Self::Error> {
        match bytes {
            512 => Ok(Self::B512),
            4096 => Ok(Self::B4096),
            other => Err(SectorSizeError(other)),
        }
    }
}

impl From<SectorSize> for u32 {
    fn from(size: SectorSize) -> Self {
        match size {
            SectorSize::B512 => 512,
            SectorSize::B4096 => 4096,
        }
    }
}

impl SectorSize {
    #[must_use]
    pub fn bytes(self) -> u64 {
        u32::from(self).into()
    }
}

/// The partitions of a node. Their names in the partition table are a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionName {
    /// GRUB's core for BIOS.
    Bios,
    Esp,
    /// The node document and the node's identity.
    Config,
    /// OS image, slot a.
    RootA,
    /// OS image, slot b.
    RootB,
    /// OS image for a reset.
    Recovery,
    /// Everything that lasts: `/var`.
    Persistent,
    Data,
}

impl PartitionName {
    /// In their order on a disk.
    pub const ALL: [Self; 8] = [
        Self::Bios,
        Self::Esp,
        Self::Config,
        Self::RootA,
        Self::RootB,
        Self::Recovery,
        Self::Persistent,
        Self::Data,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bios => "bios",
            Self::Esp => "esp",
            Self::Config => "config",
            Self::RootA => "root-a",
            Self::RootB => "root-b",
            Self::Recovery => "recovery",
            Self::Persistent => "persistent",
            Self::Data => "data",
        }
    }

    /// The one that a partition table calls so.
    #[must_use]
    pub fn named(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == label)
    }

    /// Whether a start of the machine reads it before `/var`. Such partitions have a few GiB; the others fill the disk.
    #[must_use]
    pub fn is_system(self) -> bool {
        !matches!(self, Self::Persistent | Self::Data)
    }

    /// The partition type: those of UEFI, of GRUB, and of the Discoverable Partitions Specification.
    #[must_use]
    pub fn type_guid(self) -> Uuid {
        match self {
            Self::Bios => uuid::uuid!("21686148-6449-6e6f-744e-656564454649"),
            Self::Esp => uuid::uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"),
            Self::RootA | Self::RootB => uuid::uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"),
            Self::Config | Self::Recovery | Self::Persistent | Self::Data => {
                uuid::uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4")
            }
        }
    }

    /// The PARTUUID of the partition of this name in a new table with the identity `disk_guid`.
    #[must_use]
    pub fn uuid_in(self, disk_guid: Uuid) -> Uuid {
        Uuid::new_v5(&disk_guid, self.as_str().as_bytes())
    }
}

impl From<Slot> for PartitionName {
    fn from(slot: Slot) -> Self {
        match slot {
            Slot::A => Self::RootA,
            Slot::B => Self::RootB,
            Slot::Recovery => Self::Recovery,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    /// Number in the table, from 1 without gaps.
    pub number: u32,
    pub name: PartitionName,
    /// PARTUUID; file systems on it have the same.
    pub uuid: Uuid,
    pub start: ByteSize,
    pub size: ByteSize,
}

impl Partition {
    /// The partition of a node that is on a disk already; `None` for any other.
    #[must_use]
    pub fn of(found: &FoundPartition) -> Option<Self> {
        let (entry, name) = (found.entry?, PartitionName::named(found.label.as_deref()?)?);
        Some(Self { number: entry.number, name, uuid: entry.uuid, start: found.start, size: found.size })
    }

    #[must_use]
    pub fn end(&self) -> ByteSize {
        self.start + self.size
    }
}

/// What a layout depends on.
#[derive(Clone, Copy, Debug)]
pub struct LayoutRequest {
    pub disk: ByteSize,
    pub sector: SectorSize,
    pub sizes: PartitionSizes,
    /// The size of the persistent partition, if the configuration gives one.
    pub persistent: Option<ByteSize>,
    /// Whether there is a data partition on it.
    pub data: bool,
    /// What stays free at the end of the disk, as far as the least sizes and `persistent` allow it.
    pub spare: ByteSize,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum LayoutError {
    #[error("the disk has {found}, and {needed} are needed")]
    Disk { needed: ByteSize, found: ByteSize },
    #[error("a persistent partition of {wanted} is smaller than the least, {least}")]
    PersistentTooSmall { wanted: ByteSize, least: ByteSize },
    #[error("a persistent partition of {wanted} is larger than what this disk leaves for it, {most}")]
    PersistentTooLarge { wanted: ByteSize, most: ByteSize },
    #[error("what is kept begins at {found}, and the partitions of the system need {needed} before it")]
    NoRoomBefore { needed: ByteSize, found: ByteSize },
    #[error("what is kept ends at {found}, and the table's second copy begins at {most}")]
    NoRoomForTable { found: ByteSize, most: ByteSize },
}

/// A data partition that is kept at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptPlace {
    pub uuid: Uuid,
    pub start: ByteSize,
    pub size: ByteSize,
}

/// The partitions of a node on one disk, in order. The same request and `disk_guid` give the same layout.
pub fn arrange(request: LayoutRequest, disk_guid: Uuid) -> Result<Vec<Partition>, LayoutError> {
    use PartitionName::{Data, Persistent};
    let LayoutRequest { disk, sizes, .. } = request;
    let fixed = fixed(sizes);
    let before = fixed.iter().fold(ALIGNMENT, |sum, (_, size)| sum + *size);
    let data_minimum = if request.data { sizes.data_minimum } else { ByteSize::default() };
    let needed = least(sizes, request.data);
    if disk < needed {
        return Err(LayoutError::Disk { needed, found: disk });
    }
    let rest = end(disk, request.sector).saturating_sub(before);
    let most = rest.saturating_sub(data_minimum);
    let beside_spare = most.saturating_sub(request.spare).max(sizes.persistent_minimum);
    let usual = if request.data { sizes.persistent.min(beside_spare) } else { beside_spare };
    let persistent = persistent(request, usual, most)?;
    let data = request.data.then(|| {
        let rest = rest.saturating_sub(persistent);
        (Data, rest.saturating_sub(request.spare).max(data_minimum))
    });
    Ok(placed_in_order(fixed.into_iter().chain([(Persistent, persistent)]).chain(data), disk_guid))
}

/// The least size of a disk for the system; `data`: with a data partition on it.
#[must_use]
pub fn least(sizes: PartitionSizes, data: bool) -> ByteSize {
    let before = fixed(sizes).iter().fold(ALIGNMENT, |sum, (_, size)| sum + *size);
    let (minimum, data_minimum) = match data {
        true => (sizes.disk_minimum, sizes.data_minimum),
        false => (sizes.witness_minimum, ByteSize::default()),
    };
    minimum.max(before + sizes.persistent_minimum + data_minimum + ALIGNMENT)
}

/// The partitions of a node before a data partition that is kept. If the configuration gives no size, the persistent partition
/// takes all the room there is.
pub fn arrange_before(
    request: LayoutRequest,
    kept: KeptPlace,
    disk_guid: Uuid,
) -> Result<Vec<Partition>, LayoutError> {
    use PartitionName::{Data, Persistent};
    let LayoutRequest { disk, sizes, sector, .. } = request;
    if disk < sizes.disk_minimum {
        return Err(LayoutError::Disk { needed: sizes.disk_minimum, found: disk });
    }
    let (end, most) = (kept.start + kept.size, disk.saturating_sub(table(sector)));
    if end > most {
        return Err(LayoutError::NoRoomForTable { found: end, most });
    }
    let fixed = fixed(sizes);
    let before = fixed.iter().fold(ALIGNMENT, |sum, (_, size)| sum + *size);
    let needed = before + sizes.persistent_minimum;
    if kept.start < needed {
        return Err(LayoutError::NoRoomBefore { needed, found: kept.start });
    }
    let most = (kept.start - before).align_down(ALIGNMENT.get());
    let persistent = persistent(request, most, most)?;
    let mut all = placed_in_order(fixed.into_iter().chain([(Persistent, persistent)]), disk_guid);
    let number = all.last().map_or(1, |last| last.number + 1);
    all.push(Partition { number, name: Data, uuid: kept.uuid, start: kept.start, size: kept.size });
    Ok(all)
}

/// The partitions whose sizes the profile gives.
fn fixed(sizes: PartitionSizes) -> [(PartitionName, ByteSize); 6] {
    use PartitionName::{Bios, Config, Esp, Recovery, RootA, RootB};
    let slot = sizes.slot;
    [
        (Bios, ByteSize::mib(1)),
        (Esp, sizes.esp),
        (Config, sizes.config),
        (RootA, slot),
        (RootB, slot),
        (Recovery, slot),
    ]
}

/// The size of the persistent partition: as configured, within the bounds, or the default.
fn persistent(request: LayoutRequest, usual: ByteSize, most: ByteSize) -> Result<ByteSize, LayoutError> {
    let least = request.sizes.persistent_minimum;
    match request.persistent.map(|size| size.align_up(ALIGNMENT.get())) {
        Some(wanted) if wanted < least => Err(LayoutError::PersistentTooSmall { wanted, least }),
        Some(wanted) if wanted > most => Err(LayoutError::PersistentTooLarge { wanted, most }),
        wanted => Ok(wanted.unwrap_or(usual)),
    }
}

fn placed_in_order(all: impl Iterator<Item = (PartitionName, ByteSize)>, disk_guid: Uuid) -> Vec<Partition> {
    let mut start = ALIGNMENT;
    let place = |(number, (name, size)): (u32, (PartitionName, ByteSize))| {
        let uuid = name.uuid_in(disk_guid);
        let partition = Partition { number, name, uuid, start, size };
        start = partition.end();
        partition
    };
    (1..).zip(all).map(place).collect()
}

/// The one partition of a disk that holds data alone.
pub fn arrange_data(
    disk: ByteSize,
    sector: SectorSize,
    sizes: PartitionSizes,
    disk_guid: Uuid,
) -> Result<Vec<Partition>, LayoutError> {
    let needed = sizes.data_minimum;
    if disk < needed {
        return Err(LayoutError::Disk { needed, found: disk });
    }
    let name = PartitionName::Data;
    let uuid = name.uuid_in(disk_guid);
    let size = end(disk, sector).saturating_sub(ALIGNMENT);
    Ok(vec![Partition { number: 1, name, uuid, start: ALIGNMENT, size }])
}

/// Where the last partition ends: the table's second copy is at the end of the disk; a remainder shorter than the alignment is
/// unused.
pub fn end(disk: ByteSize, sector: SectorSize) -> ByteSize {
    disk.saturating_sub(table(sector)).align_down(ALIGNMENT.get())
}

/// The least size of a disk whose last partition ends at `end`.
pub fn disk_of(end: ByteSize, sector: SectorSize) -> ByteSize {
    end + table(sector)
}

/// The size of the table's second copy.
fn table(sector: SectorSize) -> ByteSize {
    ByteSize::bytes(TABLE_BYTES + sector.bytes())
}

#[cfg(test)]
mod tests;
