//! The cluster's name servers, spread over its nodes.
//!
//! kubeadm lets two of them run when there is one node only, and the scheduler moves no pod that runs: with that node, names would
//! be gone for minutes. So a further control plane starts them again, once (kubeadm, "Creating a cluster", "Control plane node
//! isolation": `kubectl rollout restart deployment coredns`).

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

/// What is looked for: the deployment and its pods.
pub(super) const LIST: [&str; 8] = [
    "get",
    "deployments,pods",
    "--namespace",
    "kube-system",
    "--selector",
    "k8s-app=kube-dns",
    "--output",
    "json",
];

/// The deployment whose pods are to be started again, because all of them are on one node.
pub(super) fn gathered(listed: &[u8]) -> Result<Option<String>> {
    let listed: Value =
        serde_json::from_slice(listed).context("reading the list of the cluster's name servers")?;
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let of = |kind: &'static str| items.iter().filter(move |item| item["kind"] == kind);
    let pods = of("Pod").count();
    let nodes: BTreeSet<&str> = of("Pod").filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    let deployment = of("Deployment").find_map(|deployment| deployment["metadata"]["name"].as_str());
    Ok(deployment.filter(|_| pods > 1 && nodes.len() == 1).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn name_servers_that_are_all_on_one_node_are_started_again() {
        let deployment = json!({ "kind": "Deployment", "metadata": { "name": "coredns" } });
        let pod = |node: &str| json!({ "kind": "Pod", "spec": { "nodeName": node } });
        let waiting = json!({ "kind": "Pod", "spec": {} });
        for (items, restarted) in [
            (vec![deployment.clone(), pod("node-1"), pod("node-1")], Some("coredns")),
            (vec![deployment.clone(), pod("node-1"), pod("node-2")], None),
            (vec![deployment.clone(), pod("node-1")], None),
            (vec![deployment.clone(), waiting.clone(), waiting], None),
            (vec![deployment], None),
            (vec![pod("node-1"), pod("node-1")], None),
            (vec![], None),
        ] {
            let listed = json!({ "items": items }).to_string();
            assert_eq!(gathered(listed.as_bytes()).unwrap().as_deref(), restarted, "{listed}");
        }
        assert!(gathered(b"").is_err());
    }
}
