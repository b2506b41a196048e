//! The real disk: direct I/O, so that what is read back comes from the medium and memory use stays small.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc::{O_CLOEXEC, O_DIRECT, O_EXCL};

use super::device::{AlignedBuffer, BlockDevice, CHUNK_BYTES, advice};
use crate::execute::kernel_calls;
use crate::plan::Target;
use base::failure::{Class, Classify, Failure};
use base::size::ByteSize;

/// How long to wait while another program holds the disk's lock: udev does, for each of its partitions, while it looks at a disk.
const LOCK_TIMEOUT: Duration = Duration::from_secs(15);

/// A disk that is opened, and locked if it is to be written.
#[derive(Debug)]
pub struct OpenDisk {
    file: DiskHandle,
    target: Target,
}

#[derive(Debug)]
enum DiskHandle {
    Locked(Flock<File>),
    ToRead(File),
}

impl From<Flock<File>> for DiskHandle {
    fn from(file: Flock<File>) -> Self {
        Self::Locked(file)
    }
}

impl From<File> for DiskHandle {
    fn from(file: File) -> Self {
        Self::ToRead(file)
    }
}

impl std::ops::Deref for DiskHandle {
    type Target = File;
    fn deref(&self) -> &File {
        match self {
            Self::Locked(file) => file,
            Self::ToRead(file) => file,
        }
    }
}

impl OpenDisk {
    /// Opens the target. Refuses a disk in use, one that another installer works on, and one that is not the disk of the plan.
    pub fn open(target: &Target) -> Result<Self> {
        let path = &target.path;
        let file = open(path, 0).map_err(|error| busy(target, error))?;
        let file = lock(file, path)?;
        // Exclusive opening is the kernel's own check for mounts and holders. It cannot be kept: it would exclude the mounts of
        // the new partitions too. It comes after the lock: udev assembles the arrays of a disk again when a program that wrote to
        // it closes it, unless it is locked.
        open(path, O_EXCL).map_err(|error| busy(target, error))?;
        Self::measured(file, target)
    }

    /// Opens the disk that this system runs from, to change what no file system uses.
    pub fn open_in_use(target: &Target) -> Result<Self> {
        let file = open(&target.path, 0).map_err(|error| busy(target, error))?;
        Self::measured(lock(file, &target.path)?, target)
    }

    /// Opens a disk, or a part of one, that may be in use, only to read it.
    pub fn open_to_read(target: &Target) -> Result<Self> {
        let path = &target.path;
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(O_DIRECT | O_CLOEXEC).open(path);
        Self::measured(file.map_err(|error| busy(target, error))?, target)
    }

    fn measured(file: impl Into<DiskHandle>, target: &Target) -> Result<Self> {
        let file = file.into();
        let path = &target.path;
        let size = (&*file)
            .seek(SeekFrom::End(0))
            .class(Class::DiskIo, || format!("measuring {}", path.display()))?;
        let size = ByteSize::bytes(size);
        if size != target.size {
            let what = format!("{} has {size}, and the plan was made for {}", path.display(), target.size);
            return Err(Failure::new(Class::Hardware, what).hint("Start the install again.").into());
        }
        // Leftovers of earlier buffered access must not be written over what comes now.
        kernel_calls::drop_buffers(&file)
            .class(Class::DiskIo, || format!("dropping the cached blocks of {}", path.display()))?;
        Ok(Self { file, target: target.clone() })
    }
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT | O_CLOEXEC | flags).open(path)
}

fn busy(target: &Target, error: io::Error) -> anyhow::Error {
    let failure = match error.raw_os_error() {
        Some(nix::libc::EBUSY) => {
            Failure::new(Class::Hardware, format!("{} is in use", target.path.display()))
                .hint("Unmount what is on it, and check that no other installer is running.")
        }
        _ => Failure::new(Class::DiskIo, format!("opening {}", target.description)).hint(advice(&error)),
    };
    failure.because(error).into()
}

/// An exclusive lock keeps out other installers, and tells udev to leave the disk alone (systemd's block device locking
/// convention). udev itself holds it for moments, which follow each other at the start of a system.
fn lock(mut file: File, path: &Path) -> Result<Flock<File>> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(locked) => return Ok(locked),
            Err((file, Errno::EWOULDBLOCK)) if Instant::now() < deadline => file,
            Err((_, errno)) => {
                let failure = Failure::new(Class::Hardware, format!("{} is locked", path.display()));
                return Err(failure.because(errno).hint("Check that no other installer is running.").into());
            }
        };
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl BlockDevice for OpenDisk {
    fn target(&self) -> &Target {
        &self.target
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if AlignedBuffer::suits(buffer) {
            return self.file.read_exact_at(buffer, offset);
        }
        let mut aligned = AlignedBuffer::new(buffer.len().min(CHUNK_BYTES));
        for (piece, at) in buffer.chunks_mut(CHUNK_BYTES).zip((offset..).step_by(CHUNK_BYTES)) {
            self.file.read_exact_at(&mut aligned[..piece.len()], at)?;
            piece.copy_from_slice(&aligned[..piece.len()]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if AlignedBuffer::suits(bytes) {
            return self.file.write_all_at(bytes, offset);
        }
        let mut aligned = AlignedBuffer::new(bytes.len().min(CHUNK_BYTES));
        for (piece, at) in bytes.chunks(CHUNK_BYTES).zip((offset..).step_by(CHUNK_BYTES)) {
            aligned[..piece.len()].copy_from_slice(piece);
            self.file.write_all_at(&aligned[..piece.len()], at)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}
