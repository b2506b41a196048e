//! What the step needs of the node and its cluster, behind a seam that tests replace.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::api::kubelet::KubeApi;
use crate::health::{CheckClass, CheckGroup, NodeProbe, current};
use crate::kubeadm::snapshot;
use crate::kubernetes::node::Node;
use crate::version_skew::{ClusterVersions, MovedPart, NodeVersions};
use base::command::Runner;
use base::failure::{Class, Failure};
use model::kubernetes::KubernetesVersion;

/// The label of nodes with an API server, whatever its value.
const SERVER: &str = "node-role.kubernetes.io/control-plane";

pub trait MovedMachine {
    /// The cluster as its API shows it.
    ///
    /// # Errors
    /// [`Class::Hardware`] if it does not answer, or says what cannot be judged.
    fn cluster(&self) -> Result<ClusterVersions, Failure>;

    /// The required Kubernetes checks that fail on the node, a clause each.
    fn unhealthy(&self) -> Vec<String>;

    /// The version of this node's kubelet as the cluster has it, or why that is not known.
    fn kubelet(&self) -> Result<KubernetesVersion, String>;

    /// Saves the datastore of upstream Kubernetes to a file.
    fn save_datastore(&self, path: &Path) -> Result<()>;

    fn pause(&self, time: Duration);
}

/// The node that this program runs on.
#[allow(missing_debug_implementations)]
pub struct SystemMachine<'a> {
    pub root: &'a Path,
    pub runner: &'a dyn Runner,
    pub part: MovedPart,
    /// In its cluster.
    pub name: String,
    /// The access of its kubelet.
    pub kubelet_access: String,
    /// An access that sees all nodes.
    pub nodes_access: String,
}

impl SystemMachine<'_> {
    fn versions(&self, node: &Node) -> Result<NodeVersions, Failure> {
        let name = node.metadata.name.clone();
        let kubelet = node.status.node_info.kubelet_version.parse();
        let kubelet = kubelet.map_err(|error| unjudged(format!("the kubelet of {name}: {error}")))?;
        let api = node.metadata.labels.contains_key(SERVER).then(|| match node.internal_address() {
            None => Err("it has no address".to_owned()),
            Some(address) => {
                let api = KubeApi::open(self.root, &self.nodes_access)?;
                let version = api.at(&format!("https://{address}:6443")).version()?;
                version
                    .parse()
                    .map_err(|error: model::kubernetes::ParseKubernetesVersionError| error.to_string())
            }
        });
        Ok(NodeVersions { name, kubelet, ready: node.is_ready(), api })
    }
}

impl MovedMachine for SystemMachine<'_> {
    fn cluster(&self) -> Result<ClusterVersions, Failure> {
        let api = KubeApi::open(self.root, &self.nodes_access);
        let nodes = api.and_then(|api| api.nodes()).map_err(unjudged)?;
        let nodes = nodes.items.iter().map(|node| self.versions(node)).collect::<Result<Vec<_>, _>>()?;
        Ok(ClusterVersions { part: self.part, name: self.name.clone(), nodes })
    }

    fn unhealthy(&self) -> Vec<String> {
        let results = current(&NodeProbe::new(self.root, self.runner));
        let kubernetes = results.iter().filter(|result| {
            result.check.group == CheckGroup::Kubernetes && result.check.class == CheckClass::Required
        });
        kubernetes.filter(|result| !result.finding.holds()).map(ToString::to_string).collect()
    }

    fn kubelet(&self) -> Result<KubernetesVersion, String> {
        let node = KubeApi::open(self.root, &self.kubelet_access)?.node(&self.name)?;
        let node = node.ok_or_else(|| "the cluster has no node of this name".to_owned())?;
        node.status
            .node_info
            .kubelet_version
            .parse()
            .map_err(|error: model::kubernetes::ParseKubernetesVersionError| error.to_string())
    }

    fn save_datastore(&self, path: &Path) -> Result<()> {
        snapshot::save(self.root, path)
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}

fn unjudged(why: String) -> Failure {
    Failure::new(Class::Hardware, "the versions of the cluster's nodes are unknown")
        .because(why)
        .hint("Run it again when the cluster answers; see `installer health`.")
}
