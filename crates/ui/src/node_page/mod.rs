//! The console of an installed node: a page that shows the node and its state, and a few actions for its administrator.
//!
//! It shows what [`node`] knows and decides nothing about the node. Before a login it only shows, and hands the terminal to
//! login(1).
//!
//! | Module | What it is for |
//! |---|---|
//! | [`state`] | inputs to the next state and to effects; pure |
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

use crate::toolkit::Key;
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

/// Work on a node, which may be slow.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeWork {
    Look,
    /// Read the last lines of the journal, without secrets.
    Logs,
    /// Find the volumes of sticks that can take a file, and why others cannot.
    Sticks,
    /// Collect a support bundle: on a volume of a stick, or on the node.
    Bundle(Option<StickVolume>),
    /// Shut the machine down in an orderly way.
    Power(Power),
    /// Read the present networks, to begin the questions with.
    Network,
    /// Check other networks with the whole node document.
    Propose(Box<Networks>),
    /// Begin a trial of other networks; `true` if the user has accepted a grave problem.
    Try(Box<Networks>, bool),
    /// The networks on trial become those of the node.
    Confirm,
    Revert,
}

/// A key, or the result of work, with its error in one line.
#[derive(Clone, Debug)]
pub enum NodePageInput {
    Key(Key),
    Seen(Result<Box<NodePageFacts>, String>),
    Logs(Result<Vec<String>, String>),
    Sticks(Result<StickSurvey, String>),
    Network(Result<Box<PresentNetwork>, String>),
    /// Of [`NodeWork::Propose`].
    Proposed(Result<Box<Proposal>, String>),
    /// Of [`NodeWork::Try`].
    Began(Result<(), String>),
    /// Of other work: the result in a sentence.
    Done(Result<String, String>),
    /// The state of the node's trials.
    Trial(TrialStatus),
}

pub trait NodeControl: Send + Sync {
    /// A text that changes when there is something new to observe; cheap.
    fn signs(&self) -> String;
    /// The state of its trials; cheap.
    fn trial(&self) -> TrialStatus;
    fn carry_out(&self, work: NodeWork) -> NodePageInput;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePageEnd {
    LogIn,
    Quit,
}
