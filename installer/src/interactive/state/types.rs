//! What there is to say and to do: places, inputs, effects and what comes of them.

use crate::config::InstallConfig;
use crate::config::sources::Combined;
use crate::interactive::screens::Screen;
use crate::interactive::{End, Trouble};
use crate::inventory::Inventory;
use crate::progress::Event;
use crate::terminal::Key;
use crate::terminal::text::Scroll;

/// What is on the screen.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Place {
    /// Questions.
    Asking(Screen),
    /// Where a configuration is to be had.
    Load,
    /// The whole plan, or what is still missing.
    Review(Review),
    /// The last word before disks are erased.
    Confirm(Review),
    /// The install goes on.
    Working {
        /// Whether the log is shown in place of the steps.
        log: Option<Scroll>,
    },
    /// It failed.
    Failed(Trouble, Scroll),
    /// It is done.
    Done {
        /// Where the answers are recorded.
        record: Option<String>,
    },
    /// How to end, and where to go back to.
    Leave(Box<Place>),
}

/// The plan as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Review {
    /// The plan as text; none while it is made, or cannot be.
    pub plan: Option<String>,
    /// What will be erased, a line a disk.
    pub erased: Vec<String>,
    /// Ids of the steps.
    pub steps: Vec<String>,
    /// Mistakes, with the screen where they are put right.
    pub mistakes: Vec<(Option<Screen>, String)>,
    /// How far the text is scrolled.
    pub scroll: Scroll,
}

/// What happens to the conversation.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
pub enum Input {
    /// Somebody presses a key.
    Key(Key),
    /// Time passes.
    Tick,
    /// The install tells of itself.
    Event(Event),
    /// An effect has come to its end.
    Ended(Outcome),
}

/// What came of an effect.
#[derive(Debug)]
pub enum Outcome {
    /// Of [`Effect::LookAgain`].
    Inventory(Result<Inventory, Trouble>),
    /// Of [`Effect::Fetch`].
    Fetched(Result<Box<Combined>, Trouble>),
    /// Of [`Effect::Try`].
    Tried(Screen, Result<String, Trouble>),
    /// Of [`Effect::Plan`].
    Planned(Result<Review, Trouble>),
    /// Of [`Effect::Install`]; where the answers are recorded.
    Installed(Result<Option<String>, Trouble>),
    /// Of [`Effect::End`], which should not come back.
    NotEnded(Trouble),
}

/// What shall be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Look at disks and network cards again.
    LookAgain,
    /// Fetch a configuration.
    Fetch(String),
    /// Try what has been answered on a screen.
    Try(Screen, Box<InstallConfig>),
    /// Make the plan.
    Plan(Box<InstallConfig>),
    /// Install.
    Install(Box<InstallConfig>),
    /// End.
    End(End),
}
