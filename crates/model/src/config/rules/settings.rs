//! Values of the cluster's settings. They are texts that mean something: JSON, numbers, URLs. A wrong one would
//! show on the finished cluster only. Some hold secrets: no value is ever repeated.

use serde_json::Value;

use crate::config::formats::network::{http_url, time_server};
use crate::config::formats::text::pem;
use crate::config::{Cidr, InstallConfig};
use document::finding::Finding;

#[derive(Clone, Copy)]
enum SettingKind {
    /// A JSON object; the second names the keys that it may have, where they are known.
    Object(&'static [&'static str]),
    Json,
    Number,
    /// `true` or `false`.
    Truth,
    Url,
    Word(&'static [&'static str]),
    Pem,
}

const NETWORK: SettingKind =
    SettingKind::Object(&["vlan", "clusterNetwork", "range", "exclude", "share-storage-network"]);
const TRUTH: SettingKind = SettingKind::Truth;
const NUMBER: SettingKind = SettingKind::Number;

/// The settings whose values are more than text.
const KINDS: &[(&str, SettingKind)] = &[
    ("additional-ca", SettingKind::Pem),
    ("additional-guest-memory-overhead-ratio", SettingKind::Json),
    ("auto-rotate-rke2-certs", SettingKind::Object(&["enable", "expiringInHours"])),
    ("backup-target", SettingKind::Object(&[])),
    ("cluster-pod-security-standard", SettingKind::Object(&[])),
    ("csi-driver-config", SettingKind::Object(&[])),
    ("csi-online-expand-validation", SettingKind::Object(&[])),
    ("default-vm-termination-grace-period-seconds", NUMBER),
    ("harvester-csi-ccm-versions", SettingKind::Object(&[])),
    ("http-proxy", SettingKind::Object(&["httpProxy", "httpsProxy", "noProxy"])),
    ("instance-manager-resources", SettingKind::Object(&[])),
    ("kubeconfig-default-token-ttl-minutes", NUMBER),
    ("kubevirt-migration", SettingKind::Object(&[])),
    ("log-level", SettingKind::Word(&["panic", "fatal", "error", "warn", "info", "debug", "trace"])),
    ("longhorn-v2-data-engine-enabled", TRUTH),
    ("longhorn-v2-data-engine-hugepage-enabled", TRUTH),
    ("max-hotplug-ratio", NUMBER),
    ("ntp-servers", SettingKind::Object(&["ntpServers"])),
    ("overcommit-config", SettingKind::Object(&["cpu", "memory", "storage"])),
    ("rancher-cluster", SettingKind::Object(&[])),
    ("release-download-url", SettingKind::Url),
    ("rwx-network", NETWORK),
    ("ssl-certificates", SettingKind::Object(&["ca", "publicCertificate", "privateKey"])),
    ("ssl-parameters", SettingKind::Object(&["protocols", "ciphers"])),
    ("storage-network", NETWORK),
    ("support-bundle-expiration", NUMBER),
    ("support-bundle-image", SettingKind::Object(&["repository", "tag", "imagePullPolicy"])),
    ("support-bundle-node-collection-timeout", NUMBER),
    ("support-bundle-timeout", NUMBER),
    ("ui-source", SettingKind::Word(&["auto", "external", "bundled"])),
    ("upgrade-checker-enabled", TRUTH),
    ("upgrade-checker-url", SettingKind::Url),
    ("upgrade-config", SettingKind::Object(&[])),
    ("vip-pools", SettingKind::Object(&[])),
    ("vm-force-reset-policy", SettingKind::Object(&["enable", "period"])),
    ("vm-migration-network", NETWORK),
];

/// Every setting has a value of its kind. An empty one means the cluster's own default.
pub(super) fn values(config: &InstallConfig) -> Vec<Finding> {
    let fault = |(name, value): (&String, &crate::config::Secret)| {
        let text = value.expose();
        if text.trim().is_empty() {
            return None;
        }
        let (_, kind) = KINDS.iter().find(|(known, _)| known == name)?;
        let message = kind.fault(text).or_else(|| content(name, text))?;
        Some(Finding::new(format!("system_settings.{name}"), "invalid-setting", message))
    };
    config.system_settings.iter().filter_map(fault).collect()
}

impl SettingKind {
    /// Why a text is not of this kind.
    fn fault(self, text: &str) -> Option<String> {
        let json = || serde_json::from_str::<Value>(text).ok();
        let (fine, wanted) = match self {
            Self::Object(keys) => return object(json(), keys),
            Self::Json => (json().is_some(), "JSON"),
            Self::Number => (text.parse::<u64>().is_ok(), "a whole number"),
            Self::Truth => (matches!(text, "true" | "false"), "true or false"),
            Self::Url => (http_url(text).is_ok(), "an http:// or https:// URL"),
            Self::Pem => (pem(text).is_ok(), "a certificate in PEM"),
            Self::Word(words) if words.contains(&text) => (true, ""),
            Self::Word(words) => {
                return Some(format!("the value of this setting is one of {}", words.join(", ")));
            }
        };
        (!fine).then(|| format!("the value of this setting is not {wanted}"))
    }
}

fn object(json: Option<Value>, keys: &[&str]) -> Option<String> {
    let Some(Value::Object(object)) = json else {
        return Some("the value of this setting is not an object in JSON, {\"key\": …}".to_owned());
    };
    let known = keys.is_empty() || object.keys().all(|key| keys.contains(&key.as_str()));
    (!known).then(|| format!("the object has another key than {}", keys.join(", ")))
}

/// The mistake inside an object, if it has one.
fn content(name: &str, text: &str) -> Option<String> {
    let json: Value = serde_json::from_str(text).ok()?;
    match name {
        "http-proxy" => ["httpProxy", "httpsProxy"].into_iter().find_map(|key| proxy(key, &json)),
        "ntp-servers" => {
            let servers = json["ntpServers"].as_array();
            let good = |server: &Value| server.as_str().is_some_and(|server| time_server(server).is_ok());
            let fine = servers.is_some_and(|servers| !servers.is_empty() && servers.iter().all(good));
            (!fine).then(|| "`ntpServers` is not a list of names and addresses of time servers".to_owned())
        }
        "storage-network" | "vm-migration-network" | "rwx-network" => network_fault(&json),
        "vip-pools" => {
            let pools = json.as_object()?;
            let pool = |text: &str| text.trim().parse::<Cidr>().is_ok();
            let fine =
                pools.values().all(|value| value.as_str().is_some_and(|text| text.split(',').all(pool)));
            (!fine).then(|| "a pool is not a list of networks such as 192.0.2.64/26".to_owned())
        }
        _ => None,
    }
}

/// A proxy may have a name and a password in its URL, unlike other URLs of the document.
fn proxy(key: &str, json: &Value) -> Option<String> {
    let value = &json[key];
    let fine = value.is_null()
        || value.as_str().is_some_and(|text| {
            let url = reqwest::Url::parse(text);
            text.is_empty() || url.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        });
    (!fine).then(|| format!("`{key}` is not an http:// or https:// URL"))
}

fn network_fault(json: &Value) -> Option<String> {
    let object = json.as_object()?;
    if object.is_empty() || object.contains_key("share-storage-network") {
        return None;
    }
    if json["vlan"].as_u64().is_some_and(|id| id > 4094) || !(json["vlan"].is_null() || json["vlan"].is_u64())
    {
        return Some("`vlan` is not a number from 0 to 4094".to_owned());
    }
    if json["clusterNetwork"].as_str().is_none_or(str::is_empty) {
        return Some("`clusterNetwork` does not name a cluster network".to_owned());
    }
    let Some(network) = network(json) else {
        return Some("`range` and `exclude` are not networks such as 192.0.2.0/24".to_owned());
    };
    let inside =
        |cidr: &Cidr| cidr.length() >= network.range.length() && network.range.contains(cidr.address());
    (!network.exclude.iter().all(inside)).then(|| "`exclude` has a network that is not in `range`".to_owned())
}

/// Addresses of a network of the storage or of migrations.
pub(super) struct Addresses {
    pub(super) range: Cidr,
    pub(super) exclude: Vec<Cidr>,
}

fn network(json: &Value) -> Option<Addresses> {
    let cidr = |value: &Value| value.as_str()?.parse::<Cidr>().ok();
    let exclude = match &json["exclude"] {
        Value::Null => Vec::new(),
        Value::Array(list) => list.iter().map(cidr).collect::<Option<_>>()?,
        _ => return None,
    };
    Some(Addresses { range: cidr(&json["range"])?, exclude })
}

/// The networks that settings describe, by name; those with a mistake are left out.
pub(super) fn networks(config: &InstallConfig) -> Vec<(&'static str, Addresses)> {
    let read = |name: &'static str| {
        let json: Value = serde_json::from_str(config.system_settings.get(name)?.expose()).ok()?;
        network_fault(&json).is_none().then(|| network(&json)).flatten().map(|network| (name, network))
    };
    ["storage-network", "vm-migration-network", "rwx-network"].into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::formats::kubernetes::SETTINGS;

    #[test]
    fn every_kind_is_that_of_a_setting() {
        assert!(KINDS.is_sorted_by_key(|(name, _)| name));
        assert!(KINDS.iter().all(|(name, _)| SETTINGS.contains(name)));
    }
}
