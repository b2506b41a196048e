//! How large a machine has to be, by role and profile.
//!
//! The numbers of a node for virtual machines in production and for a trial are those that the reference product calls production
//! and testing. A node of plain Kubernetes (kubeadm) runs no virtual machines: kubeadm asks for 2 processors and 2 GiB
//! (<https://kubernetes.io/docs/setup/production-environment/tools/kubeadm/install-kubeadm/>). A witness runs etcd and no
//! virtual machines, so it needs what etcd's documentation calls a small cluster
//! (<https://etcd.io/docs/v3.5/op-guide/hardware/>), and a trial of one half of that.

use base::size::ByteSize;
use model::config::sizes::PartitionSizes;
use model::config::{Distribution, Profile, Role};

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

/// What a node runs beside Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    #[default]
    VirtualMachines,
    Containers,
}

impl Workload {
    /// Clusters of kubeadm are for containers; those of the others get the stack for virtual machines.
    #[must_use]
    pub const fn of(distribution: Distribution) -> Self {
        match distribution {
            Distribution::Kubeadm => Self::Containers,
            Distribution::Rke2 | Distribution::K3s => Self::VirtualMachines,
        }
    }
}

impl MachineLimits {
    #[must_use]
    pub const fn of(role: Role, profile: Profile, workload: Workload) -> Self {
        let sizes = PartitionSizes::of(profile);
        let witness = matches!(role, Role::Witness);
        let containers = matches!(workload, Workload::Containers);
        let disk = if witness { sizes.witness_minimum } else { sizes.disk_minimum };
        let (cpus, memory, nic, roomy_disk) = match (profile, witness) {
            (Profile::Production, false) if containers => (2, 4, 1_000, disk),
            (Profile::Trial, _) if containers => (2, 2, 100, disk),
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

#[must_use]
pub fn speed(megabits: u32) -> String {
    match megabits {
        whole if whole >= 1000 && whole.is_multiple_of(1000) => format!("{} Gbit/s", whole / 1000),
        other => format!("{other} Mbit/s"),
    }
}
