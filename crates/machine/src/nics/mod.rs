//! The network cards that a configuration names: with which hardware address each is remembered, and which card of a machine it
//! is.
//!
//! Kernel and firmware name a card after its slot, and the name changes with the board, the slot or the firmware. So a node
//! remembers the hardware address of each card that its document names ([`RememberedCards`], beside the document), and looks for the
//! address first. A replaced card has another address, and is found by the name.
//!
//! Everything here is a function of values except [`record`] and [`missing::write_issue`]. The planner makes the first record; the node
//! reads it at each boot, when a document is applied, and for its page. A card that a document gives by its hardware address
//! (`hw_addr`) needs no record and has none.

pub mod missing;
pub mod record;
mod remembered;
mod selectors;
#[cfg(test)]
mod tests;

pub use missing::MissingCards;
pub use remembered::{FoundCard, MANAGEMENT, RememberedCards, WantedCard, find, wanted};
pub use selectors::CardSelectors;
