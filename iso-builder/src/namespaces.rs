//! Running a command as root of namespaces of its own, through util-linux's `unshare`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

/// The command and options to put before another command, so that it runs in namespaces of its own. They end when this
/// process does, however it ends.
pub(crate) fn unshare() -> Vec<OsString> {
    let mut words = vec!["setpriv", "--pdeathsig", "KILL", "unshare"];
    if !nix::unistd::geteuid().is_root() {
        words.extend(["--user", "--map-auto", "--map-root-user"]);
    }
    words.extend(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    words.into_iter().map(OsString::from).collect()
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
    anyhow::ensure!(status.success() && !path.exists(), "removing {} did not work", path.display());
    Ok(())
}

fn make_writable(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
}
