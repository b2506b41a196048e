//! The console of the recovery system: the reason for it, the slots, and commands that repair the node. Before a login it only
//! shows.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`state`] | keys to the next state and to effects; pure |
//! | [`draw`] | drawing a state; pure |
//! | [`run`] | one console |

pub mod draw;
pub mod run;
pub mod state;

/// Written at each key: the recovery system starts no slot while a user is present.
pub const KEYS: &str = "/run/nqrust/recovery-key";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryPageEnd {
    /// The user left the page, or nobody was there for long.
    Quit,
    LogIn,
    /// Run a command of this program on the terminal, with these arguments, and then show the page again.
    Run(Vec<String>),
}

#[cfg(test)]
mod tests;
