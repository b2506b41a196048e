//! An iSCSI target on this host: that of Debian's package `tgt`, which needs nothing of the kernel.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::artifacts::Artifacts;
use crate::deadline::Deadline;
use crate::disk::Disk;
use crate::programs;

/// The target, and the name and password of the machine that may have its disk.
pub const TARGET: &str = "iqn.2026-01.com.example:e2e";
pub const USER: &str = "node-i";
pub const PASSWORD: &str = "chap-secret-of-e2e";
/// The port on 127.0.0.1. A medium has it in its document, so it is always the same.
pub const PORT: u16 = 13260;

/// Where `tgtd` has the socket for `tgtadm`, beside its number.
const CONTROL: &str = "71";
const START_LIMIT: Duration = Duration::from_secs(20);
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// A running target; it ends when dropped.
#[derive(Debug)]
pub struct Target {
    child: Child,
    socket: PathBuf,
}

impl Target {
    /// Offers `disk`, a raw image, as logical unit 1.
    pub fn start(disk: &Disk, artifacts: &Artifacts) -> Result<Self> {
        let socket = artifacts.disk("tgt");
        let child = Command::new("tgtd")
            .args(["--foreground", "--control-port", CONTROL, "--iscsi"])
            .arg(format!("portal={}:{PORT}", Ipv4Addr::LOCALHOST))
            .env("TGT_IPC_SOCKET", &socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting tgtd, of the package tgt")?;
        let target = Self { child, socket };
        target.offer(&disk.path)?;
        Ok(target)
    }

    fn offer(&self, disk: &Path) -> Result<()> {
        let account = ["--user", USER, "--password", PASSWORD];
        let unit = ["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "--backing-store"];
        Deadline::after(START_LIMIT).poll("the target daemon", || {
            Ok(self.admin(&["--mode", "sys", "--op", "show"]).is_ok().then_some(()))
        })?;
        self.admin(&["--mode", "target", "--op", "new", "--tid", "1", "--targetname", TARGET])?;
        self.admin(&[&unit[..], &[disk.to_str().context("a path that is not text")?]].concat())?;
        self.admin(&[&["--mode", "account", "--op", "new"][..], &account].concat())?;
        self.admin(&["--mode", "account", "--op", "bind", "--tid", "1", "--user", USER])?;
        self.admin(&["--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL"])
    }

    fn admin(&self, args: &[&str]) -> Result<()> {
        let mut command = Command::new("tgtadm");
        command.args(["--control-port", CONTROL, "--lld", "iscsi"]).args(args);
        command.env("TGT_IPC_SOCKET", &self.socket);
        let ended = programs::run(&mut command, COMMAND_LIMIT)?;
        if ended.code != 0 {
            bail!("tgtadm {}: {}", args.join(" "), ended.said());
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Like a storage that loses its power.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
