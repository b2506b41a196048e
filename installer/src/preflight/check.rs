//! What a check is, what it looks at, and what it has to say.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use super::intent::Intent;
use super::join;
use super::machine::MachineFacts;
use super::network::Network;
use base::failure::Class;
use model::config::{Profile, Role};

/// One named check.
#[derive(Debug)]
pub struct Check {
    /// Stable name, as `install.skip_checks` takes it.
    pub name: &'static str,
    /// What a good machine is like, in a few words.
    pub title: &'static str,
    /// Where the answer comes from.
    pub looks_at: &'static str,
    /// What a finding means.
    pub levels: Levels,
    /// What kind of failure it is where it stops an install.
    pub class: Class,
    /// Whether an install can begin without it. What the plan cannot do without is not a matter of choice.
    pub waivable: bool,
    /// Whether it needs a link and may take seconds.
    pub asks_network: bool,
    /// The check.
    pub run: fn(&CheckSubject<'_>) -> CheckOutcome,
}

/// What a finding means, by profile; a check is off for the roles that it has nothing to say about.
#[derive(Clone, Copy, Debug)]
pub struct Levels {
    /// In production.
    pub production: Severity,
    /// In a trial.
    pub trial: Severity,
    /// The roles that it is off for.
    pub off_for: &'static [Role],
}

/// What a finding means for an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing: the check is not made.
    Off,
    /// It is told, and the install goes on.
    Warning,
    /// It is told, and the install does not begin.
    Error,
}

impl Severity {
    /// The word that people and programs read.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Check {
    /// What a finding means for a node of this role and profile.
    #[must_use]
    pub fn severity(&self, role: Role, profile: Profile) -> Severity {
        match profile {
            _ if self.levels.off_for.contains(&role) => Severity::Off,
            Profile::Production => self.levels.production,
            Profile::Trial => self.levels.trial,
        }
    }
}

/// What a check has to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum CheckOutcome {
    /// The machine is as it should be.
    Passed {
        /// What was seen.
        detail: String,
    },
    /// It is not.
    Found(CheckFinding),
    /// Nobody knows.
    CouldNotRun {
        /// Why not.
        why: String,
    },
    /// Nobody asked.
    Skipped {
        /// Why not.
        why: String,
    },
}

/// Something that should be otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// What was seen, and what should be.
    pub message: String,
    /// What to do about it, a whole sentence.
    pub next: String,
    /// Whether it is a warning at most, whatever the check's severity.
    #[serde(skip)]
    pub mild: bool,
}

impl CheckOutcome {
    pub(super) fn passed(detail: impl Into<String>) -> Self {
        Self::Passed { detail: detail.into() }
    }

    pub(super) fn found(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Found(CheckFinding { message: message.into(), next: next.into(), mild: false })
    }

    pub(super) fn could_not_run(why: impl Into<String>) -> Self {
        Self::CouldNotRun { why: why.into() }
    }

    pub(super) fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped { why: why.into() }
    }

    /// The same, but a finding is a warning at most.
    pub(super) fn mild(self) -> Self {
        match self {
            Self::Found(finding) => Self::Found(CheckFinding { mild: true, ..finding }),
            other => other,
        }
    }
}

/// What a check looks at.
#[allow(missing_debug_implementations)]
pub struct CheckSubject<'a> {
    /// What the machine is like.
    pub facts: &'a MachineFacts,
    /// What it shall become.
    pub intent: &'a Intent,
    /// Servers and neighbours.
    pub network: &'a dyn Network,
    /// What the cluster to join said, once one of the checks has asked.
    pub cluster: &'a OnceLock<join::Seen>,
    /// The machine's clock.
    pub now: SystemTime,
    /// Answers that come later are too late.
    pub until: Instant,
}

/// The word of configurations.
pub(super) fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Production => "production",
        Profile::Trial => "trial",
    }
}
