//! Changing the network of a running node on trial: unless it is confirmed within a time limit, the old network is restored.
//!
//! The node document is replaced when the change is confirmed and not before, `/etc` is new at every boot, and the record of a
//! trial is in memory: a machine that restarts or loses power during a trial comes up with its old network. During a trial, a
//! timer of systemd restores the old one, so that the session that began the trial may end.
//!
//! | Module | What it does |
//! |---|---|
//! | [`networks`] | the part of a document that a trial changes; pure |
//! | [`change`] | a change checked with the whole document, and its consequences for a cluster; pure |
//! | [`record`] | the record of a trial, and of the last one that ended |
//! | [`span`] | how long a trial lasts |
//! | [`run`] | beginning, setting up, confirming, reverting |
//!
//! The callers are `installer network` and the console of the node.

pub mod change;
pub mod networks;
pub mod record;
pub mod run;
pub mod span;
#[cfg(test)]
mod tests;

pub use change::{AffectedNode, ClusterConcern, NetworkChange};
pub use networks::{NetworkDifference, Networks};
pub use record::{CurrentTrial, EndedTrial, TrialEnding, TrialState, TrialStatus, trial_status};
pub use run::Trials;
pub use span::TrialSpan;
