//! One update at a time: a lock that ends with its holder.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::node::paths::below;
use base::failure::{Class, Classify, Failure};

const LOCK: &str = "/run/nqrust/update.lock";
const POLL: Duration = Duration::from_millis(200);

/// Held while the slots of the node at a root may change.
#[derive(Debug)]
pub struct UpdateLock {
    _file: Flock<File>,
}

impl UpdateLock {
    /// Waits for it for at most so long.
    ///
    /// # Errors
    /// [`Class::Busy`] with who holds it.
    pub fn take(root: &Path, wait: Duration) -> Result<Self> {
        Self::take_unless(root, wait, || Ok(()))
    }

    /// As [`take`](Self::take); an error of `cancelled` ends the wait.
    pub fn take_unless(root: &Path, wait: Duration, cancelled: impl Fn() -> Result<()>) -> Result<Self> {
        let path = below(root, LOCK);
        let mut file = open(&path).class(Class::DiskIo, || format!("opening {}", path.display()))?;
        let deadline = Instant::now() + wait;
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(mut locked) => {
                    // For people; that it is not there is no reason to stop.
                    let _ = locked
                        .set_len(0)
                        .and_then(|()| locked.rewind())
                        .and_then(|()| writeln!(locked, "{}", std::process::id()));
                    return Ok(Self { _file: locked });
                }
                Err((file, Errno::EWOULDBLOCK)) if Instant::now() < deadline => file,
                Err((mut file, Errno::EWOULDBLOCK)) => {
                    let mut holder = String::new();
                    let _ = file.read_to_string(&mut holder);
                    let what = format!("another update of this node is at work (process {})", holder.trim());
                    return Err(Failure::new(Class::Busy, what)
                        .hint("See `installer update status`; wait for it, or give this one --wait SECONDS.")
                        .into());
                }
                Err((_, errno)) => {
                    return Err(Failure::new(Class::Unexpected, format!("locking {}", path.display()))
                        .because(errno)
                        .into());
                }
            };
            cancelled()?;
            std::thread::sleep(POLL);
        }
    }
}

fn open(path: &Path) -> Result<File> {
    base::files::make_directory(base::files::parent(path), 0o755)?;
    Ok(OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};

    #[test]
    fn the_second_is_told_of_the_first_and_gets_its_turn_after_it() {
        let root = tempfile::tempdir().unwrap();
        let first = UpdateLock::take(root.path(), Duration::ZERO).unwrap();
        let error = UpdateLock::take(root.path(), Duration::ZERO).unwrap_err();
        assert_eq!(class_of(&error).exit_code(), 8);
        assert!(render(&error).contains(&format!("process {}", std::process::id())));
        let cancelled = || anyhow::bail!("somebody restarts the machine");
        let error = UpdateLock::take_unless(root.path(), Duration::from_secs(20), cancelled).unwrap_err();
        assert!(error.to_string().contains("restarts"));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| UpdateLock::take(root.path(), Duration::from_secs(20)));
            drop(first);
            second.join().unwrap().unwrap();
        });
    }
}
