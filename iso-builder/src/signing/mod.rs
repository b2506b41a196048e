//! The keys that sign releases, and those that the builder knows its own and others' releases by.
//!
//! A release is signed by what opens a [`ReleaseSigner`]: a key file of minisign, or a command that asks a device or a service.
//! Nothing here signs unless it is told which key to take; `development` is a name for one that is made at its first use.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`arguments`] | the options of commands about keys |
//! | [`spec`] | `trust` of an image definition, and the trust store that goes into the OS image |
//! | [`revocation_list`] | the file that `trust.revoked.list` names, which only grows |
//! | [`key_directory`] | where a user's keys are, and how new ones get there |
//! | [`passphrase`] | where the passphrase of a key file comes from |
//! | [`signer`] | opening a key, and signing |
//! | [`known_keys`] | the keys that this builder trusts when it reads a finished release |

pub(crate) mod arguments;
pub mod key_directory;
pub mod known_keys;
pub mod passphrase;
pub mod revocation_list;
pub mod signer;
pub mod spec;
#[cfg(test)]
mod tests;

pub use key_directory::{KeyDirectory, NewKey};
pub use known_keys::{SignatureSummary, known_keys, public_keys};
pub use passphrase::PassphraseSource;
pub use signer::{ReleaseSigner, SignerOptions, add_all};
