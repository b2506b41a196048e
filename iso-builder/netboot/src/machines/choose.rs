//! Finds the record for a request to boot: a pure function of the identity in the request, the records that have identifiers of
//! it, and the configurations.
//!
//! Only identifiers in this very request can choose a configuration. What is known from before, such as the cards that installed
//! machines have reported, can only prevent an install. Anybody can send any identifiers; so a request with those of two machines
//! does not make one machine of them.

use std::collections::BTreeSet;

use model::machine::Identity;

use super::configurations::Configurations;
use super::id::MachineId;
use super::identity_keys::{self, IdentityKey};
use super::machine::{
    BootAnswer, ConfigurationFit, DeploymentState, DiskBootReason, InstallPermission, Machine,
};
use crate::moment::Moment;

#[derive(Clone, Debug)]
pub struct RequestIdentity<'a> {
    pub identity: &'a Identity,
    pub marks: BTreeSet<IdentityKey>,
}

impl<'a> RequestIdentity<'a> {
    #[must_use]
    pub fn new(identity: &'a Identity) -> Self {
        Self { identity, marks: identity_keys::of(identity) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChoice {
    Record(Box<ChosenRecord>),
    /// The names of the machines and configurations, where there is more than one.
    Conflict(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRecord {
    pub machine: Machine,
    /// Which configuration fits the identity in the request.
    pub fit: ConfigurationFit,
    pub answer: BootAnswer,
    /// Records of the same machine from before a configuration named it; they are removed.
    pub absorbed: Vec<MachineId>,
}

/// Chooses among `found`: the records that have an identifier of the request, and those of the configurations that name one.
#[must_use]
pub fn choose(
    told: &RequestIdentity<'_>,
    found: Vec<Machine>,
    configurations: &Configurations,
    now: Moment,
) -> RecordChoice {
    let named = configurations.naming(&told.marks);
    let mut names = named.iter();
    match (names.next(), names.next()) {
        (Some(_), Some(_)) => RecordChoice::Conflict(named.iter().map(|&name| name.to_owned()).collect()),
        (Some(name), None) => with_configuration(name, found, configurations, now),
        (None, _) => without_configuration(told, found, configurations, now),
    }
}

/// An identifier in the request is named by the configuration `name`.
fn with_configuration(
    name: &str,
    found: Vec<Machine>,
    configurations: &Configurations,
    now: Moment,
) -> RecordChoice {
    let selectors = configurations.selectors(name).unwrap_or_default();
    let named: BTreeSet<IdentityKey> = selectors.iter().map(IdentityKey::of).collect();
    let (mut own, mut others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|machine| machine.assigned.as_deref() == Some(name));
    let mut own = own.pop();
    // A record that is held is taken over before one of a machine that only asked.
    others.sort_by_key(|machine| !machine.is_held());
    let mut absorbed = Vec::new();
    for other in others {
        let is_named = !named.is_disjoint(&identity_keys::of(&other.identity));
        match other.assigned {
            Some(_) if is_past(&other, configurations) => {}
            None if is_named && own.is_none() => own = Some(taken_over(other, name)),
            None if is_named && !other.is_held() => absorbed.push(other.id),
            _ => return RecordChoice::Conflict(vec![name.to_owned(), other.name()]),
        }
    }
    let mut machine = own.unwrap_or_else(|| Machine::assignment(name, selectors, now));
    if is_past(&machine, configurations) {
        machine.identity = Identity::default();
    }
    machine.select(selectors);
    let (fit, answer) =
        (ConfigurationFit::Own, machine.state.answer(machine.permission, ConfigurationFit::Own));
    RecordChoice::Record(Box::new(ChosenRecord { machine, fit, answer, absorbed }))
}

/// No identifier in the request is named by a configuration.
fn without_configuration(
    told: &RequestIdentity<'_>,
    found: Vec<Machine>,
    configurations: &Configurations,
    now: Moment,
) -> RecordChoice {
    let mut found: Vec<_> = found.into_iter().filter(|machine| !is_past(machine, configurations)).collect();
    let fit = if configurations.fallback().is_some() {
        ConfigurationFit::Fallback
    } else {
        ConfigurationFit::Nothing
    };
    let (machine, fit) = match (found.pop(), found.pop()) {
        (Some(one), Some(other)) => return RecordChoice::Conflict(vec![other.name(), one.name()]),
        // The machine has this configuration, but this request has no identifier that would let it have it again.
        (Some(machine), None) if machine.assigned.is_some() => (machine, ConfigurationFit::Nothing),
        (Some(machine), None) => (machine, fit),
        (None, _) => (Machine::stranger(told.identity.clone(), now), fit),
    };
    let answer = answer_unnamed(told, &machine, fit);
    RecordChoice::Record(Box::new(ChosenRecord { machine, fit, answer, absorbed: Vec::new() }))
}

/// The answer to a machine that no configuration names.
#[must_use]
pub fn answer_unnamed(told: &RequestIdentity<'_>, machine: &Machine, fit: ConfigurationFit) -> BootAnswer {
    match machine.state.answer(machine.permission, fit) {
        // An attacker could have sent an identifier of this machine together with identifiers of the one to be allowed.
        BootAnswer::Install if !identity_keys::of(&machine.identity).is_subset(&told.marks) => {
            BootAnswer::Disk(DiskBootReason::Incomplete)
        }
        answer => answer,
    }
}

/// True if the identifiers of an assignment's record are outdated: they are those that its configuration named before, and it
/// has not been handed out since.
fn is_past(machine: &Machine, configurations: &Configurations) -> bool {
    let Some(name) = machine.assigned.as_deref().filter(|_| machine.permission != InstallPermission::Denied)
    else {
        return false;
    };
    match machine.state {
        DeploymentState::Waiting | DeploymentState::Booting | DeploymentState::Redeploy => true,
        DeploymentState::WaitingForCluster | DeploymentState::Failed => {
            configurations.selectors(name).is_none()
        }
        DeploymentState::Installing | DeploymentState::Installed | DeploymentState::Joined => false,
    }
}

/// Takes over the record of a machine that asked before a configuration named it.
fn taken_over(mut machine: Machine, name: &str) -> Machine {
    if machine.is_stranger() {
        // The identity that it sent is not proven.
        machine.identity = Identity::default();
    }
    machine.assigned = Some(name.to_owned());
    machine.revoke();
    machine
}

#[cfg(test)]
mod tests;
