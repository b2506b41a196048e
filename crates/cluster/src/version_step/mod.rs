//! Moves a node to the version of Kubernetes that its OS brings: a step of its own, after the OS is good.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`keep`] | the version that runs is kept, when an OS comes that does not bring it |
//! | `parts` | the parts of the step, by distribution and by the node's part in its cluster |
//! | [`run`] | takes the remaining parts |
//! | [`record`] | its progress, for power cuts |
//! | [`machine`] | the seam to the node and its cluster |
//! | [`this_node`] | the step on the node that this program runs on |

pub mod keep;
pub mod machine;
mod parts;
pub mod record;
pub mod run;
#[cfg(test)]
mod tests;
pub mod this_node;

pub use keep::{VersionToKeep, keep_running};
pub use machine::{MovedMachine, SystemMachine};
pub use record::MoveRecord;
pub use run::{MovedNode, TakeTurn};
pub use this_node::move_this_node;
