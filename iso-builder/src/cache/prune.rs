//! Removal of what no build has used for a while. It is made or downloaded again when a build needs it.

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde::Serialize;
use walkdir::WalkDir;

use super::record::RECORD_FILE;
use super::{Cache, STEPS, remove};

/// The removed entries, or those that a dry run would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PruneSummary {
    pub steps: usize,
    /// Packages, blobs and other downloads, complete or not.
    pub downloads: usize,
    /// Bytes that become free. A file with several names in the cache counts when its last name is removed.
    pub freed: u64,
}

impl Cache {
    /// Removes the steps and downloads that were last used before `limit`; with `keep` (dry run) it only counts them.
    pub fn prune(&self, limit: SystemTime, keep: bool) -> Result<PruneSummary> {
        let mut pruned = PruneSummary::default();
        for entry in fs::read_dir(self.store.root.join(STEPS)).context("listing the steps of the cache")? {
            let directory = entry?.path();
            let used = fs::metadata(directory.join(RECORD_FILE)).and_then(|record| record.modified());
            if used.is_ok_and(|used| used >= limit) {
                continue;
            }
            pruned.freed += freed_by(&directory)?;
            pruned.steps += 1;
            if !keep {
                remove(&directory)?;
            }
        }
        for entry in WalkDir::new(self.downloads()) {
            let entry = entry.context("listing the downloads")?;
            let metadata = entry.metadata().context("listing the downloads")?;
            if !metadata.is_file() || last_read(&metadata) >= limit {
                continue;
            }
            pruned.freed += own_bytes(&metadata);
            pruned.downloads += 1;
            if !keep {
                fs::remove_file(entry.path())
                    .with_context(|| format!("removing {}", entry.path().display()))?;
            }
        }
        Ok(pruned)
    }
}

#[must_use]
pub fn days_ago(days: u32) -> SystemTime {
    let age = Duration::from_secs(u64::from(days) * 24 * 60 * 60);
    SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// When a file was last read or written. Linux updates the time of access at least once a day, unless the disk is
/// mounted with `noatime` (mount(8)); then it is when the file was made.
fn last_read(metadata: &Metadata) -> SystemTime {
    let times = [metadata.accessed(), metadata.modified()];
    times.into_iter().flatten().max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn freed_by(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in WalkDir::new(directory) {
        let entry = entry.with_context(|| format!("listing {}", directory.display()))?;
        bytes += own_bytes(&entry.metadata()?);
    }
    Ok(bytes)
}

/// The bytes on the disk of a file that has no other name.
fn own_bytes(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    if metadata.is_file() && metadata.nlink() == 1 { metadata.blocks() * 512 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::StepKey;
    use super::*;
    use serde_json::json;

    fn backdate(path: &Path) {
        let then = fs::FileTimes::new().set_accessed(days_ago(40)).set_modified(days_ago(40));
        fs::File::options().append(true).open(path).unwrap().set_times(then).unwrap();
    }

    #[test]
    fn what_was_not_used_for_long_goes_and_what_was_stays() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), None, || ()).unwrap();
        let step = |input: &str| {
            let key = StepKey::new("test", 1, json!(input));
            cache.step(&key, |out| Ok(fs::write(out.join("file"), vec![1; 10_000])?)).unwrap()
        };
        let (old, used) = (step("old"), step("used"));
        for outputs in [&old, &used] {
            backdate(&outputs.path(RECORD_FILE).unwrap());
        }
        assert!(!step("used").fresh, "a step of long ago is still good");
        fs::create_dir(cache.downloads().join("blobs")).unwrap();
        for name in ["package", "blobs/old", "blobs/new"] {
            fs::write(cache.downloads().join(name), vec![1; 10_000]).unwrap();
        }
        backdate(&cache.downloads().join("package"));
        backdate(&cache.downloads().join("blobs/old"));

        let told = cache.prune(days_ago(30), true).unwrap();
        assert_eq!((told.steps, told.downloads), (1, 2));
        assert!(told.freed >= 30_000, "{told:?}");
        assert!(
            old.path("file").unwrap().exists() && cache.downloads().join("package").exists(),
            "only told"
        );

        assert_eq!(cache.prune(days_ago(30), false).unwrap(), told);
        assert!(!old.path("file").unwrap().exists() && !cache.downloads().join("blobs/old").exists());
        assert!(used.path("file").unwrap().exists() && cache.downloads().join("blobs/new").exists());
        assert_eq!(cache.prune(days_ago(30), false).unwrap(), PruneSummary::default());
        assert!(step("old").fresh, "what is gone is made again");
    }
}
