//! The stage of a machine's deployment, in operators' terms, from the steps that its installer reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machines::machine::{DeploymentState, InstallPermission};

/// The stage of a machine's deployment, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MachineStage {
    /// It asked to boot, and neither a configuration nor an operator lets it install.
    Unknown,
    Denied,
    /// It may install when it boots next.
    Waiting,
    Booting,
    /// The installer runs: network, configuration.
    Preparing,
    /// The machine and the medium are checked.
    Preflight,
    /// The machine waits until the cluster that it joins is up. Nothing is written yet.
    WaitingForCluster,
    Disks,
    /// The OS image is written and read back.
    Writing,
    /// Container images are written.
    Seeding,
    /// The disk is made bootable.
    Finishing,
    /// The install is complete, and the machine restarts.
    Rebooting,
    Joining,
    Installed,
    /// The node is ready in its cluster.
    Joined,
    Failed,
    /// The node cannot join its cluster without help.
    NotJoined,
    /// The node runs the release before, because its last update was not good.
    UpdateRolledBack,
}

/// The groups in which machines are counted and listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StageGroup {
    /// An operator has to look at it.
    Failed,
    Installing,
    /// It installs when it boots.
    Waiting,
    /// An operator has to decide whether it may install.
    Unknown,
    Installed,
    /// It boots from its disk.
    Denied,
}

/// The stages that the page shows as the way of an install, in order.
pub const WAY: [MachineStage; 7] = [
    MachineStage::Booting,
    MachineStage::Preflight,
    MachineStage::Writing,
    MachineStage::Seeding,
    MachineStage::Finishing,
    MachineStage::Rebooting,
    MachineStage::Joining,
];

// The names are those in JSON and in the documentation.
base::names!(MachineStage {
    Unknown = "unknown",
    Denied = "denied",
    Waiting = "waiting",
    Booting = "booting",
    Preparing = "preparing",
    Preflight = "preflight",
    WaitingForCluster = "waiting-for-cluster",
    Disks = "disks",
    Writing = "writing",
    Seeding = "seeding",
    Finishing = "finishing",
    Rebooting = "rebooting",
    Joining = "joining",
    Installed = "installed",
    Joined = "joined",
    Failed = "failed",
    NotJoined = "not-joined",
    UpdateRolledBack = "update-rolled-back",
});

impl MachineStage {
    /// The stage that begins with the step `id`; none for a step that can be part of any stage.
    #[must_use]
    pub fn of_step(id: &str) -> Option<Self> {
        Some(match id {
            "configuration" | "network" => Self::Preparing,
            "preflight" | "verify-medium" => Self::Preflight,
            "cluster-wait" => Self::WaitingForCluster,
            "wipe-disks" | "wipe" | "partition" | "data-disk" | "esp" | "mirror" => Self::Disks,
            "image-check" | "image" | "read-back" => Self::Writing,
            "images" | "unpack" => Self::Seeding,
            "node" | "boot-code" | "prove" | "commit" => Self::Finishing,
            _ => return None,
        })
    }

    /// The stage of a machine that has reported nothing.
    #[must_use]
    pub fn of_state(state: DeploymentState, permission: InstallPermission, may_install: bool) -> Self {
        match (state, permission) {
            (DeploymentState::Installed, _) => Self::Installed,
            (DeploymentState::Joined, _) => Self::Joined,
            (DeploymentState::Failed, _) => Self::Failed,
            (DeploymentState::Installing, _) => Self::Preparing,
            (DeploymentState::WaitingForCluster, _) => Self::WaitingForCluster,
            (_, InstallPermission::Denied) => Self::Denied,
            (DeploymentState::Booting, _) => Self::Booting,
            (DeploymentState::Redeploy, _) => Self::Waiting,
            (DeploymentState::Waiting, _) if may_install => Self::Waiting,
            (DeploymentState::Waiting, _) => Self::Unknown,
        }
    }

    /// True if an install may have begun to write.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(
            self,
            Self::Disks | Self::Writing | Self::Seeding | Self::Finishing | Self::Rebooting | Self::Joining
        )
    }

    #[must_use]
    pub fn group(self) -> StageGroup {
        match self {
            Self::Unknown => StageGroup::Unknown,
            Self::Denied => StageGroup::Denied,
            Self::Waiting => StageGroup::Waiting,
            Self::Failed | Self::NotJoined | Self::UpdateRolledBack => StageGroup::Failed,
            Self::Installed | Self::Joined => StageGroup::Installed,
            _ => StageGroup::Installing,
        }
    }

    #[must_use]
    pub fn way(self) -> Option<usize> {
        Some(match self {
            Self::Booting | Self::Preparing => 0,
            Self::Preflight | Self::WaitingForCluster => 1,
            Self::Disks | Self::Writing => 2,
            Self::Seeding => 3,
            Self::Finishing => 4,
            Self::Rebooting => 5,
            Self::Joining | Self::NotJoined => 6,
            _ => return None,
        })
    }

    /// The name as the page shows it: "Waiting for cluster".
    #[must_use]
    pub fn text(self) -> String {
        let words = self.name().replace('-', " ");
        let (first, rest) = words.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    }
}

// In the order of the page; each stands after a number: "3 installing".
base::names!(StageGroup {
    Failed = "failed",
    Installing = "installing",
    Unknown = "unknown",
    Waiting = "waiting",
    Installed = "installed",
    Denied = "denied",
});

impl StageGroup {
    /// Its place in [`StageGroup::ALL`], the order of the page.
    #[must_use]
    pub fn place(self) -> usize {
        Self::ALL.iter().position(|known| *known == self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_an_install_has_a_stage_and_stages_only_go_forward() {
        let steps = [
            "network",
            "preflight",
            "verify-medium",
            "wipe-disks",
            "wipe",
            "partition",
            "data-disk",
            "esp",
            "image-check",
            "image",
            "read-back",
            "images",
            "unpack",
            "node",
            "boot-code",
            "prove",
            "commit",
        ];
        let stages: Vec<_> = steps.map(|step| MachineStage::of_step(step).unwrap()).into();
        assert!(stages.is_sorted(), "{stages:?}");
        // Steps beside the install do not change the stage.
        assert_eq!(["webhook", "report", "run", "filesystems"].map(MachineStage::of_step), [None; 4]);
    }

    #[test]
    fn a_machine_that_tells_nothing_is_where_its_state_says() {
        let stage = |state, permission| MachineStage::of_state(state, permission, false).text();
        for (state, permission, text) in [
            (DeploymentState::Waiting, InstallPermission::Unsaid, "Unknown"),
            (DeploymentState::Waiting, InstallPermission::Denied, "Denied"),
            (DeploymentState::Redeploy, InstallPermission::Denied, "Denied"),
            (DeploymentState::Redeploy, InstallPermission::Unsaid, "Waiting"),
            (DeploymentState::Booting, InstallPermission::Allowed, "Booting"),
            (DeploymentState::Installing, InstallPermission::Denied, "Preparing"),
            (DeploymentState::WaitingForCluster, InstallPermission::Unsaid, "Waiting for cluster"),
            (DeploymentState::Installed, InstallPermission::Denied, "Installed"),
            (DeploymentState::Joined, InstallPermission::Unsaid, "Joined"),
            (DeploymentState::Failed, InstallPermission::Unsaid, "Failed"),
        ] {
            assert_eq!(stage(state, permission), text);
        }
        assert_eq!(
            MachineStage::of_state(DeploymentState::Waiting, InstallPermission::Allowed, true),
            MachineStage::Waiting
        );
    }

    #[test]
    fn the_documentation_has_every_stage_and_group_by_its_word() {
        let page = include_str!("../../../../docs/how-to/fleet.md");
        for stage in MachineStage::ALL {
            assert!(page.contains(&format!("| `{}` |", stage.name())), "the stage {}", stage.name());
        }
        for group in StageGroup::ALL {
            assert!(page.contains(&format!("| {} |", group.name())), "the group {}", group.name());
        }
    }
}
