//! Where the update of a node stands, for those who ask: a decision without effects.

use super::tried_release::TriedRelease;
use super::updated_node::UpdatedNode;
use machine::update_state::{ReleaseId, UpdateState};

/// The progress of the last update of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateStage {
    /// No update has come to an end here that says anything of what runs.
    Idle,
    Staged,
    /// The next restart tries it.
    Pending,
    /// The running release has not passed its health check yet.
    Trial,
    /// It was tried, and runs.
    Good,
    /// It was tried and taken back; why.
    RolledBack(String),
}

impl UpdateStage {
    #[must_use]
    pub fn of(node: &UpdatedNode) -> Self {
        stage(node.tried_release(), &node.memory, &ReleaseId::of(&node.release), node.on_trial())
    }
}

fn stage(tried: TriedRelease, memory: &UpdateState, running: &ReleaseId, on_trial: bool) -> UpdateStage {
    match tried {
        TriedRelease::Failed(reason) => UpdateStage::RolledBack(reason),
        TriedRelease::Staged => UpdateStage::Staged,
        TriedRelease::Armed => UpdateStage::Pending,
        TriedRelease::Runs => UpdateStage::Trial,
        TriedRelease::Nothing | TriedRelease::Lost => match memory.verdicts.last() {
            Some(last) if !last.good => UpdateStage::RolledBack(last.reason.clone()),
            _ if on_trial => UpdateStage::Trial,
            Some(last) if last.release == *running => UpdateStage::Good,
            _ => UpdateStage::Idle,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::update_state::WrittenRelease;
    use model::boot::record::UpdateSlot;

    #[test]
    fn the_last_verdict_counts_until_something_new_is_staged() {
        let running = ReleaseId::of(&testing::release::release().into());
        let mut memory = UpdateState::default();
        let now = |memory: &UpdateState, past, trial| stage(past, memory, &running, trial);
        assert_eq!(now(&memory, TriedRelease::Nothing, false), UpdateStage::Idle);
        assert_eq!(
            now(&memory, TriedRelease::Nothing, true),
            UpdateStage::Trial,
            "the first start after an install"
        );
        memory.staged = Some(WrittenRelease::now(running.clone(), UpdateSlot::B));
        memory.conclude(true, String::new());
        assert_eq!(now(&memory, TriedRelease::Nothing, false), UpdateStage::Good);
        let other = ReleaseId { version: "9".into(), ..running.clone() };
        assert_eq!(
            stage(TriedRelease::Nothing, &memory, &other, false),
            UpdateStage::Idle,
            "somebody went back"
        );
        memory.staged = Some(WrittenRelease::now(running.clone(), UpdateSlot::B));
        memory.conclude(false, "it hung".into());
        assert_eq!(now(&memory, TriedRelease::Nothing, false), UpdateStage::RolledBack("it hung".into()));
        assert_eq!(now(&memory, TriedRelease::Lost, false), UpdateStage::RolledBack("it hung".into()));
        assert_eq!(now(&memory, TriedRelease::Staged, false), UpdateStage::Staged);
        assert_eq!(now(&memory, TriedRelease::Armed, false), UpdateStage::Pending);
        assert_eq!(now(&memory, TriedRelease::Runs, true), UpdateStage::Trial);
        assert_eq!(
            now(&memory, TriedRelease::Failed("load".into()), false),
            UpdateStage::RolledBack("load".into())
        );
    }
}
