//! Opens and reads finished media. Only content with a digest in the release manifest is trusted.
//!
//! A medium is an ISO image (a file, a drive or a URL) or a directory with `release.json`, here or on a server. Nothing is mounted and nothing is written.

mod boot_menu;
mod medium_reader;

pub use boot_menu::{MAX_BOOT_MENU, NamedReleaseDifference, named_release_difference};
pub use medium_reader::{ALLOW_UNSIGNED, COPY_AGAIN, MediumImage, MediumReader};
