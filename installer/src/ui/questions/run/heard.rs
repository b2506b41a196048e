//! What the threads of the consoles and of the effects tell the loop.

use crate::ui::questions::ShownTrouble;
use crate::ui::questions::state::ConversationInput;
use crate::ui::toolkit::{Key, Screen};

/// What the loop hears.
pub(super) enum Heard {
    /// Keys of the console of this number.
    Keys(usize, Vec<Key>),
    /// A console is gone.
    Gone(usize),
    /// A console is back from a shell: its screen, if it is still there, and what came of the shell.
    Back(usize, Option<Box<Screen>>, Result<(), ShownTrouble>),
    /// Everything else.
    Input(ConversationInput),
}
