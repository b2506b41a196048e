//! Where a release is pushed to.

use std::io;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure, class_of};
use base::files::{fill_atomically, read_at_most, write_atomically};
use formats::oci::layout::ImageLayout;
use formats::oci::referrers::with_referrer;
use formats::oci::{Descriptor, ImageIndex, ImageReference, Repository, media_types};
use medium::artifact::{ArtifactReference, EMPTY_CONFIG, LayoutReference, ReleaseDocument, index};
use medium::payload_sources::OpenedArtifact;
use model::architecture::Architecture;
use model::release::Release;
use transfer::registry::{BlobTransfer, Client, MANIFEST_LIMIT, ManifestAnswer, NewBlob, ReferrersList};

/// A repository and a tag there, or a layout and a name in it.
#[derive(Debug)]
pub(super) enum Target<'a> {
    Registry(&'a Client, &'a ImageReference),
    Layout(ImageLayout, String),
}

impl<'a> Target<'a> {
    /// Opens the target that `reference` names. A layout is made if there is none; a manifest that is given no name there has the release's version.
    pub(super) fn open(
        reference: &'a ArtifactReference,
        client: &'a Client,
        release: &Release,
    ) -> Result<Self> {
        if reference.digest().is_some() {
            let what = format!("{reference} has a digest, which follows from the release");
            return Err(Failure::new(Class::Invalid, what).hint("Name a tag instead.").into());
        }
        match reference {
            ArtifactReference::Registry(image) => Ok(Self::Registry(client, image)),
            ArtifactReference::Layout(named) => {
                let directory = &named.directory;
                let layout = ImageLayout::create(directory)
                    .class(Class::DiskIo, || format!("making the layout {}", directory.display()))?;
                let plain = |c: char| if LayoutReference::can_be_in_tag(c) { c } else { '-' };
                let version = || release.version.chars().map(plain).collect();
                Ok(Self::Layout(layout, named.tag.clone().unwrap_or_else(version)))
            }
        }
    }

    /// The tag, or the name in the layout.
    pub(super) fn tag(&self) -> &str {
        match self {
            Self::Registry(_, image) => image.tag().unwrap_or_default(),
            Self::Layout(_, name) => name,
        }
    }

    /// The repository, where it is one of a registry.
    pub(super) fn repository(&self) -> Option<&Repository> {
        match self {
            Self::Registry(_, image) => Some(image.repository()),
            Self::Layout(..) => None,
        }
    }

    /// Puts a document about the artifact `subject` there and lists it; `put` puts a blob. Returns why not, if the registry does not take
    /// such documents.
    pub(super) fn put_document(
        &self,
        kind: ReleaseDocument,
        bytes: &[u8],
        subject: &Descriptor,
        put: &dyn Fn(&[u8]) -> Result<()>,
    ) -> Result<Option<String>> {
        put(bytes)?;
        put(EMPTY_CONFIG)?;
        let manifest = kind.manifest(bytes, subject.clone());
        let text = manifest.to_bytes()?;
        let referrer = kind.referrer(&manifest, &text);
        let (client, repository) = match self {
            Self::Registry(client, image) => (client, image.repository()),
            Self::Layout(layout, _) => {
                let writing = || format!("writing {} to {}", kind.file(), layout.root().display());
                let path = layout.blob(referrer.manifest.digest);
                write_atomically(&path, &text, 0o644).class(Class::DiskIo, writing)?;
                layout.refer(&referrer).class(Class::DiskIo, writing)?;
                return Ok(None);
            }
        };
        let own = repository.with_digest(referrer.manifest.digest);
        if let ManifestAnswer::Unsupported(why) =
            client.put_manifest(&own, media_types::OCI_MANIFEST, &text)?
        {
            return Ok(Some(why));
        }
        match client.referrers(repository, subject.digest)? {
            ReferrersList::Api(_) => Ok(None),
            ReferrersList::Tag(tag, list) => {
                let what = || format!("adding {} to {tag}", kind.file());
                let list = with_referrer(list.as_deref(), &referrer).class(Class::Network, what)?;
                Ok(match client.put_manifest(&tag, media_types::OCI_INDEX, &list)? {
                    ManifestAnswer::Taken => None,
                    ManifestAnswer::Unsupported(why) => Some(why),
                })
            }
        }
    }

    pub(super) fn put_blob(&self, blob: &NewBlob<'_>, told: &dyn Fn(u64)) -> Result<BlobTransfer> {
        let layout = match self {
            Self::Registry(client, image) => return client.put_blob(image.repository(), blob, told),
            Self::Layout(layout, _) => layout,
        };
        // It gets its name when it is whole.
        if layout.length(blob.digest)? == Some(blob.size) {
            return Ok(BlobTransfer::Present);
        }
        let path = layout.blob(blob.digest);
        let mut reader = (blob.open)()?;
        fill_atomically(&path, 0o644, |file| io::copy(&mut reader, file).map(drop))
            .class(Class::DiskIo, || format!("writing {}", path.display()))?;
        Ok(BlobTransfer::Uploaded)
    }

    /// The artifacts of the same version for other architectures that the tag leads to: they stay there.
    ///
    /// # Errors
    /// The tag, or a release that it leads to, cannot be read. What is no release of this version gives way.
    pub(super) fn others(&self, release: &Release, client: &Client) -> Result<Vec<Descriptor>> {
        let there = match self {
            Self::Registry(client, image) => client.tagged(image)?,
            Self::Layout(layout, name) => {
                let named = layout.manifests()?.into_iter().find(|(known, _)| known.as_ref() == Some(name));
                named.and_then(|(_, manifest)| {
                    read_at_most(&layout.blob(manifest.digest), MANIFEST_LIMIT).ok()
                })
            }
        };
        let Some(there) = there else { return Ok(Vec::new()) };
        let digests = match serde_json::from_slice::<ImageIndex>(&there) {
            Ok(index) => index.manifests.iter().map(|entry| entry.digest).collect(),
            Err(_) => vec![Digest::of(&there)],
        };
        let mut others = Vec::new();
        for digest in digests {
            let reference = match self {
                Self::Registry(_, image) => {
                    ArtifactReference::Registry(image.repository().with_digest(digest))
                }
                Self::Layout(layout, _) => {
                    let directory = layout.root().to_owned();
                    ArtifactReference::Layout(LayoutReference { directory, tag: None, digest: Some(digest) })
                }
            };
            match OpenedArtifact::open(&reference, release.architecture, client) {
                Ok(other) => {
                    let found = other.release();
                    let is_same = (&found.id, &found.version) == (&release.id, &release.version);
                    if is_same && found.architecture != release.architecture {
                        others.push(other.descriptor());
                    }
                }
                Err(error) if class_of(&error) == Class::Network => return Err(error),
                Err(_) => {}
            }
        }
        Ok(others)
    }

    /// Puts the manifest of the release for `architecture` and gives it its name, which it shares with those of `others`.
    pub(super) fn put_manifest(
        &self,
        bytes: &[u8],
        architecture: Architecture,
        others: &[Descriptor],
    ) -> Result<ManifestAnswer> {
        let own = index::entry(Digest::of(bytes), bytes.len() as u64, architecture);
        let index = match others.is_empty() {
            true => None,
            false => Some(index::write(others.iter().cloned().chain([own.clone()]).collect())?),
        };
        let (layout, name) = match self {
            Self::Registry(client, image) => {
                let Some(index) = index else {
                    return client.put_manifest(image, media_types::OCI_MANIFEST, bytes);
                };
                let by_digest = image.repository().with_digest(own.digest);
                return Ok(match client.put_manifest(&by_digest, media_types::OCI_MANIFEST, bytes)? {
                    ManifestAnswer::Taken => client.put_manifest(image, media_types::OCI_INDEX, &index)?,
                    unsupported @ ManifestAnswer::Unsupported(_) => unsupported,
                });
            }
            Self::Layout(layout, name) => (layout, name),
        };
        let writing = || format!("writing the manifest to {}", layout.root().display());
        let put = |bytes: &[u8]| {
            let path = layout.blob(Digest::of(bytes));
            write_atomically(&path, bytes, 0o644).class(Class::DiskIo, writing)
        };
        put(bytes)?;
        let named = match &index {
            None => Descriptor { platform: None, ..own },
            Some(index) => {
                put(index)?;
                Descriptor {
                    media_type: media_types::OCI_INDEX.into(),
                    digest: Digest::of(index),
                    size: index.len() as u64,
                    annotations: Default::default(),
                    platform: None,
                }
            }
        };
        layout.name(name, named).class(Class::DiskIo, writing)?;
        Ok(ManifestAnswer::Taken)
    }
}
