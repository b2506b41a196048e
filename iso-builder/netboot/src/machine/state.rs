//! Machines and the assignment of configurations to them: states, and what may happen to them. Pure functions of values;
//! [`crate::machine_registry`] applies them to what [`crate::machine_store`] keeps.
//!
//! There is one record for each configuration that names a machine: the record of its assignment, whoever asks for it and
//! by whichever mark. A machine that no configuration names has a record of its own.
//!
//! ```text
//! Waiting ── is offered ──▶ Booting ── is taken ──▶ Installing ── reports its end ──▶ Installed
//!                           ▲  ▲                       │                                 │
//!                           │  └──── Failed ◀──────────┘      reports that it is ready ──┤
//!                           └─────── Redeploy ◀── an operator asks ── any state          ▼
//!                                                                                      Joined
//! ```
//!
//! A configuration that was taken is given to nobody until an operator asks for a redeployment: whether the install came to
//! its end or the machine lost power, nothing is erased twice without a decision. An install that *reported* a failure may
//! be tried again by starting the machine again, for it restarts only by hand. Whether a machine is denied, or allowed
//! though no configuration names it, is kept beside the state, so that neither loses what has been done.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How far a deployment of a machine has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeploymentState {
    /// Nothing was given to it yet.
    #[default]
    Waiting,
    /// It was told to boot the installer, and has not asked for its configuration yet.
    Booting,
    /// It has its configuration.
    Installing,
    /// It has reported that it is installed.
    Installed,
    /// It has reported that it is ready in its cluster.
    Joined,
    /// It has reported that its install failed.
    Failed,
    /// An operator wants it installed again when it boots next.
    Redeploy,
}

/// What an operator has said about a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstallPermission {
    /// Nothing: it may install where a configuration names it.
    #[default]
    Unsaid,
    /// It may install with the fallback too.
    Allowed,
    /// It may not install.
    Denied,
}

/// Which configuration there is for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationFit {
    /// One that names it.
    Own,
    /// The fallback, which is for machines that an operator allows.
    Fallback,
    /// None.
    Nothing,
}

/// What a machine boots when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootAnswer {
    /// The installer.
    Install,
    /// Its own disk, and why.
    Disk(DiskBootReason),
}

/// Why a machine boots from its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBootReason {
    /// No configuration names it and nobody has allowed it.
    Unknown,
    /// It was allowed, and does not tell all marks of the machine that was.
    Incomplete,
    /// It is denied.
    Denied,
    /// The configuration was taken, and no end was reported.
    Started,
    /// It is installed.
    Installed,
    /// What it tells belongs to more than one machine or configuration.
    Conflict,
    /// The server has trouble.
    Trouble,
}

impl fmt::Display for DiskBootReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no configuration is for this machine",
            Self::Incomplete => "it reports less about itself than the machine that was allowed",
            Self::Denied => "this machine is denied",
            Self::Started => "its install was begun already; redeploy it to install again",
            Self::Installed => "it is installed; redeploy it to install again",
            Self::Conflict => "its marks belong to more than one machine; the page of the fleet names them",
            Self::Trouble => "the server has trouble, which its log tells",
        })
    }
}

/// What happens to a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentEvent {
    /// It was told to boot the installer.
    Booted,
    /// Its configuration was taken.
    Took,
    /// It reported that it is installed.
    Finished,
    /// It reported that it is ready in its cluster.
    Joined,
    /// It reported that the install failed.
    Failed,
    /// An operator wants it installed again.
    Redeploy,
}

impl DeploymentState {
    /// The state after `event`. What does not fit changes nothing: reports come late, twice and out of order.
    #[must_use]
    pub fn after(self, event: DeploymentEvent) -> Self {
        match (self, event) {
            (_, DeploymentEvent::Redeploy) => Self::Redeploy,
            (Self::Installing | Self::Installed | Self::Joined, DeploymentEvent::Booted) => self,
            (_, DeploymentEvent::Booted) => Self::Booting,
            (Self::Waiting | Self::Booting | Self::Failed | Self::Redeploy, DeploymentEvent::Took) => {
                Self::Installing
            }
            (Self::Booting | Self::Installing | Self::Failed, DeploymentEvent::Finished) => Self::Installed,
            (Self::Booting | Self::Installing | Self::Failed | Self::Installed, DeploymentEvent::Joined) => {
                Self::Joined
            }
            (Self::Booting | Self::Installing, DeploymentEvent::Failed) => Self::Failed,
            (
                _,
                DeploymentEvent::Took
                | DeploymentEvent::Finished
                | DeploymentEvent::Joined
                | DeploymentEvent::Failed,
            ) => self,
        }
    }

    /// Whether its configuration was taken, and is given to nobody.
    #[must_use]
    pub fn is_taken(self) -> bool {
        matches!(self, Self::Installing | Self::Installed | Self::Joined)
    }

    /// What a machine in this state boots.
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
            (_, _, Self::Waiting | Self::Booting | Self::Failed | Self::Redeploy) => BootAnswer::Install,
        }
    }
}
