//! `iso-builder push`: a finished medium into a registry or a layout.

use std::fmt;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::read_at_most;
use base::parallel::{self, locked};
use base::progress::{Progress, Step};
use base::size::ByteSize;
use formats::oci::{Descriptor, ImageReference, Repository, media_types, prefixed};
use medium::artifact::{
    ArtifactForm, ArtifactLayer, ArtifactReference, BootCode, ReleaseArtifact, ReleaseDocument,
};
use medium::build_output::BuildOutput;
use medium::by_architecture::by_architecture;
use medium::patches::ReleasePatch;
use medium::payload_sources::VerifyingReader;
use medium::reader::MediumReader;
use model::architecture::Architecture;
use model::release::{Payload, Purpose, Release};
use serde::Serialize;
use transfer::registry::{BlobTransfer, Client, ManifestAnswer, NewBlob};
use trust::TrustStore;

use super::patches::MadePatches;
use super::target::Target;
use crate::media::customize::customization::is_customized;
use crate::provenance::ReleaseProvenance;
use crate::wording::counted;

/// The pushed blobs, and the bytes that were transferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PushReport {
    pub reference: String,
    pub tag: String,
    /// Of the artifact's manifest; it pins the release.
    #[serde(serialize_with = "prefixed::serialize")]
    pub digest: Digest,
    /// Of `release.json`: what names the release.
    pub release_sha256: Digest,
    pub form: ArtifactForm,
    /// True if the ISO can be made from it.
    pub iso: bool,
    /// From the OS images of earlier releases.
    pub patches: Vec<ReleasePatch>,
    /// The files about the release that refer to it: its provenance, its bill of materials.
    pub documents: Vec<&'static str>,
    /// The architectures for which the tag has a release of this version, this one among them.
    pub architectures: Vec<Architecture>,
    pub blobs: TransferCounts,
}

/// Blobs by how they came into the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransferCounts {
    pub present: usize,
    pub mounted: usize,
    pub uploaded: usize,
    /// Of those that were uploaded.
    pub uploaded_bytes: u64,
    /// Of all.
    pub bytes: u64,
}

/// Publishes the release of `medium` at `reference`, with patches from the releases that `earlier` names; `transfers` blobs travel at
/// the same time. `known` judges the release before anything travels.
pub fn push(
    medium: &Path,
    known: &TrustStore,
    earlier: &[String],
    reference: &ArtifactReference,
    client: &Client,
    transfers: usize,
    progress: &Progress,
) -> Result<PushReport> {
    let path = finished(medium)?;
    let documents_about = documents_beside(medium, known)?;
    let medium = MediumReader::open(&path)?;
    let release = medium.release()?;
    medium.judge(known)?;
    let target = Target::open(reference, client, &release)?;
    let bios = release.iso.as_ref().and_then(|iso| iso.bios.as_ref());
    let code = bios.map(|code| BootCode::of(&medium, code)).transpose()?.flatten();
    warn(&medium, &release, progress);
    let made = MadePatches::make(earlier, (&release, &medium), client, progress)?;
    let signatures = medium.signatures()?;
    let documents = (medium.manifest(), signatures.as_deref());
    let artifact = ReleaseArtifact::new(&release, documents, code.is_some(), &made.patches());
    let push = ReleaseUpload {
        medium: &medium,
        release: &release,
        signatures: signatures.as_deref(),
        code,
        made: &made,
        target,
        counts: Mutex::default(),
    };
    let total = artifact.layers().iter().map(|layer| layer.size).sum();
    let step = progress.step("push", format!("Pushing to {reference}"), Some(total));
    let step = Mutex::new(step);
    push.document(medium.manifest())?;
    // The largest first, so that the others do not end up waiting for one transfer.
    let mut layers: Vec<_> = artifact.layers().iter().collect();
    layers.sort_by_key(|layer| std::cmp::Reverse(layer.size));
    parallel::for_each(&layers, transfers, |layer| push.layer(layer, &step))?;
    let others = push.target.others(&release, client)?;
    let (form, manifest) = push.manifest(&artifact, &others, progress)?;
    let pushed = push.documents_about(&documents_about, &manifest, progress)?;
    step.into_inner().unwrap_or_else(PoisonError::into_inner).done();
    Ok(PushReport {
        reference: reference.to_string(),
        tag: push.target.tag().to_owned(),
        digest: Digest::of(&manifest),
        release_sha256: medium.release_digest(),
        form,
        iso: push.code.is_some(),
        patches: made.patches(),
        documents: pushed,
        architectures: architectures(&release, &others),
        blobs: push.counts.into_inner().unwrap_or_else(PoisonError::into_inner),
    })
}

fn architectures(release: &Release, others: &[Descriptor]) -> Vec<Architecture> {
    let is_there = |architecture: &Architecture| {
        let named = |other: &Descriptor| {
            other.platform.as_ref().is_some_and(|platform| platform.is_of(architecture.debian()))
        };
        *architecture == release.architecture || others.iter().any(named)
    };
    Architecture::ALL.into_iter().filter(is_there).collect()
}

/// The directories that `medium` means: those of a build for several architectures, or else itself.
#[must_use]
pub fn pushed_media(medium: &Path) -> Vec<PathBuf> {
    match by_architecture(medium) {
        several if several.is_empty() => vec![medium.to_owned()],
        several => several.into_iter().map(|(_, directory)| directory).collect(),
    }
}

/// The medium that is meant: of what a build wrote, its ISO.
fn finished(medium: &Path) -> Result<PathBuf> {
    match BuildOutput::open(medium)? {
        None => Ok(medium.to_owned()),
        Some(output) => Ok(output.iso().ok_or_else(|| {
            Failure::new(Class::Invalid, format!("{} has no ISO to push", medium.display()))
                .hint("Build one (`--only full`), or name a directory with release.json and all payloads.")
        })?),
    }
}

/// The documents about the release in the directory `medium`.
///
/// # Errors
/// [`Class::Verification`] if its provenance is about another release, or `known` does not let it be used.
fn documents_beside(medium: &Path, known: &TrustStore) -> Result<Vec<(ReleaseDocument, Vec<u8>)>> {
    if !medium.is_dir() {
        return Ok(Vec::new());
    }
    ReleaseProvenance::find(medium)?.iter().try_for_each(|provenance| provenance.check(known))?;
    let there = ReleaseDocument::ALL.into_iter().filter(|kind| medium.join(kind.file()).is_file());
    there.map(|kind| Ok((kind, read_at_most(&medium.join(kind.file()), kind.limit())?))).collect()
}

/// Warns about secrets on the medium that others will be able to read, and about parts that are left out.
fn warn(medium: &MediumReader, release: &Release, progress: &Progress) {
    if medium.local().is_some_and(is_customized) {
        let text = "the medium was customized; the release is pushed without the customization";
        progress.warn("push", text);
    }
    if release.payload(Purpose::InstallConfig).is_some() {
        let text = "the release has an install configuration in it; whoever may read the repository can read it, and \
                    any password in it";
        progress.warn("push", text);
    }
}

struct ReleaseUpload<'a> {
    medium: &'a MediumReader,
    release: &'a Release,
    signatures: Option<&'a [u8]>,
    code: Option<BootCode>,
    made: &'a MadePatches,
    target: Target<'a>,
    counts: Mutex<TransferCounts>,
}

impl ReleaseUpload<'_> {
    fn document(&self, bytes: &[u8]) -> Result<()> {
        let open = || -> Result<Box<dyn Read + Send>> { Ok(Box::new(Cursor::new(bytes.to_vec()))) };
        let blob =
            NewBlob { digest: Digest::of(bytes), size: bytes.len() as u64, open: &open, elsewhere: None };
        self.put(&blob, &|_| ())
    }

    /// Puts `documents` beside the artifact with the manifest `manifest`; returns the names of those that the registry took.
    fn documents_about(
        &self,
        documents: &[(ReleaseDocument, Vec<u8>)],
        manifest: &[u8],
        progress: &Progress,
    ) -> Result<Vec<&'static str>> {
        let subject = Descriptor {
            media_type: media_types::OCI_MANIFEST.into(),
            digest: Digest::of(manifest),
            size: manifest.len() as u64,
            annotations: Default::default(),
            platform: None,
        };
        let mut taken = Vec::new();
        for (kind, bytes) in documents {
            match self.target.put_document(*kind, bytes, &subject, &|bytes| self.document(bytes))? {
                None => taken.push(kind.file()),
                Some(why) => {
                    let text = format!("the registry does not accept {}: {why}", kind.file());
                    progress.warn("push", &text);
                }
            }
        }
        Ok(taken)
    }

    fn layer(&self, layer: &ArtifactLayer, step: &Mutex<Step>) -> Result<()> {
        if let Some(text) = self.signatures.filter(|text| Digest::of(text) == layer.digest) {
            return self.document(text);
        }
        if let Some(bytes) = self.code.as_ref().and_then(|code| code.get(layer.digest)) {
            return self.document(bytes);
        }
        if let Some(file) = self.made.file(layer.digest) {
            let open = || -> Result<Box<dyn Read + Send>> {
                let opened = File::open(file);
                Ok(Box::new(opened.class(Class::DiskIo, || format!("opening {}", file.display()))?))
            };
            return self.sent(layer, &open, None, step);
        }
        let Some(payload) = self.release.all_payloads().find(|payload| payload.sha256 == layer.digest) else {
            bail!("{} is not a payload", layer.path);
        };
        let open = || -> Result<Box<dyn Read + Send>> {
            let source = self.medium.path().display().to_string();
            Ok(Box::new(VerifyingReader::new(self.medium.open_payload(payload)?, payload, source)))
        };
        self.sent(layer, &open, self.elsewhere(payload).as_ref(), step)
    }

    fn sent(
        &self,
        layer: &ArtifactLayer,
        open: &(dyn Fn() -> Result<Box<dyn Read + Send>> + Sync),
        elsewhere: Option<&Repository>,
        step: &Mutex<Step>,
    ) -> Result<()> {
        let blob = NewBlob { digest: layer.digest, size: layer.size, open, elsewhere };
        // Bytes that are sent again count once.
        let furthest = Mutex::new(0);
        let reach = |position: u64| {
            let mut furthest = locked(&furthest);
            locked(step).advance(position.saturating_sub(*furthest));
            *furthest = position.max(*furthest);
        };
        self.put(&blob, &reach)?;
        reach(layer.size);
        Ok(())
    }

    fn put(&self, blob: &NewBlob<'_>, told: &dyn Fn(u64)) -> Result<()> {
        let transfer = self.target.put_blob(blob, told)?;
        let mut counts = locked(&self.counts);
        counts.bytes += blob.size;
        match transfer {
            BlobTransfer::Present => counts.present += 1,
            BlobTransfer::Mounted => counts.mounted += 1,
            BlobTransfer::Uploaded => {
                counts.uploaded += 1;
                counts.uploaded_bytes += blob.size;
            }
        }
        Ok(())
    }

    /// Where the registry may have the blob of an image already: in the image's own repository.
    fn elsewhere(&self, payload: &Payload) -> Option<Repository> {
        let own = self.target.repository()?;
        let images = self.release.images.iter().filter(|image| image.blobs.contains(&payload.sha256));
        let names = images.filter_map(|image| image.name.parse::<ImageReference>().ok());
        let mut others = names.map(|name| name.repository().clone());
        others.find(|other| other.registry() == own.registry() && other != own)
    }

    /// Puts the manifest in the first form that the registry accepts.
    fn manifest(
        &self,
        artifact: &ReleaseArtifact<'_>,
        others: &[Descriptor],
        progress: &Progress,
    ) -> Result<(ArtifactForm, Vec<u8>)> {
        let mut refusals = Vec::new();
        for form in ArtifactForm::ALL {
            if let Some(stand_in) = artifact.stand_in(form)? {
                self.document(&stand_in)?;
            }
            let manifest = artifact.manifest(form)?;
            match self.target.put_manifest(&manifest, self.release.architecture, others)? {
                ManifestAnswer::Taken => {
                    if let Some(why) = refusals.last() {
                        let text = format!("the registry accepts only the older form of a release: {why}");
                        progress.note("push", text);
                    }
                    return Ok((form, manifest));
                }
                ManifestAnswer::Unsupported(why) => refusals.push(why),
            }
        }
        Err(Failure::new(Class::Network, "the registry does not accept the manifest")
            .because(anyhow::anyhow!(refusals.join("; ")))
            .hint("Use a registry that accepts OCI artifacts.")
            .into())
    }
}

impl fmt::Display for PushReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reference, tag, digest, blobs, .. } = self;
        writeln!(f, "pushed  {reference}")?;
        match &self.architectures[..] {
            [_] => writeln!(f, "tag     {tag}")?,
            all => {
                let all: Vec<_> = all.iter().map(ToString::to_string).collect();
                writeln!(f, "tag     {tag}, which has this version for {}", all.join(" and "))?;
            }
        }
        writeln!(f, "digest  {}", digest.oci())?;
        writeln!(f, "release {}", self.release_sha256.oci())?;
        let sent = ByteSize::bytes(blobs.uploaded_bytes);
        write!(f, "{} uploaded ({sent}), ", counted(blobs.uploaded, "blob"))?;
        if blobs.mounted > 0 {
            write!(f, "{} taken over from other repositories, ", blobs.mounted)?;
        }
        write!(f, "{} there already; {} in all", blobs.present, ByteSize::bytes(blobs.bytes))?;
        self.documents.iter().try_for_each(|name| write!(f, "\nbeside it: {name}"))?;
        for ReleasePatch { from, size, .. } in &self.patches {
            write!(f, "\npatch from {from}: {}", ByteSize::bytes(*size))?;
        }
        if !self.iso {
            write!(f, "\nno ISO can be made from it: the medium has no boot code for ISOs")?;
        }
        Ok(())
    }
}
