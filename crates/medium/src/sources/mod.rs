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
mod registry;
mod seen;
mod verify;

use std::io::Read;
use std::path::Path;

use anyhow::Result;

pub use again::fetch_again;
pub use chain::Chain;
pub use http::HttpMedium;
pub use image::{Compared, changed, compare};
pub use local::LocalMedium;
pub use manifest::{expected_customization, expected_manifest, read_release};
pub use registry::{Registry, RegistryMedium};
pub use seen::{Recheck, Seen};
pub use verify::{Verified, damaged};

use formats::iso9660::address::Source;
use model::release::Payload;

/// Where the live system mounts the medium that it was booted from.
pub const BOOT_MEDIUM: &str = "/run/initramfs/live";

/// Where a source has a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this machine: reading it twice costs little.
    Here,
    /// On a server.
    Network,
}

/// The way on which bytes of a medium come: it decides about those that have no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// They are on this machine.
    Local,
    /// From a server that has proved who it is (TLS).
    Encrypted,
    /// From a server without TLS: others on the way can change them.
    Clear,
}

/// Hands out payloads.
pub trait PayloadSource: Send + Sync {
    /// The payload's bytes from the beginning. The reader ends early or fails where the source does; it
    /// does not check the digest.
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>>;

    /// Where the payload is; `None` if this source does not have it. A server is not asked.
    fn place(&self, payload: &Payload) -> Option<Place>;

    /// Asks whether the payload is there in its full length, without reading it.
    fn probe(&self, payload: &Payload) -> Result<()>;

    /// The bytes of the release manifest.
    fn manifest(&self) -> Result<Vec<u8>>;

    /// A file of the medium that is no payload, from its beginning; `None` if the source has none of this name.
    fn beside(&self, _path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        Ok(None)
    }

    /// The way on which its bytes come to this machine.
    fn transport(&self) -> Transport {
        Transport::Local
    }

    /// The bytes of the ISO that the source is; none for a directory or a server.
    fn image(&self) -> Result<Option<Box<dyn Source>>> {
        Ok(None)
    }

    /// The source as a person would name it.
    fn describe(&self) -> String;

    /// Where this payload comes from, where that is a part of the source.
    fn describe_of(&self, _: &Payload) -> String {
        self.describe()
    }
}

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
