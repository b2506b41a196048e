//! Access to the blobs of an artifact.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use anyhow::Result;

use super::super::payload_source::{PayloadPlace, PayloadTransport};
use crate::artifact::{ArtifactReference, LayoutReference, ReleaseDocument};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::read_at_most;
use formats::oci::layout::ImageLayout;
use formats::oci::referrers::{self, Referrer};
use formats::oci::{ArtifactManifest, Descriptor, ImageIndex, Repository};
use model::architecture::Architecture;
use transfer::registry::{Client, MANIFEST_LIMIT};

/// A repository of a registry, or an OCI layout.
#[derive(Debug)]
pub(super) enum Blobs {
    Registry(Client, Repository),
    Layout(ImageLayout),
}

impl Blobs {
    /// The place that `reference` names, the manifest of the artifact there, checked against its digest if that is known, and how the
    /// manifest came. Of an index the artifact for `architecture` is taken.
    pub(super) fn find(
        reference: &ArtifactReference,
        architecture: Architecture,
        client: &Client,
    ) -> Result<(Self, Vec<u8>, PayloadTransport)> {
        let (blobs, bytes, transport) = Self::named(reference, client)?;
        let Ok(index) = serde_json::from_slice::<ImageIndex>(&bytes) else {
            return Ok((blobs, bytes, transport));
        };
        let Some(chosen) = index.choose(architecture.debian()) else {
            let what = format!("{reference} has no release for {architecture}");
            let why = anyhow::anyhow!("it has releases for {}", index.platforms().join(", "));
            return Err(Failure::new(Class::Invalid, what)
                .because(why)
                .hint("Push the release for it to the same tag too, or name another tag; `iso-builder pull --architecture` takes one of the others.")
                .into());
        };
        let bytes = blobs.manifest(chosen.digest)?;
        Ok((blobs, bytes, transport))
    }

    /// What `reference` itself leads to: a manifest, or an index of manifests.
    fn named(reference: &ArtifactReference, client: &Client) -> Result<(Self, Vec<u8>, PayloadTransport)> {
        match reference {
            ArtifactReference::Registry(image) => {
                let manifest = client.document(image)?;
                let transport = match manifest.authenticated {
                    true => PayloadTransport::Encrypted,
                    false => PayloadTransport::Clear,
                };
                let blobs = Self::Registry(client.clone(), image.repository().clone());
                Ok((blobs, manifest.bytes, transport))
            }
            ArtifactReference::Layout(named) => {
                let layout = ImageLayout::open(&named.directory)?;
                let digest = choose(&layout, named, reference)?;
                let path = layout.blob(digest);
                let bytes = read_at_most(&path, MANIFEST_LIMIT)
                    .class(Class::Verification, || format!("reading the manifest of {reference}"))?;
                match Digest::of(&bytes) == digest {
                    true => Ok((Self::Layout(layout), bytes, PayloadTransport::Local)),
                    false => {
                        let what = format!("{} is damaged", path.display());
                        Err(Failure::new(Class::Verification, what).hint("Copy the layout again.").into())
                    }
                }
            }
        }
    }

    /// The bytes of a blob from `offset` on. Whoever reads them checks the digest.
    pub(super) fn read(&self, digest: Digest, size: u64, offset: u64) -> Result<Box<dyn Read + Send>> {
        match self {
            Self::Registry(client, repository) => client.blob(repository, digest, size, offset),
            Self::Layout(layout) => {
                let path = layout.blob(digest);
                let what = || format!("opening {}", path.display());
                let mut file = File::open(&path).map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => lacking(layout, digest),
                    _ => Failure::new(Class::DiskIo, what()).because(error),
                })?;
                file.seek(SeekFrom::Start(offset)).class(Class::DiskIo, what)?;
                Ok(Box::new(file))
            }
        }
    }

    /// The documents about the artifact `subject` that are there, as lists have them.
    pub(super) fn referrers(&self, subject: Digest) -> Result<Vec<Referrer>> {
        let mut found = match self {
            Self::Registry(client, repository) => {
                let list = client.referrers(repository, subject)?;
                let read: Result<Vec<_>, _> = list.pages().map(referrers::referrers).collect();
                let what = || format!("reading what refers to {}", repository.with_digest(subject));
                read.class(Class::Verification, what)?.concat()
            }
            Self::Layout(layout) => layout.referrers()?,
        };
        found.retain(|referrer| ReleaseDocument::of_type(&referrer.artifact_type).is_some());
        Ok(found)
    }

    /// The bytes of the manifest with this digest, which they have.
    pub(super) fn manifest(&self, digest: Digest) -> Result<Vec<u8>> {
        let layout = match self {
            Self::Registry(client, repository) => {
                return Ok(client.document(&repository.with_digest(digest))?.bytes);
            }
            Self::Layout(layout) => layout,
        };
        let bytes = read_at_most(&layout.blob(digest), MANIFEST_LIMIT)?;
        match Digest::of(&bytes) == digest {
            true => Ok(bytes),
            false => Err(lacking(layout, digest).into()),
        }
    }

    /// Checks that a blob exists in full length.
    pub(super) fn probe(&self, digest: Digest, size: u64) -> Result<()> {
        match self {
            Self::Registry(client, repository) => client.probe(repository, digest, size),
            Self::Layout(layout) => match layout.length(digest)? {
                Some(length) if length == size => Ok(()),
                Some(length) => {
                    let what =
                        format!("{} has {length} bytes instead of {size}", layout.blob(digest).display());
                    Err(Failure::new(Class::Verification, what).hint("Copy the layout again.").into())
                }
                None => Err(lacking(layout, digest).into()),
            },
        }
    }

    pub(super) fn place(&self) -> PayloadPlace {
        match self {
            Self::Registry(..) => PayloadPlace::Network,
            Self::Layout(_) => PayloadPlace::Here,
        }
    }
}

fn lacking(layout: &ImageLayout, digest: Digest) -> Failure {
    let what = format!("{} lacks the blob {}", layout.root().display(), digest.oci());
    Failure::new(Class::Verification, what).hint("Copy the layout again; all of its blobs belong to it.")
}

/// The digest of the manifest of a layout that is meant.
fn choose(layout: &ImageLayout, named: &LayoutReference, shown: &ArtifactReference) -> Result<Digest> {
    let mut all = layout.manifests()?;
    // Documents about a release are no releases, and have no names.
    let documents: Vec<_> = layout
        .referrers()?
        .into_iter()
        .filter(|referrer| ReleaseDocument::of_type(&referrer.artifact_type).is_some())
        .map(|referrer| referrer.manifest.digest)
        .collect();
    all.retain(|(name, manifest)| name.is_some() || !documents.contains(&manifest.digest));
    let fits = |(name, manifest): &&(Option<String>, Descriptor)| match (named.digest, &named.tag) {
        (Some(digest), _) => manifest.digest == digest,
        (None, Some(tag)) => name.as_ref() == Some(tag),
        (None, None) => true,
    };
    let mut fitting: Vec<Digest> = all.iter().filter(fits).map(|(_, manifest)| manifest.digest).collect();
    fitting.dedup();
    // One that no name leads to any more is there all the same.
    if let (Some(digest), []) = (named.digest, &fitting[..])
        && let Ok(bytes) = read_at_most(&layout.blob(digest), MANIFEST_LIMIT)
        && ArtifactManifest::parse(&bytes).is_ok()
    {
        return Ok(digest);
    }
    match fitting[..] {
        [one] => Ok(one),
        [] => Err(Failure::new(Class::Invalid, format!("{shown} is not in the OCI layout"))
            .because(anyhow::anyhow!("it has {}", names(&all)))
            .hint("Use one of these names.")
            .into()),
        _ => Err(Failure::new(Class::Invalid, format!("{shown} is ambiguous"))
            .because(anyhow::anyhow!("the layout has {}", names(&all)))
            .hint("Name one of them: oci:DIRECTORY:tag.")
            .into()),
    }
}

fn names(all: &[(Option<String>, Descriptor)]) -> String {
    let name = |(name, manifest): &(Option<String>, Descriptor)| match name {
        Some(name) => name.clone(),
        None => manifest.digest.oci(),
    };
    let names: Vec<_> = all.iter().map(name).collect();
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}
