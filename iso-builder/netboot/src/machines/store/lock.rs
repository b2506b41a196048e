//! The lock of a state directory, which one server uses at a time.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// In the directory.
const NAME: &str = "lock";

/// Held while the server runs.
pub type StateLock = Flock<File>;

/// Locks a directory. If another server has it, that is [`Class::Invalid`].
pub(super) fn lock(directory: &Path) -> Result<StateLock> {
    let path = directory.join(NAME);
    let what = || format!("locking {}", path.display());
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.class(Class::DiskIo, what)?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => {
            let directory = directory.display();
            Failure::new(Class::Invalid, format!("another server uses the state in {directory}"))
                .hint(
                    "Stop that server, or give this one another directory with --state or --state-directory.",
                )
                .into()
        }
        errno => Failure::new(Class::DiskIo, what()).because(errno).into(),
    })
}
