//! Documents of the reference product's first schemes, v0.2 to v1.0, which describe the networks of the node otherwise: told
//! once for all of their keys, with the same in keys of today.
//!
//! | Scheme | Networks |
//! |---|---|
//! | v0.2 | `mgmt_interface: eth0`; `networks` is a list with an `interface` each |
//! | v0.3, v1.0 | `networks` has a key for each network, of which `harvester-mgmt` is the node's own |

use serde_json::{Map, Value, json};

use super::shape::{Shape, install_config};
use super::spelling::is_same_word;
use super::tree::{Key, NodeKind, TreeNode};
use base::encode;

/// What the first schemes call the network with the node's address.
const MANAGEMENT: &str = "harvester-mgmt";

/// Takes a value of a shape, as far as it fits.
type Take<'a> = &'a dyn Fn(&TreeNode, &Shape) -> Option<Value>;

/// Keys of the group `install` that are of an older scheme.
pub(super) struct Older<'t> {
    /// The first of them.
    pub(super) key: &'t Key,
    keys: Vec<&'t Key>,
    /// The keys of `install` that say the same today.
    install: Map<String, Value>,
}

/// One network, by its name if it has one.
struct OlderNetwork<'t> {
    name: Option<&'t str>,
    entries: &'t [(Key, TreeNode)],
}

impl<'t> Older<'t> {
    /// Those among the `entries` of `install`, if there are any.
    pub(super) fn of(entries: &'t [(Key, TreeNode)], take: Take<'_>) -> Option<Self> {
        let named = |name| entries.iter().find(|(key, _)| is_same_word(&key.text, name));
        let card = named("mgmt_interface");
        let networks = named("networks").and_then(|(key, node)| Some((key, networks(node)?)));
        let mut keys: Vec<_> = card.iter().map(|(key, _)| key).collect();
        keys.extend(networks.iter().map(|(key, _)| *key));
        keys.sort_by_key(|key| key.span.start);
        let key = *keys.first()?;
        let networks = networks.map(|(_, networks)| networks).unwrap_or_default();
        let card = card.and_then(|(_, node)| text(node));
        let install = replacement(card, &networks, named("management_interface").is_some(), take);
        Some(Self { key, keys, install })
    }

    pub(super) fn message(&self) -> String {
        let names: Vec<_> = self.keys.iter().map(|key| format!("`{}`", key.text)).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        let names = names.join(" and ");
        let instead =
            if self.install.is_empty() { "leave it out" } else { "write instead what is shown below" };
        format!("this is a document of Harvester v0.2 to v1.0: {names} {verb} of its scheme; {instead}")
    }

    /// The same networks as YAML of today; none where they are described already.
    pub(super) fn replacement(&self) -> Option<String> {
        let document = || encode::yaml(&json!({ "install": self.install })).trim_end().to_owned();
        (!self.install.is_empty()).then(document)
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.keys.iter().any(|own| own.span == key.span)
    }
}

/// The networks of a `networks` of an older scheme; none where it is of today's.
fn networks(node: &TreeNode) -> Option<Vec<OlderNetwork<'_>>> {
    match &node.kind {
        NodeKind::Map(networks) => {
            let is_group = |(_, node): &(Key, TreeNode)| node.is_nothing() || !group(node).is_empty();
            let older = !networks.is_empty() && networks.iter().all(is_group);
            let named = networks.iter();
            let named = named.map(|(key, node)| OlderNetwork { name: Some(&key.text), entries: group(node) });
            older.then(|| named.collect())
        }
        NodeKind::List(items) => {
            let of = |item| {
                let entries = group(item);
                let name = value(entries, "name").and_then(text);
                OlderNetwork { name, entries }
            };
            let networks: Vec<_> = items.iter().map(of).collect();
            let is_older = |network: &OlderNetwork<'_>| {
                network.name == Some(MANAGEMENT)
                    || network
                        .entries
                        .iter()
                        .any(|(key, node)| key.text == "interface" && text(node).is_some())
                        && value(network.entries, "name").is_none()
            };
            networks.iter().any(is_older).then_some(networks)
        }
        NodeKind::Scalar { .. } => None,
    }
}

/// The keys of `install` that say the same today.
fn replacement(
    card: Option<&str>,
    networks: &[OlderNetwork<'_>],
    has_management: bool,
    take: Take<'_>,
) -> Map<String, Value> {
    let shape = install_config().at("install");
    let own = |network: &&OlderNetwork<'_>| {
        network.name == Some(MANAGEMENT)
            || card.is_some() && value(network.entries, "interface").and_then(text) == card
    };
    let nameless = networks.iter().all(|network| network.name.is_none());
    let first = networks.first().filter(|_| nameless);
    let management = networks.iter().find(own).or(first).filter(|_| !has_management);
    let mut install = Map::new();
    if let Some(shape) = shape.and_then(|shape| shape.at("management_interface"))
        && !has_management
    {
        let mut group = management.map(|network| translated(network, shape, take)).unwrap_or_default();
        if let Some(card) =
            card.filter(|card| !card.starts_with("harvester-") && !group.contains_key("interfaces"))
        {
            group.insert("interfaces".into(), json!([{ "name": card }]));
        }
        if !group.is_empty() {
            install.insert("management_interface".into(), Value::Object(group));
        }
    }
    let item = shape.and_then(|shape| shape.at("networks"));
    if let Some(Shape::List(shape)) = item {
        let others =
            networks.iter().filter(|network| management.is_none_or(|own| !std::ptr::eq(*network, own)));
        let others: Vec<_> = others
            .map(|network| {
                let mut group = Map::new();
                group.insert("name".into(), short_name(network).into());
                group.extend(translated(network, shape, take));
                Value::Object(group)
            })
            .collect();
        if !others.is_empty() {
            install.insert("networks".into(), others.into());
        }
    }
    install
}

/// Those keys of a network that there are today.
fn translated(network: &OlderNetwork<'_>, shape: &Shape, take: Take<'_>) -> Map<String, Value> {
    let mut group = Map::new();
    for (key, node) in network.entries {
        let key = if key.text == "interface" { "interfaces" } else { key.text.as_str() };
        if is_same_word(key, "name") {
            continue;
        }
        let Shape::Record(keys, _) = shape else { continue };
        if let Some((name, shape)) = keys.iter().find(|(name, _)| is_same_word(key, name))
            && !node.is_nothing()
            && !node.is_empty_text()
            && let Some(value) = take(node, shape)
        {
            group.insert(name.clone(), value);
        }
    }
    group
}

/// A name that a network can have today.
fn short_name(network: &OlderNetwork<'_>) -> String {
    let card = || value(network.entries, "interface").and_then(text);
    let name = network.name.or_else(card).unwrap_or("network").to_ascii_lowercase();
    let name = name.trim_start_matches("harvester-").replace(['_', '.'], "-");
    name.chars().take(12).collect::<String>().trim_end_matches('-').to_owned()
}

fn group(node: &TreeNode) -> &[(Key, TreeNode)] {
    match &node.kind {
        NodeKind::Map(entries) => entries,
        _ => &[],
    }
}

fn value<'t>(entries: &'t [(Key, TreeNode)], name: &str) -> Option<&'t TreeNode> {
    entries.iter().find(|(key, _)| is_same_word(&key.text, name)).map(|(_, node)| node)
}

fn text(node: &TreeNode) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar { text, .. } if !node.is_nothing() && !text.is_empty() => Some(text),
        _ => None,
    }
}
