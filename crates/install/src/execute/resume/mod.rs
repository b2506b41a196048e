//! Continuing an interrupted install: its journal, whether there is one, and what of it is taken over.

pub(super) mod journal;
pub(super) mod take_over;
pub(super) mod unfinished;
