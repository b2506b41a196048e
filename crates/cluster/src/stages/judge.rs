//! Derives the stages of a node from facts: a pure function.

use super::facts::NodeFacts;
use super::known_errors::{self, CONTESTED, FULL, JoinTrouble};
use super::stage::{Stage, StageName, StageState};
use crate::configuration::{ClusterMember, etcd_data};
use crate::images::BlobCount;
use crate::kubernetes::node::Node;
use crate::observation::UnitState;
use crate::observation::neighbours::RivalMachine;
use machine::nics::{MANAGEMENT, MissingCards};

/// The least space for etcd in bytes: it writes its log in files of 64 MB, which it makes beforehand (etcd `wal`).
const SPACE_MIN: u64 = 128 << 20;

#[must_use]
pub(crate) fn stages(member: &ClusterMember, facts: &NodeFacts) -> Vec<Stage> {
    let error = facts.service.as_ref().and_then(|_| known_errors::last_error(&facts.journal));
    let network = match &facts.network {
        Ok(address) => Stage::new(StageName::Network, StageState::Done, address),
        Err(why) => no_address(why, facts.missing.as_ref()),
    };
    let server = match (&facts.cluster.server, &facts.rival) {
        (_, Some(rival)) => contested(rival),
        (Ok(address), None) => Stage::new(StageName::Server, StageState::Done, format!("{address} answers")),
        (Err(why), None) => Stage::new(StageName::Server, StageState::Waiting, why),
    };
    let service = no_space(member, facts.space).unwrap_or_else(|| service(member, facts, error.as_ref()));
    let images = images(facts.images);
    // The service's own complaint belongs to the stage that the node is stuck in, which comes after a running service.
    let error = error.filter(|_| service.state == StageState::Done);
    let (registered, ready) = in_cluster(member, facts, error);
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

/// Without space etcd ends, and with it the cluster on this node, whatever else the service says.
fn no_space(member: &ClusterMember, space: Option<u64>) -> Option<Stage> {
    let space = space.filter(|space| *space < SPACE_MIN)?;
    let data = etcd_data(member.distribution);
    let text = format!("the persistent partition is full: {} MiB are left for etcd in {data}", space >> 20);
    Some(Stage { next: Some(FULL.into()), ..Stage::new(StageName::Service, StageState::Failed, text) })
}

fn service(member: &ClusterMember, facts: &NodeFacts, error: Option<&JoinTrouble>) -> Stage {
    let stage = |state, text: String| Stage::new(StageName::Service, state, text);
    let Some(service) = &facts.service else {
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
            let trouble = match (error, step(service, &facts.journal)) {
                (Some(error), step) if error.lasting || step.is_none() => {
                    JoinTrouble { text: format!("{}; {text}", error.text), ..error.clone() }
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

/// The current step of the unit that makes the node a member, `WORDS (N of M)`. Meanwhile errors of other units mostly say that it is
/// not done yet.
fn step<'a>(service: &UnitState, journal: &'a [String]) -> Option<&'a str> {
    let is_count =
        |count: &str| count.split_once(" of ").is_some_and(|(step, all)| is_number(step) && is_number(all));
    journal.iter().rev().map(String::as_str).take_while(|line| !line.starts_with(known_errors::REPORT)).find(
        |line| {
            let count = line.strip_suffix(')').and_then(|line| line.rsplit_once(" ("));
            service.active == "activating" && count.is_some_and(|(_, count)| is_count(count))
        },
    )
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

fn in_cluster(member: &ClusterMember, facts: &NodeFacts, error: Option<JoinTrouble>) -> (Stage, Stage) {
    let missing = |text: String| {
        let trouble = match error.clone() {
            Some(error) => JoinTrouble { text: format!("{}; {text}", error.text), ..error },
            None => JoinTrouble::passing(text),
        };
        let ready = "the cluster does not know the node yet";
        (
            Stage::troubled(StageName::Registered, trouble),
            Stage::new(StageName::Ready, StageState::Waiting, ready),
        )
    };
    match &facts.cluster.node {
        Err(why) => missing(why.clone()),
        Ok(None) => {
            missing(format!("the cluster has no node {} yet", facts.name.as_deref().unwrap_or_default()))
        }
        Ok(Some(node)) => {
            let registered = format!("as {}", node.metadata.name);
            (Stage::new(StageName::Registered, StageState::Done, registered), ready(member, node, error))
        }
    }
}

fn ready(member: &ClusterMember, node: &Node, error: Option<JoinTrouble>) -> Stage {
    let Some(why) = node.unready_reason() else {
        let what = if member.first { "the cluster has begun" } else { "the node is part of its cluster" };
        return Stage::new(StageName::Ready, StageState::Done, what);
    };
    let why = known_errors::without_tokens(why);
    let trouble = known_errors::known(&why).or(error).unwrap_or_else(|| JoinTrouble::passing(why));
    Stage::troubled(StageName::Ready, trouble)
}
