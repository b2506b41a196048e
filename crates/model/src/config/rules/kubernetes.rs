//! Rules about the settings that the node passes to Kubernetes.

use std::collections::HashSet;

use serde_json::Value;

use document::finding::Finding;

use super::shared::repeated;
use crate::config::InstallConfig;

/// Labels in Kubernetes's own domains that a kubelet may set (its `--node-labels`).
const ALLOWED: [&str; 13] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// The node has no label that the kubelet refuses to start with, or that says its role.
pub(super) fn labels_are_allowed(config: &InstallConfig) -> Vec<Finding> {
    let finding =
        |key: &String| Some(Finding::new(format!("os.labels.{key}"), "reserved-label", refusal(key)?));
    config.os.labels.keys().filter_map(finding).collect()
}

fn refusal(key: &str) -> Option<&'static str> {
    let (domain, name) = key.split_once('/')?;
    let within = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    if within("kubernetes.io") || within("k8s.io") {
        let open = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
        return (!open && !ALLOWED.contains(&key))
            .then_some("a node may not give itself labels of this domain");
    }
    let ours = domain == "node-role.harvesterhci.io" || domain == "harvesterhci.io" && name == "managed";
    ours.then_some("the role of the node sets this label; see `install.role`")
}

/// Taints and the kubelet's arguments say each thing once.
pub(super) fn taints_and_arguments(config: &InstallConfig) -> Vec<Finding> {
    let kubernetes = &config.kubernetes;
    let taints: Vec<_> = kubernetes.node_taints.iter().map(|taint| identity(taint)).collect();
    let again = "a taint of this key and effect is listed already";
    let mut findings: Vec<_> = repeated(&taints)
        .map(|(later, _)| Finding::new(format!("kubernetes.node_taints[{later}]"), "duplicate-name", again))
        .collect();
    let mut names = HashSet::new();
    for (index, argument) in kubernetes.kubelet_args.iter().enumerate() {
        let path = format!("kubernetes.kubelet_args[{index}]");
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        let body = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if let Some(bare) = argument.strip_prefix("--") {
            let message = "the name of an argument is written without `--`";
            findings.push(Finding::new(path, "invalid-argument", message).suggest(bare));
        } else if name.is_empty() || value.is_empty() || !body || name.starts_with('-') {
            let message = "this is not an argument of the kubelet, NAME=VALUE";
            findings.push(Finding::new(path, "invalid-argument", message));
        } else if !names.insert(name) {
            let message = "this argument is listed already";
            findings.push(Finding::new(path, "duplicate-name", message));
        }
    }
    findings
}

/// The key and the effect of a taint; a node has one value for both.
fn identity(taint: &str) -> (&str, &str) {
    let (label, effect) = taint.rsplit_once(':').unwrap_or((taint, ""));
    (label.split('=').next().unwrap_or_default(), effect)
}

/// Manifests hold objects, in files of different names.
pub(super) fn manifests_are_objects(config: &InstallConfig) -> Vec<Finding> {
    let manifests = &config.kubernetes.manifests;
    let names: Vec<_> = manifests.iter().map(|manifest| &manifest.name).collect();
    let again = "a manifest of this name is listed already";
    let mut findings: Vec<_> = repeated(&names)
        .map(|(later, _)| {
            Finding::new(format!("kubernetes.manifests[{later}].name"), "duplicate-name", again)
        })
        .collect();
    for (index, manifest) in manifests.iter().enumerate() {
        if let Some(fault) = no_objects(&manifest.content) {
            findings.push(Finding::new(
                format!("kubernetes.manifests[{index}].content"),
                "invalid-manifest",
                fault,
            ));
        }
    }
    findings
}

/// Why text holds no objects. The text may hold secrets and is not repeated.
fn no_objects(text: &str) -> Option<String> {
    let Ok(documents) = serde_saphyr::from_multiple::<Value>(text) else {
        return Some("the content is not YAML".to_owned());
    };
    let documents: Vec<_> = documents.iter().filter(|document| !document.is_null()).collect();
    if documents.is_empty() {
        return Some("the content has no object".to_owned());
    }
    let lacking = |document: &&Value| {
        ["apiVersion", "kind", "metadata"].into_iter().find(|key| document.get(key).is_none())
    };
    let key = documents.iter().find_map(lacking)?;
    Some(format!("the content is not an object for the cluster: it has no `{key}`"))
}

/// Values of charts are a group of keys.
pub(super) fn values_are_yaml(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, addon) in &config.install.addons {
        if addon.values_content.trim().is_empty() {
            continue;
        }
        let path = format!("install.addons.{name}.values_content");
        let values = serde_saphyr::from_str::<Value>(&addon.values_content);
        if !values.is_ok_and(|values| values.is_object()) {
            findings.push(Finding::new(
                path,
                "invalid-values",
                "the values of a chart are a group of keys in YAML",
            ));
        } else if !addon.enabled {
            let message = "the addon is not enabled, so its values have no effect yet";
            findings.push(Finding::warning(path, "no-effect", message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_kubernetes_are_its_own_but_for_a_few() {
        for key in [
            "zone",
            "example.org/rack",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/x",
            "a.kubelet.kubernetes.io/x",
            "notkubernetes.io/x",
        ] {
            assert_eq!(refusal(key), None, "{key}");
        }
        for key in [
            "kubernetes.io/x",
            "x.k8s.io/y",
            "node-role.kubernetes.io/etcd",
            "node-role.harvesterhci.io/witness",
            "harvesterhci.io/managed",
        ] {
            assert!(refusal(key).is_some(), "{key}");
        }
    }

    #[test]
    fn manifests_are_one_or_several_objects() {
        let object = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";
        assert_eq!(no_objects(object), None);
        assert_eq!(no_objects(&format!("---\n{object}---\n{object}")), None);
        for text in ["", "# nothing\n", "a: [", "- a\n", "kind: Namespace\n", "apiVersion: v1\nkind: X\n"] {
            assert!(no_objects(text).is_some(), "{text:?}");
        }
    }
}
