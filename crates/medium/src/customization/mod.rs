//! The customization of a finished medium: configurations for machines, certificates, files, kernel arguments.
//!
//! Every medium has a file of a fixed length for it, [`FILE`] beside the release manifest, which is all zero until the
//! medium is customized. It is no payload: the manifest, whose digest the boot menu names, stays as it is, and the area
//! has a digest of its own. GRUB reads the kernel arguments from a second file of fixed length, [`GRUB_FILE`].
//!
//! | Module | What it knows |
//! |---|---|
//! | [`area`] | the file as a whole: a header, then an archive, then zeros |
//! | [`content`] | the content of the archive |
//! | [`install`] | its effect on an install |
//! | [`argument`] | kernel arguments, and the file that GRUB reads |
//!
//! `iso-builder customize` writes it; the installer, `verify`, `inspect` and `serve` read it. Where in an ISO the files
//! lie is for `iso-builder` to know.

pub mod area;
pub mod argument;
pub mod content;
mod damage;
pub mod install;

pub use area::AreaContentError;
pub use argument::Argument;
pub use content::{Content, File};
pub use damage::AreaDamage;

/// The area, relative to the root of a medium.
pub const FILE: &str = "custom.img";
/// The file that GRUB reads, relative to the root of a medium.
pub const GRUB_FILE: &str = "boot/grub/custom.cfg";
