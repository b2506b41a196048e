//! Keys that work in some modes and roles only. In another they would do nothing, without notice.

use crate::config::registries::SETTING as REGISTRIES;
use crate::config::{InstallConfig, Mode, Role};
use document::finding::Finding;

/// Where a key works, and how messages say so.
#[derive(Clone, Copy)]
struct KeyScope(&'static str, fn(Mode, Role) -> bool);

impl KeyScope {
    fn works(self, mode: Mode, role: Role) -> bool {
        self.1(mode, role)
    }
}

const CREATE: KeyScope = KeyScope("in the mode create", |mode, _| mode == Mode::Create);
const JOIN: KeyScope = KeyScope("in the mode join", |mode, _| mode == Mode::Join);
const CLUSTER: KeyScope = KeyScope("in the modes create and join", |mode, _| mode != Mode::Install);
/// Servers, and nodes that may be promoted to one.
const SERVER: KeyScope =
    KeyScope("on a node that runs, or may come to run, a part of the control plane", |mode, role| {
        mode == Mode::Create || mode == Mode::Join && role != Role::Worker
    });
/// Nodes that may answer for the cluster's address.
const VIP: KeyScope = KeyScope("on a node that runs, or may come to run, the control plane", |mode, role| {
    mode == Mode::Create || mode == Mode::Join && matches!(role, Role::Management | Role::Default)
});

struct ModeBoundKey {
    path: &'static str,
    place: KeyScope,
    is_given: fn(&InstallConfig) -> bool,
    clear: fn(&mut InstallConfig),
}

/// The key of the document at a path that is the field's in the type.
macro_rules! bound {
    ($($field:ident).+, $place:expr) => {
        ModeBoundKey {
            path: bound!(@path $($field).+),
            place: $place,
            is_given: |config| config.$($field).+ != InstallConfig::default().$($field).+,
            clear: |config| config.$($field).+ = InstallConfig::default().$($field).+,
        }
    };
    (@path $key:ident) => { stringify!($key) };
    (@path $group:ident.$key:ident) => { concat!(stringify!($group), ".", stringify!($key)) };
}

const BOUND: &[ModeBoundKey] = &[
    bound!(server_url, JOIN),
    bound!(token, CLUSTER),
    bound!(token_file, CLUSTER),
    bound!(token_url, CLUSTER),
    bound!(sans, SERVER),
    bound!(registries, CLUSTER),
    bound!(os.labels, CLUSTER),
    bound!(install.vip, CREATE),
    bound!(install.vip_mode, VIP),
    bound!(install.vip_hw_addr, CREATE),
    bound!(install.cluster_pod_cidr, SERVER),
    bound!(install.cluster_service_cidr, SERVER),
    bound!(install.cluster_dns, SERVER),
    bound!(install.addons, CREATE),
    bound!(install.harvester, CREATE),
    bound!(install.cordoned, JOIN),
    bound!(kubernetes.agent_token, CLUSTER),
    bound!(kubernetes.node_taints, CLUSTER),
    bound!(kubernetes.kubelet_args, CLUSTER),
    bound!(kubernetes.network, CLUSTER),
    bound!(kubernetes.timing, CLUSTER),
    bound!(kubernetes.manifests, CREATE),
];

/// Where a setting of the cluster works. The registries are every node's own, for it needs them before it can ask the
/// cluster.
fn place_of_setting(name: &str) -> KeyScope {
    if name == REGISTRIES { CLUSTER } else { CREATE }
}

/// The paths that the document has and that do nothing in this mode and role.
pub fn idle(config: &InstallConfig, mode: Mode, role: Role) -> Vec<String> {
    without_effect(config, mode, role).map(|(path, _)| path).collect()
}

/// The configuration without the keys that do nothing in its mode and role, so that nothing takes them for more.
pub(crate) fn without_idle(mut config: InstallConfig) -> InstallConfig {
    let (mode, role) = (config.install.mode, config.install.role);
    BOUND.iter().filter(|key| !key.place.works(mode, role)).for_each(|key| (key.clear)(&mut config));
    config.system_settings.retain(|name, _| place_of_setting(name).works(mode, role));
    config
}

/// The paths that do nothing in this mode and role, with where they would work.
fn without_effect(
    config: &InstallConfig,
    mode: Mode,
    role: Role,
) -> impl Iterator<Item = (String, &'static str)> {
    let keys = BOUND.iter().filter(|key| (key.is_given)(config));
    let keys = keys.map(|key| (key.path.to_owned(), key.place));
    let settings = config.system_settings.keys();
    let settings = settings.map(|name| (format!("system_settings.{name}"), place_of_setting(name)));
    let idle = move |(_, place): &(String, KeyScope)| !place.works(mode, role);
    keys.chain(settings).filter(idle).map(|(path, KeyScope(place, _))| (path, place))
}

/// Keys without which the node would be another than was asked for: one that joins no cluster, or takes work at once.
const DECISIVE: [&str; 2] = ["server_url", "install.cordoned"];

/// Each key stands in a document in which it works. One that does nothing is left out, with a warning.
pub(super) fn only_where_it_works(config: &InstallConfig) -> Vec<Finding> {
    let idle = without_effect(config, config.install.mode, config.install.role);
    idle.map(|(path, place)| {
        let key = path.rsplit('.').next().unwrap_or(&path);
        let message = format!("`{key}` has no effect here; it works {place} only");
        match DECISIVE.contains(&path.as_str()) {
            true => Finding::new(path, "wrong-mode", message),
            false => Finding::warning(path, "wrong-mode", message),
        }
    })
    .collect()
}
