//! Changing the network of a running node on trial: unless somebody says within a time that it shall stay, the old
//! network comes back by itself.
//!
//! The node document is replaced when the change is confirmed and not before, `/etc` starts fresh at every boot, and what
//! is known of a trial is in memory: a machine that restarts or loses power during a trial comes up with its old network.
//! While it runs, a timer of systemd brings the old one back, so that it does not matter whether the session lives that
//! began the trial.
//!
//! | Module | What it does |
//! |---|---|
//! | [`networks`] | what of a document a trial changes; pure |
//! | [`change`] | a change checked with the whole document, and what a cluster says to it; pure |
//! | [`record`] | what is known of a trial, and of the last one that ended |
//! | [`run`] | beginning, setting up, confirming, reverting |
//!
//! `installer network` and the console of the node are the callers.

pub mod change;
pub mod networks;
pub mod record;
pub mod run;
#[cfg(test)]
mod tests;

pub use change::{AffectedNode, Change, Concern};
pub use networks::{Difference, Networks};
pub use record::{Ended, How, Now, Span, Standing, TrialState, standing};
pub use run::Trials;
