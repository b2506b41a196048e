//! Giving a registry the steps that this host has made.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::parallel::{self, locked};
use base::size::ByteSize;
use formats::oci::Repository;
use jiff::{SignedDuration, Timestamp};
use tempfile::NamedTempFile;
use transfer::registry::{BlobTransfer, ManifestAnswer, NewBlob};

use super::document::{FILES_MAX, MANIFEST, PackedBlob, SharedName, SharedStep, StepManifest};
use super::repositories::{STEP, SharedSteps, reference};
use crate::cache::key::StepKey;
use crate::cache::record::StepRecord;
use crate::files::digest_of_file;
use crate::wording::counted;

/// Files of less bytes are not packed.
const PACKED_MIN: u64 = 64 << 10;
/// How many bytes of a file tell whether it is worth packing: those that become less than four fifths.
const SAMPLE: u64 = 1 << 20;
const LEVEL: i32 = 3;
/// How long a manifest is left as it is, though a build used its step.
const USED_ANEW: SignedDuration = SignedDuration::from_hours(24);

/// A step that this host has made, whole.
#[derive(Clone, Debug)]
pub(in crate::cache) struct MadeStep {
    pub(in crate::cache) key: StepKey,
    pub(in crate::cache) directory: PathBuf,
    pub(in crate::cache) record: StepRecord,
}

impl SharedSteps {
    /// Gives the repositories what they lack of these steps.
    pub(in crate::cache) fn publish(&self, steps: &[MadeStep], scratch: &Path) {
        for repository in &self.to {
            if let Err(error) = publish(self, repository, steps, scratch) {
                self.give_up(repository, "sharing the steps", &error);
            }
        }
    }
}

/// Uploads the steps that `repository` lacks, and says of the others that they were used.
fn publish(shared: &SharedSteps, repository: &Repository, steps: &[MadeStep], scratch: &Path) -> Result<()> {
    let now = Timestamp::now();
    let mut lacking = BTreeMap::new();
    for step in steps {
        let name = SharedName::new(&step.key, shared.tools)?;
        let reference = reference(repository, &name.tag)?;
        match shared.client.tagged(&reference)? {
            None => {
                lacking.insert(name.tag.clone(), (name, step));
            }
            Some(bytes) => {
                let used = StepManifest::read(&bytes).with_context(|| format!("reading {reference}"))?.used;
                if used.is_none_or(|used| now.duration_since(used) > USED_ANEW) {
                    put_manifest(shared, repository, &name, &StepManifest::used_at(&bytes, now)?)?;
                }
            }
        }
    }
    if lacking.is_empty() {
        return Ok(());
    }
    let total = lacking.values().map(|(_, step)| step.record.size()).sum();
    let text = format!("Sharing {} with {repository}", counted(lacking.len(), "step"));
    let progress = Mutex::new(shared.progress.step(STEP, text, Some(total)));
    let mut sent = 0;
    for (name, step) in lacking.values() {
        sent += upload(shared, repository, (name, step), scratch, &|bytes| locked(&progress).advance(bytes))?;
    }
    progress.into_inner().unwrap_or_else(PoisonError::into_inner).done();
    let text = format!("{} to {repository}, {}", counted(lacking.len(), "step"), ByteSize::bytes(sent));
    shared.progress.note(STEP, text);
    Ok(())
}

/// Uploads one step; returns the bytes of its blobs.
fn upload(
    shared: &SharedSteps,
    repository: &Repository,
    (name, step): (&SharedName, &MadeStep),
    scratch: &Path,
    told: &(dyn Fn(u64) + Sync),
) -> Result<u64> {
    let files: BTreeMap<_, _> = step
        .record
        .files()
        .map(|(path, file)| (file.sha256, (step.directory.join(path), file.size)))
        .collect();
    if files.len() > FILES_MAX {
        shared.progress.note(STEP, format!("{} has too many files to be shared", name.tag));
        return Ok(0);
    }
    let (packed, sent) = (Mutex::new(BTreeMap::new()), Mutex::new(0));
    let mut files: Vec<_> = files.into_iter().filter(|(_, (_, size))| *size > 0).collect();
    files.sort_by_key(|(_, (_, size))| std::cmp::Reverse(*size));
    let put = |path: &Path, sha256: Digest, size: u64| -> Result<()> {
        let open = || -> Result<Box<dyn Read + Send>> {
            Ok(Box::new(File::open(path).class(Class::DiskIo, || format!("opening {}", path.display()))?))
        };
        let blob = NewBlob { digest: sha256, size, open: &open, elsewhere: None };
        if shared.client.put_blob(repository, &blob, &|_| ())? == BlobTransfer::Uploaded {
            shared.figures.sent(size);
        }
        *locked(&sent) += size;
        Ok(())
    };
    parallel::for_each(&files, shared.transfers, |(sha256, (path, size))| {
        match pack(path, *size, scratch)? {
            None => put(path, *sha256, *size)?,
            Some(file) => {
                let (digest, length) = digest_of_file(file.path())?;
                put(file.path(), digest, length)?;
                locked(&packed).insert(*sha256, PackedBlob { sha256: digest, size: length });
            }
        }
        told(*size);
        Ok(())
    })?;
    let shared_step =
        SharedStep::new(name, &step.record, packed.into_inner().unwrap_or_else(PoisonError::into_inner));
    let config = shared_step.to_bytes()?;
    let open = || -> Result<Box<dyn Read + Send>> { Ok(Box::new(Cursor::new(config.clone()))) };
    let blob =
        NewBlob { digest: Digest::of(&config), size: config.len() as u64, open: &open, elsewhere: None };
    shared.client.put_blob(repository, &blob, &|_| ())?;
    put_manifest(shared, repository, name, &shared_step.manifest(Timestamp::now())?)?;
    Ok(sent.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn put_manifest(
    shared: &SharedSteps,
    repository: &Repository,
    name: &SharedName,
    bytes: &[u8],
) -> Result<()> {
    match shared.client.put_manifest(&reference(repository, &name.tag)?, MANIFEST, bytes)? {
        ManifestAnswer::Taken => Ok(()),
        ManifestAnswer::Unsupported(why) => bail!("the registry does not accept artifacts: {why}"),
    }
}

/// A packed copy of a file; none if it would hardly become smaller.
fn pack(path: &Path, size: u64, scratch: &Path) -> Result<Option<NamedTempFile>> {
    if size < PACKED_MIN {
        return Ok(None);
    }
    let what = || format!("packing {}", path.display());
    let open = || File::open(path).class(Class::DiskIo, what);
    let mut sample = Vec::new();
    open()?.take(SAMPLE).read_to_end(&mut sample).class(Class::DiskIo, what)?;
    let small = zstd::bulk::compress(&sample, LEVEL).class(Class::DiskIo, what)?;
    if small.len() * 5 >= sample.len() * 4 {
        return Ok(None);
    }
    let file = NamedTempFile::new_in(scratch).class(Class::DiskIo, what)?;
    let mut encoder = zstd::Encoder::new(file.as_file(), LEVEL).class(Class::DiskIo, what)?;
    io::copy(&mut open()?, &mut encoder)
        .and_then(|_| encoder.finish().map(drop))
        .class(Class::DiskIo, what)?;
    Ok(Some(file))
}
