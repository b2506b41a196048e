//! The cluster that the node is part of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Secret;
use super::text::{Line, Taint, Text};

/// Kubernetes on the node, where the defaults do not fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Kubernetes {
    /// Which distribution runs on the node; the OS image has to hold it. That of the medium unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// The token of nodes that run no control plane, and on them in place of `token`; the same on all servers. Without it one
    /// follows from `token` with `kubeadm`, and `token` is used with the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "token"))]
    pub agent_token: Option<Secret>,
    /// Taints of the node when it joins, as `KEY=VALUE:EFFECT`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
    /// Arguments of the kubelet, as `NAME=VALUE`, beside those that the node works out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubelet_args: Vec<Line>,
    /// How pods of different nodes reach each other; for `kubeadm`, the other distributions bring their own network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<PodNetwork>,
    /// How often the control plane looks after itself and how long it waits; for `kubeadm`, the same on all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Manifests for the cluster's first node to apply, each a YAML document or several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Manifest>,
}

impl Kubernetes {
    /// The distribution that the node runs. Installing writes into the node's document what the medium brings, so the default
    /// counts only where neither says one.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution.unwrap_or_default()
    }
}

/// A distribution of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// RKE2.
    #[default]
    Rke2,
    /// K3s.
    K3s,
    /// Upstream Kubernetes, joined by kubeadm.
    Kubeadm,
}

// The name is also that of its program and of its directories.
base::names!(Distribution { Rke2 = "rke2", K3s = "k3s", Kubeadm = "kubeadm" });

impl Distribution {
    /// The root directory of the containerd that runs its pods: its own, or with kubeadm that of the OS image.
    #[must_use]
    pub fn containerd_root(self) -> &'static str {
        match self {
            Self::Rke2 => "/var/lib/rancher/rke2/agent/containerd",
            Self::K3s => "/var/lib/rancher/k3s/agent/containerd",
            Self::Kubeadm => "/var/lib/containerd",
        }
    }

    /// Where that containerd listens.
    #[must_use]
    pub fn containerd_socket(self) -> &'static str {
        match self {
            Self::Rke2 | Self::K3s => "/run/k3s/containerd/containerd.sock",
            Self::Kubeadm => "/run/containerd/containerd.sock",
        }
    }

    /// The port on which servers take in other nodes; with kubeadm that of the API.
    #[must_use]
    pub fn supervisor_port(self) -> u16 {
        match self {
            Self::Rke2 => 9345,
            Self::K3s | Self::Kubeadm => 6443,
        }
    }
}

/// The network of a cluster's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PodNetwork {
    /// Routes over the management network, which the nodes keep themselves; all nodes are in one segment.
    #[default]
    Routes,
    /// flannel, from a manifest of the image or of the document.
    Flannel,
    /// Calico, likewise.
    Calico,
    /// Cilium, likewise.
    Cilium,
}

/// Intervals and limits of a control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// Kubernetes' own.
    #[default]
    Standard,
    /// For small or slow machines: fewer probes, longer leases, a slower heartbeat of etcd.
    Relaxed,
}

/// Objects for the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name of the manifest; its file is `manifest-NAME.yaml`.
    pub name: super::NetworkName,
    /// YAML; never shown in messages.
    #[schemars(extend("writeOnly" = true))]
    pub content: Text,
}

/// Where the virtual address of the cluster comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VipMode {
    /// From a DHCP server, for the hardware address `install.vip_hw_addr`.
    Dhcp,
    /// `install.vip`.
    Static,
}

/// One addon of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Addon {
    /// Whether it runs from the start.
    pub enabled: bool,
    /// Values for its chart, YAML; never shown in messages.
    #[schemars(extend("writeOnly" = true))]
    pub values_content: Text,
}

/// Settings of the hypervisor's own charts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Harvester {
    /// The default storage class.
    pub storage_class: StorageClass,
    /// The storage.
    pub longhorn: Longhorn,
}

/// The default storage class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StorageClass {
    /// Copies of every volume, 1 to 3; 3 unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3))]
    pub replica_count: Option<u32>,
}

/// The storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Longhorn {
    /// Settings that it starts with.
    pub default_settings: LonghornSettings,
}

/// Settings that the storage starts with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LonghornSettings {
    /// Share of the node's CPUs for instance managers, in percent, 0 to 12.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 12))]
    pub guaranteed_instance_manager_cpu: Option<u32>,
    /// Share of the default disk that is not for volumes, in percent, 0 to 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 30))]
    pub storage_reserved_percentage_for_default_disk: Option<u32>,
}
