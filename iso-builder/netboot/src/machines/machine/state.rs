//! States of machines' deployments, and the events that change them. Pure functions of values;
//! [`crate::machines::registry`] applies them to the records in [`crate::machines::store`].
//!
//! There is one record for each configuration that names a machine: that of its assignment, whichever client asks for it and
//! by whichever identifier. A machine that no configuration names has a record of its own.
//!
//! ```text
//! Waiting ── is offered ──▶ Booting ── is taken ──▶ Installing ── reports its end ──▶ Installed
//!                           ▲  ▲                       │                                 │
//!                           │  └──── Failed ◀──────────┘      reports that it is ready ──┤
//!                           └─────── Redeploy ◀── an operator asks ── any state          ▼
//!                                                                                      Joined
//! ```
//!
//! An install that joins a cluster may have to wait for it, and has written nothing then: while it is `WaitingForCluster`,
//! which it enters from `Installing` and leaves to it, a machine that boots gets its installer again. It does not leave the
//! state by that. The installs that it begins so are one deployment, so that the node of one of them is not erased by the next
//! even where no report came through.
//!
//! A configuration that was taken is not handed out again until an operator asks for a redeployment: whether the install
//! was completed or the machine lost power, nothing is erased twice without a decision. An install that *reported* a failure
//! is retried when the machine boots again, for a failed machine restarts only by hand. Whether an operator has denied a
//! machine, or allowed it though no configuration names it, is kept beside the state, so that neither loses what was done.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeploymentState {
    /// It was not told to install.
    #[default]
    Waiting,
    /// It was told to boot the installer, and has not taken its configuration.
    Booting,
    /// It has taken its configuration.
    Installing,
    /// It has taken its configuration, and waits for the cluster that it joins before it writes anything.
    WaitingForCluster,
    /// It has reported that it is installed.
    Installed,
    /// It has reported that it is ready in its cluster.
    Joined,
    /// It has reported that its install failed.
    Failed,
    /// An operator wants it installed again when it boots next.
    Redeploy,
}

/// An operator's decision about a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstallPermission {
    /// No decision: it may install if a configuration names it.
    #[default]
    Unsaid,
    /// It may also install with the fallback.
    Allowed,
    Denied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationFit {
    /// One that names it.
    Own,
    /// The fallback, with which machines install that an operator has allowed.
    Fallback,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootAnswer {
    Install,
    Disk(DiskBootReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBootReason {
    /// No configuration names it, and no operator has allowed it.
    Unknown,
    /// It did not send all identifiers of the machine that was allowed.
    Incomplete,
    Denied,
    /// The configuration was taken, and the end of the install was not reported.
    Started,
    Installed,
    /// The identifiers that it sent belong to more than one machine or configuration.
    Conflict,
    /// The server had an internal error.
    Trouble,
}

base::names!(DiskBootReason {
    Unknown = "unknown",
    Incomplete = "incomplete",
    Denied = "denied",
    Started = "started",
    Installed = "installed",
    Conflict = "conflict",
    Trouble = "trouble",
});

impl fmt::Display for DiskBootReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no configuration names this machine",
            Self::Incomplete => "it reports less about itself than the machine that was allowed",
            Self::Denied => "this machine is denied",
            Self::Started => "its install was started before; redeploy it to install again",
            Self::Installed => "it is installed; redeploy it to install again",
            Self::Conflict => "its identifiers belong to more than one machine; the fleet page names them",
            Self::Trouble => "the server has an internal error, which is in its log",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentEvent {
    /// It was told to boot the installer.
    Booted,
    /// Its configuration was taken.
    Took,
    /// It reported that it waits for its cluster.
    Waits,
    /// It reported that it waits no longer.
    Proceeds,
    /// It reported that it is installed.
    Finished,
    /// It reported that it is ready in its cluster.
    Joined,
    /// It reported that the install failed.
    Failed,
    /// An operator asked for another install.
    Redeploy,
}

impl DeploymentState {
    /// An event that does not fit changes nothing: reports arrive late, twice and out of order.
    #[must_use]
    pub fn after(self, event: DeploymentEvent) -> Self {
        match (self, event) {
            (_, DeploymentEvent::Redeploy) => Self::Redeploy,
            (
                Self::Installing | Self::WaitingForCluster | Self::Installed | Self::Joined,
                DeploymentEvent::Booted,
            ) => self,
            (_, DeploymentEvent::Booted) => Self::Booting,
            (
                Self::Waiting | Self::Booting | Self::WaitingForCluster | Self::Failed | Self::Redeploy,
                DeploymentEvent::Took,
            )
            | (Self::WaitingForCluster, DeploymentEvent::Proceeds) => Self::Installing,
            (Self::Installing, DeploymentEvent::Waits) => Self::WaitingForCluster,
            (
                Self::Booting | Self::Installing | Self::WaitingForCluster | Self::Failed,
                DeploymentEvent::Finished,
            ) => Self::Installed,
            (
                Self::Booting | Self::Installing | Self::WaitingForCluster | Self::Failed | Self::Installed,
                DeploymentEvent::Joined,
            ) => Self::Joined,
            (Self::Booting | Self::Installing | Self::WaitingForCluster, DeploymentEvent::Failed) => {
                Self::Failed
            }
            (
                _,
                DeploymentEvent::Took
                | DeploymentEvent::Waits
                | DeploymentEvent::Proceeds
                | DeploymentEvent::Finished
                | DeploymentEvent::Joined
                | DeploymentEvent::Failed,
            ) => self,
        }
    }

    /// True if the configuration was taken, and is not handed out again.
    #[must_use]
    pub fn is_taken(self) -> bool {
        matches!(self, Self::Installing | Self::Installed | Self::Joined)
    }

    #[must_use]
    pub fn answer(self, permission: InstallPermission, fit: ConfigurationFit) -> BootAnswer {
        match (permission, fit, self) {
            (InstallPermission::Denied, ..) => BootAnswer::Disk(DiskBootReason::Denied),
            (_, _, Self::Installing) => BootAnswer::Disk(DiskBootReason::Started),
            (_, _, Self::Installed | Self::Joined) => BootAnswer::Disk(DiskBootReason::Installed),
            (_, ConfigurationFit::Nothing, _)
            | (InstallPermission::Unsaid, ConfigurationFit::Fallback, _) => {
                BootAnswer::Disk(DiskBootReason::Unknown)
            }
            (
                _,
                _,
                Self::Waiting | Self::Booting | Self::WaitingForCluster | Self::Failed | Self::Redeploy,
            ) => BootAnswer::Install,
        }
    }
}
