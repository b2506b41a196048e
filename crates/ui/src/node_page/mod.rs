//! The console of an installed node: a page that shows the node and its state, and a few actions for its administrator.
//!
//! It shows what [`node`] knows and decides nothing about the node. Nor does it decide who may do what: before the login
//! it only shows, and hands the terminal to login(1).
//!
//! | Module | What it is for |
//! |---|---|
//! | [`state`] | keys and news to the next state and to effects; pure |
//! | [`draw`] | drawing a state; pure |
//! | [`network`] | the change of the network: its questions and its review; pure |
//! | [`look`] | this node: its facts, and its actions |
//! | [`run`] | one console, and threads for slow work |

pub mod draw;
pub mod look;
pub mod network;
pub mod run;
pub mod state;

#[cfg(test)]
mod tests;

use anyhow::Result;

use install::usb_stick::{StickSurvey, StickVolume};
use network::{PresentNetwork, Proposal};
use node::network_trial::{Networks, TrialStatus};
use node::status::Status;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePageFacts {
    /// The node, and its stages of joining its cluster.
    pub status: Status,
    /// The addresses of each device, one device a text.
    pub addresses: Vec<String>,
    /// `None` for a node without a cluster.
    pub cluster: Option<Cluster>,
    /// One disk a text.
    pub disks: Vec<String>,
}

/// The cluster of a node, as in the node document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub distribution: &'static str,
    /// Where nodes join it; `None` if the document does not say.
    pub address: Option<String>,
    /// Its virtual address, if it has one: the address, or that it comes from DHCP.
    pub vip: Option<String>,
    /// The URL of its management page; `None` if there is no answer.
    pub management: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    Restart,
    Off,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Shut the machine down in an orderly way.
    Power(Power),
    /// Collect a support bundle: on a volume of a stick, or on the node.
    Bundle(Option<StickVolume>),
    /// The networks on trial become those of the node.
    Confirm,
    Revert,
}

/// A node. Every call except [`Self::signs`] and [`Self::trial`] may be slow.
pub trait NodeControl: Send + Sync {
    /// A text that changes when there is something new to observe; cheap.
    fn signs(&self) -> String;
    /// The facts about the node now.
    fn look(&self) -> Result<NodePageFacts>;
    /// The last lines of its journal, without its secrets.
    fn logs(&self) -> Result<Vec<String>>;
    /// The volumes of sticks that can take a file, and why others cannot.
    fn sticks(&self) -> Result<StickSurvey>;
    /// Collects a support bundle, on a volume of a stick or on the node; returns its place in words.
    fn bundle(&self, volume: Option<&StickVolume>) -> Result<String>;
    fn power(&self, power: Power) -> Result<()>;
    /// The present networks, to begin the questions with.
    fn network(&self) -> Result<PresentNetwork>;
    /// Checks other networks with the whole node document.
    fn propose(&self, networks: &Networks) -> Result<Proposal>;
    /// Begins a trial of other networks. `accepted`: the user has accepted a grave problem.
    fn try_networks(&self, networks: &Networks, accepted: bool) -> Result<()>;
    /// The state of its trials; cheap.
    fn trial(&self) -> TrialStatus;
    /// Keeps the networks on trial; returns the result in words.
    fn confirm(&self) -> Result<String>;
    /// Reverts the networks on trial; returns the result in words.
    fn revert(&self) -> Result<String>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePageEnd {
    /// The user wants to log in on the terminal.
    LogIn,
    /// The user left the page.
    Quit,
}
