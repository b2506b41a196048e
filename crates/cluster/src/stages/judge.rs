//! From the facts about a node to its stages: a pure function.

use super::api::Registration;
use super::facts::{NodeFacts, ServiceFacts};
use super::known_errors::{self, CONTESTED, FULL, JoinTrouble};
use super::neighbours::RivalMachine;
use super::stage::{Stage, StageName, StageState};
use crate::configuration::{ClusterMember, etcd_data};
use crate::images::BlobCount;
use machine::nics::{MANAGEMENT, MissingCards};

/// The least room for etcd in bytes: it writes its log in files of 64 MB, which it makes beforehand (etcd `wal`).
const ROOM_MIN: u64 = 128 << 20;

#[must_use]
pub fn stages(member: &ClusterMember, facts: &NodeFacts) -> Vec<Stage> {
    let said = facts.service.as_ref().and_then(|service| known_errors::last_error(&service.said));
    let network = match &facts.network {
        Ok(address) => Stage::new(StageName::Network, StageState::Done, address),
        Err(why) => no_address(why, facts.missing.as_ref()),
    };
    let server = match (&facts.server, &facts.rival) {
        (_, Some(rival)) => contested(rival),
        (Ok(address), None) => Stage::new(StageName::Server, StageState::Done, format!("{address} answers")),
        (Err(why), None) => Stage::new(StageName::Server, StageState::Waiting, why),
    };
    let service =
        no_room(member, facts.room).unwrap_or_else(|| service(member, facts.service.as_ref(), said.as_ref()));
    let images = images(facts.images);
    // The service's own complaint belongs to the stage that the node is stuck in, which comes after a running service.
    let said = said.filter(|_| service.state == StageState::Done);
    let (registered, ready) = in_cluster(member, &facts.node, said);
    if member.first {
        vec![network, service, server, images, registered, ready]
    } else {
        vec![network, server, service, images, registered, ready]
    }
}

/// A node without an address. Waiting does not help if a card of the management network is missing.
fn no_address(why: &str, missing: Option<&MissingCards>) -> Stage {
    match missing.and_then(|missing| missing.of_network(MANAGEMENT)) {
        Some(cards) => Stage {
            next: Some(MissingCards::next().to_owned()),
            ..Stage::new(StageName::Network, StageState::Failed, format!("{cards}; {why}"))
        },
        None => Stage::new(StageName::Network, StageState::Waiting, why),
    }
}

/// A virtual address that two machines answer for: the cluster works, but others reach it by chance.
fn contested(rival: &RivalMachine) -> Stage {
    let RivalMachine { address, machine } = rival;
    let text = format!(
        "the machine with the hardware address {machine} answers for {address} too, the virtual address that this node has"
    );
    Stage { next: Some(CONTESTED.into()), ..Stage::new(StageName::Server, StageState::Failed, text) }
}

/// Without room etcd ends, and with it the cluster on this node, whatever else the service says.
fn no_room(member: &ClusterMember, room: Option<u64>) -> Option<Stage> {
    let room = room.filter(|room| *room < ROOM_MIN)?;
    let data = etcd_data(member.distribution);
    let text = format!("the persistent partition is full: {} MiB are left for etcd in {data}", room >> 20);
    Some(Stage { next: Some(FULL.into()), ..Stage::new(StageName::Service, StageState::Failed, text) })
}

fn service(member: &ClusterMember, service: Option<&ServiceFacts>, said: Option<&JoinTrouble>) -> Stage {
    let stage = |state, text: String| Stage::new(StageName::Service, state, text);
    let Some(service) = service else {
        return stage(StageState::Waiting, format!("systemd does not report {}", member.unit));
    };
    let unit = service.unit;
    match (service.load.as_str(), service.active.as_str()) {
        ("not-found" | "masked", _) => Stage {
            next: Some("Install an OS image that has the distribution of kubernetes.distribution.".into()),
            ..stage(StageState::Failed, format!("{unit} is not in the OS image"))
        },
        (_, "active") => stage(StageState::Done, format!("{unit} runs")),
        (_, active) => {
            let restarts = match service.restarts {
                0 => String::new(),
                1 => ", started again once".into(),
                count => format!(", started again {count} times"),
            };
            let ended = match service.result.as_str() {
                "" | "success" => String::new(),
                result => format!(", ended with {result}"),
            };
            let text = format!("{unit} is {active} ({}){ended}{restarts}", service.sub);
            let trouble = match (said, step(service)) {
                (Some(said), step) if said.lasting || step.is_none() => {
                    JoinTrouble { text: format!("{}; {text}", said.text), ..said.clone() }
                }
                (_, Some(step)) => JoinTrouble::passing(format!("{step}; {text}")),
                (_, None) => JoinTrouble::passing(text),
            };
            Stage::troubled(
                StageName::Service,
                JoinTrouble { lasting: trouble.lasting || active == "failed", ..trouble },
            )
        }
    }
}

/// What the unit that makes the node a member is doing, `WORDS (N of M)`. While it does something, what others complain about is
/// mostly that it is not done yet.
fn step(service: &ServiceFacts) -> Option<&str> {
    let is_count =
        |count: &str| count.split_once(" of ").is_some_and(|(step, all)| is_number(step) && is_number(all));
    service
        .said
        .iter()
        .rev()
        .map(String::as_str)
        .take_while(|line| !line.starts_with(known_errors::REPORT))
        .find(|line| {
            let count = line.strip_suffix(')').and_then(|line| line.rsplit_once(" ("));
            service.active == "activating" && count.is_some_and(|(_, count)| is_count(count))
        })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn images(blobs: BlobCount) -> Stage {
    let BlobCount { expected, present, deferred } = blobs;
    let text = format!("{present} of {expected} blobs are in the store");
    match (present >= expected, deferred) {
        (true, _) => Stage::new(StageName::Images, StageState::Done, text),
        (false, true) => {
            Stage::new(StageName::Images, StageState::Done, text + ", the rest is pulled on demand")
        }
        (false, false) => Stage {
            next: Some("See which with: installer images check".into()),
            ..Stage::new(StageName::Images, StageState::Failed, text)
        },
    }
}

/// The two stages that only the cluster knows.
fn in_cluster(member: &ClusterMember, node: &Registration, said: Option<JoinTrouble>) -> (Stage, Stage) {
    let waits = |text: &str| Stage::new(StageName::Ready, StageState::Waiting, text);
    let registered = |name: &str| Stage::new(StageName::Registered, StageState::Done, format!("as {name}"));
    let missing = |text: String| {
        let trouble = match said.clone() {
            Some(said) => JoinTrouble { text: format!("{}; {text}", said.text), ..said },
            None => JoinTrouble::passing(text),
        };
        (Stage::troubled(StageName::Registered, trouble), waits("the cluster does not know the node yet"))
    };
    match node {
        Registration::NoCredentials => missing("the node has no credentials from its cluster yet".to_owned()),
        Registration::Unknown(why) => missing(why.clone()),
        Registration::Absent(name) => missing(format!("the cluster has no node {name} yet")),
        Registration::NotReady { name, why } => {
            let known = known_errors::known(why);
            let trouble = known.or(said).unwrap_or_else(|| JoinTrouble::passing(why.clone()));
            (registered(name), Stage::troubled(StageName::Ready, trouble))
        }
        Registration::Ready { name } => {
            let what = if member.first { "the cluster has begun" } else { "the node is part of its cluster" };
            (registered(name), Stage::new(StageName::Ready, StageState::Done, what))
        }
    }
}
