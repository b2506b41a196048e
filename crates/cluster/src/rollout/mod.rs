//! The updates of a cluster's nodes, one after the other, without a coordinator: every node decides for itself.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`report`] | reports the updates of a node to its cluster |
//! | [`api_objects`] | reads the API's answers; pure |
//! | [`gate`] | whether a node may leave for a restart; pure |
//! | [`lock`] | one node at a time: the lease that they share; pure |
//! | [`departure`] | leaving, and what is undone after it |
//! | [`node_query`], `query_pod` | asking every node for what its own installer says, before the first of them leaves |
//! | [`kubernetes_step`] | the step to another version of Kubernetes under the same lock |
//! | [`record`] | the changes to undo |
//! | [`admin`] | the cluster as an administrator changes it |
//!
//! The cluster's own objects are all that nodes share: annotations, cordons and one lease. A node writes its own report with its
//! kubelet's access; to leave it needs that of an administrator.

pub mod admin;
pub mod api_objects;
pub mod departure;
pub mod gate;
pub mod kubernetes_step;
pub mod lock;
pub mod node_query;
mod query_pod;
pub mod record;
pub mod report;
#[cfg(test)]
mod simulation;

pub use departure::{DepartureRequest, Drain, NodeDeparture, UpdateOutcome};
pub use kubernetes_step::move_alone;
pub use node_query::{QueriedNode, ask_nodes};
pub use record::RolloutRecord;
pub use report::NodeReport;
