//! The stages of a node that joins its cluster: which one it is in, since when, and the last error in words.
//!
//! [`observed_node`](mod@observed_node) gathers facts and [`stages`] judges them, as a pure function.
//! [`readiness_watch`](mod@readiness_watch) does both until the node is ready, and records the stages for `installer status` and
//! for the consoles. Nothing here changes the cluster or stops anything on the node.

mod api;
mod facts;
mod judge;
mod known_errors;
mod neighbours;
pub mod observed_node;
pub mod readiness_watch;
mod stage;
#[cfg(test)]
mod tests;

pub use api::serves;
pub(crate) use api::{cluster_node, cluster_nodes, server_version};
pub(crate) use api::{get_text, ping, ready_as_kubelet};
pub use facts::{NodeFacts, ServiceFacts};
pub use judge::stages;
pub use known_errors::without_tokens;
pub use stage::{Stage, StageName, StageState, all_done, current, mark};
