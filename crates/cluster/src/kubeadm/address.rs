//! Checks that a member of etcd still has the address by which the others know it.

use std::path::Path;

use anyhow::Result;

use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use base::files;
use machine::paths::below;

/// The manifest of etcd on the node, and the annotation in which kubeadm writes its address.
const MANIFEST: &str = "/etc/kubernetes/manifests/etcd.yaml";
const ANNOTATION: &str = "kubeadm.kubernetes.io/etcd.advertise-client-urls:";
/// In bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Fails if the node runs etcd and no longer has the address that its certificates and its peers have.
pub(super) fn check(root: &Path, runner: &dyn Runner) -> Result<()> {
    let path = below(root, MANIFEST);
    if !path.exists() {
        return Ok(());
    }
    let manifest = files::read_at_most(&path, MANIFEST_BYTES_MAX)?;
    let Some(known) = address(&String::from_utf8_lossy(&manifest)) else { return Ok(()) };
    let ip = runner.run(&Invocation::new("ip").args(["-json", "address"]))?;
    let present = addresses(&ip);
    if present.is_empty() || present.contains(&known) {
        return Ok(());
    }
    let what = format!("this node joined its cluster as {known} and has another address now");
    Err(Failure::new(Class::Invalid, what)
        .because(anyhow::anyhow!("it has {}; etcd's members and certificates know {known}", present.join(", ")))
        .hint(format!(
            "Give it {known} again, by a reservation at the DHCP server or by `method: static`; or delete the node from the \
             cluster and install it again."
        ))
        .into())
}

/// `https://ADDRESS:2379` in the annotation.
fn address(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.trim().strip_prefix(ANNOTATION))?;
    let url = line.trim().trim_matches('"').strip_prefix("https://")?;
    url.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']).to_owned())
}

/// The addresses in the output of `ip -json address` but for those that mean the machine itself.
fn addresses(json: &[u8]) -> Vec<String> {
    let devices: Vec<serde_json::Value> = serde_json::from_slice(json).unwrap_or_default();
    let of = |device: &serde_json::Value| device["addr_info"].as_array().cloned().unwrap_or_default();
    let all = devices.iter().flat_map(of).filter(|address| address["scope"] == "global");
    all.filter_map(|address| Some(address["local"].as_str()?.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    fn ip(address: &str) -> ScriptedRunner {
        let devices = format!(
            "[{{\"addr_info\": [{{\"local\": \"127.0.0.1\", \"scope\": \"host\"}}]}}, {{\"addr_info\": [{{\"local\": \"{address}\", \
             \"scope\": \"global\"}}]}}]"
        );
        ScriptedRunner::new().answer("ip ", devices)
    }

    #[test]
    fn a_member_of_etcd_that_has_another_address_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        check(root.path(), &ip("192.0.2.9")).unwrap();
        let manifest = below(root.path(), MANIFEST);
        std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        let text = "metadata:\n  annotations:\n    kubeadm.kubernetes.io/etcd.advertise-client-urls: https://192.0.2.11:2379\n";
        std::fs::write(&manifest, text).unwrap();
        check(root.path(), &ip("192.0.2.11")).unwrap();
        let told = base::failure::render(&check(root.path(), &ip("192.0.2.9")).unwrap_err());
        assert!(
            told.contains("joined its cluster as 192.0.2.11") && told.contains("it has 192.0.2.9"),
            "{told}"
        );
    }
}
