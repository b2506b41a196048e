//! A release in a registry or a layout, whose manifest and `release.json` have been read and checked.

use std::collections::BTreeSet;
use std::io::{Cursor, Read};
use std::sync::OnceLock;

use anyhow::Result;

use super::super::manifest::MANIFEST_LIMIT;
use super::super::payload_source::{PayloadPlace, PayloadTransport};
use super::blobs::Blobs;
use crate::artifact::index;
use crate::artifact::manifest::{self, ReadArtifact};
use crate::artifact::{ArtifactReference, BootCodePart, ReleaseDocument};
use crate::patches::ReleasePatch;
use crate::signatures;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use formats::oci::{ArtifactManifest, Descriptor};
use model::architecture::Architecture;
use model::release::{MANIFEST, Release, SIGNATURES, SIGNATURES_LENGTH};
use transfer::registry::Client;

/// The most documents about a release that are read.
const MAX_DOCUMENTS: usize = 16;

/// A release in a registry or a layout.
#[derive(Debug)]
pub struct OpenedArtifact {
    name: String,
    blobs: Blobs,
    /// The transport of its manifest, which has the digests of everything else.
    transport: PayloadTransport,
    /// Digest of the artifact's manifest.
    digest: Digest,
    /// Its length in bytes.
    size: u64,
    release: Release,
    /// `release.json`.
    bytes: Vec<u8>,
    layers: BTreeSet<Digest>,
    patches: Vec<ReleasePatch>,
    signatures: Option<Descriptor>,
    /// The file with the signatures, once it was read and compared with its digest.
    read_signatures: OnceLock<Vec<u8>>,
}

impl OpenedArtifact {
    /// Opens what `reference` names: the release for `architecture` where it has several. `client` is used for registries only.
    pub fn open(reference: &ArtifactReference, architecture: Architecture, client: &Client) -> Result<Self> {
        let name = reference.to_string();
        let (blobs, manifest, transport) = Blobs::find(reference, architecture, client)?;
        let ReadArtifact { release: config, layers, patches, signatures } = manifest::read(&manifest, &name)?;
        let limits = [(Some(&config), MANIFEST, MANIFEST_LIMIT)].into_iter();
        let limits = limits.chain([(signatures.as_ref(), SIGNATURES, SIGNATURES_LENGTH)]);
        for (document, file, limit) in limits {
            if document.is_some_and(|document| document.size > limit) {
                let what = format!("{file} of {name} is larger than {limit} bytes");
                return Err(Failure::new(Class::Verification, what).into());
            }
        }
        let bytes = document(&blobs, &config, || format!("reading {MANIFEST} of {name}"))?;
        let release =
            Release::parse(&bytes).class(Class::Verification, || format!("reading {MANIFEST} of {name}"))?;
        let digest = Digest::of(&manifest);
        Ok(Self {
            name,
            blobs,
            transport,
            digest,
            size: manifest.len() as u64,
            release,
            bytes,
            layers,
            patches,
            signatures,
            read_signatures: OnceLock::new(),
        })
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

    /// The artifact's manifest as an index has it.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        index::entry(self.digest, self.size, self.release.architecture)
    }

    #[must_use]
    pub fn release(&self) -> &Release {
        &self.release
    }

    #[must_use]
    pub fn release_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The signatures of `release.json`, as text without padding; none if it is unsigned. They are requested
    /// the first time, and not checked.
    pub fn signatures(&self) -> Result<Option<Vec<u8>>> {
        let Some(layer) = &self.signatures else { return Ok(None) };
        let bytes = match self.read_signatures.get() {
            Some(bytes) => bytes,
            None => {
                let reading = || format!("reading {SIGNATURES} of {}", self.name);
                let bytes = document(&self.blobs, layer, reading)?;
                self.read_signatures.get_or_init(|| bytes)
            }
        };
        Ok(signatures::text(bytes.clone()))
    }

    /// The documents about this artifact that are in its place, at most the last [`MAX_DOCUMENTS`]: nobody vouches for them, and of
    /// each kind there may be several.
    ///
    /// # Errors
    /// The list, or one of them, cannot be read.
    pub fn documents(&self) -> Result<Vec<(ReleaseDocument, Vec<u8>)>> {
        let all = self.blobs.referrers(self.digest)?;
        let mut found = Vec::new();
        for referrer in all.iter().rev().take(MAX_DOCUMENTS) {
            let Some(kind) = ReleaseDocument::of_type(&referrer.artifact_type) else { continue };
            let manifest = self.blobs.manifest(referrer.manifest.digest)?;
            let reading = || format!("reading {} of {}", kind.file(), self.name);
            let manifest = ArtifactManifest::parse(&manifest).class(Class::Verification, reading)?;
            // In a layout all are in one list; in a registry a list may have anything.
            let is_about = manifest.subject.is_some_and(|subject| subject.digest == self.digest);
            let [layer] = &manifest.layers[..] else { continue };
            if is_about && layer.size <= kind.limit() {
                found.push((kind, document(&self.blobs, layer, reading)?));
            }
        }
        Ok(found)
    }

    /// Digest and length in bytes of the file with the signatures; none if it is unsigned.
    #[must_use]
    pub fn signatures_blob(&self) -> Option<(Digest, u64)> {
        self.signatures.as_ref().map(|layer| (layer.digest, layer.size))
    }

    /// The digest of `release.json`, which identifies the release.
    #[must_use]
    pub fn release_digest(&self) -> Digest {
        Digest::of(&self.bytes)
    }

    /// The boot code for ISOs of the release; none if the artifact does not have it.
    #[must_use]
    pub fn boot_code(&self) -> Option<[BootCodePart; 2]> {
        let parts = BootCodePart::of(self.release.iso.as_ref()?.bios.as_ref()?);
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

    /// The bytes of a blob from `offset` on. Whoever reads them checks the digest. Signatures that were read are not requested again.
    pub fn blob(&self, digest: Digest, size: u64, offset: u64) -> Result<Box<dyn Read + Send>> {
        let of_signatures = self.signatures.as_ref().is_some_and(|layer| layer.digest == digest);
        if let Some(bytes) = self.read_signatures.get().filter(|_| of_signatures) {
            let mut rest = Cursor::new(bytes.clone());
            rest.set_position(offset);
            return Ok(Box::new(rest));
        }
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

/// A short document of an artifact. `reading` names it in errors.
fn document(blobs: &Blobs, blob: &Descriptor, reading: impl Fn() -> String) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reader = blobs.read(blob.digest, blob.size, 0)?;
    reader.take(blob.size + 1).read_to_end(&mut bytes).class(Class::Network, &reading)?;
    match Digest::of(&bytes) {
        found if found == blob.digest => Ok(bytes),
        found => {
            let why = anyhow::anyhow!("its SHA-256 is {found} instead of {}", blob.digest);
            Err(Failure::new(Class::Verification, reading()).because(why).into())
        }
    }
}
