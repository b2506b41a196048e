//! The files of a release, fetched into a directory: each is written beside, checked, and gets its name when it is whole.
//!
//! An interrupted run keeps its part of a file under the file's digest; the next run continues it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Result;
use base::digest::{Digest, Hasher};
use base::failure::{Class, Classify, Failure};
use base::files::{make_directory, parent};
use base::parallel::locked;
use base::progress::{Progress, Step};
use medium::payload_sources::{OpenedArtifact, fetch_again};
use model::release::SIGNATURES;

use crate::files::{digest_of_file, link_or_copy};

/// Bytes that are written at a time.
const CHUNK: usize = 256 << 10;

/// A blob and the files that it becomes.
#[derive(Clone, Debug)]
pub(super) struct BlobTarget {
    pub(super) digest: Digest,
    /// In bytes.
    pub(super) size: u64,
    /// From the directory; there is at least one.
    pub(super) paths: Vec<String>,
}

/// The blobs that make up the directory of a release.
pub(super) fn wanted(artifact: &OpenedArtifact) -> Vec<BlobTarget> {
    let release = artifact.release();
    let payloads =
        release.carried_payloads().map(|payload| (payload.sha256, payload.size, payload.path.clone()));
    let code = artifact.boot_code().into_iter().flatten();
    let code = code.map(|part| (part.sha256, part.size, part.path.to_owned()));
    let patches = artifact.patches().iter().map(|patch| (patch.sha256, patch.size, patch.path.clone()));
    let signatures = artifact.signatures_blob();
    let signatures = signatures.into_iter().map(|(digest, size)| (digest, size, SIGNATURES.to_owned()));
    let mut all: BTreeMap<(Digest, u64), Vec<String>> = BTreeMap::new();
    for (digest, size, path) in payloads.chain(code).chain(patches).chain(signatures) {
        all.entry((digest, size)).or_default().push(path);
    }
    let mut all: Vec<_> =
        all.into_iter().map(|((digest, size), paths)| BlobTarget { digest, size, paths }).collect();
    // The largest first, so that the others do not end up waiting for one transfer.
    all.sort_by_key(|wanted| std::cmp::Reverse(wanted.size));
    all
}

/// The directory that is filled.
pub(super) struct Destination<'a> {
    pub(super) root: &'a Path,
    /// Where unfinished files are.
    pub(super) unfinished: &'a Path,
    pub(super) progress: &'a Progress,
}

impl Destination<'_> {
    /// The first of the files of a blob that is there with the right content.
    pub(super) fn holder(&self, wanted: &BlobTarget) -> Result<Option<PathBuf>> {
        for path in &wanted.paths {
            let path = self.root.join(path);
            if fs::symlink_metadata(&path).is_ok_and(|found| found.is_file() && found.len() == wanted.size)
                && digest_of_file(&path)?.0 == wanted.digest
            {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Gives a blob, which one file has, to all of its files.
    pub(super) fn spread(&self, wanted: &BlobTarget, holder: &Path) -> Result<()> {
        for path in wanted.paths.iter().map(|path| self.root.join(path)) {
            if path != holder {
                make_directory(parent(&path), 0o755)?;
                link_or_copy(holder, &path)?;
            }
        }
        Ok(())
    }

    /// Fetches a blob and gives it the first of its names. Returns how many bytes came, without those of an earlier run.
    pub(super) fn fetch(
        &self,
        artifact: &OpenedArtifact,
        wanted: &BlobTarget,
        step: &Mutex<Step>,
    ) -> Result<(PathBuf, u64)> {
        let part = self.unfinished.join(wanted.digest.to_string());
        let name = wanted.paths.first().map_or_else(|| wanted.digest.oci(), Clone::clone);
        let mut came = 0;
        let file = fetch_again(
            || self.attempt(artifact, wanted, (&part, &name), step, &mut came),
            |error| self.progress.warn("pull", &format!("{error:#}; it is fetched again")),
        )?;
        let path = self.root.join(&name);
        let placing = || format!("placing {}", path.display());
        file.sync_all().class(Class::DiskIo, placing)?;
        make_directory(parent(&path), 0o755).class(Class::DiskIo, placing)?;
        fs::rename(&part, &path).class(Class::DiskIo, placing)?;
        File::open(parent(&path)).and_then(|directory| directory.sync_all()).class(Class::DiskIo, placing)?;
        Ok((path, came))
    }

    fn attempt(
        &self,
        artifact: &OpenedArtifact,
        wanted: &BlobTarget,
        (part, name): (&Path, &str),
        step: &Mutex<Step>,
        came: &mut u64,
    ) -> Result<File> {
        let writing = || format!("writing {}", part.display());
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(part);
        let mut file = file.class(Class::DiskIo, writing)?;
        let mut hasher = Hasher::default();
        let kept = match file.metadata().class(Class::DiskIo, writing)?.len() {
            length if length <= wanted.size => {
                io::copy(&mut file, &mut hasher).class(Class::DiskIo, writing)?
            }
            _ => {
                file.set_len(0).class(Class::DiskIo, writing)?;
                0
            }
        };
        locked(step).advance(kept);
        let mut position = kept;
        let mut reader = artifact.blob(wanted.digest, wanted.size, kept)?;
        let mut buffer = vec![0; CHUNK];
        loop {
            let receiving = || format!("fetching {name} of {}", artifact.name());
            let count = reader.read(&mut buffer).class(Class::Network, receiving)?;
            if count == 0 {
                break;
            }
            position += count as u64;
            if position > wanted.size {
                break;
            }
            hasher.update(&buffer[..count]);
            file.write_all(&buffer[..count]).class(Class::DiskIo, writing)?;
            *came += count as u64;
            locked(step).advance(count as u64);
        }
        let digest = hasher.finish();
        if (digest, position) == (wanted.digest, wanted.size) {
            return Ok(file);
        }
        fs::remove_file(part).class(Class::DiskIo, writing)?;
        let why = match position == wanted.size {
            true => format!("its SHA-256 is {digest} instead of {}", wanted.digest),
            false => format!("it has another length than {} bytes", wanted.size),
        };
        Err(Failure::new(Class::Verification, format!("{name} of {} is damaged", artifact.name()))
            .because(anyhow::anyhow!(why))
            .hint("Push the release again, or name another registry or mirror.")
            .into())
    }
}
