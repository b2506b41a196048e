//! Dotted paths of the cluster file, and which keys of an install configuration stand where in it.

/// Keys that all nodes share, so that they stand in `cluster` and nowhere else.
pub(super) const SHARED_ONLY: [&str; 20] = [
    "server_url",
    "token",
    "token_file",
    "token_url",
    "sans",
    "system_settings",
    "registries",
    "install.vip",
    "install.vip_mode",
    "install.vip_hw_addr",
    "install.cluster_pod_cidr",
    "install.cluster_service_cidr",
    "install.cluster_dns",
    "install.addons",
    "install.harvester",
    "kubernetes.distribution",
    "kubernetes.agent_token",
    "kubernetes.network",
    "kubernetes.timing",
    "kubernetes.manifests",
];

/// The keys of the token of servers.
pub(super) const TOKENS: [&str; 3] = ["token", "token_file", "token_url"];

/// Keys that the cluster file has in a place of its own, and what to tell who uses them elsewhere.
pub(super) const MOVED: [(&str, &str, &str); 5] = [
    ("install.mode", "one management machine creates the cluster and the others join it", "create: true"),
    ("install.role", "all machines of a pool have one role", "role"),
    ("os.hostname", "every machine has its own", "hostname"),
    ("install.management_interface.ip", "every machine has its own", "ip"),
    ("install.config_url", "the rendered document is the whole configuration", ""),
];

/// The group of the keys that all nodes share.
pub(super) const CLUSTER: &str = "cluster";

pub(super) fn template(name: &str) -> String {
    format!("templates.{name}")
}

pub(super) fn pool(index: usize) -> String {
    format!("pools[{index}]")
}

pub(super) fn machine(pool: usize, index: usize) -> String {
    format!("pools[{pool}].machines[{index}]")
}

/// True if `path` is `group`, or below it.
pub(super) fn is_within(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// True if a path of an install configuration is for `cluster` only.
pub(super) fn is_shared_only(path: &str) -> bool {
    SHARED_ONLY.iter().any(|key| is_within(path, key))
}

/// The path inside the part of an install configuration that holds this path of the cluster file; a path that is in
/// none stays as it is.
pub(super) fn within(path: &str) -> &str {
    let rest = if let Some(rest) = path.strip_prefix(CLUSTER) {
        Some(rest)
    } else if let Some(rest) = path.strip_prefix("templates.") {
        Some(rest.find('.').map_or("", |end| &rest[end..]))
    } else {
        path.find(".overrides").map(|at| &path[at + ".overrides".len()..])
    };
    rest.map_or(path, |rest| rest.trim_start_matches('.'))
}

/// Where a key of this canonical name would do.
pub(super) fn place_of(name: &str) -> Option<String> {
    let moved = |path: &str| {
        let inner = within(path);
        MOVED.iter().find(|(key, ..)| is_within(inner, key)).map(|(_, _, key)| *key)
    };
    let path = super::document::shape().places(name).into_iter().next()?;
    match moved(&path) {
        Some("") => None,
        Some(key) => Some(key.to_owned()),
        None => Some(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_knows_its_place_in_an_install_configuration() {
        for (path, inner) in [
            ("cluster", ""),
            ("cluster.install.vip", "install.vip"),
            ("templates.large", ""),
            ("templates.large.os.sysctls.vm.swappiness", "os.sysctls.vm.swappiness"),
            ("pools[0].machines[1].overrides", ""),
            ("pools[0].machines[1].overrides.os", "os"),
            ("pools[0].machines[1]", "pools[0].machines[1]"),
            ("", ""),
        ] {
            assert_eq!(within(path), inner, "{path}");
        }
    }

    #[test]
    fn every_key_with_a_place_of_its_own_is_a_key_of_an_install_configuration() {
        let moved = MOVED.iter().map(|(key, ..)| *key);
        for key in SHARED_ONLY.into_iter().chain(moved) {
            let shape = crate::config::shape::install_config();
            let found = key.split('.').try_fold(shape, |shape, name| shape.at(name));
            assert!(found.is_some(), "{key}");
        }
    }
}
