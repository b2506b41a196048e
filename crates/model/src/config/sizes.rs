//! How large the partitions of a node are, and the smallest disks.

use super::Profile;
use base::size::ByteSize;

/// How large each partition is, by profile.
#[derive(Clone, Copy, Debug)]
pub struct PartitionSizes {
    pub esp: ByteSize,
    pub config: ByteSize,
    /// Each slot, recovery included.
    pub slot: ByteSize,
    /// Persistent partition where data shares the disk.
    pub persistent: ByteSize,
    /// The smallest persistent partition.
    pub persistent_minimum: ByteSize,
    /// The smallest data partition.
    pub data_minimum: ByteSize,
    /// The smallest disk with data on it.
    pub disk_minimum: ByteSize,
    /// The smallest disk without data on it: that of a witness, or with data on a disk of its own.
    pub witness_minimum: ByteSize,
}

impl PartitionSizes {
    #[must_use]
    pub const fn of(profile: Profile) -> Self {
        match profile {
            Profile::Production => Self {
                esp: ByteSize::gib(1),
                config: ByteSize::mib(256),
                slot: ByteSize::gib(6),
                persistent: ByteSize::gib(150),
                persistent_minimum: ByteSize::gib(150),
                data_minimum: ByteSize::gib(50),
                disk_minimum: ByteSize::gib(250),
                witness_minimum: ByteSize::gib(180),
            },
            Profile::Trial => Self {
                esp: ByteSize::mib(512),
                config: ByteSize::mib(64),
                // Three of them leave room for the other partitions on a disk of 10 GiB.
                slot: ByteSize::mib(2176),
                persistent: ByteSize::gib(6),
                persistent_minimum: ByteSize::gib(2),
                data_minimum: ByteSize::gib(1),
                disk_minimum: ByteSize::gib(10),
                witness_minimum: ByteSize::gib(9),
            },
        }
    }
}
