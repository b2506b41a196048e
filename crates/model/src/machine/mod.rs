//! Which machine this is, and which of many configurations is for it.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`mac`] | hardware addresses |
//! | [`identity`] | what a machine tells of itself |
//! | [`selector`] | one such identifier, as users write it and as it stands in the name of a file |
//! | [`nodes`] | a directory with a configuration for each machine |
//!
//! Used by the installer, which looks at the machine it runs on, and by `iso-builder`, which writes configurations for
//! machines and answers those that ask over the network. Nothing here knows what a configuration says.

pub mod identity;
pub mod mac;
pub mod nodes;
pub mod selector;

pub use identity::Identity;
pub use mac::Mac;
pub use nodes::{MachineFileMatch, Nodes};
pub use selector::Selector;
