//! The observed facts about a node, from which its stages are judged.

use crate::images::BlobCount;
use crate::observation::neighbours::RivalMachine;
use crate::observation::{ClusterView, UnitState};
use machine::nics::MissingCards;

#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    /// The name of the node in its cluster, if it has one.
    pub(crate) name: Option<String>,
    /// The address of the management network, or why there is none.
    pub(crate) network: Result<String, String>,
    /// Network cards of the document that are missing.
    pub(crate) missing: Option<MissingCards>,
    /// Another machine that answers for a virtual address of this node.
    pub(crate) rival: Option<RivalMachine>,
    pub(crate) cluster: ClusterView,
    /// The unit that the node waits for; `None` if systemd does not answer.
    pub(crate) service: Option<UnitState>,
    /// The last lines of the journal of the node's units.
    pub(crate) journal: Vec<String>,
    /// The space left for the cluster's data, in bytes; `None` on a node without any.
    pub(crate) space: Option<u64>,
    pub(crate) images: BlobCount,
}
