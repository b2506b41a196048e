//! The console of an installed node: a page that shows what the node is and how it does, and a few actions for its
//! administrator.
//!
//! It shows what [`crate::node`] knows and decides nothing about the node. Who may do what is not decided here either:
//! before the login it only shows, and hands the terminal to login(1).
//!
//! | Module | What it does |
//! |---|---|
//! | [`state`] | keys and news to the next state and to effects; pure |
//! | [`draw`] | a state as a picture; pure |
//! | [`network`] | the change of the network: its questions and its review; pure |
//! | [`look`] | this node: what it is, and what is done to it |
//! | [`run`] | one console, and threads for what takes time |

pub mod draw;
pub mod look;
pub mod network;
pub mod run;
pub mod state;

#[cfg(test)]
mod tests;

use anyhow::Result;

use crate::node::network_trial::{Networks, Standing};
use crate::node::status::Status;
use crate::usb_stick::{Survey, Volume};
use network::{PresentNetwork, Proposal};

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePageFacts {
    /// What the node is, and how far it is on its way into its cluster.
    pub status: Status,
    /// Its addresses: the device and what it has, one device a text.
    pub addresses: Vec<String>,
    /// Its cluster; none where it has none.
    pub cluster: Option<Cluster>,
    /// Its disks, one a text.
    pub disks: Vec<String>,
}

/// The cluster of a node, as the node document tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The name of the distribution.
    pub distribution: &'static str,
    /// Where nodes join it; none where the document does not tell.
    pub address: Option<String>,
    /// Its virtual address, where it has one: the address, or that a DHCP server gives it.
    pub vip: Option<String>,
    /// Where people manage it; none where nothing answers there.
    pub management: Option<String>,
}

/// What becomes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It starts again.
    Restart,
    /// It goes off.
    Off,
}

/// What the administrator of a node can have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The machine is stopped in an orderly way.
    Power(Power),
    /// What helps to find the reason of a trouble is collected into a file: on a volume of a stick, or on the node.
    Bundle(Option<Volume>),
    /// The networks on trial become those of the node.
    Confirm,
    /// The networks on trial are taken back.
    Revert,
}

/// A node. Every call but [`Self::signs`] and [`Self::trial`] may take its time.
pub trait NodeControl: Send + Sync {
    /// A text that is another one when there is something new to look at; costs next to nothing.
    fn signs(&self) -> String;
    /// How the node is now.
    fn look(&self) -> Result<NodePageFacts>;
    /// The last lines of its journal, without its secrets.
    fn logs(&self) -> Result<Vec<String>>;
    /// The volumes of sticks that can take a file, and why others cannot.
    fn sticks(&self) -> Result<Survey>;
    /// Collects what helps to find the reason of a trouble, on a volume of a stick or on the node; says where it is.
    fn bundle(&self, volume: Option<&Volume>) -> Result<String>;
    /// Begins to stop the machine.
    fn power(&self, power: Power) -> Result<()>;
    /// What the questions about its network begin with.
    fn network(&self) -> Result<PresentNetwork>;
    /// Checks other networks with the whole node document.
    fn propose(&self, networks: &Networks) -> Result<Proposal>;
    /// Begins a trial of other networks. `accepted` says that a grave matter is meant.
    fn try_networks(&self, networks: &Networks, accepted: bool) -> Result<()>;
    /// Where it is with its trials; costs next to nothing.
    fn trial(&self) -> Standing;
    /// Keeps the networks on trial; says what came of it.
    fn confirm(&self) -> Result<String>;
    /// Takes the networks on trial back; says what came of it.
    fn revert(&self) -> Result<String>;
}

/// How a console ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePageEnd {
    /// Somebody wants to log in on the terminal.
    LogIn,
    /// Somebody has seen enough.
    Quit,
}
