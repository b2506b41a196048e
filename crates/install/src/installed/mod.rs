//! Finished nodes of this product on the disks of a machine: which they are, and whether an automatic install may overwrite them.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`find`] | which disks hold a finished node, from an inventory; pure |
//! | [`record`] | what an install records on the node, to be compared with the next one; pure |
//! | [`read`] | the identity and the record of a node, read from its disk without a write or a mount |
//! | [`decide`] | the rule of `install.reinstall`; pure |
//! | [`words`] | descriptions for people |
//!
//! Nothing here writes. Starting a node is [`crate::execute::start_node`].

pub mod decide;
pub mod find;
pub mod read;
pub mod record;
pub mod words;

pub use decide::{LeaveReason, ReinstallDecision, decide};
pub use find::{NodePlace, find};
pub use read::{FinishedNode, KnownRelease, NodeOrigin, read};
pub use record::{FILE, InstallOffer, InstallRecord};
