//! What a user names to be signed: a medium, or the outputs of a build.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::cancellation;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{read_at_most, write_atomically};
use base::progress::Progress;
use formats::dsse::{Envelope, MAX_ENVELOPE_BYTES};
use medium::build_output::{BUILD_AGAIN, BuildOutput};
use medium::signatures;
use model::release::{MANIFEST, MediumKind, Release, SIGNATURES};
use model::rollback_index::RollbackIndex;
use serde::Serialize;

use super::listed_outputs::{ListedOutputs, as_built};
use super::signable_medium::{MODE, SignableMedium, replaceable};
use crate::provenance::{PROVENANCE, ReleaseProvenance};

/// Gets the bytes of a manifest, and the signatures that it has; gives those that it shall have, in minisign's format.
pub type SignManifest<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<Vec<u8>> + 'a;

/// Adds signatures to the provenance of the media.
pub type SignProvenance<'a> = dyn FnMut(&mut Envelope) -> Result<()> + 'a;

/// Media that can be signed. They are locked as long as this is there.
#[derive(Debug)]
pub struct SignableMedia {
    path: PathBuf,
    media: Vec<SignableMedium>,
    /// Of the output directory of a build.
    outputs: Option<ListedOutputs>,
    /// Of a directory that has one.
    provenance: Option<ReleaseProvenance>,
    /// Of a directory; none on a file system without locks.
    _lock: Option<File>,
}

/// A manifest of the media, which several of them may have.
#[derive(Clone, Copy, Debug)]
pub struct ManifestToSign<'a> {
    pub release: &'a Release,
    pub bytes: &'a [u8],
    /// The signatures that it has; the longest text where its media have different ones.
    pub signatures: Option<&'a [u8]>,
}

/// What was signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignReport {
    /// As the user named it.
    pub path: PathBuf,
    pub manifests: Vec<SignedMedia>,
    /// The provenance beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<SignedProvenance>,
}

/// A provenance that was signed with the media.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignedProvenance {
    pub path: PathBuf,
    /// False if it had these signatures.
    pub changed: bool,
}

/// The media with one manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignedMedia {
    /// Of `release.json`.
    pub release_sha256: Digest,
    pub version: String,
    #[serde(skip_serializing_if = "RollbackIndex::is_zero")]
    pub rollback_index: RollbackIndex,
    pub medium: MediumKind,
    /// ISOs, and directories with `release.json`.
    pub paths: Vec<PathBuf>,
    /// False if all of them had these signatures.
    pub changed: bool,
}

impl SignableMedia {
    /// Opens what `path` names: an ISO, a drive that holds one, a directory with `release.json`, or the output directory of a
    /// build, whose ISOs are compared with what the builder writes. Nothing is changed.
    ///
    /// # Errors
    /// [`Class::Invalid`] for what cannot be signed, [`Class::Verification`] for damaged media, [`Class::Busy`] while a build
    /// writes there, [`Class::DiskIo`] for what cannot be written.
    pub fn open(path: &Path, progress: &Progress) -> Result<Self> {
        let lock = lock(path)?;
        let first = SignableMedium::open(path, progress)?;
        let outputs = match first.is_iso() {
            true => None,
            false => BuildOutput::open(path)?.map(ListedOutputs::open).transpose()?,
        };
        let mut media = vec![first];
        for name in outputs.iter().flat_map(|outputs| outputs.output().sums().keys()) {
            if name.ends_with(".iso") {
                let iso = path.join(name);
                replaceable(&iso)?;
                let signable = SignableMedium::open(&iso, progress)?;
                of_one_build(&media[0].release, &signable)?;
                signable.check_whole(progress)?;
                media.push(signable);
            }
            if name.ends_with(".raw") || name.ends_with(".qcow2") {
                let text = format!(
                    "{name} keeps its release as it is: the disk of a node is signed only when it is built"
                );
                progress.warn("sign", &text);
            }
        }
        let provenance = match media[0].is_iso() {
            true => None,
            false => signable_provenance(path)?,
        };
        Ok(Self { path: path.to_owned(), media, outputs, provenance, _lock: lock })
    }

    /// Each manifest once.
    #[must_use]
    pub fn manifests(&self) -> Vec<ManifestToSign<'_>> {
        let mut manifests: BTreeMap<Digest, ManifestToSign<'_>> = BTreeMap::new();
        for SignableMedium { medium, release, existing, .. } in &self.media {
            let signatures = existing.as_deref();
            let bytes = medium.manifest();
            let known =
                manifests.entry(Digest::of(bytes)).or_insert(ManifestToSign { release, bytes, signatures });
            if signatures.map(<[u8]>::len) > known.signatures.map(<[u8]>::len) {
                known.signatures = signatures;
            }
        }
        manifests.into_values().collect()
    }

    /// Asks `sign` for the signatures of each manifest and `sign_provenance` for those of the provenance, and then puts them in place. Nothing is changed if it fails.
    pub fn sign(
        self,
        sign: &mut SignManifest<'_>,
        sign_provenance: &mut SignProvenance<'_>,
        progress: &Progress,
    ) -> Result<SignReport> {
        let mut texts = BTreeMap::new();
        for ManifestToSign { release, bytes, signatures } in self.manifests() {
            let text = signatures::text(sign(bytes, signatures)?).ok_or_else(|| {
                Failure::new(
                    Class::Invalid,
                    format!("{MANIFEST} of {} {} got no signature", release.id, release.version),
                )
                .hint("Name a key to sign with.")
            })?;
            signatures::padded(Some(&text))?;
            texts.insert(Digest::of(bytes), text);
        }
        let provenance = match &self.provenance {
            Some(found) => Some((found.path(), found.signed(sign_provenance)?)),
            None => None,
        };
        let (changed, provenance_changed) = {
            // A signal must not leave a medium without its old signatures and without the new ones.
            let _whole = cancellation::hold();
            // The directory first: it needs room on the disk, and an ISO does not.
            let provenance = provenance.as_ref().map(|(path, line)| put(path, line)).transpose()?;
            let media = self
                .media
                .iter()
                .map(|medium| texts.get(&medium.digest()).map_or(Ok(false), |text| medium.put(text)))
                .collect::<Result<Vec<_>>>()?;
            (media, provenance)
        };
        if let Some(outputs) = &self.outputs {
            let mut files = self.changed_files(&texts, progress)?;
            files.extend(
                provenance
                    .iter()
                    .map(|(_, line)| (PROVENANCE.to_owned(), (line.len() as u64, Digest::of(line)))),
            );
            outputs.list(&files)?;
        }
        let provenance = provenance.zip(provenance_changed);
        let provenance =
            provenance.map(|((path, _), changed)| SignedProvenance { path: path.to_owned(), changed });
        Ok(SignReport { manifests: self.signed(&texts, &changed), provenance, path: self.path.clone() })
    }

    /// The files of the output directory that signatures change, as they are now.
    fn changed_files(
        &self,
        texts: &BTreeMap<Digest, Vec<u8>>,
        progress: &Progress,
    ) -> Result<BTreeMap<String, (u64, Digest)>> {
        let mut files = BTreeMap::new();
        for signable in &self.media {
            if signable.is_iso() {
                let name = signable.medium.path().file_name().and_then(|name| name.to_str());
                let name = name.ok_or_else(|| anyhow!("the name of an ISO is not UTF-8"))?;
                files.insert(name.to_owned(), as_built(&signable.medium, progress)?);
            } else if let Some(text) = texts.get(&signable.digest()) {
                files.insert(SIGNATURES.to_owned(), (text.len() as u64, Digest::of(text)));
            }
        }
        Ok(files)
    }

    fn signed(&self, texts: &BTreeMap<Digest, Vec<u8>>, changed: &[bool]) -> Vec<SignedMedia> {
        let of_manifest = |digest: &Digest| {
            let mut with_it =
                self.media.iter().zip(changed).filter(|(medium, _)| medium.digest() == *digest).peekable();
            let release = &with_it.peek()?.0.release;
            let Release { version, rollback_index, medium, .. } = release.clone();
            let (paths, changed): (Vec<_>, Vec<_>) =
                with_it.map(|(signable, changed)| (signable.medium.path().to_owned(), *changed)).unzip();
            let changed = changed.contains(&true);
            Some(SignedMedia { release_sha256: *digest, version, rollback_index, medium, paths, changed })
        };
        texts.keys().filter_map(of_manifest).collect()
    }
}

/// Makes sure that an ISO is of the release of its directory: one name must not stand for two releases.
fn of_one_build(release: &Release, iso: &SignableMedium) -> Result<()> {
    if iso.release == (Release { medium: iso.release.medium, ..release.clone() }) {
        return Ok(());
    }
    let what = format!("{} is of another build than {MANIFEST} beside it", iso.medium.path().display());
    Err(Failure::new(Class::Verification, what).hint(BUILD_AGAIN).into())
}

/// The provenance in `directory`, if it is one of the release there: its signature vouches for it.
fn signable_provenance(directory: &Path) -> Result<Option<ReleaseProvenance>> {
    replaceable(&directory.join(PROVENANCE))?;
    let found = ReleaseProvenance::find(directory)?;
    found.iter().try_for_each(|provenance| {
        provenance.check_subjects()?;
        provenance.check_steps()
    })?;
    Ok(found)
}

/// Makes `bytes` the content of the file `path`; returns whether it had another one.
fn put(path: &Path, bytes: &[u8]) -> Result<bool> {
    if read_at_most(path, MAX_ENVELOPE_BYTES).is_ok_and(|known| known == bytes) {
        return Ok(false);
    }
    write_atomically(path, bytes, MODE).map_err(|error| {
        let what = format!("writing the signatures of {}", path.display());
        let hint = "Sign the media again to complete the change.";
        Failure::new(Class::DiskIo, what).because(error).hint(hint)
    })?;
    Ok(true)
}

/// Locks a directory, as builds and pulls do.
fn lock(path: &Path) -> Result<Option<File>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let directory = File::open(path).class(Class::DiskIo, || format!("opening {}", path.display()))?;
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => {
            let what = format!("another process writes to {}", path.display());
            Err(Failure::new(Class::Busy, what).hint("Wait for it to finish, then sign again.").into())
        }
        // NFS, for one, locks no directories.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

impl fmt::Display for SignReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, signed) in self.manifests.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}release {}", signed.release_sha256.oci())?;
            if !signed.rollback_index.is_zero() {
                write!(f, ", rollback index {}", signed.rollback_index)?;
            }
            let how = if signed.changed { "signed" } else { "had these signatures" };
            signed.paths.iter().try_for_each(|path| write!(f, "\n{how}: {}", path.display()))?;
        }
        self.provenance.iter().try_for_each(|SignedProvenance { path, changed }| {
            let how = if *changed { "signed" } else { "had these signatures" };
            write!(f, "\n{how}: {}", path.display())
        })
    }
}
