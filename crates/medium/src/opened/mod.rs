//! Finished media: opened, believed only as far as their release manifest goes, and read.
//!
//! A medium is an ISO image (a file or a drive) or a directory with `release.json`. Nothing is mounted and nothing is written.

mod boot_menu;
mod medium;

pub use boot_menu::{MAX_BOOT_MENU, NamedReleaseDifference, named_release_difference};
pub use medium::{COPY_AGAIN, OpenedMedium};
