//! Running a command as root of namespaces of its own, through util-linux's `unshare`.
//!
//! Root of the machine needs no user namespace. Everyone else does, root of a container as well: there root lacks the capability to
//! mount. The range of `/etc/subuid` then stands for the other owners.

mod refusal;

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use base::failure::{Class, Classify, Failure};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use self::refusal::ProcessContext;

/// `CAP_SYS_ADMIN` in capabilities(7): with it, root makes namespaces and mounts without a user namespace.
const SYS_ADMIN: u32 = 21;

/// The command and options to put before another command, so that it runs in namespaces of its own. They end when this
/// process does, however it ends.
pub(crate) fn unshare() -> Vec<OsString> {
    let mut words = vec!["setpriv", "--pdeathsig", "KILL", "unshare"];
    if needs_user_namespace() {
        words.extend(["--user", "--map-auto", "--map-root-user"]);
    }
    words.extend(["--mount", "--pid", "--fork", "--kill-child", "--"]);
    words.into_iter().map(OsString::from).collect()
}

/// True if this process can only be root in a user namespace.
pub(crate) fn needs_user_namespace() -> bool {
    !(nix::unistd::geteuid().is_root() && ProcessContext::of_this_process().is_capable(SYS_ADMIN))
}

/// Checks that namespaces can be created here, by creating them.
///
/// # Errors
/// [`Class::Hardware`], with the cause and how to allow it.
pub(crate) fn check() -> Result<()> {
    let mut words = unshare();
    words.push("true".into());
    match attempt(&words)? {
        None => Ok(()),
        Some(stderr) => Err(refused(&stderr).into()),
    }
}

/// Runs a command and waits for the processes that it left; returns its standard error if it failed.
fn attempt(words: &[OsString]) -> Result<Option<Vec<u8>>> {
    // Not a pipe: where a namespace is refused, a helper of util-linux's `unshare` waits for it for ever and holds what it inherited.
    let writing = || format!("writing into {}", std::env::temp_dir().display());
    let mut told = tempfile::tempfile().class(Class::DiskIo, writing)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(told.try_clone()?).process_group(0);
    let mut child = command.spawn().map_err(|error| {
        Failure::new(Class::Hardware, "starting setpriv and unshare")
            .because(error)
            .hint("Install util-linux.")
    })?;
    let status = child.wait().context("waiting for unshare")?;
    // Only the helper of the group is left.
    let _ = killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL);
    if status.success() {
        return Ok(None);
    }
    let mut stderr = Vec::new();
    told.rewind()?;
    told.read_to_end(&mut stderr).context("reading the output of unshare")?;
    Ok(Some(stderr))
}

/// The failure for the standard error of `unshare` when it did not run the command.
pub(crate) fn refused(stderr: &[u8]) -> Failure {
    refusal::explain(&String::from_utf8_lossy(stderr), &ProcessContext::of_this_process())
}

/// Shows the processes of this namespace in `/proc`, for the first process in it. Where a container hides parts of `/proc`, the kernel
/// does not let a user namespace mount another one (`mnt_already_visible` in its source). Then the container's stays, in which
/// `/proc/self` is right and processes have their numbers outside.
pub(crate) fn mount_proc() {
    if nix::unistd::getpid().as_raw() == 1 {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let _ = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>);
    }
}

/// Removes a tree that may hold files of foreign owners.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    make_writable(path);
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    let words = unshare();
    let status = Command::new(&words[0]).args(&words[1..]).args(["rm", "-rf", "--"]).arg(path).status()?;
    anyhow::ensure!(status.success() && !path.exists(), "{} could not be removed", path.display());
    Ok(())
}

fn make_writable(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_refusal_is_told_at_once_and_a_helper_that_waits_for_ever_is_ended() {
        let script = "sleep 60 & echo $! refused >&2; exit 1";
        let words = ["sh", "-c", script].map(OsString::from);
        let begun = Instant::now();
        let told = String::from_utf8(attempt(&words).unwrap().unwrap()).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        let helper = told.strip_suffix(" refused\n").unwrap();
        // It is gone, or a zombie until its new parent looks.
        let is_sleeping =
            || fs::read_to_string(format!("/proc/{helper}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
        while is_sleeping() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{helper} is left");
        }
        assert_eq!(attempt(&["true"].map(OsString::from)).unwrap(), None);
    }
}
