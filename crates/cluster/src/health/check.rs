//! The registry of health checks, and their results.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckClass {
    /// A boot is not good without it.
    Required,
    /// The node is degraded without it.
    Wanted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckGroup {
    Local,
    Network,
    Kubernetes,
    /// A program that an administrator put into [`OWN_CHECKS`](super::own_checks::OWN_CHECKS).
    Own,
}

/// What the baseline from before the restart has to show before a failure can condemn a new release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Nothing. A check that failed before never condemns.
    Nothing,
    /// That the check held: its cause may lie outside of the machine.
    Held,
    /// That it held, and that the cluster answered where only the cluster knows.
    Cluster,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    pub id: &'static str,
    pub class: CheckClass,
    pub group: CheckGroup,
    /// What a failure means, a sentence.
    pub means: &'static str,
    #[serde(skip)]
    pub(super) proof: Proof,
}

const fn required(id: &'static str, group: CheckGroup, proof: Proof, means: &'static str) -> HealthCheck {
    HealthCheck { id, class: CheckClass::Required, group, means, proof }
}

const fn wanted(id: &'static str, group: CheckGroup, means: &'static str) -> HealthCheck {
    HealthCheck { id, class: CheckClass::Wanted, group, means, proof: Proof::Nothing }
}

use CheckGroup::{Kubernetes, Local, Network, Own};
use Proof::{Cluster, Held, Nothing};

/// Declares each check, and [`CHECKS`] in the order of results.
macro_rules! registry {
    ($($name:ident = $check:expr;)*) => {
        $(pub(super) static $name: HealthCheck = $check;)*

        /// Every check, in the order of results.
        pub static CHECKS: &[&HealthCheck] = &[$(&$name),*];
    };
}

registry! {
    ROOT = required("root", Local, Nothing,
        "The root file system is not the read-only image of the slot that the kernel command line names.");
    IMAGE = wanted("image", Local,
        "The OS image has damage that no other slot could repair: what reads it fails. Update the node, or install it again.");
    MOUNTS = required("mounts", Local, Nothing,
        "A partition of the node is not mounted from the device of the command line, or cannot be written.");
    ARRAYS = required("arrays", Local, Nothing,
        "A mirror has lost a disk: the node does not survive the other's loss.");
    PATHS = required("paths", Local, Nothing,
        "A disk with several paths is used without multipathd: what is written on one path is not seen on the others.");
    SPARE_PATHS = wanted("spare-paths", Local,
        "Only one path leads to a disk of the node: it does not survive the loss of that path.");
    UNITS = required("units", Local, Nothing, "A unit of the product has failed (systemctl status UNIT).");
    SYSTEM_UNITS = required("system-units", Local, Held,
        "A unit of the system has failed (systemctl status UNIT).");
    CLOCK = required("clock", Local, Held,
        "The clock is before the release was made; certificates do not count as valid then.");
    WATCHDOG = wanted("watchdog", Local,
        "Nothing restarts this machine if its system hangs: somebody has to.");
    ADDRESS = required("address", Network, Held,
        "The management network has no address: nobody reaches the node.");
    GATEWAY = required("gateway", Network, Held,
        "The gateway does not answer on the segment itself: nobody beyond it reaches the node.");
    CONTAINERD = required("containerd", Kubernetes, Cluster,
        "containerd does not answer the kubelet: no pod can start.");
    KUBELET = required("kubelet", Kubernetes, Cluster,
        "The kubelet does not answer or says that it is not healthy.");
    API_SERVER = required("api-server", Kubernetes, Cluster, "The API server of this node is not ready.");
    ETCD = required("etcd", Kubernetes, Cluster,
        "etcd of this node is not healthy or has no vote: the cluster survives the loss of one node less.");
    NODE = required("node", Kubernetes, Cluster,
        "The cluster does not have the node as ready since this boot: nothing is scheduled on it.");
    CERTIFICATES = wanted("certificates", Kubernetes,
        "A certificate of the node's part in its cluster has ended, or will within 30 days.");
    OWN_REQUIRED = required("own-required", Own, Nothing,
        "A check of /oem/health.d/required says that the node is not good.");
    OWN_WANTED = wanted("own-wanted", Own, "A check of /oem/health.d/wanted says that the node is degraded.");
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Finding {
    Healthy,
    Failing {
        reason: String,
    },
    /// The check could not be made, or only others know: the cluster, for one.
    CannotSay {
        reason: String,
    },
    NotApplicable,
}

impl Finding {
    pub(super) fn failing(reason: impl Into<String>) -> Self {
        Self::Failing { reason: reason.into() }
    }

    pub(super) fn cannot_say(reason: impl Into<String>) -> Self {
        Self::CannotSay { reason: reason.into() }
    }

    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Self::Healthy | Self::NotApplicable)
    }

    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Failing { reason } | Self::CannotSay { reason } => Some(reason),
            Self::Healthy | Self::NotApplicable => None,
        }
    }

    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Failing { .. } => "failing",
            Self::CannotSay { .. } => "cannot say",
            Self::NotApplicable => "not applicable",
        }
    }
}

impl From<Result<(), String>> for Finding {
    fn from(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Healthy,
            Err(reason) => Self::Failing { reason },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckResult {
    #[serde(flatten)]
    pub check: &'static HealthCheck,
    /// The unit, array or program that this result is about. None for the check as a whole.
    pub subject: Option<String>,
    #[serde(flatten)]
    pub finding: Finding,
}

impl CheckResult {
    /// The check with its subject, as people read it and records have it.
    #[must_use]
    pub fn name(&self) -> String {
        name(self.check.id, self.subject.as_deref())
    }
}

pub(super) fn name(id: &str, subject: Option<&str>) -> String {
    subject.map_or_else(|| id.to_owned(), |subject| format!("{id} {subject}"))
}

impl HealthCheck {
    pub(super) fn found(&'static self, finding: Finding) -> CheckResult {
        CheckResult { check: self, subject: None, finding }
    }

    pub(super) fn found_at(&'static self, subject: impl Into<String>, finding: Finding) -> CheckResult {
        CheckResult { check: self, subject: Some(subject.into()), finding }
    }
}

impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.finding.word())?;
        self.finding.reason().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_check_has_a_name_of_its_own_and_says_what_its_failure_means() {
        let ids: BTreeSet<_> = CHECKS.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        for check in CHECKS {
            assert!(check.means.ends_with(['.']) && check.means.len() > 20, "{check:?}");
        }
    }

    #[test]
    fn a_result_is_one_flat_object_for_programs() {
        let result = UNITS.found_at("nqrust-x.service", Finding::failing("it has failed"));
        let told = serde_json::to_value(&result).unwrap();
        assert_eq!(told["id"], "units");
        assert_eq!((&told["class"], &told["group"]), (&"required".into(), &"local".into()));
        assert_eq!((&told["state"], &told["reason"]), (&"failing".into(), &"it has failed".into()));
        assert_eq!(result.to_string(), "units nqrust-x.service: failing: it has failed");
    }
}
