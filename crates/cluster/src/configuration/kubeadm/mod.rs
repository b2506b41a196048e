//! The files of a node of upstream Kubernetes: documents for kubeadm, the kubelet's arguments, the audit policy.
//!
//! `installer kubeadm` adds the secrets, which it derives from the token, and what only the OS image knows: the version, and the
//! tags of its images.

mod documents;
pub(super) mod objects;
mod timing;

pub(crate) use self::objects::AGENTS;

use serde_json::Value;

use self::documents::{AUDIT, PATCHES};
use super::cluster_node::{ClusterNode, ClusterPart, text};
use super::settings::{audit_policy, kubelet, labels, static_address};
use machine::node_files::{NOTE, NodeFile, environment_line, escaped};
use machine::paths::{KUBEADM, KUBELET_SETTINGS};

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let mut files: Vec<NodeFile> = documents::of(node)
        .into_iter()
        .map(|(name, documents)| file(&format!("{name}.yaml"), &documents))
        .collect();
    files.push(NodeFile::new(KUBELET_SETTINGS.trim_start_matches('/'), 0o644, kubelet_settings(node)));
    if node.controls() {
        files.push(file(AUDIT, &[audit_policy()]));
    }
    if node.part != ClusterPart::Agent {
        files.extend(
            timing::patches(node)
                .into_iter()
                .map(|(name, patch)| file(&format!("{PATCHES}/{name}+strategic.yaml"), &[patch])),
        );
    }
    files
}

/// Documents in one file, as JSON.
fn file(name: &str, documents: &[Value]) -> NodeFile {
    let documents: Vec<String> = documents.iter().map(text).collect();
    NodeFile::new(&format!("{}/{name}", KUBEADM.trim_start_matches('/')), 0o600, documents.join("---\n"))
}

/// What the unit of the kubelet adds to kubeadm's arguments; later ones count. The value is taken apart into words when the unit
/// starts (systemd.service(5), "Command lines").
fn kubelet_settings(node: &ClusterNode<'_>) -> String {
    let labels = format!("node-labels={}", labels(node).join(","));
    let ip = static_address(node).map(|ip| format!("node-ip={ip}"));
    let arguments = [labels].into_iter().chain(ip).chain(kubelet(node));
    let words: Vec<String> = arguments.map(|argument| escaped(&format!("--{argument}"), WORD_ENDS)).collect();
    format!("{NOTE}{}", environment_line("KUBELET_EXTRA_ARGS", &words.join(" ")))
}

const WORD_ENDS: &[char] = &[' ', '\t', '\'', '"', '\\'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_of_the_kubelet_stays_one_word() {
        let word = escaped(r#"--a=b c"d\e"#, WORD_ENDS);
        assert_eq!(word, r#"--a=b\ c\"d\\e"#);
        assert_eq!(environment_line("A", &word), "A=\"--a=b\\\\ c\\\\\\\"d\\\\\\\\e\"\n");
        assert_eq!(environment_line("A", "--image=$HOME"), "A=\"--image=\\$HOME\"\n");
    }
}
