//! What is seen of a node before its stages are judged.

use super::api::Registration;
use crate::nics::Missing;
use crate::node::images::BlobCount;

/// What was seen of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceFacts {
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
pub struct NodeFacts {
    /// The address of the management network, or why there is none.
    pub network: Result<String, String>,
    /// Network cards that the document has and the machine has not.
    pub missing: Option<Missing>,
    /// The addresses at which the cluster answers, or what came back.
    pub server: Result<String, String>,
    /// The service; none where systemd does not answer.
    pub service: Option<ServiceFacts>,
    /// The blobs of the role's images.
    pub images: BlobCount,
    /// The node in its cluster.
    pub node: Registration,
}
