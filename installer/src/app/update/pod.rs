//! An update that a pod on the node asks for: the pod's service account becomes the access to the cluster, and the node's own
//! `installer` does the work, in the node's root.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use base::encode::json_text;
use base::failure::{Class, Failure};
use base::files::{Attributes, Root};

/// Where every pod has its service account (Kubernetes, "Accessing the Kubernetes API from a Pod").
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// On the node, gone with the next boot.
const KUBECONFIG: &str = "/run/nqrust/update-from-pod.kubeconfig";
const INSTALLER: &str = "/usr/bin/installer";

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
    let private = Attributes { mode: 0o600, owner: None };
    Root::open(host)?.write(KUBECONFIG, json_text(&access).as_bytes(), private)?;
    std::os::unix::fs::chroot(host).with_context(|| format!("entering {}", host.display()))?;
    std::env::set_current_dir("/").context("entering the root of the node")?;
    let mut command = Command::new(INSTALLER);
    command.args(["update", "apply", "--kubeconfig", KUBECONFIG]).args(arguments);
    // It only comes back if it could not start.
    let error = command.exec();
    Err(Failure::new(Class::Hardware, format!("starting {INSTALLER} of the node")).because(error).into())
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
    fn the_account_of_a_pod_is_a_kubeconfig() {
        let access = kubeconfig("10.53.0.1", "443", b"pem", "a.b.c");
        assert_eq!(access["clusters"][0]["cluster"]["server"], "https://10.53.0.1:443");
        assert_eq!(access["clusters"][0]["cluster"]["certificate-authority-data"], "cGVt");
        assert_eq!(access["users"][0]["user"]["token"], "a.b.c");
        let server = &kubeconfig("fd00::1", "443", b"", "")["clusters"][0]["cluster"]["server"];
        assert_eq!(server, "https://[fd00::1]:443");
    }
}
