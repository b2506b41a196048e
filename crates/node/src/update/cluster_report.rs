//! What this node reports of its updates to its cluster, from where its update stands: a decision without effects.

use super::stage::UpdateStage;
use super::updated_node::UpdatedNode;
use base::digest::Digest;
use cluster::rollout::report::{NodeReport, ReportedState};
use machine::update_state::ReleaseId;

#[must_use]
pub fn report_of(node: &UpdatedNode) -> NodeReport {
    let stage = UpdateStage::of(node);
    let running = ReleaseId::of(&node.release);
    let staged = || node.memory.staged.as_ref().map(|staged| staged.release.clone());
    let tried = || node.memory.verdicts.last().map(|verdict| verdict.release.clone());
    let (state, about, reason) = match stage {
        UpdateStage::Idle => (ReportedState::Idle, None, String::new()),
        UpdateStage::Good => (ReportedState::Good, None, String::new()),
        UpdateStage::Staged => (ReportedState::Staged, staged(), String::new()),
        UpdateStage::Pending => (ReportedState::PendingReboot, staged(), String::new()),
        UpdateStage::Trial => (ReportedState::Trial, staged(), String::new()),
        UpdateStage::RolledBack(reason) => (ReportedState::RolledBack, staged().or_else(tried), reason),
    };
    NodeReport {
        version: node.release.version.clone(),
        slot: node.slots.running.to_string(),
        state,
        about: about.unwrap_or(running),
        reason,
    }
}

/// The report of a node whose update to `about` has failed before its restart.
#[must_use]
pub fn report_of_failure(node: &UpdatedNode, about: Option<Digest>, reason: String) -> NodeReport {
    let mut report = NodeReport { state: ReportedState::Failed, reason, ..report_of(node) };
    if let Some(digest) = about {
        report.about = ReleaseId { digest, version: String::new() };
    }
    report
}
