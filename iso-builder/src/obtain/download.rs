//! Downloads into the cache: several at the same time; a file is moved into place only when size and SHA-256 are right.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use base::digest::{Digest, HashingReader};
use base::failure::{Class, Classify, Failure};
use base::progress::{Progress, Step};
use transfer::download::{Downloader, RetryPolicy, shown};

use base::parallel::{self, locked};

/// How many transfers run at the same time.
const PARALLEL_TRANSFERS: usize = 6;

#[derive(Clone, Debug)]
pub(super) struct Download {
    pub(super) url: String,
    /// In bytes; none if it is not known.
    pub(super) size: Option<u64>,
    pub(super) sha256: Digest,
    /// The file to write.
    pub(super) path: PathBuf,
}

/// Whether a download is complete. A file gets its name only after it was checked, so its length is enough.
#[must_use]
pub(super) fn is_complete(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() == size)
}

/// Downloads all files, or returns the first failure after the current transfers have ended. `hint` says what to do if
/// a server lacks a file or has another one.
pub(super) fn download_all(wanted: &[Download], hint: &'static str, progress: &Progress) -> Result<()> {
    let Some(first) = wanted.first() else { return Ok(()) };
    let downloader = Downloader::new(&first.url, RetryPolicy::default(), hint)?;
    let total = wanted.iter().map(|file| file.size).sum();
    let step = Mutex::new(progress.step("download", format!("Downloading {} files", wanted.len()), total));
    parallel::for_each(wanted, PARALLEL_TRANSFERS, |file| one(&downloader, file, hint, &step))?;
    step.into_inner().unwrap_or_else(PoisonError::into_inner).done();
    Ok(())
}

fn one(downloader: &Downloader, wanted: &Download, hint: &'static str, step: &Mutex<Step>) -> Result<()> {
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
        locked(step).advance(count as u64);
    }
    let digest = download.digest();
    if digest != wanted.sha256 {
        fs::remove_file(&part).with_context(writing)?;
        let what = format!("{} is not the expected file", shown(&wanted.url));
        let why = anyhow::anyhow!("its SHA-256 is {digest} instead of {}", wanted.sha256);
        return Err(Failure::new(Class::Verification, what).because(why).hint(hint).into());
    }
    ensure!(is_complete(&part, size), "{} changed while it was written", part.display());
    fs::rename(&part, &wanted.path).with_context(|| format!("naming {}", wanted.path.display()))
}
