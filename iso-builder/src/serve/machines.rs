//! Machines and the assignment of configurations to them: states, and what may happen to them. Pure functions of values;
//! [`super::registry`] applies them to what [`super::store`] keeps.
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
use uuid::Uuid;

mod record;

pub use record::{Client, MOST_CLIENTS, Machine, Taken, described};

/// A moment in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Now, by the clock of this machine.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since.map_or(0, |since| since.as_secs()))
    }

    /// The moment `seconds` later.
    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

/// RFC 3339.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0).ok();
        match seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
            Some(moment) => write!(f, "{moment}"),
            None => write!(f, "@{}", self.0),
        }
    }
}

/// What a machine is called here: chosen when it is first seen, the same as long as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MachineId(Uuid);

impl MachineId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The one that has this UUID.
    #[must_use]
    pub const fn of(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// Its UUID.
    #[must_use]
    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl std::str::FromStr for MachineId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// How far a deployment of a machine has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
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
pub enum Permission {
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
pub enum Fit {
    /// One that names it.
    Own,
    /// The fallback, which is for machines that an operator allows.
    Fallback,
    /// None.
    Nothing,
}

/// What a machine boots when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The installer.
    Install,
    /// Its own disk, and why.
    Disk(Why),
}

/// Why a machine boots from its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
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

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no configuration is for this machine",
            Self::Incomplete => "it tells less of itself than the machine that was allowed",
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
pub enum Event {
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

impl State {
    /// The state after `event`. What does not fit changes nothing: reports come late, twice and out of order.
    #[must_use]
    pub fn after(self, event: Event) -> Self {
        match (self, event) {
            (_, Event::Redeploy) => Self::Redeploy,
            (Self::Installing | Self::Installed | Self::Joined, Event::Booted) => self,
            (_, Event::Booted) => Self::Booting,
            (Self::Waiting | Self::Booting | Self::Failed | Self::Redeploy, Event::Took) => Self::Installing,
            (Self::Booting | Self::Installing | Self::Failed, Event::Finished) => Self::Installed,
            (Self::Booting | Self::Installing | Self::Failed | Self::Installed, Event::Joined) => {
                Self::Joined
            }
            (Self::Booting | Self::Installing, Event::Failed) => Self::Failed,
            (_, Event::Took | Event::Finished | Event::Joined | Event::Failed) => self,
        }
    }

    /// Whether its configuration was taken, and is given to nobody.
    #[must_use]
    pub fn is_taken(self) -> bool {
        matches!(self, Self::Installing | Self::Installed | Self::Joined)
    }

    /// What a machine in this state boots.
    #[must_use]
    pub fn answer(self, permission: Permission, fit: Fit) -> Answer {
        match (permission, fit, self) {
            (Permission::Denied, ..) => Answer::Disk(Why::Denied),
            (_, _, Self::Installing) => Answer::Disk(Why::Started),
            (_, _, Self::Installed | Self::Joined) => Answer::Disk(Why::Installed),
            (_, Fit::Nothing, _) | (Permission::Unsaid, Fit::Fallback, _) => Answer::Disk(Why::Unknown),
            (_, _, Self::Waiting | Self::Booting | Self::Failed | Self::Redeploy) => Answer::Install,
        }
    }
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This server has not made it, or knows nothing more of its machine.
    Unknown,
    /// The configuration was taken, the token's time is over, or an operator has intervened since.
    Gone,
}

#[cfg(test)]
mod tests;
