//! `iso-builder pull`: a release from a registry or a layout into a directory.
//!
//! `release.json` comes last: a directory that has it has the whole release. Over an earlier release it is taken away first,
//! so that a run that is cut off never leaves one release's manifest with another's files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{make_directory, output_directory, read_at_most, write_atomically};
use base::parallel::{self, locked};
use base::progress::Progress;
use base::size::ByteSize;
use formats::dsse::Envelope;
use formats::oci::prefixed;
use medium::artifact::{ArtifactReference, BootCodePart, ReleaseDocument};
use medium::build_output::{CHECKSUMS, SBOM};
use medium::patches::{PATCHES, PatchList};
use medium::payload_sources::OpenedArtifact;
use medium::reader::ALLOW_UNSIGNED;
use model::architecture::Architecture;
use model::release::{MANIFEST, Release, SIGNATURES};
use serde::Serialize;
use transfer::registry::Client;
use trust::{ReleaseTrust, TrustStore, judge, judge_provenance};

use super::fetch::{BlobTarget, Destination, wanted};
use super::iso;
use crate::provenance::Statement;
use crate::wording::counted;

/// Where unfinished files are, and the manifest of the release that was there before.
const UNFINISHED: &str = ".nqrust.pull";
const PREVIOUS: &str = "previous.json";
const MAX_MANIFEST: u64 = 32 << 20;

/// The pulled files, and the bytes that were transferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PullReport {
    pub reference: String,
    /// Of the artifact's manifest.
    #[serde(serialize_with = "prefixed::serialize")]
    pub digest: Digest,
    /// Of `release.json`.
    pub release_sha256: Digest,
    pub version: String,
    pub output: PathBuf,
    pub present: usize,
    pub fetched: usize,
    /// Without what an earlier run had fetched of them.
    pub fetched_bytes: u64,
    /// The files about the release that came with it: its provenance, its bill of materials.
    pub documents: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iso: Option<PathBuf>,
}

/// Fetches the release at `reference` into the directory `output`, and makes its ISO if that is named. `known` judges the release
/// before anything else of it is fetched. Of a release for several architectures that for `architecture` is taken.
pub fn pull(
    reference: &ArtifactReference,
    architecture: Architecture,
    known: &TrustStore,
    client: &Client,
    (output, iso): (&Path, Option<&Path>),
    transfers: usize,
    progress: &Progress,
) -> Result<PullReport> {
    let artifact = OpenedArtifact::open(reference, architecture, client)?;
    let signatures = artifact.signatures()?;
    judge(artifact.release(), artifact.release_bytes(), signatures.as_deref(), known)
        .map_err(|error| error.failure(&reference.to_string(), ALLOW_UNSIGNED))?;
    if iso.is_some() {
        iso::check(&artifact)?;
    }
    let directory = PullDirectory::open(output)?;
    let previous = directory.begin(artifact.release_bytes())?;
    let unfinished = output.join(UNFINISHED);
    let destination = Destination { root: output, unfinished: &unfinished, progress };
    let all = wanted(&artifact);
    let lacking = look(&destination, &all, transfers, progress)?;
    let total = lacking.iter().map(|wanted| wanted.size).sum();
    let text = format!("Pulling {}", counted(lacking.len(), "blob"));
    let (step, fetched) = (Mutex::new(progress.step("pull", text, Some(total))), Mutex::new(0));
    parallel::for_each(&lacking, transfers, |wanted| {
        let (path, came) = destination.fetch(&artifact, wanted, &step)?;
        *locked(&fetched) += came;
        destination.spread(wanted, &path)
    })?;
    step.into_inner().unwrap_or_else(PoisonError::into_inner).done();
    let documents = documents_about(&artifact, known, progress);
    directory.finish(&artifact, previous.as_ref(), (&all, &documents))?;
    if let Some(iso) = iso {
        iso::make(&artifact, signatures.as_deref(), (output, iso), progress)?;
    }
    Ok(PullReport {
        reference: reference.to_string(),
        digest: artifact.digest(),
        release_sha256: artifact.release_digest(),
        version: artifact.release().version.clone(),
        output: output.to_owned(),
        present: all.len() - lacking.len(),
        fetched: lacking.len(),
        fetched_bytes: fetched.into_inner().unwrap_or_else(PoisonError::into_inner),
        documents: documents.keys().map(|kind| kind.file()).collect(),
        iso: iso.map(Path::to_owned),
    })
}

/// The provenance of the release and its bill of materials, as far as they are where it is. A release is whole without them.
fn documents_about(
    artifact: &OpenedArtifact,
    known: &TrustStore,
    progress: &Progress,
) -> BTreeMap<ReleaseDocument, Vec<u8>> {
    let all = artifact.documents().unwrap_or_else(|error| {
        let text = format!(
            "the provenance and the bill of materials are left out: {}",
            base::failure::causes(&error).join(": ")
        );
        progress.warn("pull", &text);
        Vec::new()
    });
    chosen(artifact.release_digest(), known, all)
}

/// Of documents that anybody may have put there, newest first: the provenance of the release `release` that known keys have signed, or
/// else any of it, and the bill of materials that it is about.
fn chosen(
    release: Digest,
    known: &TrustStore,
    all: Vec<(ReleaseDocument, Vec<u8>)>,
) -> BTreeMap<ReleaseDocument, Vec<u8>> {
    let (provenances, sboms): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(kind, _)| *kind == ReleaseDocument::Provenance);
    let read = provenances.into_iter().filter_map(|(_, bytes)| {
        let envelope = Envelope::parse(&bytes).ok()?;
        let statement =
            Statement::of_envelope(&envelope).ok().filter(|statement| statement.is_about(release))?;
        let trust = judge_provenance(&envelope, known);
        let rank = match trust {
            Ok(ReleaseTrust::Signed(_)) => 0,
            Ok(ReleaseTrust::Unsigned(_)) => 1,
            Err(_) => return None,
        };
        Some((rank, bytes, statement))
    });
    let best = read.min_by_key(|(rank, ..)| *rank);
    let wanted = best.as_ref().map(|(_, _, statement)| statement.subject(SBOM));
    let mut sboms = sboms.into_iter().map(|(_, bytes)| bytes);
    let sbom = sboms.find(|bytes| wanted.is_none_or(|wanted| wanted == Some(Digest::of(bytes))));
    let provenance = best.map(|(_, bytes, _)| (ReleaseDocument::Provenance, bytes));
    provenance.into_iter().chain(sbom.map(|bytes| (ReleaseDocument::Sbom, bytes))).collect()
}

/// The blobs that the directory lacks, in the order of `all`. Those that it has get all of their names.
fn look(
    destination: &Destination<'_>,
    all: &[BlobTarget],
    transfers: usize,
    progress: &Progress,
) -> Result<Vec<BlobTarget>> {
    let there = Mutex::new(BTreeSet::new());
    let check = || {
        parallel::for_each(all, transfers, |wanted| {
            if let Some(path) = destination.holder(wanted)? {
                destination.spread(wanted, &path)?;
                locked(&there).insert((wanted.digest, wanted.size));
            }
            Ok(())
        })
    };
    progress.within("check", "Checking what is there", check)?;
    let there = there.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(all.iter().filter(|wanted| !there.contains(&(wanted.digest, wanted.size))).cloned().collect())
}

/// The directory, which one run at a time may write into.
struct PullDirectory<'a> {
    path: &'a Path,
    /// Its lock is held as long as it is open.
    _lock: File,
}

impl<'a> PullDirectory<'a> {
    /// Makes the directory unless it is there.
    ///
    /// # Errors
    /// [`Class::Invalid`] where something else than a release is in it.
    fn open(path: &'a Path) -> Result<Self> {
        output_directory(path, 0o755)?;
        let refused = |why: &str| {
            Failure::new(Class::Invalid, format!("{} is not taken for a release", path.display()))
                .because(anyhow::anyhow!("{why}"))
                .hint("Name an empty directory, or one with a release that was pulled.")
        };
        let reading = || format!("reading {}", path.display());
        if path.join(CHECKSUMS).exists() {
            return Err(refused("it has the outputs of a build").into());
        }
        let ours = path.join(MANIFEST).exists() || path.join(UNFINISHED).exists();
        if !ours && fs::read_dir(path).class(Class::DiskIo, reading)?.next().is_some() {
            return Err(refused("it has other files").into());
        }
        let lock = File::open(path).class(Class::DiskIo, reading)?;
        // A file system without locks has to do without.
        if let Err(TryLockError::WouldBlock) = lock.try_lock() {
            let what = format!("another `iso-builder pull` writes to {}", path.display());
            return Err(Failure::new(Class::Invalid, what)
                .hint("Wait for it, or name another directory.")
                .into());
        }
        Ok(Self { path, _lock: lock })
    }

    /// Takes the manifest of another release away, and returns what that release was.
    fn begin(&self, manifest: &[u8]) -> Result<Option<Release>> {
        let unfinished = self.path.join(UNFINISHED);
        let (current, previous) = (self.path.join(MANIFEST), unfinished.join(PREVIOUS));
        make_directory(&unfinished, 0o755).class(Class::DiskIo, || "beginning to pull".into())?;
        let read = |path: &Path| read_at_most(path, MAX_MANIFEST).ok();
        if read(&current).is_some_and(|found| found != manifest) {
            fs::rename(&current, &previous)
                .class(Class::DiskIo, || format!("moving {} away", current.display()))?;
        }
        Ok(read(&previous).and_then(|bytes| Release::parse(&bytes).ok()))
    }

    /// Makes the directory that of the new release, and removes what only the previous one had.
    fn finish(
        &self,
        artifact: &OpenedArtifact,
        previous: Option<&Release>,
        (all, documents): (&[BlobTarget], &BTreeMap<ReleaseDocument, Vec<u8>>),
    ) -> Result<()> {
        let what = || format!("finishing {}", self.path.display());
        let kept: BTreeSet<&str> = all.iter().flat_map(|wanted| &wanted.paths).map(String::as_str).collect();
        let payloads = previous.into_iter().flat_map(Release::all_payloads);
        let code = previous.and_then(|release| release.iso.as_ref()?.bios.as_ref());
        let code = code.into_iter().flat_map(BootCodePart::of);
        let patches = read_at_most(&self.path.join(PATCHES), MAX_MANIFEST).ok();
        let patches = patches.and_then(|bytes| PatchList::parse(&bytes).ok()).unwrap_or_default().patches;
        let patches = patches.iter().map(|patch| patch.path.as_str());
        let gone = payloads.map(|payload| payload.path.as_str()).chain(code.map(|part| part.path));
        let list = (artifact.patches().is_empty()).then_some(PATCHES);
        let absent = ReleaseDocument::ALL.into_iter().filter(|kind| !documents.contains_key(kind));
        let gone = gone.chain(patches).chain([SIGNATURES]).chain(absent.map(|kind| -> &str { kind.file() }));
        for path in gone.filter(|path| !kept.contains(path)).chain(list) {
            match fs::remove_file(self.path.join(path)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).class(Class::DiskIo, what);
                }
                _ => {}
            }
        }
        if !artifact.patches().is_empty() {
            let list = PatchList { patches: artifact.patches().to_vec() };
            write_atomically(&self.path.join(PATCHES), &list.to_bytes(), 0o644).class(Class::DiskIo, what)?;
        }
        for (kind, bytes) in documents {
            write_atomically(&self.path.join(kind.file()), bytes, 0o644).class(Class::DiskIo, what)?;
        }
        write_atomically(&self.path.join(MANIFEST), artifact.release_bytes(), 0o644)
            .class(Class::DiskIo, what)?;
        fs::remove_dir_all(self.path.join(UNFINISHED)).class(Class::DiskIo, what)
    }
}

impl fmt::Display for PullReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pulled  {} to {}", self.version, self.output.display())?;
        writeln!(f, "digest  {}", self.digest.oci())?;
        writeln!(f, "release {}", self.release_sha256.oci())?;
        let (count, size) = (counted(self.fetched, "blob"), ByteSize::bytes(self.fetched_bytes));
        write!(f, "{count} fetched ({size}), {} there already", self.present)?;
        self.documents.iter().try_for_each(|name| write!(f, "\nbeside it: {name}"))?;
        self.iso.iter().try_for_each(|iso| write!(f, "\nISO     {}", iso.display()))
    }
}
