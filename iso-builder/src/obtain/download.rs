//! Downloads into the cache: several at the same time; a file is moved into place only when size and SHA-256 are right, and read
//! again on every use.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use base::digest::{Digest, HashingReader};
use base::failure::{Class, Classify, Failure};
use base::files::parent;
use base::parallel::{self, locked};
use base::progress::Progress;
use base::url::shown;
use nix::fcntl::{Flock, FlockArg};
use transfer::download::{Downloader, RetryPolicy};

use crate::cache::{BuildFigures, FetchedKind};
use crate::files::CachedFile;

/// The file in a directory of downloads that is locked while some come.
const LOCK: &str = ".lock";
/// How many transfers run at the same time.
const PARALLEL_TRANSFERS: usize = 6;

#[derive(Clone, Debug)]
pub(super) struct Download {
    pub(super) url: String,
    /// In bytes; none if it is not known.
    pub(super) size: Option<u64>,
    pub(super) sha256: Digest,
    pub(super) path: PathBuf,
}

/// The name of files of one kind, and the hint if a server lacks one or has another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct DownloadKind {
    /// Such as `packages`.
    pub(super) noun: &'static str,
    pub(super) hint: &'static str,
}

/// Makes sure that every file of `wanted` is in its place with its digest: downloads what is missing or damaged, and counts its bytes in
/// `figures`.
///
/// # Errors
/// Offline, [`Class::Network`] if a file is missing and [`Class::Verification`] if one is damaged.
pub(super) fn obtain(
    wanted: Vec<Download>,
    kind: DownloadKind,
    offline: bool,
    progress: &Progress,
    figures: &BuildFigures,
) -> Result<()> {
    let found = Mutex::new(Vec::new());
    let threads = available_parallelism().map_or(1, usize::from);
    parallel::for_each(&wanted, threads, |file| {
        let state = CachedFile::of(&file.path, file.sha256, file.size)?;
        if state != CachedFile::Sound {
            locked(&found).push((file.path.clone(), state));
        }
        Ok(())
    })?;
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let is = |file: &Download, state| found.contains(&(file.path.clone(), state));
    let count = |state| found.iter().filter(|(_, known)| *known == state).count();
    let first = |state| wanted.iter().find(|file| is(file, state)).filter(|_| offline);
    let refused = |class, what, file: &Download| {
        let why = anyhow::anyhow!("the first is {}", shown(&file.url));
        Err(Failure::new(class, what).because(why).hint("Build once without --offline.").into())
    };
    if let Some(file) = first(CachedFile::Damaged) {
        let count = count(CachedFile::Damaged);
        let what = format!("{count} of the {} are damaged in the cache, and --offline was given", kind.noun);
        return refused(Class::Verification, what, file);
    }
    if let Some(file) = first(CachedFile::Absent) {
        let count = count(CachedFile::Absent);
        let what = format!("{count} of the {} are not in the cache, and --offline was given", kind.noun);
        return refused(Class::Network, what, file);
    }
    let is_missing = |file: &Download| found.iter().any(|(path, _)| *path == file.path);
    let mut missing: Vec<_> = wanted.into_iter().filter(is_missing).collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let _turn = turn_in(parent(&first.path))?;
    // Another build may have had them come in the meantime.
    let mut left = Vec::new();
    for file in missing.drain(..) {
        if CachedFile::of(&file.path, file.sha256, file.size)? != CachedFile::Sound {
            left.push(file);
        }
    }
    download_all(&left, kind.hint, progress, figures)
}

/// Waits until no other build, of this process or another, downloads to the directory.
fn turn_in(directory: &Path) -> Result<Flock<File>> {
    let path = directory.join(LOCK);
    let what = || format!("locking {}", path.display());
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.class(Class::DiskIo, what)?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error).class(Class::DiskIo, what)
}

/// Downloads all files, or returns the first failure after the current transfers have ended. `hint` says what to do if
/// a server lacks a file or has another one.
fn download_all(
    wanted: &[Download],
    hint: &'static str,
    progress: &Progress,
    figures: &BuildFigures,
) -> Result<()> {
    let Some(first) = wanted.first() else { return Ok(()) };
    let downloader = Downloader::new(&first.url, RetryPolicy::default(), hint)?;
    let total = wanted.iter().map(|file| file.size).sum();
    let step = Mutex::new(progress.step("download", format!("Downloading {} files", wanted.len()), total));
    let told = |bytes| {
        locked(&step).advance(bytes);
        figures.fetched(FetchedKind::Downloads, bytes);
    };
    parallel::for_each(wanted, PARALLEL_TRANSFERS, |file| one(&downloader, file, hint, &told))?;
    step.into_inner().unwrap_or_else(PoisonError::into_inner).done();
    Ok(())
}

fn one(
    downloader: &Downloader,
    wanted: &Download,
    hint: &'static str,
    told: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let part = wanted.path.with_extension("part");
    let writing = || format!("writing {}", part.display());
    let mut file = File::create(&part).with_context(writing)?;
    let mut download = HashingReader::new(downloader.open(&wanted.url, wanted.size));
    let (mut buffer, mut size) = (vec![0; 256 << 10], 0);
    loop {
        let receiving = || format!("downloading {}", shown(&wanted.url));
        let count = download.read(&mut buffer).class(Class::Network, receiving)?;
        if count == 0 {
            break;
        }
        file.write_all(&buffer[..count]).with_context(writing)?;
        size += count as u64;
        told(count as u64);
    }
    let digest = download.digest();
    if digest != wanted.sha256 {
        fs::remove_file(&part).with_context(writing)?;
        let what = format!("{} is not the expected file", shown(&wanted.url));
        let why = anyhow::anyhow!("its SHA-256 is {digest} instead of {}", wanted.sha256);
        return Err(Failure::new(Class::Verification, what).because(why).hint(hint).into());
    }
    let written = file.metadata().with_context(writing)?.len();
    ensure!(written == size, "{} changed while it was written", part.display());
    fs::rename(&part, &wanted.path).with_context(|| format!("naming {}", wanted.path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};

    #[test]
    fn a_url_that_cannot_be_asked_is_invalid_and_tried_once() {
        let directory = tempfile::tempdir().unwrap();
        for url in ["file:///srv/mirror/a.deb", "ftp://mirror.example/a.deb"] {
            let wanted = Download {
                url: url.into(),
                size: Some(1),
                sha256: Digest::of(b"a"),
                path: directory.path().join("a.deb"),
            };
            let kind = DownloadKind { noun: "packages", hint: "Name another mirror." };
            let refused =
                obtain(vec![wanted], kind, false, &Progress::silent(), &BuildFigures::default()).unwrap_err();
            let told = render(&refused);
            assert_eq!(class_of(&refused), Class::Invalid, "{told}");
            assert!(told.contains("not an http or https URL") && !told.contains("attempts"), "{told}");
        }
    }
}
