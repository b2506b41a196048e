//! The networks of a node document: the part that a trial changes.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use model::config::sources::merge::SourcedValue;
use model::config::{InstallConfig, ManagementInterface, Network};

/// The keys of a document that make up its networks, as dotted paths.
pub const KEYS: [&str; 3] = ["install.management_interface", "install.networks", "os.dns_nameservers"];

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Networks {
    pub management_interface: Option<ManagementInterface>,
    pub networks: Vec<Network>,
    pub dns_nameservers: Vec<Ipv4Addr>,
}

impl Networks {
    #[must_use]
    pub fn of(config: &InstallConfig) -> Self {
        Self {
            management_interface: config.install.management_interface.clone(),
            networks: config.install.networks.clone(),
            dns_nameservers: config.os.dns_nameservers.clone(),
        }
    }

    /// A configuration of these networks and nothing else.
    #[must_use]
    pub fn alone(&self) -> InstallConfig {
        let mut config = InstallConfig::default();
        self.put_into(&mut config);
        config
    }

    pub fn put_into(&self, config: &mut InstallConfig) {
        config.install.management_interface = self.management_interface.clone();
        config.install.networks = self.networks.clone();
        config.os.dns_nameservers = self.dns_nameservers.clone();
    }

    /// The document of these networks, to be changed and tried: every one of [`KEYS`], but no management network if no card is
    /// named for it.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // Maps, lists, texts and numbers always serialise.
        base::encode::yaml(&self.value())
    }

    fn value(&self) -> Value {
        let mut install = json!({ "networks": self.networks });
        // A group without cards would be a mistake, and the document could not be tried.
        if let Some(management) = &self.management_interface {
            install["management_interface"] = json!(management);
        }
        json!({ "os": { "dns_nameservers": self.dns_nameservers }, "install": install })
    }

    /// The values that differ in another document, in the order of its keys.
    #[must_use]
    pub fn differences(&self, after: &Self) -> Vec<NetworkDifference> {
        // A missing management network is one of defaults.
        let whole = |networks: &Self| {
            let management_interface = Some(networks.management_interface.clone().unwrap_or_default());
            Self { management_interface, ..networks.clone() }.value()
        };
        let [before, after] = [self, after].map(|networks| SourcedValue::of(&whole(networks), 0).leaves());
        let find = |leaves: &[(String, usize, Value)], path: &str| {
            let leaf = leaves.iter().find(|(known, ..)| known == path)?;
            text(&leaf.2)
        };
        let mut paths: Vec<&String> = before.iter().chain(&after).map(|(path, ..)| path).collect();
        paths.sort();
        paths.dedup();
        let both = paths.into_iter().map(|path| NetworkDifference {
            path: path.clone(),
            before: find(&before, path),
            after: find(&after, path),
        });
        both.filter(|difference| difference.before != difference.after).collect()
    }
}

/// A value as it is typed; `None` for an empty one.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(items) if items.is_empty() => None,
        Value::Object(map) if map.is_empty() => None,
        other => Some(other.to_string()),
    }
}

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkDifference {
    /// Dotted path.
    pub path: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl std::fmt::Display for NetworkDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        write!(f, "{}: {} -> {}", self.path, shown(&self.before), shown(&self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;

    fn networks(text: &str) -> Networks {
        Networks::of(&parse(text, "f").unwrap())
    }

    #[test]
    fn the_document_of_the_networks_says_the_same_again() {
        let text = "os: {dns_nameservers: [192.0.2.53], hostname: a}\ninstall:\n  management_interface: {interfaces: [{name: a}],\
                    method: static, ip: 192.0.2.7, subnet_mask: 255.255.255.0, gateway: 192.0.2.1}\n  \
                    networks: [{name: store, interfaces: [{name: b}], method: dhcp}]\n";
        let before = networks(text);
        assert_eq!(networks(&before.to_yaml()), before);
        assert_eq!(Networks::of(&before.alone()), before);
        assert_eq!(networks(&networks("{}").to_yaml()), Networks::default());
    }

    #[test]
    fn differences_are_told_value_by_value() {
        let before = networks("install: {management_interface: {interfaces: [{name: a}]}}");
        let after = networks(
            "install: {management_interface: {interfaces: [{name: b}], vlan_id: 7}}\nos: {dns_nameservers: [192.0.2.53]}",
        );
        let told: Vec<_> = before.differences(&after).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "install.management_interface.interfaces[0].name: a -> b",
                "install.management_interface.vlan_id: 0 -> 7",
                "os.dns_nameservers[0]: none -> 192.0.2.53",
            ]
        );
        assert!(before.differences(&before).is_empty());
    }
}
