//! Work that must see itself as root: unpacking trees with foreign owners, chroot, bind mounts.
//!
//! The builder starts itself again, through util-linux's `unshare`, as the hidden command `step`. Run by root,
//! the child has mount and process namespaces of its own. Run by an ordinary user it has a user namespace too,
//! in which the user is root and the user's range of `/etc/subuid` stands for the other owners. Either
//! way the child sees the same owners, so it makes the same bytes; and nothing it mounts outlives it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use base::failure::{Class, Failure};
use serde::{Deserialize, Serialize};

use crate::steps::Request;

/// Less free space than this after a failure means that the disk filled up.
const FULL: u64 = 32 << 20;

/// How a failure crosses from the child to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    class: u8,
    what: Vec<String>,
    hints: Vec<String>,
}

/// The words that put a command into namespaces of its own, which end when this process does, however it ends.
fn unshare() -> Vec<OsString> {
    let mut words = vec!["setpriv", "--pdeathsig", "KILL", "unshare"];
    if !nix::unistd::geteuid().is_root() {
        words.extend(["--user", "--map-auto", "--map-root-user"]);
    }
    words.extend(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    words.into_iter().map(OsString::from).collect()
}

/// Carries out `request` in a child; `scratch` is a directory on the disk that the work goes to.
pub fn run(request: &Request, scratch: &Path) -> Result<()> {
    let file = tempfile::NamedTempFile::new_in(scratch).context("making a file for the request")?;
    fs::write(file.path(), serde_json::to_vec(request)?)?;
    let outcome = tempfile::NamedTempFile::new_in(scratch).context("making a file for the outcome")?;
    let words = unshare();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(std::env::current_exe().context("finding this program's own file")?);
    command.arg("step").arg(file.path()).arg(outcome.path());
    command.env_clear().envs(environment()).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.stderr(Stdio::piped()).output().map_err(|error| {
        Failure::new(Class::Hardware, "starting unshare").because(error).hint("Install util-linux.")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let told = fs::read(outcome.path()).ok().and_then(|bytes| serde_json::from_slice::<Outcome>(&bytes).ok());
    Err(match told {
        Some(outcome) => outcome.into_failure(scratch),
        None => refused(&String::from_utf8_lossy(&output.stderr)),
    }
    .into())
}

/// What the child inherits: no locale, no time zone, nothing that could change the bytes.
fn environment() -> Vec<(OsString, OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut variables = vec![
        ("PATH".into(), with_system_directories(path)),
        ("LC_ALL".into(), "C.UTF-8".into()),
        ("TZ".into(), "UTC".into()),
        ("HOME".into(), "/root".into()),
        ("DEBIAN_FRONTEND".into(), "noninteractive".into()),
        // Debian's kernel packages then leave the initrd to us.
        ("INITRD".into(), "No".into()),
    ];
    for name in ["http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"] {
        variables.extend(std::env::var_os(name).map(|value| (name.into(), value)));
    }
    variables
}

/// An ordinary user's `PATH` often lacks the directories where `chroot` and `dpkg`'s helpers live.
fn with_system_directories(mut path: OsString) -> OsString {
    for directory in ["/usr/local/sbin", "/usr/sbin", "/sbin"] {
        path.push(":");
        path.push(directory);
    }
    path
}

fn refused(stderr: &str) -> Failure {
    let stderr = stderr.trim();
    let failure =
        Failure::new(Class::Hardware, "entering namespaces of its own").because(anyhow::anyhow!("{stderr}"));
    failure.hint(
        "As an ordinary user the build needs the package uidmap, a range for the user in /etc/subuid and \
         /etc/subgid, and a kernel that lets users make user namespaces. It also works as root.",
    )
}

impl Outcome {
    /// The failure of a child, ready for its parent.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        Self {
            class: base::failure::class_of(error).exit_code(),
            what: base::failure::causes(error),
            hints: base::failure::hints(error).map(str::to_owned).collect(),
        }
    }

    fn into_failure(self, scratch: &Path) -> Failure {
        let class = match self.class {
            1 if nearly_full(scratch) => Class::DiskIo,
            code => Class::from_exit_code(code),
        };
        let mut what = self.what.into_iter();
        let mut failure = Failure::new(class, what.next().unwrap_or_default());
        let causes: Vec<String> = what.collect();
        if !causes.is_empty() {
            failure = failure.because(anyhow::anyhow!("{}", causes.join("\n  because: ")));
        }
        if class == Class::DiskIo && self.hints.is_empty() {
            failure = failure.hint(format!(
                "Free space on the disk that holds {}, or give --cache-dir and -o a larger one.",
                scratch.display()
            ));
        }
        for hint in self.hints {
            failure = failure.hint(hint);
        }
        failure
    }
}

fn nearly_full(path: &Path) -> bool {
    nix::sys::statvfs::statvfs(path).is_ok_and(|stat| stat.blocks_available() * stat.fragment_size() < FULL)
}

/// Removes a tree that may hold files of foreign owners.
pub fn remove_tree(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    make_writable(path);
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    let words = unshare();
    let status = Command::new(&words[0]).args(&words[1..]).args(["rm", "-rf", "--"]).arg(path).status()?;
    anyhow::ensure!(status.success() && !path.exists(), "removing {} did not work", path.display());
    Ok(())
}

fn make_writable(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
}
