//! What the threads of the consoles and of the effects send to the loop.

use crate::questions::ShownTrouble;
use crate::questions::state::ConversationInput;
use crate::toolkit::{Key, Screen};

pub(super) enum LoopEvent {
    /// Keys of the console of this number.
    Keys(usize, Vec<Key>),
    Gone(usize),
    /// A console is back from a shell: its screen, if it still exists, and the result of the shell.
    Back(usize, Option<Box<Screen>>, Result<(), ShownTrouble>),
    Input(ConversationInput),
}
