//! The ways out of the conversation, and the question for one of them.

use crate::ui::questions::{End, Facts};
use crate::ui::toolkit::form::{Choice, Field};

/// The ways to end, and what each is called.
pub(super) fn ways_out(facts: &Facts) -> Vec<(End, &'static str)> {
    match facts.can_quit {
        true => vec![(End::Quit, "End the program")],
        false => vec![(End::Restart, "Restart the machine"), (End::PowerOff, "Power the machine off")],
    }
}

/// The question; `working` says that an install would end with it.
pub(super) fn leaving(facts: &Facts, working: bool) -> Field {
    let back = if working { "Go on with the installation" } else { "Go back to the questions" };
    let ways = ways_out(facts).into_iter().map(|(_, name)| match working {
        true => {
            Choice::new(name).with("The installation ends in the middle; starting it again does it over.")
        }
        false => Choice::new(name),
    });
    let options = [Choice::new(back)].into_iter().chain(ways).collect();
    Field::choice("leave", "Leave?", options, Some(0))
}
