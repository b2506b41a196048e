//! How large a machine has to be, by role and profile.
//!
//! The production and trial numbers are those that the reference product calls production and testing. A witness runs etcd and no
//! virtual machines, so it needs what etcd's documentation calls a small cluster
//! (<https://etcd.io/docs/v3.5/op-guide/hardware/>), and a trial of one half of that.

use base::size::ByteSize;
use model::config::sizes::PartitionSizes;
use model::config::{Profile, Role};

/// The least that a machine should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineLimits {
    pub cpus: u32,
    pub memory: ByteSize,
    /// Speed of a management card in megabits per second.
    pub nic: u32,
    /// The smallest disk that the layout fits on.
    pub disk: ByteSize,
    /// The smallest disk with room to work in.
    pub roomy_disk: ByteSize,
}

impl MachineLimits {
    #[must_use]
    pub const fn of(role: Role, profile: Profile) -> Self {
        let sizes = PartitionSizes::of(profile);
        let witness = matches!(role, Role::Witness);
        let disk = if witness { sizes.witness_minimum } else { sizes.disk_minimum };
        let (cpus, memory, nic, roomy_disk) = match (profile, witness) {
            // Disks are sold in powers of ten.
            (Profile::Production, false) => (16, 64, 10_000, ByteSize::bytes(500_000_000_000)),
            (Profile::Production, true) => (4, 8, 1_000, disk),
            (Profile::Trial, false) => (8, 32, 1_000, disk),
            (Profile::Trial, true) => (2, 4, 1_000, disk),
        };
        Self { cpus, memory: ByteSize::gib(memory), nic, disk, roomy_disk }
    }

    /// The limits for the system's disk if data has a disk of its own.
    #[must_use]
    pub const fn without_data(self, profile: Profile) -> Self {
        let disk = PartitionSizes::of(profile).witness_minimum;
        Self { disk, roomy_disk: disk, ..self }
    }
}

/// A speed as people say it.
#[must_use]
pub fn speed(megabits: u32) -> String {
    match megabits {
        whole if whole >= 1000 && whole.is_multiple_of(1000) => format!("{} Gbit/s", whole / 1000),
        other => format!("{other} Mbit/s"),
    }
}
