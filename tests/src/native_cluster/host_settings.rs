//! Settings of the kernel that kubelets and the image's files change for the whole machine; they are as before afterwards.
//!
//! What they were is in a file, which each run keeps open with a lock. The last of several runs puts them back. A run that was
//! killed leaves the file, and the next one takes it for what the settings were.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::medium::lock;

/// The settings that kubelets require (kubelet, `setupKernelTunables`) and that many pods need.
const CHANGED: [&str; 7] = [
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    WATCHERS,
    WATCHES,
];
const WATCHERS: &str = "fs/inotify/max_user_instances";
const WATCHES: &str = "fs/inotify/max_user_watches";
/// The inotify limits, equal to those of nodes.
const WANTED: [(&str, &str); 2] = [(WATCHERS, "8192"), (WATCHES, "524288")];
/// Below the directory of the record. A restart of the machine empties it, and sets the settings anew.
const RECORD: &str = "nqrust-e2e-settings";

/// The settings as they were; they are put back when the last of these is dropped.
#[derive(Debug)]
pub struct HostSettings {
    settings: PathBuf,
    directory: PathBuf,
    record: File,
}

impl HostSettings {
    /// Remembers the settings, and lets nodes watch as many files as theirs do.
    pub fn change() -> Result<Self> {
        Self::change_in(Path::new("/proc/sys"), Path::new("/run"))
    }

    fn change_in(settings: &Path, directory: &Path) -> Result<Self> {
        let _turn = lock(&directory.join(format!("{RECORD}.lock")))?;
        let path = directory.join(format!("{RECORD}.json"));
        let record = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let record = record.with_context(|| format!("opening {}", path.display()))?;
        let mut changed = Self { settings: settings.to_owned(), directory: directory.to_owned(), record };
        match changed.record.try_lock() {
            Ok(()) => {
                let before = match changed.read()? {
                    // A run that ended before it could put them back.
                    Some(before) => before,
                    None => changed.present()?,
                };
                changed.write(&before)?;
                changed.put_back(&before)?;
                changed.record.unlock()?;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).context("locking the settings"),
        }
        changed.record.lock_shared().context("locking the settings")?;
        for (name, value) in WANTED {
            changed.set(name, value)?;
        }
        Ok(changed)
    }

    fn present(&self) -> Result<BTreeMap<String, String>> {
        let read = |name: &str| {
            let path = self.settings.join(name);
            let value = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            Ok((name.to_owned(), value))
        };
        CHANGED.into_iter().map(read).collect()
    }

    /// The settings of the record; none if it is new.
    fn read(&mut self) -> Result<Option<BTreeMap<String, String>>> {
        let mut text = String::new();
        self.record.rewind()?;
        self.record.read_to_string(&mut text)?;
        // A record that was not written to its end belongs to a run that had changed nothing.
        Ok(serde_json::from_str(&text).ok())
    }

    fn write(&mut self, before: &BTreeMap<String, String>) -> Result<()> {
        self.record.set_len(0)?;
        self.record.rewind()?;
        self.record.write_all(serde_json::to_string(before)?.as_bytes())?;
        self.record.sync_all().context("recording the settings of the kernel")
    }

    fn put_back(&self, before: &BTreeMap<String, String>) -> Result<()> {
        before.iter().try_for_each(|(name, value)| self.set(name, value))
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        fs::write(self.settings.join(name), value)
            .with_context(|| format!("setting {name} to {}", value.trim()))
    }

    fn end(&mut self) -> Result<()> {
        let _turn = lock(&self.directory.join(format!("{RECORD}.lock")))?;
        match self.record.try_lock() {
            Ok(()) => {
                if let Some(before) = self.read()? {
                    self.put_back(&before)?;
                }
                Ok(self.record.set_len(0)?)
            }
            // Another run goes on.
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error).context("locking the settings"),
        }
    }
}

impl Drop for HostSettings {
    // Errors go to standard error: a destructor cannot return them.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("the kernel's settings are not as before: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel with these settings, and the directory of the record.
    fn kernel() -> (tempfile::TempDir, tempfile::TempDir) {
        let (settings, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in CHANGED {
            let path = settings.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "1\n").unwrap();
        }
        (settings, directory)
    }

    fn value(settings: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(settings.path().join(name)).unwrap().trim().to_owned()
    }

    #[test]
    fn the_last_of_several_runs_puts_the_settings_back() {
        let (settings, directory) = kernel();
        let change = || HostSettings::change_in(settings.path(), directory.path()).unwrap();
        let (first, second) = (change(), change());
        fs::write(settings.path().join("kernel/panic"), "10\n").unwrap();
        assert_eq!(value(&settings, WATCHERS), "8192");
        drop(first);
        assert_eq!(value(&settings, WATCHERS), "8192");
        drop(second);
        assert_eq!((value(&settings, WATCHERS), value(&settings, "kernel/panic")), ("1".into(), "1".into()));
    }

    #[test]
    fn the_next_run_puts_back_what_one_that_was_killed_has_changed() {
        let (settings, directory) = kernel();
        let change = || HostSettings::change_in(settings.path(), directory.path()).unwrap();
        let killed = change();
        let record = fs::read(directory.path().join(format!("{RECORD}.json"))).unwrap();
        drop(killed);
        fs::write(directory.path().join(format!("{RECORD}.json")), record).unwrap();
        fs::write(settings.path().join("kernel/panic"), "10\n").unwrap();
        fs::write(settings.path().join(WATCHES), "524288").unwrap();
        let next = change();
        assert_eq!(value(&settings, "kernel/panic"), "1");
        drop(next);
        assert_eq!((value(&settings, WATCHES), value(&settings, "kernel/panic")), ("1".into(), "1".into()));
        // A change of the administrator between two runs is kept.
        fs::write(settings.path().join("kernel/panic"), "20\n").unwrap();
        drop(change());
        assert_eq!(value(&settings, "kernel/panic"), "20");
    }
}
