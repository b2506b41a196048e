//! The ways out of the conversation, and the question for one of them.

use crate::questions::{ConversationEnd, ConversationFacts};
use crate::toolkit::form::{Choice, Field};

pub(super) fn ways_out(facts: &ConversationFacts) -> Vec<(ConversationEnd, &'static str)> {
    match facts.can_quit {
        true => vec![(ConversationEnd::Quit, "End the program")],
        false => vec![
            (ConversationEnd::Restart, "Restart the machine"),
            (ConversationEnd::PowerOff, "Power the machine off"),
        ],
    }
}

/// The question; `working`: an install would end with it.
pub(super) fn leaving(facts: &ConversationFacts, working: bool) -> Field {
    let back = if working { "Go on with the installation" } else { "Go back to the questions" };
    let ways = ways_out(facts).into_iter().map(|(_, name)| match working {
        true => Choice::new(name).with("The installation is interrupted; starting it again starts over."),
        false => Choice::new(name),
    });
    let options = [Choice::new(back)].into_iter().chain(ways).collect();
    Field::choice("leave", "Leave?", options, Some(0))
}
