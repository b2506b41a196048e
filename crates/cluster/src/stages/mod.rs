//! The stages of a node that joins its cluster: which one it is in, since when, and the last error in words.
//!
//! [`observed_node`](mod@observed_node) gathers facts and `judge` judges them, as a pure function.
//! [`readiness_watch`](mod@readiness_watch) does both until the node is ready, and records the stages for `installer status` and
//! for the consoles. Nothing here changes the cluster or stops anything on the node.

mod facts;
mod judge;
mod known_errors;
pub mod observed_node;
pub mod readiness_watch;
mod stage;
#[cfg(test)]
mod tests;

pub use crate::api::open::serves;
pub use known_errors::without_tokens;
pub use stage::{Stage, StageName, StageState, all_done, current, mark};
