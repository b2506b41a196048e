//! A check, its subject, and its outcome.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use serde::Serialize;

use super::limits::MachineLimits;
use super::machine_facts::MachineFacts;
use super::network::Network;
use super::planned_node::PlannedNode;
use base::failure::Class;
use cluster::join_query;
use model::config::{Profile, Role};

#[derive(Debug)]
pub struct Check {
    /// Stable name, as `install.skip_checks` takes it.
    pub name: &'static str,
    /// The condition that a good machine meets, in a few words.
    pub title: &'static str,
    /// The source of the answer.
    pub looks_at: &'static str,
    pub levels: SeverityLevels,
    pub class: Class,
    /// Whether an install can begin without it. What the plan itself needs cannot be skipped.
    pub waivable: bool,
    pub asks_network: bool,
    pub run: fn(&CheckSubject<'_>) -> CheckOutcome,
}

/// The severity of a finding by profile; a check is off for the roles that it does not apply to.
#[derive(Clone, Copy, Debug)]
pub struct SeverityLevels {
    pub production: Severity,
    pub trial: Severity,
    /// The roles that it is off for.
    pub off_for: &'static [Role],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Off,
    Warning,
    Error,
}

impl Severity {
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
    /// The severity of a finding for a node of this role and profile.
    #[must_use]
    pub fn severity(&self, role: Role, profile: Profile) -> Severity {
        match profile {
            _ if self.levels.off_for.contains(&role) => Severity::Off,
            Profile::Production => self.levels.production,
            Profile::Trial => self.levels.trial,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum CheckOutcome {
    Passed { detail: String },
    Found(CheckFinding),
    CouldNotRun { why: String },
    Skipped { why: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// What was found, and what is needed.
    pub message: String,
    /// What to do about it, a whole sentence.
    pub next: String,
    /// Whether it is a warning at most, whatever the check's severity.
    #[serde(skip)]
    pub mild: bool,
    /// Whether it ends by itself, when the cluster to join is up.
    #[serde(skip)]
    pub awaited: bool,
}

impl CheckOutcome {
    pub(super) fn passed(detail: impl Into<String>) -> Self {
        Self::Passed { detail: detail.into() }
    }

    pub(super) fn found(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Found(CheckFinding { message: message.into(), next: next.into(), mild: false, awaited: false })
    }

    pub(super) fn could_not_run(why: impl Into<String>) -> Self {
        Self::CouldNotRun { why: why.into() }
    }

    pub(super) fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped { why: why.into() }
    }

    /// The same outcome with a finding that ends by itself, when the cluster to join is up.
    pub(super) fn awaited(self) -> Self {
        match self {
            Self::Found(finding) => Self::Found(CheckFinding { awaited: true, ..finding }),
            other => other,
        }
    }

    /// The same outcome with a finding that is a warning at most.
    pub(super) fn mild(self) -> Self {
        match self {
            Self::Found(finding) => Self::Found(CheckFinding { mild: true, ..finding }),
            other => other,
        }
    }
}

#[allow(missing_debug_implementations)]
pub struct CheckSubject<'a> {
    pub facts: &'a MachineFacts,
    pub node: &'a PlannedNode,
    pub network: &'a dyn Network,
    /// The answers of the cluster to join, once one of the checks has asked.
    pub cluster: &'a OnceLock<join_query::ClusterAnswers>,
    pub now: SystemTime,
    /// When the checks have to end.
    pub until: Instant,
}

impl CheckSubject<'_> {
    pub(super) fn limits(&self) -> MachineLimits {
        MachineLimits::of(self.node.role, self.node.profile, self.node.workload)
    }
}

pub(super) fn profile_name(profile: Profile) -> &'static str {
    match profile {
        Profile::Production => "production",
        Profile::Trial => "trial",
    }
}
