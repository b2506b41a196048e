//! The OS image that an installed node runs: opened in the initrd by the hashes of its release, and watched while the node runs. What is
//! damaged is repaired from wherever the right bytes are.

mod damage_events;
mod open;
mod watch;

pub use damage_events::DamageEvents;
pub use open::{OpenedImage, condemn_slot, condemn_unopened, end_trial, open};
pub use watch::{ImageVerdict, READ_PERIOD, check, damage_in_words, read_due};
