//! How far a node has come on its way into its cluster: which stage it is in, since when, and the last error in words.
//!
//! [`look`](mod@look) gathers facts and [`stages`] judges them, as a pure function. [`watch`](mod@watch) does both until
//! the node is ready, and keeps what it sees for `installer status` and for the consoles. Nothing here changes the
//! cluster or stops anything on the node.

mod api;
pub mod look;
mod network;
#[cfg(test)]
mod tests;
pub mod watch;
mod words;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::cluster::ClusterMember;
use super::images::BlobCount;
use crate::cards::{MANAGEMENT, Missing};
use api::Registration;
pub(crate) use api::serves;
pub(crate) use network::addresses;
use words::Trouble;
pub(crate) use words::without_tokens;

/// One step on the way, in the order in which they come; for the first node of a cluster [`Name::Server`] comes after
/// [`Name::Service`], which it is served by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    /// The management network has an address.
    Network,
    /// The cluster answers at its address.
    Server,
    /// The distribution's service runs.
    Service,
    /// The images of the role are in the store.
    Images,
    /// The cluster knows the node.
    Registered,
    /// The cluster says that the node is ready.
    Ready,
}

impl Name {
    /// The name as it is printed.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Server => "server",
            Self::Service => "service",
            Self::Images => "images",
            Self::Registered => "registered",
            Self::Ready => "ready",
        }
    }
}

/// Where a stage stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It is behind the node.
    Done,
    /// It may come by itself.
    Waiting,
    /// It does not come unless somebody does something.
    Failed,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// One stage as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// Which.
    pub name: Name,
    /// Where it stands.
    pub state: State,
    /// Since when it stands there, in RFC 3339; known to the unit that watches.
    pub since: Option<String>,
    /// What was seen, or the last error in words. Holds no secrets.
    pub detail: String,
    /// What a person can do.
    pub next: Option<String>,
}

impl Stage {
    fn new(name: Name, state: State, detail: impl Into<String>) -> Self {
        Self { name, state, since: None, detail: detail.into(), next: None }
    }

    /// A stage that waits or has failed for this reason.
    fn troubled(name: Name, trouble: Trouble) -> Self {
        let state = if trouble.lasting { State::Failed } else { State::Waiting };
        Self { next: trouble.next, ..Self::new(name, state, trouble.text) }
    }
}

impl fmt::Display for Stage {
    /// One line without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:10} {:7} {}", self.name.text(), self.state.text(), self.detail)?;
        if let (false, Some(since)) = (self.state == State::Done, &self.since) {
            write!(f, " (since {since})")?;
        }
        Ok(())
    }
}

/// What was seen of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// `LoadState` of the unit.
    pub load: String,
    /// `ActiveState` of the unit.
    pub active: String,
    /// `SubState` of the unit.
    pub sub: String,
    /// `Result` of the unit.
    pub result: String,
    /// How often systemd has started it again.
    pub restarts: u64,
    /// The last lines of its journal.
    pub said: Vec<String>,
}

/// What was seen of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The address of the management network, or why there is none.
    pub network: Result<String, String>,
    /// Network cards that the document has and the machine has not.
    pub missing: Option<Missing>,
    /// The addresses at which the cluster answers, or what came back.
    pub server: Result<String, String>,
    /// The service; none where systemd does not answer.
    pub service: Option<Service>,
    /// The blobs of the role's images.
    pub images: BlobCount,
    /// The node in its cluster.
    pub node: Registration,
}

/// Judges what was seen.
#[must_use]
pub fn stages(member: &ClusterMember, facts: &Facts) -> Vec<Stage> {
    let said = facts.service.as_ref().and_then(|service| words::last_error(&service.said));
    let network = match &facts.network {
        Ok(address) => Stage::new(Name::Network, State::Done, address),
        Err(why) => no_address(why, facts.missing.as_ref()),
    };
    let server = match &facts.server {
        Ok(address) => Stage::new(Name::Server, State::Done, format!("{address} answers")),
        Err(why) => Stage::new(Name::Server, State::Waiting, why),
    };
    let service = service(member, facts.service.as_ref(), said.as_ref());
    let images = images(facts.images);
    // What the service complains about is told where the node is stuck, which is after a service that runs.
    let said = said.filter(|_| service.state == State::Done);
    let (registered, ready) = in_cluster(member, &facts.node, said);
    if member.first {
        vec![network, service, server, images, registered, ready]
    } else {
        vec![network, server, service, images, registered, ready]
    }
}

/// Whether all of it is done.
#[must_use]
pub fn all_done(stages: &[Stage]) -> bool {
    stages.iter().all(|stage| stage.state == State::Done)
}

/// A stage as one mark and its name.
#[must_use]
pub fn mark(stage: &Stage) -> String {
    let mark = match stage.state {
        State::Done => 'x',
        State::Waiting => ' ',
        State::Failed => '!',
    };
    format!("[{mark}] {}", stage.name.text())
}

/// The stage that the node is in: the network as long as there is none, because nothing else can be put right from afar
/// without it and much of what fails later fails for want of it; then the first that has failed, else the first that is
/// not done.
#[must_use]
pub fn current(stages: &[Stage]) -> Option<&Stage> {
    let network = stages.iter().find(|stage| stage.name == Name::Network && stage.state != State::Done);
    let first = |state| stages.iter().find(move |stage| stage.state == state);
    network.or_else(|| first(State::Failed)).or_else(|| first(State::Waiting))
}

/// A node without an address. It does not come by itself where a card of the management network is missing.
fn no_address(why: &str, missing: Option<&Missing>) -> Stage {
    match missing.and_then(|missing| missing.of_network(MANAGEMENT)) {
        Some(cards) => Stage {
            next: Some(Missing::next().to_owned()),
            ..Stage::new(Name::Network, State::Failed, format!("{cards}; {why}"))
        },
        None => Stage::new(Name::Network, State::Waiting, why),
    }
}

fn service(member: &ClusterMember, service: Option<&Service>, said: Option<&Trouble>) -> Stage {
    let stage = |state, text: String| Stage::new(Name::Service, state, text);
    let unit = member.unit;
    let Some(service) = service else {
        return stage(State::Waiting, format!("systemd does not tell of {unit}"));
    };
    match (service.load.as_str(), service.active.as_str()) {
        ("not-found" | "masked", _) => Stage {
            next: Some("Install an OS image that has the distribution of kubernetes.distribution.".into()),
            ..stage(State::Failed, format!("{unit} is not in the OS image"))
        },
        (_, "active") => stage(State::Done, format!("{unit} runs")),
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
            let trouble = match said {
                Some(said) => Trouble { text: format!("{}; {text}", said.text), ..said.clone() },
                None => Trouble::passing(text),
            };
            Stage::troubled(
                Name::Service,
                Trouble { lasting: trouble.lasting || active == "failed", ..trouble },
            )
        }
    }
}

fn images(blobs: BlobCount) -> Stage {
    let BlobCount { expected, present, deferred } = blobs;
    let text = format!("{present} of {expected} blobs are in the store");
    match (present >= expected, deferred) {
        (true, _) => Stage::new(Name::Images, State::Done, text),
        (false, true) => Stage::new(Name::Images, State::Done, text + ", the rest is pulled when wanted"),
        (false, false) => Stage {
            next: Some("See which with: installer images check".into()),
            ..Stage::new(Name::Images, State::Failed, text)
        },
    }
}

/// The two stages that only the cluster can tell of.
fn in_cluster(member: &ClusterMember, node: &Registration, said: Option<Trouble>) -> (Stage, Stage) {
    let waits = |text: &str| Stage::new(Name::Ready, State::Waiting, text);
    let registered = |name: &str| Stage::new(Name::Registered, State::Done, format!("as {name}"));
    let missing = |text: String| {
        let trouble = match said.clone() {
            Some(said) => Trouble { text: format!("{}; {text}", said.text), ..said },
            None => Trouble::passing(text),
        };
        (Stage::troubled(Name::Registered, trouble), waits("the cluster does not know the node yet"))
    };
    match node {
        Registration::NoCredentials => missing("the node has no credentials from its cluster yet".to_owned()),
        Registration::Unknown(why) => missing(why.clone()),
        Registration::Absent(name) => missing(format!("the cluster has no node {name} yet")),
        Registration::NotReady { name, why } => {
            let known = words::known(why);
            let trouble = known.or(said).unwrap_or_else(|| Trouble::passing(why.clone()));
            (registered(name), Stage::troubled(Name::Ready, trouble))
        }
        Registration::Ready { name } => {
            let what = if member.first { "the cluster has begun" } else { "the node is part of its cluster" };
            (registered(name), Stage::new(Name::Ready, State::Done, what))
        }
    }
}
