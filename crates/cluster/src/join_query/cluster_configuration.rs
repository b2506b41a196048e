//! The configuration of a cluster of kubeadm: ConfigMap `kube-system/kubeadm-config`.

use serde::Deserialize;

use super::version::Version;
use model::config::Cidr;

/// The part of kubeadm's `ClusterConfiguration` that matters to a node that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterConfiguration {
    /// Of the control plane; a further server starts the images of this version.
    pub(super) version: Version,
    pub(super) networks: Option<ClusterNetworks>,
}

/// The networks that exist on the nodes of a cluster only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterNetworks {
    pub pods: Cidr,
    pub services: Cidr,
}

#[derive(Deserialize)]
struct ConfigMap {
    data: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    cluster_configuration: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    kubernetes_version: String,
    networking: Option<Networking>,
}

/// Each is one network, or several joined by commas.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Networking {
    pod_subnet: String,
    service_subnet: String,
}

impl Networking {
    /// Those of IPv4.
    fn networks(&self) -> Option<ClusterNetworks> {
        let first = |list: &str| list.split(',').find_map(|network| network.trim().parse().ok());
        Some(ClusterNetworks { pods: first(&self.pod_subnet)?, services: first(&self.service_subnet)? })
    }
}

impl ClusterConfiguration {
    /// Reads the ConfigMap as the API has it.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        let map: ConfigMap = serde_json::from_slice(json).ok()?;
        let document: Document = serde_saphyr::from_str(&map.data.cluster_configuration).ok()?;
        let networks = document.networking.and_then(|networking| networking.networks());
        Some(Self { version: Version::read(&document.kubernetes_version)?, networks })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(document: &str) -> Option<ClusterConfiguration> {
        ClusterConfiguration::read(
            json!({ "data": { "ClusterConfiguration": document } }).to_string().as_bytes(),
        )
    }

    #[test]
    fn the_version_and_the_networks_are_those_of_the_cluster() {
        let document =
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.37.2\n";
        let bare = read(document).unwrap();
        assert_eq!((bare.version.to_string().as_str(), bare.networks), ("v1.37.2", None));
        let networking = "networking:\n  podSubnet: fd00::/48,10.60.0.0/16\n  serviceSubnet: 10.61.0.0/16\n  dnsDomain: a\n";
        let networks = read(&format!("{document}{networking}")).unwrap().networks.unwrap();
        assert_eq!(
            (networks.pods.to_string(), networks.services.to_string()),
            ("10.60.0.0/16".into(), "10.61.0.0/16".into())
        );
        for document in ["", "kubernetesVersion: new", "[]", "a: ]["] {
            assert_eq!(read(document), None, "{document}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_configuration_or_none(text in "\\PC{0,200}") {
            prop_assert_eq!(read(&text), None);
            prop_assert_eq!(ClusterConfiguration::read(text.as_bytes()), None);
        }
    }
}
