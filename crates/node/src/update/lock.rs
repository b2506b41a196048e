//! One update at a time: a lock that ends with its holder.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::unistd::Uid;

use base::failure::{Class, Classify, Failure};
use machine::paths::below;

/// In a directory of its own, for nobody else: flock(2) works on any descriptor, so whoever may open the file to read it can hold it.
const LOCK: &str = "/run/nqrust/lock/update";
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
        let mut file = open(&path)?;
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

/// The lock file, which no other user can open.
///
/// # Errors
/// [`Class::Hardware`] if it, or its directory, belongs to another user, who may hold it.
fn open(path: &Path) -> Result<File> {
    let what = || format!("opening {}", path.display());
    let directory = base::files::parent(path);
    base::files::make_directory(directory, 0o700)?;
    let found = fs::symlink_metadata(directory).class(Class::DiskIo, what)?;
    require_own(directory, &found, found.is_dir())?;
    fs::set_permissions(directory, Permissions::from_mode(0o700)).class(Class::DiskIo, what)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.custom_flags(OFlag::O_NOFOLLOW.bits()).open(path).class(Class::DiskIo, what)?;
    let found = file.metadata().class(Class::DiskIo, what)?;
    require_own(path, &found, found.is_file() && found.nlink() == 1)?;
    file.set_permissions(Permissions::from_mode(0o600)).class(Class::DiskIo, what)?;
    Ok(file)
}

fn require_own(path: &Path, found: &Metadata, expected_kind: bool) -> Result<(), Failure> {
    if expected_kind && found.uid() == Uid::effective().as_raw() {
        return Ok(());
    }
    let what = format!("{} was not made by this program, so others may hold the lock", path.display());
    Err(Failure::new(Class::Hardware, what).hint(format!("Remove it: rm -r {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use std::os::unix::fs::{chown, symlink};
    use testing::privileges::root_runs;

    #[test]
    fn no_other_user_can_open_the_lock_even_where_it_was_open_to_all_before() {
        let root = tempfile::tempdir().unwrap();
        let path = below(root.path(), LOCK);
        let directory = path.parent().unwrap();
        fs::create_dir_all(directory).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let _lock = UpdateLock::take(root.path(), Duration::ZERO).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(directory), mode(&path)), (0o700, 0o600));
    }

    #[test]
    fn a_lock_that_another_user_has_made_is_refused() {
        let refused = |prepare: &dyn Fn(&Path)| {
            let root = tempfile::tempdir().unwrap();
            let path = below(root.path(), LOCK);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            prepare(&path);
            UpdateLock::take(root.path(), Duration::ZERO).is_err()
        };
        assert!(!refused(&|_| ()));
        assert!(refused(&|path| symlink("/etc/passwd", path).unwrap()));
        assert!(refused(&|path| {
            fs::write(path.with_extension("other"), "").unwrap();
            fs::hard_link(path.with_extension("other"), path).unwrap();
        }));
        if root_runs() {
            assert!(refused(&|path| chown(path.parent().unwrap(), Some(65534), None).unwrap()));
            assert!(refused(&|path| {
                fs::write(path, "").unwrap();
                chown(path, Some(65534), None).unwrap();
            }));
        }
    }

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
