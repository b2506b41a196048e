//! Where the update of a node stands, for those who ask: a decision without effects.

use super::past::Past;
use super::updated_node::UpdatedNode;
use machine::update_state::{ReleaseId, UpdateState};

/// Where the last update of a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No update has come to an end here that says anything of what runs.
    Idle,
    Staged,
    /// The next restart tries it.
    Pending,
    /// What runs is not known to be good yet.
    Trial,
    /// It was tried, and runs.
    Good,
    /// It was tried and taken back; why.
    RolledBack(String),
}

impl Standing {
    #[must_use]
    pub fn of(node: &UpdatedNode) -> Self {
        standing(node.past(), &node.memory, &ReleaseId::of(&node.release), node.on_trial())
    }
}

fn standing(past: Past, memory: &UpdateState, running: &ReleaseId, on_trial: bool) -> Standing {
    match past {
        Past::Failed(reason) => Standing::RolledBack(reason),
        Past::Staged => Standing::Staged,
        Past::Armed => Standing::Pending,
        Past::Runs => Standing::Trial,
        Past::Nothing | Past::Lost => match memory.verdicts.last() {
            Some(last) if !last.good => Standing::RolledBack(last.reason.clone()),
            _ if on_trial => Standing::Trial,
            Some(last) if last.release == *running => Standing::Good,
            _ => Standing::Idle,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::update_state::Written;
    use model::boot::record::UpdateSlot;

    #[test]
    fn the_last_verdict_counts_until_something_new_is_staged() {
        let running = ReleaseId::of(&testing::release::release());
        let mut memory = UpdateState::default();
        let now = |memory: &UpdateState, past, trial| standing(past, memory, &running, trial);
        assert_eq!(now(&memory, Past::Nothing, false), Standing::Idle);
        assert_eq!(now(&memory, Past::Nothing, true), Standing::Trial, "the first start after an install");
        memory.staged = Some(Written::now(running.clone(), UpdateSlot::B));
        memory.conclude(true, String::new());
        assert_eq!(now(&memory, Past::Nothing, false), Standing::Good);
        let other = ReleaseId { version: "9".into(), ..running.clone() };
        assert_eq!(standing(Past::Nothing, &memory, &other, false), Standing::Idle, "somebody went back");
        memory.staged = Some(Written::now(running.clone(), UpdateSlot::B));
        memory.conclude(false, "it hung".into());
        assert_eq!(now(&memory, Past::Nothing, false), Standing::RolledBack("it hung".into()));
        assert_eq!(now(&memory, Past::Lost, false), Standing::RolledBack("it hung".into()));
        assert_eq!(now(&memory, Past::Staged, false), Standing::Staged);
        assert_eq!(now(&memory, Past::Armed, false), Standing::Pending);
        assert_eq!(now(&memory, Past::Runs, true), Standing::Trial);
        assert_eq!(now(&memory, Past::Failed("load".into()), false), Standing::RolledBack("load".into()));
    }
}
