//! Disk images for virtual machines, made with `qemu-img`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::size::ByteSize;

use crate::programs::{self, ProgramOutput};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Plain bytes, sparse.
    Raw,
    /// QEMU's own, with a backing file where it has one.
    Qcow2,
}

impl Format {
    /// QEMU's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Disk {
    pub path: PathBuf,
    pub format: Format,
    /// The file in which every write is logged, for [`crate::write_log`]. Each machine starts a new log.
    pub log: Option<PathBuf>,
}

impl Disk {
    /// A new, empty qcow2 disk.
    pub fn empty(path: PathBuf, size: ByteSize) -> Result<Self> {
        qemu_img(&["create", "-q", "-f", "qcow2"], &[&path], &[&size.get().to_string()])?;
        Ok(Self { path, format: Format::Qcow2, log: None })
    }

    /// An existing raw image, a medium for instance.
    #[must_use]
    pub fn raw(path: PathBuf) -> Self {
        Self { path, format: Format::Raw, log: None }
    }

    pub fn empty_raw(path: PathBuf, size: ByteSize) -> Result<Self> {
        let file = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        file.set_len(size.get())?;
        Ok(Self::raw(path))
    }

    /// The same disk, with every write logged in `log`.
    pub fn logged(self, log: PathBuf) -> Result<Self> {
        // QEMU needs an existing file.
        File::create(&log).with_context(|| format!("making {}", log.display()))?;
        Ok(Self { log: Some(log), ..self })
    }

    /// A disk that begins with the content of this one and keeps its own changes. With a `size` it is larger, as a
    /// medium on a larger USB stick is.
    pub fn overlay(&self, path: PathBuf, size: Option<ByteSize>) -> Result<Self> {
        // qemu-img takes a relative backing path as relative to the overlay's directory.
        let backing = self.path.canonicalize().with_context(|| format!("finding {}", self.path.display()))?;
        let before = ["create", "-q", "-f", "qcow2", "-F", self.format.name(), "-b"];
        let size = size.map(|size| size.get().to_string());
        let after: Vec<&str> = size.iter().map(String::as_str).collect();
        qemu_img(&before, &[&backing, &path], &after)?;
        Ok(Self { path, format: Format::Qcow2, log: None })
    }

    /// True if both disks hold the same bytes.
    pub fn same_bytes_as(&self, other: &Self) -> Result<bool> {
        let formats = ["compare", "-q", "-f", self.format.name(), "-F", other.format.name()];
        let ended = command(&formats, &[&self.path, &other.path], &[])?;
        match ended.code {
            0 => Ok(true),
            1 => Ok(false),
            _ => bail!("comparing {} with its origin: {}", self.path.display(), ended.said()),
        }
    }
}

fn qemu_img(before: &[&str], paths: &[&Path], after: &[&str]) -> Result<()> {
    command(before, paths, after)?.success("qemu-img").map(drop)
}

fn command(before: &[&str], paths: &[&Path], after: &[&str]) -> Result<ProgramOutput> {
    let mut command = Command::new("qemu-img");
    command.args(before).args(paths).args(after);
    programs::run(&mut command, Duration::from_secs(300))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_overlay_has_the_bytes_of_its_origin_until_something_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let origin = Disk::raw(directory.path().join("origin"));
        fs::write(&origin.path, vec![7; 1 << 20]).unwrap();
        let overlay = origin.overlay(directory.path().join("overlay"), None).unwrap();
        assert!(overlay.same_bytes_as(&origin).unwrap());
        let other = Disk::raw(directory.path().join("other"));
        fs::write(&other.path, vec![8; 1 << 20]).unwrap();
        assert!(!overlay.same_bytes_as(&other).unwrap());
    }
}
