//! A disk whose writes can be made to fail, as with a loose cable: nbdkit serves it, and its filter `error` refuses
//! writes while a file exists.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::deadline::Deadline;
use crate::disk::{Disk, Format};

/// A raw disk that is served until this is dropped.
#[derive(Debug)]
pub struct FragileDisk {
    server: Child,
    /// Holds the socket and the file that makes writes fail.
    directory: tempfile::TempDir,
}

impl FragileDisk {
    pub fn serve(disk: &Disk) -> Result<Self> {
        if disk.format != Format::Raw {
            bail!("{} is no raw image", disk.path.display());
        }
        let directory = tempfile::Builder::new().prefix("nqrust-disk").tempdir()?;
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--filter=error", "--unix"]);
        command.arg(directory.path().join("socket")).arg("file").arg(&disk.path);
        command.args(["error-pwrite=EIO", "error-pwrite-rate=100%"]);
        command.arg(format!("error-pwrite-file={}", directory.path().join("broken").display()));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let server = command.spawn().context("starting nbdkit; `make setup` installs it")?;
        let mut fragile = Self { server, directory };
        let socket = fragile.directory.path().join("socket");
        Deadline::after(Duration::from_secs(20)).poll("the disk", || {
            if let Some(status) = fragile.server.try_wait()? {
                bail!("nbdkit ended: {status}");
            }
            Ok(socket.exists().then_some(()))
        })?;
        Ok(fragile)
    }

    /// The disk for QEMU's command line.
    #[must_use]
    pub fn disk(&self) -> Disk {
        let socket = self.directory.path().join("socket");
        Disk::raw(PathBuf::from(format!("nbd:unix:{}", socket.display())))
    }

    /// Makes writes fail from now on, or succeed again.
    pub fn fails(&self, fails: bool) -> Result<()> {
        let broken = self.directory.path().join("broken");
        match fails {
            true => File::create(&broken).map(drop),
            false => fs::remove_file(&broken),
        }
        .with_context(|| format!("changing {}", broken.display()))
    }
}

impl Drop for FragileDisk {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
