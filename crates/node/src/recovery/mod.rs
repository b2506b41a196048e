//! The recovery system: what it does to a node that no slot starts, or that somebody wants to have new.
//!
//! | Module | What it is for |
//! |---|---|
//! | [`reset`] | a reset, step by step, over any number of starts |
//! | [`repair`] | looks at everything that a start needs, and mends what loses nothing |
//! | [`tries`] | which slot is tried again when nobody is there; pure |
//! | [`overview`] | why it runs, and what there is to start |
//! | [`notices`] | what the recovery system does now, for its page |

pub mod notices;
pub mod overview;
pub mod repair;
pub mod reset;
pub mod tries;

pub use notices::RecoveryNotices;
pub use overview::RecoveryFacts;
pub use repair::{Repair, RepairFinding, repair};
pub use reset::{NodeReset, carry_out};
pub use tries::{IdleTime, SlotTries};
