//! Where a machine is on its way, as people say it, out of the steps that its installer tells.

use serde::Serialize;

use crate::serve::machines::{Permission, State};

/// Where a machine is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It asked to boot, and nothing says that it may install.
    Unknown,
    /// Somebody has denied it.
    Denied,
    /// It may install when it boots next.
    Waiting,
    /// The installer is starting.
    Booting,
    /// The installer runs: network, configuration.
    Preparing,
    /// The machine is checked, then the medium.
    Preflight,
    /// Disks get their tables and file systems.
    Disks,
    /// The system is written and read back.
    Writing,
    /// Container images go to the disk.
    Seeding,
    /// What makes the disk bootable.
    Finishing,
    /// The install has come to its end, and the machine restarts.
    Rebooting,
    /// The node is on its way into its cluster.
    Joining,
    /// It is installed.
    Installed,
    /// The node is ready in its cluster.
    Joined,
    /// The install failed.
    Failed,
    /// The node does not come into its cluster unless somebody does something.
    NotJoined,
}

/// What machines are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// Somebody has to look.
    Failed,
    /// On its way.
    Installing,
    /// Will install when it boots.
    Waiting,
    /// Somebody has to say whether it may install.
    Unknown,
    /// Done.
    Installed,
    /// Boots from its disk, whatever it is.
    Denied,
}

/// The stages of an install that the page shows as a way, in their order.
pub const WAY: [Stage; 7] = [
    Stage::Booting,
    Stage::Preflight,
    Stage::Writing,
    Stage::Seeding,
    Stage::Finishing,
    Stage::Rebooting,
    Stage::Joining,
];

impl Stage {
    /// The stage that begins with the step `id` of an install; none where a step belongs to whatever stage it is in.
    #[must_use]
    pub fn of_step(id: &str) -> Option<Self> {
        Some(match id {
            "configuration" | "network" => Self::Preparing,
            "preflight" | "verify-medium" => Self::Preflight,
            "wipe-disks" | "wipe" | "partition" | "data-disk" | "esp" | "mirror" => Self::Disks,
            "image-check" | "image" | "read-back" => Self::Writing,
            "images" | "unpack" => Self::Seeding,
            "node" | "boot-code" | "prove" | "commit" => Self::Finishing,
            _ => return None,
        })
    }

    /// The stage of a machine of which nothing but its state is known.
    #[must_use]
    pub fn of_state(state: State, permission: Permission, may_install: bool) -> Self {
        match (state, permission) {
            (State::Installed, _) => Self::Installed,
            (State::Joined, _) => Self::Joined,
            (State::Failed, _) => Self::Failed,
            (State::Installing, _) => Self::Preparing,
            (_, Permission::Denied) => Self::Denied,
            (State::Booting, _) => Self::Booting,
            (State::Redeploy, _) => Self::Waiting,
            (State::Waiting, _) if may_install => Self::Waiting,
            (State::Waiting, _) => Self::Unknown,
        }
    }

    /// What it counts as.
    #[must_use]
    pub fn group(self) -> Group {
        match self {
            Self::Unknown => Group::Unknown,
            Self::Denied => Group::Denied,
            Self::Waiting => Group::Waiting,
            Self::Failed | Self::NotJoined => Group::Failed,
            Self::Installed | Self::Joined => Group::Installed,
            _ => Group::Installing,
        }
    }

    /// How far along [`WAY`] it is.
    #[must_use]
    pub fn way(self) -> Option<usize> {
        Some(match self {
            Self::Booting | Self::Preparing => 0,
            Self::Preflight => 1,
            Self::Disks | Self::Writing => 2,
            Self::Seeding => 3,
            Self::Finishing => 4,
            Self::Rebooting => 5,
            Self::Joining | Self::NotJoined => 6,
            _ => return None,
        })
    }

    /// In a word or two.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown machine",
            Self::Denied => "Denied",
            Self::Waiting => "Waiting to boot",
            Self::Booting => "Booting",
            Self::Preparing => "Starting",
            Self::Preflight => "Preflight",
            Self::Disks => "Preparing disks",
            Self::Writing => "Writing",
            Self::Seeding => "Seeding images",
            Self::Finishing => "Finishing",
            Self::Rebooting => "Rebooting",
            Self::Joining => "Joining",
            Self::Installed => "Installed",
            Self::Joined => "Joined",
            Self::Failed => "Failed",
            Self::NotJoined => "Not joined",
        }
    }
}

impl Group {
    /// All, in the order in which they want to be seen.
    pub const ALL: [Self; 6] =
        [Self::Failed, Self::Installing, Self::Unknown, Self::Waiting, Self::Installed, Self::Denied];

    /// As a count says it: "3 installing".
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Installing => "installing",
            Self::Waiting => "waiting",
            Self::Unknown => "unknown",
            Self::Installed => "installed",
            Self::Denied => "denied",
        }
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
        let stages: Vec<_> = steps.map(|step| Stage::of_step(step).unwrap()).into();
        assert!(stages.is_sorted(), "{stages:?}");
        // Notes of others do not move a machine.
        assert_eq!(["webhook", "report", "run", "filesystems"].map(Stage::of_step), [None; 4]);
    }

    #[test]
    fn a_machine_that_tells_nothing_is_where_its_state_says() {
        let stage = |state, permission| Stage::of_state(state, permission, false).text();
        for (state, permission, text) in [
            (State::Waiting, Permission::Unsaid, "Unknown machine"),
            (State::Waiting, Permission::Denied, "Denied"),
            (State::Redeploy, Permission::Denied, "Denied"),
            (State::Redeploy, Permission::Unsaid, "Waiting to boot"),
            (State::Booting, Permission::Allowed, "Booting"),
            (State::Installing, Permission::Denied, "Starting"),
            (State::Installed, Permission::Denied, "Installed"),
            (State::Joined, Permission::Unsaid, "Joined"),
            (State::Failed, Permission::Unsaid, "Failed"),
        ] {
            assert_eq!(stage(state, permission), text);
        }
        assert_eq!(Stage::of_state(State::Waiting, Permission::Allowed, true), Stage::Waiting);
    }
}
