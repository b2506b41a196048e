//! A release in a registry of container images, or in a directory of the same form, as a source of payloads.
//!
//! Every blob is requested by its digest. A tag is resolved once, so that a tag that moves cannot mix two releases.

mod blobs;
mod opened;

use std::io::Read;

use anyhow::Result;

use super::manifest::{JudgedRelease, read_release};
use super::payload_source::{PayloadPlace, PayloadSource, PayloadTransport};
use crate::artifact::ArtifactReference;
use crate::patches::ReleasePatch;
use base::failure::{Class, Failure};
use model::architecture::Architecture;
use model::release::Payload;
use transfer::registry::Client;
use trust::TrustStore;

pub use opened::OpenedArtifact;

/// Opens the release that `reference` names, for `architecture` where it has several, and judges by its signatures whether it may be used by a system that trusts the
/// keys of `store`. Returns the release and the source of its payloads. `client` has the mirrors, logins and certificates for
/// registries.
///
/// # Errors
/// Those of [`artifact_source`] and [`read_release`].
pub fn open_release(
    reference: &ArtifactReference,
    architecture: Architecture,
    client: &Client,
    store: &TrustStore,
) -> Result<(JudgedRelease, Box<dyn PayloadSource>)> {
    let source = artifact_source(reference, architecture, client)?;
    Ok((read_release(source.as_ref(), None, store)?, source))
}

/// The release that `reference` names, for `architecture` where it has several, as a source, whose release is still to be read and judged.
///
/// # Errors
/// [`Class::Invalid`] if it is not a release, [`Class::Network`] if it cannot be fetched, [`Class::Verification`] if its
/// content has another digest.
pub fn artifact_source(
    reference: &ArtifactReference,
    architecture: Architecture,
    client: &Client,
) -> Result<Box<dyn PayloadSource>> {
    Ok(Box::new(ReleaseSource(OpenedArtifact::open(reference, architecture, client)?)))
}

struct ReleaseSource(OpenedArtifact);

impl ReleaseSource {
    fn present(&self, payload: &Payload) -> Result<()> {
        match self.0.has(payload.sha256) {
            true => Ok(()),
            false => {
                let what = format!("{} is not in {}", payload.path, self.0.name());
                let hint =
                    "A net-install release leaves it to the registries of its images; name a full one.";
                Err(Failure::new(Class::Verification, what).hint(hint).into())
            }
        }
    }
}

impl PayloadSource for ReleaseSource {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        self.open_from(payload, 0)
    }

    fn open_from(&self, payload: &Payload, offset: u64) -> Result<Box<dyn Read + Send>> {
        self.present(payload)?;
        self.0.blob(payload.sha256, payload.size, offset)
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        self.0.has(payload.sha256).then(|| self.0.place())
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        self.present(payload)?;
        self.0.probe(payload.sha256, payload.size)
    }

    fn patches(&self) -> Result<Vec<ReleasePatch>> {
        Ok(self.0.patches().to_vec())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(self.0.release_bytes().to_vec())
    }

    fn signatures(&self) -> Result<Option<Vec<u8>>> {
        self.0.signatures()
    }

    fn transport(&self) -> PayloadTransport {
        self.0.transport()
    }

    fn describe(&self) -> String {
        self.0.name().to_owned()
    }
}
