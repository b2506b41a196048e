//! Objects that the first node of a cluster applies: settings, addons, values of charts, and manifests of the document.
//!
//! Each object has a file of its own: the distribution tries each file again until the cluster knows its kind, and a refused one
//! does not delay the others. A file is applied again only when its content changes, and an object whose file is removed stays in
//! the cluster.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::cluster_node::{ClusterNode, text};
use machine::node_files::NodeFile;
use machine::paths::DATA;
use model::config::registries::SETTING as REGISTRIES;
use model::config::{Addon, Distribution, Harvester, VipMode};

/// The repository of charts inside the hypervisor's cluster.
const CHARTS: &str = "http://harvester-cluster-repo.cattle-system.svc/charts";
/// The version of an addon's chart: any that the repository has, which is the one that came with the image.
const ANY_VERSION: &str = ">=0.0.0-0";
/// Namespaces that exist before any addon.
const EARLY: [&str; 2] = ["harvester-system", "kube-system"];

/// An addon: its key in documents, its name, its namespace and its chart.
type KnownAddon = (&'static str, &'static str, &'static str, &'static str);

const ADDONS: &[KnownAddon] = &[
    ("descheduler", "descheduler", "kube-system", "descheduler"),
    (
        "harvester_pcidevices_controller",
        "pcidevices-controller",
        "harvester-system",
        "harvester-pcidevices-controller",
    ),
    ("harvester_seeder", "harvester-seeder", "harvester-system", "harvester-seeder"),
    (
        "harvester_vm_import_controller",
        "vm-import-controller",
        "harvester-system",
        "harvester-vm-import-controller",
    ),
    ("kubeovn_operator", "kubeovn-operator", "kube-system", "kubeovn-operator"),
    ("nvidia_driver_toolkit", "nvidia-driver-toolkit", "harvester-system", "nvidia-driver-runtime"),
    ("rancher_logging", "rancher-logging", "cattle-logging-system", "rancher-logging"),
    ("rancher_monitoring", "rancher-monitoring", "cattle-monitoring-system", "rancher-monitoring"),
];

pub(super) fn files(node: &ClusterNode<'_>) -> Vec<NodeFile> {
    let config = node.config;
    let mut files = Vec::new();
    if is_asked_for(node) {
        files.push(node.manifest("nqrust-chart-harvester", text(&hypervisor(node))));
    }
    if node.distribution() == Distribution::K3s {
        files.push(node.manifest("nqrust-chart-traefik", text(&ingress())));
    }
    for (name, value) in settings(node) {
        files.push(node.manifest(&format!("nqrust-setting-{name}"), text(&setting(name, &value))));
    }
    for (key, addon) in &config.install.addons {
        // The names of addons have been checked against a list; a test compares it with the one here.
        if let Some(known) = ADDONS.iter().find(|(known, ..)| known == key) {
            files.push(node.manifest(&format!("nqrust-addon-{}", known.1), objects(known, addon)));
        }
    }
    let manifests = config.kubernetes.manifests.iter();
    files.extend(manifests.map(|own| node.manifest(&format!("manifest-{}", own.name), &*own.content)));
    files
}

/// Whether the image brings the hypervisor, or the document depends on it. RKE2 and K3s retry objects of unknown kinds for ever, and
/// log an error each time.
fn is_asked_for(node: &ClusterNode<'_>) -> bool {
    let (install, settings) = (&node.config.install, &node.config.system_settings);
    node.hypervisor
        || !install.addons.is_empty()
        || install.harvester != Harvester::default()
        || settings.keys().any(|name| **name != *REGISTRIES)
}

/// The settings by name; `os.ntp_servers` is one too. Of the registries every node's own file tells.
fn settings<'a>(node: &ClusterNode<'a>) -> BTreeMap<&'a str, String> {
    let config = node.config;
    let mut settings: BTreeMap<&str, String> = config
        .system_settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.expose().to_owned()))
        .collect();
    if !is_asked_for(node) {
        settings.clear();
        return settings;
    }
    if !config.registries.is_empty() {
        settings.insert(REGISTRIES, config.registries.to_setting());
    }
    if !config.os.ntp_servers.is_empty() {
        let servers: Vec<&str> = config.os.ntp_servers.iter().map(|server| &**server).collect();
        settings.insert("ntp-servers", json!({ "ntpServers": servers }).to_string());
    }
    settings
}

fn setting(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1",
        "kind": "Setting",
        "metadata": { "name": name },
        "value": value,
    })
}

fn objects((_, name, namespace, chart): &KnownAddon, addon: &Addon) -> String {
    let object = json!({
        "apiVersion": "harvesterhci.io/v1beta1",
        "kind": "Addon",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "repo": CHARTS,
            "chart": chart,
            "version": ANY_VERSION,
            "enabled": addon.enabled,
            "valuesContent": &*addon.values_content,
        },
    });
    if EARLY.contains(namespace) {
        return text(&object);
    }
    let space = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    format!("{}---\n{}", text(&space), text(&object))
}

/// Values for the hypervisor's chart, which the image installs as the HelmChart `kube-system/harvester`.
///
/// The chart knows the virtual address, but its own kube-vip must not answer for it too.
fn hypervisor(node: &ClusterNode<'_>) -> Value {
    let install = &node.config.install;
    let mut storage = Map::new();
    storage.insert("defaultDataPath".to_owned(), json!(DATA));
    let configured = &install.harvester.longhorn.default_settings;
    for (key, percent) in [
        ("guaranteedInstanceManagerCPU", configured.guaranteed_instance_manager_cpu),
        ("storageReservedPercentageForDefaultDisk", configured.storage_reserved_percentage_for_default_disk),
    ] {
        storage.extend(percent.map(|percent| (key.to_owned(), json!(percent))));
    }
    let mut values = Map::new();
    values.insert("longhorn".to_owned(), json!({ "defaultSettings": storage }));
    if let Some(count) = install.harvester.storage_class.replica_count {
        values.insert("storageClass".to_owned(), json!({ "replicaCount": count }));
    }
    let mut vip = Map::new();
    vip.extend(install.vip.map(|ip| ("ip".to_owned(), json!(ip.to_string()))));
    vip.extend(
        install.vip_hw_addr.as_ref().map(|mac| ("hwAddress".to_owned(), json!(mac.to_ascii_lowercase()))),
    );
    if !vip.is_empty() {
        let mode = if install.vip_mode == Some(VipMode::Dhcp) { "dhcp" } else { "static" };
        vip.insert("enabled".to_owned(), json!(false));
        vip.insert("mode".to_owned(), json!(mode));
        values.insert("service".to_owned(), json!({ "vip": vip }));
    }
    chart_config("harvester", &Value::Object(values))
}

/// K3s's ingress on every node's own ports 80 and 443, as RKE2's is.
fn ingress() -> Value {
    let values = json!({
        "deployment": { "kind": "DaemonSet" },
        // The chart's own strategy starts the new pod beside the old one, which has the ports of the node.
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } },
        "ports": { "web": { "hostPort": 80 }, "websecure": { "hostPort": 443 } },
        "service": { "type": "ClusterIP" },
    });
    chart_config("traefik", &values)
}

fn chart_config(name: &str, values: &Value) -> Value {
    json!({
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChartConfig",
        "metadata": { "name": name, "namespace": "kube-system" },
        "spec": { "valuesContent": values.to_string() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::formats::kubernetes;

    #[test]
    fn every_addon_that_a_document_may_name_is_known() {
        let known: Vec<&str> = ADDONS.iter().map(|(key, ..)| *key).collect();
        assert_eq!(known, kubernetes::ADDONS);
    }
}
