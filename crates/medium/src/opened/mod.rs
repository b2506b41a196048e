//! Finished media: opened, believed only as far as their release manifest goes, and read.
//!
//! A medium is an ISO image (a file, a drive or a URL) or a directory with `release.json`, here or on a server. Nothing is mounted and nothing is written.

mod boot_menu;
mod medium;

pub use boot_menu::{MAX_BOOT_MENU, NamedReleaseDifference, named_release_difference};
pub use medium::{COPY_AGAIN, MediumImage, OpenedMedium};
