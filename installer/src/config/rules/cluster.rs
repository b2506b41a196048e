//! The node's part in its cluster.

use super::Finding;
use crate::config::InstallConfig;
use crate::config::registries::{self, Registries};

/// Labels with these domains may only be set by the kubelet itself if they are in [`KUBELET_LABELS`] or below
/// [`KUBELET_DOMAINS`] (Kubernetes, "kubelet --node-labels").
const GUARDED: [&str; 2] = ["kubernetes.io", "k8s.io"];
/// Guarded labels that a kubelet may set all the same.
const KUBELET_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Guarded domains whose labels a kubelet may set all the same.
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// A kubelet with a label that it may not set does not start.
pub(super) fn labels_are_the_nodes_own(config: &InstallConfig) -> Vec<Finding> {
    let is_below = |domain: &str, other: &str| {
        domain.strip_suffix(other).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let refused = |key: &&String| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        GUARDED.iter().any(|guarded| is_below(domain, guarded))
            && !KUBELET_LABELS.contains(&key.as_str())
            && !KUBELET_DOMAINS.iter().any(|free| is_below(domain, free))
    };
    let finding = |key: &String| {
        let message = "a node may not give itself this label: Kubernetes keeps its domain to itself";
        Finding::new(format!("os.labels.{key}"), "guarded-label", message)
    };
    config.os.labels.keys().filter(refused).map(finding).collect()
}

/// The setting that every node needs before it can ask the cluster.
pub(super) fn registries_are_readable(config: &InstallConfig) -> Vec<Finding> {
    let unreadable = config
        .system_settings
        .get(registries::SETTING)
        .is_some_and(|value| Registries::parse(value.expose()).is_none());
    let message = "the value is not a JSON object with Mirrors, Configs and Auths as the cluster's \
                   setting has them";
    let path = format!("system_settings.{}", registries::SETTING);
    unreadable.then(|| Finding::new(path, "invalid-registries", message)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use crate::config::check;

    fn codes(text: &str) -> Vec<(String, &'static str)> {
        let invalid = check(text, "f").err().map(|invalid| invalid.0).unwrap_or_default();
        invalid.into_iter().map(|mistake| (mistake.path, mistake.code)).collect()
    }

    #[test]
    fn labels_that_would_stop_the_kubelet_are_refused() {
        for key in
            ["zone", "example.org/a", "notk8s.io/a", "topology.kubernetes.io/zone", "a.node.kubernetes.io/b"]
        {
            assert_eq!(codes(&format!("os: {{labels: {{{key}: a}}}}")), [], "{key}");
        }
        for key in ["kubernetes.io/a", "node-role.kubernetes.io/worker", "x.k8s.io/a"] {
            let text = format!("os: {{labels: {{{key}: a}}}}");
            assert_eq!(codes(&text), [(format!("os.labels.{key}"), "guarded-label")]);
        }
    }

    #[test]
    fn registries_that_cannot_be_read_are_refused_and_not_shown() {
        assert_eq!(codes(r#"system_settings: {containerd-registry: '{"Mirrors": null}'}"#), []);
        let text = "system_settings: {containerd-registry: marked}";
        assert_eq!(codes(text), [("system_settings.containerd-registry".to_owned(), "invalid-registries")]);
        assert!(!check(text, "f").unwrap_err().to_string().contains("marked"));
    }
}
