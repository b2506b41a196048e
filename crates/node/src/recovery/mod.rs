//! The recovery system: for a node of which no slot starts, or that is to be reset.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`reset`] | a reset, step by step, over any number of starts |
//! | [`repair`] | checks everything that a start needs, and repairs what can be repaired without loss |
//! | [`tries`] | which slot an unattended machine starts again; pure |
//! | [`overview`] | why it runs, and which slots can be started |
//! | [`notices`] | what the recovery system is doing, for its page |

pub mod notices;
pub mod overview;
pub mod repair;
pub mod reset;
pub mod tries;

pub use notices::RecoveryNotices;
pub use overview::RecoveryFacts;
pub use repair::{RepairFinding, RepairState, repair};
pub use reset::{NodeReset, carry_out};
pub use tries::{IdleTime, SlotTries};
