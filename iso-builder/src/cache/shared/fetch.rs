//! Looking for a step in a registry, and fetching files of it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use base::digest::{Digest, HashingReader};
use base::failure::{Class, Classify, Failure, class_of};
use base::files::{self, fill_unsynced, read_at_most, write_atomically};
use base::parallel::{self, locked};
use formats::oci::Repository;
use transfer::registry::Client;

use super::document::{CONFIG_LIMIT, SharedName, SharedStep, StepManifest};
use super::repositories::{STEP, SharedSteps, reference};
use crate::cache::figures::FetchedKind;
use crate::cache::key::StepKey;
use crate::cache::record::{
    FileContent, OutputContent, RECORD_FILE, StepOutput, StepRecord, time_of_fetched,
};
use crate::files::ReportingReader;
use crate::wording::counted;

/// The list of the outputs of a step in a registry, beside its record.
const DOCUMENT_FILE: &str = ".shared-step.json";

/// Fetching less bytes is not worth a line.
const SHOWN_MIN: u64 = 1 << 20;

/// A step whose files are fetched when they are used. Clones share what is under way.
#[derive(Clone, Debug)]
pub(in crate::cache) struct FoundStep {
    shared: Arc<SharedSteps>,
    repository: Repository,
    name: &'static str,
    step: Arc<SharedStep>,
}

impl SharedSteps {
    /// Looks for a step, in one repository after the other. What does not answer or has something else there is told once, and is asked no
    /// more.
    pub(in crate::cache) fn find(self: &Arc<Self>, key: &StepKey) -> Result<Option<FoundStep>> {
        let name = SharedName::new(key, self.tools)?;
        for repository in &self.from {
            if locked(&self.silent).contains(repository) {
                continue;
            }
            match find(&self.client, repository, &name) {
                Ok(Some(step)) => return Ok(Some(FoundStep::new(self, repository, key.name, step))),
                Ok(None) => {}
                Err(error) => self.give_up(repository, &format!("looking for the step {}", key.name), &error),
            }
        }
        Ok(None)
    }
}

/// The list of outputs of the step `name`; none if the repository has no such step.
pub(super) fn find(
    client: &Client,
    repository: &Repository,
    name: &SharedName,
) -> Result<Option<SharedStep>> {
    let Some(manifest) = client.tagged(&reference(repository, &name.tag)?)? else { return Ok(None) };
    let StepManifest { config, .. } = StepManifest::read(&manifest)?;
    let mut bytes = Vec::new();
    let reader = client.blob(repository, config.digest, config.size, 0)?;
    let read = reader.take(CONFIG_LIMIT).read_to_end(&mut bytes);
    read.class(Class::Network, || format!("reading the list of outputs of {} in {repository}", name.tag))?;
    if Digest::of(&bytes) != config.digest {
        let what = format!("the list of outputs of {} in {repository} has another digest", name.tag);
        return Err(Failure::new(Class::Verification, what).into());
    }
    SharedStep::read(&bytes, name).map(Some)
}

impl FoundStep {
    fn new(shared: &Arc<SharedSteps>, repository: &Repository, name: &'static str, step: SharedStep) -> Self {
        let (shared, repository, step) = (Arc::clone(shared), repository.clone(), Arc::new(step));
        Self { shared, repository, name, step }
    }

    /// The record of a step of which nothing is here yet.
    pub(in crate::cache) fn record(&self) -> StepRecord {
        let time = time_of_fetched();
        let mut outputs = self.step.outputs.clone();
        for StepOutput { content, .. } in &mut outputs {
            if let OutputContent::File(file) = content {
                file.modified = Some(time);
            }
        }
        StepRecord { outputs, origin: Some(self.repository.to_string()) }
    }

    /// True if `directory`, with the record `record`, was begun with this very step.
    pub(in crate::cache) fn is_in(&self, directory: &Path, record: &StepRecord) -> bool {
        let document = read_at_most(&directory.join(DOCUMENT_FILE), CONFIG_LIMIT).ok();
        record.origin.as_deref() == Some(&self.repository.to_string())
            && document.is_some_and(|bytes| self.step.to_bytes().is_ok_and(|own| own == bytes))
    }

    /// Lays out directories, links and the record in the empty `directory`.
    pub(in crate::cache) fn begin(&self, directory: &Path) -> Result<StepRecord> {
        let record = self.record();
        for StepOutput { path, content } in &record.outputs {
            let path = directory.join(path);
            match content {
                OutputContent::Directory => files::make_directory(&path, 0o755)?,
                OutputContent::Link { target } => {
                    symlink(target, &path).class(Class::DiskIo, || format!("making {}", path.display()))?;
                }
                OutputContent::File(_) => {}
            }
        }
        write_atomically(&directory.join(DOCUMENT_FILE), &self.step.to_bytes()?, 0o644)?;
        write_atomically(&directory.join(RECORD_FILE), &serde_json::to_vec_pretty(&record)?, 0o644)?;
        Ok(record)
    }

    /// Fetches the files at or below these names that are not in `directory` yet.
    ///
    /// # Errors
    /// [`Class::Network`] if one does not come, [`Class::Verification`] if another came.
    pub(in crate::cache) fn bring(
        &self,
        directory: &Path,
        record: &StepRecord,
        names: &[&str],
    ) -> Result<()> {
        let mut missing: Vec<_> = record.missing(directory, names).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // The largest first, so that the others do not end up waiting for one transfer.
        missing.sort_by_key(|(_, file)| std::cmp::Reverse(file.size));
        let total: u64 = missing.iter().map(|(_, file)| file.size).sum();
        let text = format!(
            "Fetching {} of the step {} from {}",
            counted(missing.len(), "file"),
            self.name,
            self.repository
        );
        let shown =
            (total >= SHOWN_MIN).then(|| Mutex::new(self.shared.progress.step(STEP, text, Some(total))));
        let told = |bytes| shown.iter().for_each(|step| locked(step).advance(bytes));
        let fetched = parallel::for_each(&missing, self.shared.transfers, |(path, file)| {
            self.fetch(&directory.join(path), file, &told)
        });
        fetched.map_err(|error| {
            let what = format!("fetching the step {} from {}", self.name, self.repository);
            Failure::new(class_of(&error), what).because(error)
        })?;
        if let Some(step) = shown {
            step.into_inner().unwrap_or_else(PoisonError::into_inner).done();
        }
        Ok(())
    }

    fn fetch(&self, path: &Path, file: &FileContent, told: &dyn Fn(u64)) -> Result<()> {
        let (blob, packed) = self.step.blob(file);
        let source: Box<dyn Read + Send> = match file.size {
            0 => Box::new(io::empty()),
            _ => self.shared.client.blob(&self.repository, blob.sha256, blob.size, 0)?,
        };
        let arrived = |bytes| self.shared.figures.fetched(FetchedKind::Steps, bytes);
        let source = ReportingReader::new(source, arrived);
        let mode = if file.executable { 0o755 } else { 0o644 };
        let fill = |target: &mut File| -> io::Result<()> {
            let reader: Box<dyn Read> = match packed && file.size > 0 {
                true => Box::new(zstd::Decoder::new(source)?),
                false => Box::new(source),
            };
            // One byte more tells a file that is too long.
            let reader = ReportingReader::new(reader.take(file.size.saturating_add(1)), told);
            let mut hashing = HashingReader::new(reader);
            let size = io::copy(&mut hashing, target)?;
            if (size, hashing.digest()) != (file.size, file.sha256) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            target.set_modified(UNIX_EPOCH + file.modified.unwrap_or(Duration::ZERO))
        };
        fill_unsynced(path, mode, fill).map_err(|error| match class_of(&error) {
            // Neither the network nor the disk: it cannot be unpacked, or has another digest.
            Class::Unexpected => {
                let why = anyhow!("what came is not what its list of outputs says");
                Failure::new(Class::Verification, format!("fetching {}", path.display())).because(why).into()
            }
            _ => error,
        })
    }
}
