//! Where payloads come from: a directory (a mounted medium), an HTTP server, or for blobs of images their registries;
//! alone or one after the other.
//!
//! A source hands out bytes; that they are the right ones is checked by whoever reads them to the end, through
//! [`Verified`] or [`Seen`] or a digest of its own. The release manifest is checked here, against the kernel command
//! line, and what a medium boots from, against the manifest ([`compare`]).

mod again;
mod chain;
mod http;
mod image;
mod local;
mod manifest;
mod payload_source;
mod registry;
mod seen;
mod verify;

use std::path::Path;

use anyhow::Result;

pub use again::fetch_again;
pub use chain::Chain;
pub use http::HttpMedium;
pub use image::{Compared, changed, compare};
pub use local::LocalMedium;
pub use manifest::{expected_customization, expected_manifest, read_release};
pub use payload_source::{PayloadPlace, PayloadSource, PayloadTransport};
pub use registry::{Registry, RegistryMedium};
pub use seen::{Recheck, Seen};
pub use verify::{Verified, damaged};

/// Where the live system mounts the medium that it was booted from.
pub const BOOT_MEDIUM: &str = "/run/initramfs/live";

/// The source that `--medium` names: a URL, a directory, or by default the medium of the live system.
pub fn source(medium: Option<&str>) -> Result<Box<dyn PayloadSource>> {
    match medium {
        Some(url) if is_url(url) => Ok(Box::new(HttpMedium::new(url)?)),
        Some(path) => Ok(Box::new(LocalMedium::new(path))),
        None => Ok(Box::new(LocalMedium::new(BOOT_MEDIUM))),
    }
}

/// Whether `--medium` or `install.medium` names a server.
#[must_use]
pub fn is_url(medium: &str) -> bool {
    medium.starts_with("http://") || medium.starts_with("https://")
}

/// Whether there is a medium at `path`.
#[must_use]
pub fn is_medium(path: &Path) -> bool {
    path.join(model::release::MANIFEST).exists()
}

#[cfg(test)]
mod tests;
