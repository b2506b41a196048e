//! Documents of the reference product as documents of ours, for `installer convert`: those of every version, the file that its
//! nodes keep, stages of its operating system, and kernel command lines.
//!
//! | Module | What it does |
//! |---|---|
//! | [`conversion`] | all rounds, and the check |
//! | [`translate`] | one round: what the reader says of each key, done |
//! | [`stages`] | stages of the operating system as keys of `os` |
//! | [`boot_line`] | kernel command lines and boot scripts as a document |
//! | [`draft`] | the document with its notes and comments, written |
//!
//! What there is to change is what the reader of configurations says itself, so there is no second table of keys. A round
//! does all that can be done; rules may have more to say of what it leaves, so rounds follow until nothing changes. A
//! document in which nothing is to change stays as it is, to the byte. What is written has been checked like any document.

mod boot_line;
mod change;
mod conversion;
mod draft;
mod stages;
#[cfg(test)]
mod tests;
mod translate;

pub use boot_line::{command_line, is_boot_line};
pub use change::{Change, ChangeKind};
pub use conversion::{ConvertedDocument, document};
