//! A release in a registry or a layout, whose manifest and `release.json` have been read and checked.

use std::collections::BTreeSet;
use std::io::Read;

use anyhow::Result;

use super::super::manifest::MANIFEST_LIMIT;
use super::super::payload_source::{PayloadPlace, PayloadTransport};
use super::blobs::Blobs;
use crate::artifact::manifest::{self, ReadArtifact};
use crate::artifact::{ArtifactReference, BootCodePart};
use crate::patches::ReleasePatch;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use model::release::{MANIFEST, Release};
use transfer::registry::Client;

/// A release in a registry or a layout.
#[derive(Debug)]
pub struct OpenedArtifact {
    name: String,
    blobs: Blobs,
    /// The transport of its manifest, which has the digests of everything else.
    transport: PayloadTransport,
    /// Digest of the artifact's manifest.
    digest: Digest,
    release: Release,
    /// `release.json`.
    bytes: Vec<u8>,
    layers: BTreeSet<Digest>,
    patches: Vec<ReleasePatch>,
}

impl OpenedArtifact {
    /// Opens what `reference` names. `client` is used for registries only.
    pub fn open(reference: &ArtifactReference, client: &Client) -> Result<Self> {
        let name = reference.to_string();
        let (blobs, manifest, transport) = Blobs::find(reference, client)?;
        let ReadArtifact { release: config, layers, patches } = manifest::read(&manifest, &name)?;
        let reading = || format!("reading {MANIFEST} of {name}");
        if config.size > MANIFEST_LIMIT {
            let what = format!("{MANIFEST} of {name} is larger than {MANIFEST_LIMIT} bytes");
            return Err(Failure::new(Class::Verification, what).into());
        }
        let mut bytes = Vec::new();
        let reader = blobs.read(config.digest, config.size, 0)?;
        reader.take(config.size + 1).read_to_end(&mut bytes).class(Class::Network, reading)?;
        let found = Digest::of(&bytes);
        if found != config.digest {
            let why = anyhow::anyhow!("its SHA-256 is {found} instead of {}", config.digest);
            return Err(Failure::new(Class::Verification, reading()).because(why).into());
        }
        let release = Release::parse(&bytes).class(Class::Verification, reading)?;
        Ok(Self { name, blobs, transport, digest: Digest::of(&manifest), release, bytes, layers, patches })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Of the artifact's manifest: what pins it in a registry.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    #[must_use]
    pub fn release(&self) -> &Release {
        &self.release
    }

    #[must_use]
    pub fn release_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The digest of `release.json`, which identifies the release.
    #[must_use]
    pub fn release_digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// The boot code for ISOs of the release; none if the artifact does not have it.
    #[must_use]
    pub fn boot_code(&self) -> Option<[BootCodePart; 2]> {
        let parts = BootCodePart::of(self.release.iso.as_ref()?);
        parts.iter().all(|part| self.has(part.sha256)).then_some(parts)
    }

    #[must_use]
    pub fn patches(&self) -> &[ReleasePatch] {
        &self.patches
    }

    /// True if a blob belongs to the artifact.
    #[must_use]
    pub fn has(&self, digest: Digest) -> bool {
        self.layers.contains(&digest)
    }

    /// The bytes of a blob from `offset` on. Whoever reads them checks the digest.
    pub fn blob(&self, digest: Digest, size: u64, offset: u64) -> Result<Box<dyn Read + Send>> {
        self.blobs.read(digest, size, offset)
    }

    pub(super) fn probe(&self, digest: Digest, size: u64) -> Result<()> {
        self.blobs.probe(digest, size)
    }

    pub(super) fn transport(&self) -> PayloadTransport {
        self.transport
    }

    pub(super) fn place(&self) -> PayloadPlace {
        self.blobs.place()
    }
}
