//! Sources of payloads: a directory (a mounted medium), an ISO as a file or on a drive, an HTTP server with such a directory
//! or an ISO, a registry or an OCI layout with the release as an artifact, or for blobs of images their registries; alone or
//! as a chain.
//!
//! A source only provides bytes; the reader checks them at their end, with [`VerifyingReader`] or a digest of its own. The release manifest is checked here, against the kernel command
//! line, and what a medium boots from, against the manifest ([`compare`]).

mod again;
mod artifact;
mod chain;
mod hardware;
mod http;
mod http_iso;
mod image;
mod iso_file;
mod local;
mod manifest;
mod payload_source;
mod registry;
mod verify;

use std::path::Path;

use anyhow::Result;
use model::architecture::Architecture;
use model::config::formats::storage::is_iso_file;

use transfer::registry::{Client, Settings};

use crate::artifact::LAYOUT;
use crate::build_output::BuildOutput;
use crate::by_architecture::of_architecture;
use crate::reader::MediumReader;

pub use crate::http::is_url;
pub use again::fetch_again;
pub use artifact::{OpenedArtifact, artifact_source, open_release};
pub use chain::Chain;
pub use hardware::read_hardware;
pub use http::HttpMedium;
pub use http_iso::HttpIso;
pub use image::{MediumComparison, changed, compare};
pub use iso_file::IsoFile;
pub use local::LocalMedium;
pub use manifest::{
    JudgedRelease, expected_customization, expected_manifest, judge_release, read_manifest, read_release,
    require_origin,
};
pub use payload_source::{PayloadPlace, PayloadSource, PayloadTransport};
pub use registry::{Registry, RegistryMedium};
pub use transfer::download::RetryPolicy;
pub use verify::{VerifyingReader, damaged};

/// Where the live system mounts the medium that it was booted from.
pub const BOOT_MEDIUM: &str = "/run/initramfs/live";

/// The source that `--medium` or `install.medium` names: the URL of an ISO or of a directory, an ISO, a drive that holds one, a
/// directory with the content of one, what a build wrote, or the release in an OCI layout (`oci:DIRECTORY`); by default the medium of the live system. Servers may be ones that the authorities of these certificates (PEM)
/// vouch for.
pub fn source(
    medium: Option<&str>,
    authorities: &[String],
    retry: RetryPolicy,
) -> Result<Box<dyn PayloadSource>> {
    let iso = |path: &Path| -> Result<Box<dyn PayloadSource>> {
        Ok(Box::new(IsoFile::new(MediumReader::open(path)?)))
    };
    match medium {
        Some(url) if is_url(url) => served(url, authorities, retry),
        Some(layout) if layout.starts_with(LAYOUT) => {
            // A layout is read without requests.
            {
                let client = Client::new(Settings::default())?;
                artifact_source(&layout.parse()?, Architecture::of_this_program(), &client)
            }
        }
        Some(path) if Path::new(path).is_dir() => {
            // Of a build for several architectures, the outputs for this machine.
            let directory = of_architecture(Path::new(path), Architecture::of_this_program());
            match BuildOutput::open(&directory)?.and_then(|output| output.iso()) {
                Some(built) => iso(&built),
                // The mount of an ISO, or a directory with further payloads.
                None => Ok(Box::new(LocalMedium::new(directory))),
            }
        }
        Some(path) => iso(Path::new(path)),
        None => Ok(Box::new(LocalMedium::new(BOOT_MEDIUM))),
    }
}

/// The medium at a URL: an ISO where that ends in `.iso`, else the directory with the content of one. The server may be one that the
/// authorities of these certificates (PEM) vouch for.
pub fn served(url: &str, authorities: &[String], retry: RetryPolicy) -> Result<Box<dyn PayloadSource>> {
    match is_iso_file(url) {
        true => Ok(Box::new(HttpIso::open(url, authorities, retry)?)),
        false => Ok(Box::new(HttpMedium::open(url, authorities, retry)?)),
    }
}

#[must_use]
pub fn is_medium(path: &Path) -> bool {
    path.join(model::release::MANIFEST).exists()
}

#[cfg(test)]
mod tests;
