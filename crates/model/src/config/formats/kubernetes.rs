//! Names and values of Kubernetes and of the hypervisor's cluster.

use document::format::{FormatFault, FormatResult, ensure};

/// Addons that the cluster knows.
pub const ADDONS: &[&str] = &[
    "descheduler",
    "harvester_pcidevices_controller",
    "harvester_seeder",
    "harvester_vm_import_controller",
    "kubeovn_operator",
    "nvidia_driver_toolkit",
    "rancher_logging",
    "rancher_monitoring",
];

/// Settings that the cluster knows.
pub const SETTINGS: &[&str] = &[
    "additional-ca",
    "additional-guest-memory-overhead-ratio",
    "api-ui-version",
    "auto-disk-provision-paths",
    "auto-rotate-rke2-certs",
    "backup-target",
    "cluster-pod-security-standard",
    "cluster-registration-url",
    "containerd-registry",
    "csi-driver-config",
    "csi-online-expand-validation",
    "default-storage-class",
    "default-vm-termination-grace-period-seconds",
    "harvester-csi-ccm-versions",
    "http-proxy",
    "instance-manager-resources",
    "kubeconfig-default-token-ttl-minutes",
    "kubevirt-migration",
    "log-level",
    "longhorn-v2-data-engine-enabled",
    "longhorn-v2-data-engine-hugepage-enabled",
    "longhorn-v2-data-engine-memory-size",
    "max-hotplug-ratio",
    "ntp-servers",
    "overcommit-config",
    "rancher-cluster",
    "release-download-url",
    "rwx-network",
    "server-version",
    "ssl-certificates",
    "ssl-parameters",
    "storage-network",
    "support-bundle-expiration",
    "support-bundle-file-name",
    "support-bundle-image",
    "support-bundle-namespaces",
    "support-bundle-node-collection-timeout",
    "support-bundle-timeout",
    "traefik-default-tls-options",
    "ui-index",
    "ui-path",
    "ui-plugin-bundled-version",
    "ui-plugin-index",
    "ui-source",
    "upgradable-versions",
    "upgrade-checker-enabled",
    "upgrade-checker-url",
    "upgrade-config",
    "vip-pools",
    "vm-force-reset-policy",
    "vm-migration-network",
    "volume-snapshot-class",
];

/// The canonical spelling of an addon: `_` here, `-` in its cluster.
pub fn canonical_addon(text: &str) -> Option<String> {
    text.contains('-').then(|| text.replace('-', "_"))
}

pub fn addon(text: &str) -> FormatResult {
    known(text, ADDONS, "is not the name of an addon")
}

/// The name of a setting of the cluster.
pub fn setting(text: &str) -> FormatResult {
    known(text, SETTINGS, "is not the name of a setting of the cluster")
}

fn known(text: &str, names: &[&str], message: &str) -> FormatResult {
    if names.contains(&text) {
        return Ok(());
    }
    let near = document::nearest::nearest(text, names.iter().copied());
    Err(FormatFault::new(message).suggest(near.map(str::to_owned)))
}

/// The key of a label: a name, perhaps with a domain before it (Kubernetes, "Labels and Selectors").
pub fn label_key(text: &str) -> FormatResult {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let domain = domain.is_none_or(is_domain);
    ensure(
        domain && is_name(name) && !name.is_empty(),
        "is not the name of a label: at most 63 letters, digits, '-', '_' and '.', perhaps after a domain and '/'",
    )
}

pub fn label_value(text: &str) -> FormatResult {
    ensure(is_name(text), "is not the value of a label: at most 63 letters, digits, '-', '_' and '.'")
}

/// A taint: a label with an effect.
pub fn taint(text: &str) -> FormatResult {
    let wrong = || {
        FormatFault::new(
            "is not a taint such as key=value:NoSchedule, with NoSchedule, PreferNoSchedule or NoExecute",
        )
    };
    let (label, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    let effect = matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    if effect && label_key(key).is_ok() && label_value(value).is_ok() { Ok(()) } else { Err(wrong()) }
}

/// A name of labels, perhaps empty: letters and digits at both ends.
fn is_name(text: &str) -> bool {
    let end = |byte: Option<u8>| byte.is_none_or(|b| b.is_ascii_alphanumeric());
    let body = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    text.len() <= 63 && body && end(text.bytes().next()) && end(text.bytes().last())
}

fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(super::network::is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints_are_those_that_kubernetes_takes() {
        for key in ["zone", "topology.kubernetes.io/zone", "a_b.c-d", "A"] {
            assert_eq!(label_key(key), Ok(()), "{key}");
        }
        for key in ["", "/a", "a/", "a/b/c", "-a", "a-", "Ä", &"a".repeat(64), "Bad_Domain/a", "a b"] {
            assert!(label_key(key).is_err(), "{key}");
        }
        assert!(label_value("").is_ok() && label_value("a b").is_err());
        for text in ["a=b:NoSchedule", "a:NoExecute", "d.io/a=:PreferNoSchedule"] {
            assert_eq!(taint(text), Ok(()), "{text}");
        }
        for text in ["", "a=b", "a=b:Never", "=b:NoSchedule", "a=b c:NoSchedule"] {
            assert!(taint(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_right_one() {
        assert_eq!(setting("ntp-server").unwrap_err().suggestion.as_deref(), Some("ntp-servers"));
        assert_eq!(addon("rancher-logging").unwrap_err().suggestion.as_deref(), Some("rancher_logging"));
        assert!(SETTINGS.is_sorted() && ADDONS.is_sorted());
    }
}
