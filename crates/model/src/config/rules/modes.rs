//! Keys that work in some modes and roles only. In another they would do nothing, without notice.

use super::finding::Finding;
use crate::config::registries::SETTING as REGISTRIES;
use crate::config::{Harvester, InstallConfig, Kubernetes, Mode, Role};

/// Where a key works, and how messages say so.
struct Where(&'static str, fn(Mode, Role) -> bool);

const CREATE: Where = Where("in the mode create", |mode, _| mode == Mode::Create);
const JOIN: Where = Where("in the mode join", |mode, _| mode == Mode::Join);
const CLUSTER: Where = Where("in the modes create and join", |mode, _| mode != Mode::Install);
/// Servers, and nodes that may be promoted to one.
const SERVER: Where =
    Where("on a node that runs, or may come to run, a part of the control plane", |mode, role| {
        mode == Mode::Create || mode == Mode::Join && role != Role::Worker
    });
/// Nodes that may answer for the cluster's address.
const VIP: Where = Where("on a node that runs, or may come to run, the control plane", |mode, role| {
    mode == Mode::Create || mode == Mode::Join && matches!(role, Role::Management | Role::Default)
});

/// Every key that is bound to modes: its path, whether the document has it, where it works.
fn bound(config: &InstallConfig) -> Vec<(String, bool, Where)> {
    let (install, kubernetes) = (&config.install, &config.kubernetes);
    let Kubernetes { distribution: _, agent_token, node_taints, kubelet_args, network, timing, manifests } =
        kubernetes;
    let keys = [
        ("server_url", config.server_url.is_some(), JOIN),
        ("token", config.token.is_some(), CLUSTER),
        ("token_file", config.token_file.is_some(), CLUSTER),
        ("token_url", config.token_url.is_some(), CLUSTER),
        ("sans", !config.sans.is_empty(), SERVER),
        ("os.labels", !config.os.labels.is_empty(), CLUSTER),
        ("install.vip", install.vip.is_some(), CREATE),
        ("install.vip_mode", install.vip_mode.is_some(), VIP),
        ("install.vip_hw_addr", install.vip_hw_addr.is_some(), CREATE),
        ("install.cluster_pod_cidr", install.cluster_pod_cidr.is_some(), SERVER),
        ("install.cluster_service_cidr", install.cluster_service_cidr.is_some(), SERVER),
        ("install.cluster_dns", install.cluster_dns.is_some(), SERVER),
        ("install.addons", !install.addons.is_empty(), CREATE),
        ("install.harvester", install.harvester != Harvester::default(), CREATE),
        ("install.cordoned", install.cordoned, JOIN),
        ("kubernetes.agent_token", agent_token.is_some(), CLUSTER),
        ("kubernetes.node_taints", !node_taints.is_empty(), CLUSTER),
        ("kubernetes.kubelet_args", !kubelet_args.is_empty(), CLUSTER),
        ("kubernetes.network", network.is_some(), CLUSTER),
        ("kubernetes.timing", timing.is_some(), CLUSTER),
        ("kubernetes.manifests", !manifests.is_empty(), CREATE),
    ];
    let keys = keys.into_iter().map(|(path, given, place)| (path.to_owned(), given, place));
    // The registries are every node's own, for it needs them before it can ask the cluster.
    let settings = config.system_settings.keys();
    let settings = settings.map(|name| {
        (format!("system_settings.{name}"), true, if name == REGISTRIES { CLUSTER } else { CREATE })
    });
    keys.chain(settings).collect()
}

/// The paths that the document has and that do nothing in this mode and role.
pub fn idle(config: &InstallConfig, mode: Mode, role: Role) -> Vec<String> {
    without_effect(config, mode, role).map(|(path, _)| path).collect()
}

/// The same, with where they would work.
fn without_effect(
    config: &InstallConfig,
    mode: Mode,
    role: Role,
) -> impl Iterator<Item = (String, &'static str)> {
    let idle = move |(_, given, Where(_, works)): &(String, bool, Where)| *given && !works(mode, role);
    bound(config).into_iter().filter(idle).map(|(path, _, Where(place, _))| (path, place))
}

/// Each key stands in a document in which it works.
pub(super) fn only_where_it_works(config: &InstallConfig) -> Vec<Finding> {
    let idle = without_effect(config, config.install.mode, config.install.role);
    idle.map(|(path, place)| {
        let key = path.rsplit('.').next().unwrap_or(&path);
        let message = format!("`{key}` does nothing here; it works {place} only");
        Finding::new(path, "wrong-mode", message)
    })
    .collect()
}
