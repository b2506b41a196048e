//! The owners of the bytes of an image.

use std::fmt;

/// One of the two volumes that an ISO shows: a stick has both, an optical disc the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HybridVolume {
    Device,
    /// Partition 1.
    Partition,
}

/// The part of an ISO to which some bytes belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionOwner {
    /// The ISO as a whole.
    Image,
    /// The first sector: boot code for BIOS and the protective partition table.
    BootSector,
    /// The GUID partition table behind it.
    PartitionTable,
    /// The copy of that at the end.
    BackupTable,
    /// Primary volume descriptor, El Torito's, terminator.
    Descriptors(HybridVolume),
    /// El Torito's boot catalog.
    BootCatalog,
    /// The record that names the extension which long names are in.
    RockRidge,
    PathTable(HybridVolume),
    /// The directory with this path; empty for the root.
    Directory(HybridVolume, String),
    File(String),
    /// The image of the EFI system partition.
    Esp,
    /// Zeros after the bytes of this owner.
    Padding(Box<RegionOwner>),
}

impl fmt::Display for HybridVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "",
            Self::Partition => " of partition 1",
        })
    }
}

impl fmt::Display for RegionOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image => f.write_str("the ISO"),
            Self::BootSector => f.write_str("boot sector"),
            Self::PartitionTable => f.write_str("GUID partition table"),
            Self::BackupTable => f.write_str("backup of the GUID partition table"),
            Self::Descriptors(volume) => write!(f, "volume descriptors{volume}"),
            Self::BootCatalog => f.write_str("El Torito boot catalog"),
            Self::RockRidge => f.write_str("Rock Ridge extension record"),
            Self::PathTable(volume) => write!(f, "path tables{volume}"),
            Self::Directory(volume, path) => write!(f, "directory /{path}{volume}"),
            Self::File(path) => f.write_str(path),
            Self::Esp => f.write_str("EFI system partition"),
            Self::Padding(owner) => write!(f, "padding after {owner}"),
        }
    }
}
