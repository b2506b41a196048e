//! What all machines have told, within limits of memory.

use std::collections::BTreeMap;

use model::fleet::{Hello, Line};

use crate::machine_id::MachineId;
use crate::moment::Moment;

use super::story::{RunOutcome, Story};

/// All logs together, in bytes; beyond it those go that are the oldest.
const LOGS: usize = 32 << 20;
/// So many machines tell their stories.
const MOST: usize = 2000;

/// What all machines have told.
#[derive(Clone, Debug, Default)]
pub struct Stories(BTreeMap<MachineId, Story>);

impl Stories {
    /// What this machine has told.
    #[must_use]
    pub fn get(&self, id: MachineId) -> Option<&Story> {
        self.0.get(&id)
    }

    /// Takes in what [`super::story::read`] has checked. `has_taken` says whether the one who tells it has taken the
    /// configuration: what anybody else told before is no part of that story. Returns whether the story is a new one, and
    /// what the run has come to, if it is over.
    pub fn hear(
        &mut self,
        id: MachineId,
        has_taken: bool,
        (hello, lines): (&Hello, &[Line]),
        now: Moment,
    ) -> (bool, Option<RunOutcome>) {
        let same = |story: &Story| story.run == hello.run && story.has_taken == has_taken;
        let new = !self.0.get(&id).is_some_and(same);
        if new {
            let mut story = Story::new(hello.run, now);
            story.has_taken = has_taken;
            self.0.insert(id, story);
        }
        let Some(story) = self.0.get_mut(&id) else { return (new, None) };
        story.hear(hello, lines, now);
        let outcome = story.outcome();
        self.make_room(id);
        (new, outcome)
    }

    /// Forgets what is oldest, where there is too much; `keep` has just spoken.
    fn make_room(&mut self, keep: MachineId) {
        let others = |story: &(&MachineId, &Story)| *story.0 != keep;
        while self.0.len() > MOST {
            let oldest = self.0.iter().filter(others).min_by_key(|(_, story)| story.heard).map(|(id, _)| *id);
            let Some(oldest) = oldest else { return };
            self.0.remove(&oldest);
        }
        while self.0.values().map(|story| story.log.len()).sum::<usize>() > LOGS {
            let logs = self.0.iter().filter(others).filter(|(_, story)| !story.log.is_empty());
            let oldest = logs.min_by_key(|(_, story)| story.heard).map(|(id, _)| *id);
            let Some(story) = oldest.and_then(|oldest| self.0.get_mut(&oldest)) else { return };
            story.log = String::new();
        }
    }
}
