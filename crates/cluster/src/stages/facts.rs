//! The observed facts about a node, from which its stages are judged.

use super::api::Registration;
use super::neighbours::RivalMachine;
use crate::images::BlobCount;
use machine::nics::MissingCards;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
    pub unit: &'static str,
    /// `LoadState` of the unit.
    pub load: String,
    /// `ActiveState` of the unit.
    pub active: String,
    /// `SubState` of the unit.
    pub sub: String,
    /// `Result` of the unit.
    pub result: String,
    /// How often systemd has restarted it.
    pub restarts: u64,
    /// The last lines of its journal.
    pub said: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The address of the management network, or why there is none.
    pub network: Result<String, String>,
    /// Network cards of the document that are missing.
    pub missing: Option<MissingCards>,
    /// Another machine that answers for a virtual address of this node.
    pub rival: Option<RivalMachine>,
    /// The addresses at which the cluster answers, or the error.
    pub server: Result<String, String>,
    /// The service; `None` if systemd does not answer.
    pub service: Option<ServiceFacts>,
    /// How much room is left for the cluster's data, in bytes; `None` on a node without any.
    pub room: Option<u64>,
    pub images: BlobCount,
    /// The node in its cluster.
    pub node: Registration,
}
