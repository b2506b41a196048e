//! The base of a build: its root file system, and the time that all files of the media have.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use jiff::Timestamp;

use crate::cache::StepOutputs;
use crate::steps::EPOCH_OUTPUT;

/// The archive of the root file system, an output of its step.
const ARCHIVE: &str = "base.tar";
/// By how much the clocks of two hosts may differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(24 * 3600);

/// The root file system before anything of ours.
#[derive(Debug)]
pub(super) struct BaseSystem {
    outputs: StepOutputs,
    /// The time of all files of the media, in seconds since 1970.
    pub(super) epoch: u64,
}

impl BaseSystem {
    /// The base in the outputs of its step.
    ///
    /// # Errors
    /// As of [`check_epoch`].
    pub(super) fn new(outputs: StepOutputs) -> Result<Self> {
        let epoch = epoch_in(&outputs)?;
        check_epoch(epoch)?;
        Ok(Self { outputs, epoch })
    }

    /// The path of `base.tar`.
    pub(super) fn archive(&self) -> Result<PathBuf> {
        self.outputs.path(ARCHIVE)
    }

    /// The length of `base.tar` in bytes, wherever it is.
    pub(super) fn archive_bytes(&self) -> Result<u64> {
        Ok(self.outputs.file(ARCHIVE)?.0)
    }

    /// Of the archive and its time.
    pub(super) fn digest(&self) -> Result<Digest> {
        self.outputs.digest()
    }
}

/// Refuses a time of files, in seconds since 1970, that no node may have.
///
/// # Errors
/// [`Class::Invalid`] for a time to come: nodes set their clock to it, and trust no certificate then.
pub(super) fn check_epoch(epoch: u64) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if epoch <= (now + CLOCK_DIFFERENCE).as_secs() {
        return Ok(());
    }
    let time = i64::try_from(epoch).ok().and_then(|second| Timestamp::from_second(second).ok());
    let time = time.map_or_else(|| epoch.to_string(), |time| time.to_string());
    let what = format!("the files of the media would have the time {time}, which is still to come");
    let why = "it is that of the newest package or file of the base, or given by `epoch`, by the lock file or by SOURCE_DATE_EPOCH";
    let hint = "Correct the clock of this host; or name a time in the definition, in seconds since 1970: `epoch: 1767225600`.";
    Err(Failure::new(Class::Invalid, what).because(anyhow!(why)).hint(hint).into())
}

/// The time of the files in the outputs of a step that keeps it, in seconds since 1970.
pub(super) fn epoch_in(outputs: &StepOutputs) -> Result<u64> {
    let path = outputs.path(EPOCH_OUTPUT)?;
    files::read_text(&path)?.parse().with_context(|| format!("reading {}", path.display()))
}
