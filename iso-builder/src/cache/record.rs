//! The record of a finished step: its outputs, with what is needed to check that they are unchanged.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Result;
use base::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::files::digest_of_file;

/// The record beside a step's outputs.
pub(super) const RECORD_FILE: &str = ".step.json";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StepRecord {
    pub(super) files: Vec<FileRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FileRecord {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    mtime: i64,
    mtime_nsec: i64,
    pub(super) sha256: Digest,
}

/// The record of a finished step if all its files are as recorded.
pub(super) fn sound(directory: &Path) -> Result<Option<StepRecord>> {
    let Ok(bytes) = fs::read(directory.join(RECORD_FILE)) else {
        return Ok(None);
    };
    let Ok(record) = serde_json::from_slice::<StepRecord>(&bytes) else {
        return Ok(None);
    };
    for file in &record.files {
        let path = directory.join(&file.path);
        let Ok(metadata) = fs::metadata(&path) else {
            return Ok(None);
        };
        let untouched = (metadata.mtime(), metadata.mtime_nsec()) == (file.mtime, file.mtime_nsec);
        if metadata.len() != file.size || (!untouched && digest_of_file(&path)?.0 != file.sha256) {
            return Ok(None);
        }
    }
    Ok(Some(record))
}

pub(super) fn survey(directory: &Path) -> Result<Vec<FileRecord>> {
    let mut files = Vec::new();
    for entry in walkdir::WalkDir::new(directory).sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_file() {
            let (sha256, size) = digest_of_file(entry.path())?;
            let metadata = entry.metadata()?;
            let path = entry.path().strip_prefix(directory)?.to_owned();
            let (mtime, mtime_nsec) = (metadata.mtime(), metadata.mtime_nsec());
            files.push(FileRecord { path, size, mtime, mtime_nsec, sha256 });
        }
    }
    Ok(files)
}

/// Marks a step as used now.
pub(super) fn mark_used(directory: &Path) {
    // A cache that cannot be written to can still be read.
    let _ = fs::File::options()
        .append(true)
        .open(directory.join(RECORD_FILE))
        .and_then(|record| record.set_modified(SystemTime::now()));
}
