//! The console of the recovery system: why it runs, what the slots have, and the commands that mend the node. It shows and starts
//! commands, and does nothing itself; before a login it only shows.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`state`] | keys to the next state and to effects; pure |
//! | [`draw`] | drawing a state; pure |
//! | [`run`] | one console |

pub mod draw;
pub mod run;
pub mod state;

/// Written at each key, so that the recovery system knows that somebody is there.
pub const KEYS: &str = "/run/nqrust/recovery-key";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryPageEnd {
    /// The user left the page, or nobody was there for long.
    Quit,
    LogIn,
    /// The arguments of this program for a command on the terminal; then the page comes back.
    Run(Vec<String>),
}

#[cfg(test)]
mod tests;
