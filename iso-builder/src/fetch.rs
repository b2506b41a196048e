//! Downloads into the cache: several at a time, resumed after a cut, tried again with growing pauses, and
//! moved into place only when size and SHA-256 are right.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use installer::digest::Digest;
use installer::failure::{Class, Failure};
use installer::progress::{Progress, Step};
use reqwest::StatusCode;
use reqwest::blocking::{Client, Response};
use reqwest::header::RANGE;

/// Transfers at the same time.
const PARALLEL: usize = 6;
/// Tries of one transfer; the pause before the n-th repetition is n squared seconds.
const TRIES: u32 = 5;
/// A server that is silent for this long has failed.
const SILENCE: Duration = Duration::from_secs(30);

/// One file to be had.
#[derive(Clone, Debug)]
pub struct Download {
    /// Where it is.
    pub url: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: Digest,
    /// Where it goes.
    pub path: PathBuf,
}

/// Whether a download is there. It got its name only after it was checked, so its length is enough.
#[must_use]
pub fn is_complete(path: &Path, size: u64) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() == size)
}

/// Downloads everything, or fails with the first failure after the transfers under way have stopped.
pub fn all(downloads: &[Download], progress: &Progress) -> Result<()> {
    let client = client()?;
    let total = downloads.iter().map(|download| download.size).sum();
    let message = format!("Downloading {} files", downloads.len());
    let step = Mutex::new(progress.step("download", message, Some(total)));
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..PARALLEL.min(downloads.len()) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Some(download) = downloads.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    if let Err(error) = one(&client, download, &step) {
                        stop.store(true, Ordering::Relaxed);
                        failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(error);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(error) = failures.pop() {
        return Err(error);
    }
    step.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).done();
    Ok(())
}

fn client() -> Result<Client> {
    // Installing the provider a second time is an error that means it is there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().connect_timeout(SILENCE).timeout(SILENCE);
    builder.build().context("preparing HTTP")
}

fn one(client: &Client, download: &Download, step: &Mutex<Step>) -> Result<()> {
    let part = download.path.with_extension("part");
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt(client, download, &part, step) {
            Ok(()) => break,
            Err(Failed::Again(_)) if tries < TRIES => {
                thread::sleep(Duration::from_secs(u64::from(tries * tries)));
            }
            Err(Failed::Again(error) | Failed::Finally(error)) => {
                return Err(error.context(format!("downloading {}", download.url)));
            }
        }
    }
    let (digest, size) = crate::cache::digest_of(&part)?;
    if digest != download.sha256 || size != download.size {
        fs::remove_file(&part)?;
        let what = format!("{} is not what the lock file says", download.url);
        let told = format!("it has {size} bytes and SHA-256 {digest}");
        return Err(Failure::new(Class::Verification, what).because(anyhow::anyhow!("{told}")).into());
    }
    fs::rename(&part, &download.path).with_context(|| format!("naming {}", download.path.display()))
}

/// Why a transfer ended, and whether another try makes sense.
enum Failed {
    Again(anyhow::Error),
    Finally(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::Finally(error.into())
    }
}

/// Transfers what is missing of `part`.
fn attempt(
    client: &Client,
    download: &Download,
    part: &Path,
    step: &Mutex<Step>,
) -> std::result::Result<(), Failed> {
    let open = OpenOptions::new().create(true).append(true).open(part);
    let mut file = open.with_context(|| format!("opening {}", part.display()))?;
    let have = file.metadata()?.len();
    if have >= download.size {
        return Ok(());
    }
    let mut request = client.get(&download.url);
    if have > 0 {
        request = request.header(RANGE, format!("bytes={have}-"));
    }
    let response = request.send().map_err(|error| network("asking the server", error))?;
    match response.status() {
        StatusCode::PARTIAL_CONTENT if have > 0 => {}
        StatusCode::OK => file.set_len(0)?,
        status => return Err(refusal(status)),
    }
    copy(response, &mut file, step)?;
    if file.metadata()?.len() < download.size {
        return Err(network("receiving", "the server ended the transfer early"));
    }
    Ok(())
}

fn copy(mut response: Response, file: &mut File, step: &Mutex<Step>) -> std::result::Result<(), Failed> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = response.read(&mut buffer).map_err(|error| network("receiving", error))?;
        if count == 0 {
            return Ok(());
        }
        file.write_all(&buffer[..count]).context("writing to the cache")?;
        step.lock().unwrap_or_else(std::sync::PoisonError::into_inner).advance(count as u64);
    }
}

fn network(what: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failed {
    Failed::Again(Failure::new(Class::Network, what).because(error).into())
}

/// Another try may change the answer of a server that is overloaded or broken; a plain no is final.
fn refusal(status: StatusCode) -> Failed {
    let failure = Failure::new(Class::Network, format!("the server answered {status}"));
    let transient = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    if transient { Failed::Again(failure.into()) } else { Failed::Finally(failure.into()) }
}
