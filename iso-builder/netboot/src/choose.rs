//! Which record a request to boot is about: a pure function of what the request tells, the records that it touches, and
//! the configurations.
//!
//! A configuration is chosen by the marks of this very request and by nothing else. What is known from before, which
//! includes the cards that installed machines have reported, can only speak against an install. Anybody can tell any
//! marks; so marks of two machines in one request do not make one machine of them.

use std::collections::BTreeSet;

use model::machine::Identity;

use super::configurations::Configurations;
use super::identity_keys::{self, IdentityKey};
use super::machine::{
    BootAnswer, ConfigurationFit, DeploymentState, DiskBootReason, InstallPermission, Machine,
};
use super::machine_id::MachineId;
use super::moment::Moment;

/// What a request tells of its machine.
#[derive(Clone, Debug)]
pub struct ToldIdentity<'a> {
    /// As it told it.
    pub identity: &'a Identity,
    /// The same as keys.
    pub marks: BTreeSet<IdentityKey>,
}

impl<'a> ToldIdentity<'a> {
    /// What `identity` tells.
    #[must_use]
    pub fn new(identity: &'a Identity) -> Self {
        Self { identity, marks: identity_keys::of(identity) }
    }
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChoice {
    /// A record, which may be new.
    Record(Box<ChosenRecord>),
    /// More than one machine or configuration; their names.
    Conflict(Vec<String>),
}

/// The record that a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRecord {
    /// The record.
    pub machine: Machine,
    /// Which configuration there is for what the request tells.
    pub fit: ConfigurationFit,
    /// What the machine boots.
    pub answer: BootAnswer,
    /// Records of the same machine from before a configuration named it, which go.
    pub absorbed: Vec<MachineId>,
}

/// Chooses among `found`: the records with a mark that was told, and those of the configurations that name one.
#[must_use]
pub fn choose(
    told: &ToldIdentity<'_>,
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

/// The request tells a mark that the configuration `name` names.
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
    // One from which something must be kept is taken over before one that only asked.
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

/// Nothing that the request tells is named by a configuration.
fn without_configuration(
    told: &ToldIdentity<'_>,
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
        // The machine has this configuration, and does not tell now what would let it have it again.
        (Some(machine), None) if machine.assigned.is_some() => (machine, ConfigurationFit::Nothing),
        (Some(machine), None) => (machine, fit),
        (None, _) => (Machine::stranger(told.identity.clone(), now), fit),
    };
    let answer = match machine.state.answer(machine.permission, fit) {
        // Somebody could have told a mark of this machine together with one of the machine that was to be allowed.
        BootAnswer::Install if !identity_keys::of(&machine.identity).is_subset(&told.marks) => {
            BootAnswer::Disk(DiskBootReason::Incomplete)
        }
        answer => answer,
    };
    RecordChoice::Record(Box::new(ChosenRecord { machine, fit, answer, absorbed: Vec::new() }))
}

/// Whether a record of an assignment has marks of the past only: what it was found by is what its configuration named
/// before, and nothing was given out since.
fn is_past(machine: &Machine, configurations: &Configurations) -> bool {
    let Some(name) = machine.assigned.as_deref().filter(|_| machine.permission != InstallPermission::Denied)
    else {
        return false;
    };
    match machine.state {
        DeploymentState::Waiting | DeploymentState::Booting | DeploymentState::Redeploy => true,
        DeploymentState::Failed => configurations.selectors(name).is_none(),
        DeploymentState::Installing | DeploymentState::Installed | DeploymentState::Joined => false,
    }
}

/// The record of a machine that has asked before a configuration named it.
fn taken_over(mut machine: Machine, name: &str) -> Machine {
    if machine.is_stranger() {
        // What it told is worth nothing.
        machine.identity = Identity::default();
    }
    machine.assigned = Some(name.to_owned());
    machine.revoke();
    machine
}

#[cfg(test)]
mod tests;
