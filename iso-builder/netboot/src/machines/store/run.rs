//! The reports of one machine's latest run, as the store keeps them.

use crate::moment::Moment;

/// What it says is for [`crate::fleet`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunRecord {
    /// JSON.
    pub run: String,
    /// When a reporter that has taken the configuration of the machine was heard last.
    pub heard: Option<Moment>,
    /// Whether there is a log.
    pub has_log: bool,
}
