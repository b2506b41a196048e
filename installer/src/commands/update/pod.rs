//! An update that a pod on the node requests: the node's own `installer` does the work, in the node's root, with the access of the pod's
//! service account.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use serde_json::{Value, json};

use base::encode::json_text;
use base::failure::{Class, Failure};
use base::files::{Attributes, Root};
use machine::paths::below;

/// Where every pod has its service account (Kubernetes, "Accessing the Kubernetes API from a Pod").
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// On the node, in memory: a file for each pod, which is removed when the work is done. Its users hold a shared lock on it; a file
/// without a lock is left over from a process that was killed.
const DIRECTORY: &str = "/run/nqrust/from-pod";
const INSTALLER: &str = "/usr/bin/installer";

/// Becomes `installer update check` on the node whose root is at `host`. What that prints is one JSON document, also of a failure.
///
/// # Errors
/// [`Class::Hardware`] if there is no root of a node.
pub(crate) fn check_from_pod(host: &Path, arguments: Vec<OsString>) -> Result<()> {
    let mut command = Command::new(INSTALLER);
    // The log of a pod has both outputs, and the document says what standard error would.
    command.args(["--format", "json", "update", "check"]).args(arguments).stderr(Stdio::null());
    Err(become_in(host, &mut command))
}

/// Replaces this process by a program of the node whose root is at `host`; returns only if that fails.
fn become_in(host: &Path, command: &mut Command) -> anyhow::Error {
    let entered = std::os::unix::fs::chroot(host)
        .with_context(|| format!("entering {}", host.display()))
        .and_then(|()| std::env::set_current_dir("/").context("entering the root of the node"));
    match entered {
        Err(error) => error,
        Ok(()) => {
            let what = format!("starting {INSTALLER} of the node");
            Failure::new(Class::Hardware, what).because(command.exec()).into()
        }
    }
}

/// Becomes `installer update apply` on the node whose root is at `host`.
///
/// # Errors
/// [`Class::Hardware`] if this is no pod with a service account and its node's root.
pub(crate) fn from_pod(host: &Path, arguments: Vec<OsString>) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let server = variable("KUBERNETES_SERVICE_HOST").zip(variable("KUBERNETES_SERVICE_PORT"));
    let Some((address, port)) = server else {
        return Err(Failure::new(Class::Hardware, "this is no pod: KUBERNETES_SERVICE_HOST is not set")
            .hint("On a node itself: installer update apply")
            .into());
    };
    let read = |file: &str| {
        let path = Path::new(ACCOUNT).join(file);
        fs::read(&path).with_context(|| format!("reading {}", path.display()))
    };
    let token = String::from_utf8(read("token")?).context("the token of the service account is no text")?;
    let access = kubeconfig(&address, &port, &read("ca.crt")?, token.trim());
    let (kubeconfig, _held) = put(host, &access)?;
    let mut command = Command::new(INSTALLER);
    command.args(["update", "apply", "--kubeconfig"]).arg(&kubeconfig).args(arguments);
    Err(become_in(host, &mut command))
}

/// Puts the access of a pod on the node whose root is at `host`, and returns its path there, with the lock, which the program keeps
/// that this process becomes.
fn put(host: &Path, access: &Value) -> Result<(String, Flock<File>)> {
    base::files::make_directory(&below(host, DIRECTORY), 0o700)?;
    sweep(host);
    let (process, now) = (std::process::id(), Timestamp::now().as_nanosecond());
    let path = format!("{DIRECTORY}/{process}-{now}.kubeconfig");
    let private = Attributes { mode: 0o600, owner: None };
    Root::open(host)?.write(&path, json_text(access).as_bytes(), private)?;
    let held = hold(&below(host, &path)).context("locking the access of the pod")?;
    fcntl(&*held, FcntlArg::F_SETFD(FdFlag::empty())).context("keeping the access of the pod locked")?;
    Ok((path, held))
}

/// Whether a kubeconfig, by its path on the node, is that of a pod.
pub(super) fn is_of_pod(path: &str) -> bool {
    Path::new(path).parent() == Some(Path::new(DIRECTORY))
}

fn hold(path: &Path) -> Result<Flock<File>> {
    Ok(Flock::lock(File::open(path)?, FlockArg::LockSharedNonblock).map_err(|(_, errno)| errno)?)
}

/// Removes files without a lock.
fn sweep(root: &Path) {
    for entry in fs::read_dir(below(root, DIRECTORY)).into_iter().flatten().flatten() {
        let left = File::open(entry.path())
            .ok()
            .and_then(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).ok());
        if left.is_some() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The access of a pod while a command of the node works with it. It is removed with this value.
#[derive(Debug)]
pub(crate) struct PodAccess {
    path: PathBuf,
    _held: Flock<File>,
}

impl PodAccess {
    /// Claims `kubeconfig` on the node at `root`; none if it is not that of a pod.
    pub(crate) fn claim(root: &Path, kubeconfig: Option<&Path>) -> Option<Self> {
        let path = below(root, kubeconfig?.to_str().filter(|path| is_of_pod(path))?);
        let held = hold(&path).ok()?;
        sweep(root);
        Some(Self { path, _held: held })
    }
}

impl Drop for PodAccess {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn kubeconfig(address: &str, port: &str, authority: &[u8], token: &str) -> Value {
    // An IPv6 address stands in brackets in a URL.
    let address = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "own", "cluster": {
            "server": format!("https://{address}:{port}"),
            "certificate-authority-data": BASE64_STANDARD.encode(authority),
        }}],
        "users": [{ "name": "pod", "user": { "token": token } }],
        "contexts": [{ "name": "own", "context": { "cluster": "own", "user": "pod" } }],
        "current-context": "own",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_access_of_a_pod_is_gone_when_the_work_is_done_and_after_a_kill() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let left = || fs::read_dir(below(root.path(), DIRECTORY)).unwrap().count();
        let (path, held) = put(root.path(), &json!({ "token": "a" })).unwrap();
        let mode = |path: &str| fs::metadata(below(root.path(), path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(DIRECTORY)), (0o600, 0o700));
        let flags = fcntl(&*held, FcntlArg::F_GETFD).unwrap();
        assert_eq!(flags, 0, "the program that this process becomes keeps the lock");
        let (other, other_held) = put(root.path(), &json!({ "token": "b" })).unwrap();
        assert_eq!(left(), 2, "a pod takes nothing away from another one");
        let work = PodAccess::claim(root.path(), Some(Path::new(&path))).unwrap();
        drop(held);
        drop(put(root.path(), &json!({ "token": "c" })).unwrap());
        assert!(below(root.path(), &path).exists(), "the pod was killed, and its work goes on");
        drop(work);
        assert!(!below(root.path(), &path).exists());
        drop(other_held);
        drop(put(root.path(), &json!({ "token": "d" })).unwrap());
        assert!(!below(root.path(), &other).exists(), "a file whose process was killed is swept");
        assert_eq!(left(), 1);
        assert!(PodAccess::claim(root.path(), Some(Path::new("/etc/kubernetes/admin.conf"))).is_none());
        assert!(PodAccess::claim(root.path(), None).is_none());
    }

    #[test]
    fn the_account_of_a_pod_is_a_kubeconfig() {
        let access = kubeconfig("10.53.0.1", "443", b"pem", "a.b.c");
        assert_eq!(access["clusters"][0]["cluster"]["server"], "https://10.53.0.1:443");
        assert_eq!(access["clusters"][0]["cluster"]["certificate-authority-data"], "cGVt");
        assert_eq!(access["users"][0]["user"]["token"], "a.b.c");
        let server = &kubeconfig("fd00::1", "443", b"", "")["clusters"][0]["cluster"]["server"];
        assert_eq!(server, "https://[fd00::1]:443");
    }
}
