//! The machines on disk: one JSON file that is true at every moment, whenever the server is killed.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use installer::failure::{Class, Classify, Failure};
use installer::files;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::machines::{Machine, Machines, Moment};

/// The name of the file in the directory of the state.
const NAME: &str = "machines.json";
/// The version of the file's format.
const FORMAT: u32 = 1;
/// The largest file that is read, in bytes: tens of thousands of machines.
const LIMIT: u64 = 64 << 20;

/// The file's content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    machines: Vec<Machine>,
}

/// The machines, and the file that holds those that last. Held by one server at a time.
pub struct Store {
    path: PathBuf,
    machines: Mutex<Machines>,
    _lock: Flock<File>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the state in `directory`, which is made where it is not there. A file that this program cannot read is
    /// [`Class::Invalid`]: taken for empty, every machine would install again.
    pub fn open(directory: &Path) -> Result<Self> {
        files::make_directory(directory, 0o700).class(Class::DiskIo, || "preparing --state".into())?;
        let lock = lock(&directory.join("lock"))?;
        let path = directory.join(NAME);
        let machines = read(&path)?;
        Ok(Self { path, machines: Mutex::new(machines), _lock: lock })
    }

    /// Looks at the machines.
    pub fn read<T>(&self, look: impl FnOnce(&Machines) -> T) -> T {
        look(&self.lock())
    }

    /// Changes machines. What lasts of the change is on disk before this returns, so that no answer which depends on
    /// it is given earlier; where it cannot be written, nothing has changed.
    pub fn change<T>(&self, change: impl FnOnce(&mut Machines) -> T) -> Result<T> {
        let mut machines = self.lock();
        let mut changed = machines.clone();
        let outcome = change(&mut changed);
        if lasting(&changed) != lasting(&machines) {
            self.write(&changed)?;
        }
        *machines = changed;
        Ok(outcome)
    }

    fn lock(&self) -> MutexGuard<'_, Machines> {
        // A change is made on a copy, so that one which panicked has left no half of it.
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, machines: &Machines) -> Result<()> {
        let content = Content { format: FORMAT, machines: machines.lasting().cloned().collect() };
        let mut bytes = serde_json::to_vec_pretty(&content).context("writing the state as JSON")?;
        bytes.push(b'\n');
        files::write_atomically(&self.path, &bytes, 0o600)
            .class(Class::DiskIo, || "keeping the state of the machines".into())
    }
}

/// What lasts, but for the times at which machines were seen: they alone are not worth a write.
fn lasting(machines: &Machines) -> Vec<Machine> {
    let unseen = |machine: &Machine| Machine { last_seen: Moment::default(), ..machine.clone() };
    machines.lasting().map(unseen).collect()
}

fn lock(path: &Path) -> Result<Flock<File>> {
    let what = || format!("locking {}", path.display());
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.class(Class::DiskIo, what)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => {
            let directory = path.parent().unwrap_or(path).display();
            Failure::new(Class::Invalid, format!("another server uses the state in {directory}"))
                .hint("End that server, or give this one another directory with --state.")
                .into()
        }
        errno => Failure::new(Class::DiskIo, what()).because(errno).into(),
    })
}

fn read(path: &Path) -> Result<Machines> {
    if !path.exists() {
        return Ok(Machines::default());
    }
    let what = || format!("reading the state of the machines in {}", path.display());
    let bytes = files::read_at_most(path, LIMIT).class(Class::DiskIo, what)?;
    let refuse = |why: anyhow::Error| {
        Failure::new(Class::Invalid, what())
            .because(why)
            .hint("Use the iso-builder that wrote it. Without this file, machines that are installed install again.")
    };
    let content: Content = serde_json::from_slice(&bytes).map_err(|error| refuse(error.into()))?;
    if content.format != FORMAT {
        let why = format!("it has format {}, and this program reads format {FORMAT}", content.format);
        return Err(refuse(anyhow::anyhow!("{why}")).into());
    }
    Ok(content.machines.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::machines::{Event, State};
    use installer::failure::{class_of, render};
    use installer::machine::Identity;
    use std::os::unix::fs::PermissionsExt;

    fn identity(last: u8) -> Identity {
        Identity { macs: vec![format!("52:54:00:00:00:{last:02x}").parse().unwrap()], ..Identity::default() }
    }

    fn boot(machines: &mut Machines, last: u8) {
        machines.seen(&identity(last), Moment(7)).apply(Event::Booted, Moment(7));
    }

    #[test]
    fn what_has_changed_is_on_disk_when_the_change_returns() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let store = Store::open(&state).unwrap();
        store.change(|machines| boot(machines, 1)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join(NAME)), mode(&state.join("lock"))), (0o700, 0o600, 0o600));
        let kept = store.read(Clone::clone);
        drop(store);
        let again = Store::open(&state).unwrap();
        assert_eq!(again.read(Clone::clone), kept);
        assert_eq!(again.read(|machines| machines.iter().next().unwrap().state), State::Booting);
    }

    #[test]
    fn machines_that_only_asked_cost_no_write() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.change(|machines| machines.seen(&identity(1), Moment(7)).id).unwrap();
        assert_eq!(store.read(|machines| machines.iter().count()), 1);
        assert!(!directory.path().join(NAME).exists());
    }

    #[test]
    fn a_change_that_cannot_be_written_has_not_happened() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        // A file cannot take the place of a directory, whoever asks.
        std::fs::create_dir_all(directory.path().join(NAME).join("in the way")).unwrap();
        let error = store.change(|machines| boot(machines, 1)).unwrap_err();
        assert!(render(&error).contains(NAME), "{}", render(&error));
        assert_eq!(store.read(|machines| machines.iter().count()), 0);
    }

    #[test]
    fn a_second_server_does_not_take_the_same_state() {
        let directory = tempfile::tempdir().unwrap();
        let _first = Store::open(directory.path()).unwrap();
        let error = Store::open(directory.path()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("another server uses the state"), "{}", render(&error));
    }

    #[test]
    fn a_state_that_cannot_be_read_is_not_taken_for_an_empty_one() {
        for text in ["", "{}", r#"{"format": 2, "machines": []}"#, r#"{"format": 1, "machines": [{}]}"#] {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join(NAME), text).unwrap();
            let error = Store::open(directory.path()).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{text}");
            assert!(render(&error).contains("install again"), "{}", render(&error));
        }
    }
}
