//! Work that must see itself as root: unpacking trees with foreign owners, chroot, bind mounts.
//!
//! The builder starts itself again, through util-linux's `unshare`, as the hidden command `step`. Run by root,
//! the child has mount and process namespaces of its own. Run by an ordinary user, or by root of a container, it has a user
//! namespace too, in which the user is root and the user's range of `/etc/subuid` stands for the other owners. Either
//! way the child sees the same owners, so it makes the same bytes; and nothing it mounts outlives it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use base::cancellation;
use base::failure::{Class, Classify, Failure};

use crate::emulation::OWN_NAMESPACE;
use crate::namespaces::{needs_user_namespace, refused, unshare};
use crate::steps::{StepOutcome, StepRequest};

/// Carries out `request` in a child; `scratch` is a directory on the disk that the work goes to.
pub fn run(request: &StepRequest, scratch: &Path) -> Result<()> {
    cancellation::check()?;
    let writing = || format!("writing the request of a build step into {}", scratch.display());
    let file = tempfile::NamedTempFile::new_in(scratch).class(Class::DiskIo, writing)?;
    fs::write(file.path(), serde_json::to_vec(request)?).class(Class::DiskIo, writing)?;
    let outcome = tempfile::NamedTempFile::new_in(scratch).class(Class::DiskIo, writing)?;
    let words = unshare();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(std::env::current_exe().context("finding this program's own file")?);
    command.arg("step").arg(file.path()).arg(outcome.path());
    command.env_clear().envs(environment()).stdin(Stdio::null()).stdout(Stdio::null());
    if needs_user_namespace() {
        command.env(OWN_NAMESPACE, "1");
    }
    let output = command.stderr(Stdio::piped()).output().map_err(|error| {
        Failure::new(Class::Hardware, "starting unshare").because(error).hint("Install util-linux.")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let told =
        fs::read(outcome.path()).ok().and_then(|bytes| serde_json::from_slice::<StepOutcome>(&bytes).ok());
    Err(match told {
        Some(outcome) => outcome.into_failure(scratch),
        // Where the disk is full, the step could not write its outcome either.
        None if StepOutcome::has_no_room(scratch) => StepOutcome::no_room(scratch),
        None => refused(&output.stderr),
    }
    .into())
}

/// The environment of the child: no locale, no time zone, nothing that could change the bytes that it makes.
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
