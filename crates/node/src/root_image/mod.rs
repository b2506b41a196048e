//! The OS image that a system runs: opened in the initrd by the hashes of its release, and watched while the system runs. On an installed
//! node what is damaged is repaired from wherever the right bytes are.

mod damage_events;
mod live;
mod open;
mod watch;

pub use damage_events::DamageEvents;
pub use live::{LiveImage, MEMORY_DAMAGED, WRITE_AGAIN, open_live};
pub use open::{OpenedImage, condemn_slot, condemn_unopened, end_trial, open};
pub use watch::{ImageVerdict, READ_PERIOD, check, damage_in_words, read_due};
