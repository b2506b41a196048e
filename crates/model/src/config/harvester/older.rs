//! Documents of the reference product's first schemes, v0.2 to v1.0, which describe the networks of the node otherwise: told
//! once for all of their keys, with the same in keys of today.
//!
//! | Scheme | Networks |
//! |---|---|
//! | v0.2 | `mgmt_interface: eth0`; `networks` is a list with an `interface` each |
//! | v0.3, v1.0 | `networks` has a key for each network, of which `harvester-mgmt` is the node's own |

use serde_json::{Map, Value, json};

use document::accepted_spellings::is_same_word;
use document::shape::Shape;
use document::tree::{Key, NodeKind, TreeNode};

use crate::config::shape::install_config;
use base::encode;

/// The name of the network with the node's address in the first schemes.
const MANAGEMENT: &str = "harvester-mgmt";

/// Takes a value of a shape, as far as it fits.
type ReadValue<'a> = &'a dyn Fn(&TreeNode, &Shape) -> Option<Value>;

/// Keys of the group `install` that are of an older scheme, and what they say.
pub(crate) struct OlderNetworks<'t> {
    pub(crate) key: &'t Key,
    pub(crate) keys: Vec<&'t Key>,
    /// The node's own network, unless the document has it already.
    management: Option<OlderNetwork<'t>>,
    /// The card of the node's own network, where only its name is given.
    card: Option<&'t str>,
    /// Each by the name that it can have today.
    others: Vec<(String, OlderNetwork<'t>)>,
}

/// One network, by its name if it has one.
struct OlderNetwork<'t> {
    name: Option<&'t str>,
    entries: &'t [(Key, TreeNode)],
}

impl<'t> OlderNetworks<'t> {
    /// Those among the `entries` of `install`, if there are any.
    pub(crate) fn of(entries: &'t [(Key, TreeNode)]) -> Option<Self> {
        let named = |name| entries.iter().find(|(key, _)| is_same_word(&key.text, name));
        let card = named("mgmt_interface");
        let networks = named("networks").and_then(|(key, node)| Some((key, networks(node)?)));
        let mut keys: Vec<_> = card.iter().map(|(key, _)| key).collect();
        keys.extend(networks.iter().map(|(key, _)| *key));
        keys.sort_by_key(|key| key.span.start);
        let key = *keys.first()?;
        let mut networks = networks.map(|(_, networks)| networks).unwrap_or_default();
        let card = card.and_then(|(_, node)| text(node));
        let has_management = named("management_interface").is_some();
        let own = |network: &OlderNetwork<'_>| {
            network.name == Some(MANAGEMENT)
                || card.is_some() && value(network.entries, "interface").and_then(text) == card
        };
        let nameless = !networks.is_empty() && networks.iter().all(|network| network.name.is_none());
        let at = networks.iter().position(own).or((nameless && !has_management).then_some(0));
        // Today's key wins for the node's own network.
        let management = at.map(|at| networks.remove(at)).filter(|_| !has_management);
        let is_bare = |card: &&str| {
            let given = management.as_ref().is_some_and(|network| network.has_cards());
            !(has_management || given || card.starts_with("harvester-"))
        };
        let card = card.filter(is_bare);
        let others = networks.into_iter().map(|network| (short_name(&network), network)).collect();
        Some(Self { key, keys, management, card, others })
    }

    /// The same as today's keys of `install`, each with the node that has its value.
    pub(crate) fn groups(&self) -> Vec<(&'static str, TreeNode)> {
        let mut groups = Vec::new();
        let mut own = self.management.as_ref().map(OlderNetwork::renamed).unwrap_or_default();
        if let Some(card) = self.card {
            let name = entry("name", self.key, NodeKind::Scalar { text: card.to_owned(), plain: true });
            let card = TreeNode { span: self.key.span, kind: NodeKind::Map(vec![name]) };
            own.insert(0, entry("interfaces", self.key, NodeKind::List(vec![card])));
        }
        if !own.is_empty() {
            groups.push(("management_interface", TreeNode { span: self.key.span, kind: NodeKind::Map(own) }));
        }
        let other = |(name, network): &(String, OlderNetwork<'_>)| {
            let name = entry("name", self.key, NodeKind::Scalar { text: name.clone(), plain: true });
            let entries = std::iter::once(name).chain(network.renamed()).collect();
            TreeNode { span: self.key.span, kind: NodeKind::Map(entries) }
        };
        if !self.others.is_empty() {
            let others = self.others.iter().map(other).collect();
            groups.push(("networks", TreeNode { span: self.key.span, kind: NodeKind::List(others) }));
        }
        groups
    }

    /// The keys of `install` that say the same today, as far as `take` can take their values.
    fn install(&self, take: ReadValue<'_>) -> Map<String, Value> {
        let mut install = Map::new();
        let Some(shape) = install_config().at("install") else { return install };
        for (name, node) in self.groups() {
            let value = match (&node.kind, shape.at(name)) {
                (NodeKind::Map(entries), Some(shape)) => Value::Object(fitting(entries, shape, take)),
                (NodeKind::List(items), Some(Shape::List(shape))) => {
                    items.iter().map(|item| Value::Object(fitting(item.entries(), shape, take))).collect()
                }
                _ => continue,
            };
            if value.as_object().is_none_or(|group| !group.is_empty()) {
                install.insert(name.to_owned(), value);
            }
        }
        install
    }

    /// One message for all the keys, and the same networks in today's YAML; none where they are described already.
    pub(crate) fn described(&self, take: ReadValue<'_>) -> (String, Option<String>) {
        let install = self.install(take);
        let names: Vec<_> = self.keys.iter().map(|key| format!("`{}`", key.text)).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        let names = names.join(" and ");
        let instead = match install.is_empty() {
            true => "leave it out",
            false => "write instead what is shown below, or let `installer convert` do it",
        };
        let message =
            format!("this is a document of Harvester v0.2 to v1.0: {names} {verb} of its scheme; {instead}");
        let document = || encode::yaml(&json!({ "install": install })).trim_end().to_owned();
        (message, (!install.is_empty()).then(document))
    }
}

/// The networks of a `networks` of an older scheme; none where it is of today's.
fn networks(node: &TreeNode) -> Option<Vec<OlderNetwork<'_>>> {
    match &node.kind {
        NodeKind::Map(networks) => {
            let is_group = |(_, node): &(Key, TreeNode)| node.is_nothing() || !node.entries().is_empty();
            let older = !networks.is_empty() && networks.iter().all(is_group);
            let named = networks.iter();
            let named =
                named.map(|(key, node)| OlderNetwork { name: Some(&key.text), entries: node.entries() });
            older.then(|| named.collect())
        }
        NodeKind::List(items) => {
            let of = |entries| {
                let name = value(entries, "name").and_then(text);
                OlderNetwork { name, entries }
            };
            let networks: Vec<_> = items.iter().map(TreeNode::entries).map(of).collect();
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

impl OlderNetwork<'_> {
    /// Its keys in today's names; the name of the network is none of them.
    fn renamed(&self) -> Vec<(Key, TreeNode)> {
        let other = |(key, _): &&(Key, TreeNode)| !is_same_word(&key.text, "name");
        let renamed = |(key, node): &(Key, TreeNode)| {
            let text = if key.text == "interface" { "interfaces" } else { key.text.as_str() };
            (Key { text: text.to_owned(), span: key.span }, node.clone())
        };
        self.entries.iter().filter(other).map(renamed).collect()
    }

    fn has_cards(&self) -> bool {
        let given =
            |(key, node): &(Key, TreeNode)| is_same_word(&key.text, "interface") && !node.is_nothing();
        self.entries.iter().any(given)
    }
}

fn entry(name: &str, at: &Key, kind: NodeKind) -> (Key, TreeNode) {
    (Key { text: name.to_owned(), span: at.span }, TreeNode { span: at.span, kind })
}

/// The values of those keys that still exist.
fn fitting(entries: &[(Key, TreeNode)], shape: &Shape, take: ReadValue<'_>) -> Map<String, Value> {
    let mut group = Map::new();
    for (key, node) in entries {
        let Shape::Record(keys, _) = shape else { continue };
        if let Some((name, shape)) = keys.iter().find(|(name, _)| is_same_word(&key.text, name))
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

fn value<'t>(entries: &'t [(Key, TreeNode)], name: &str) -> Option<&'t TreeNode> {
    entries.iter().find(|(key, _)| is_same_word(&key.text, name)).map(|(_, node)| node)
}

fn text(node: &TreeNode) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar { text, .. } if !node.is_nothing() && !text.is_empty() => Some(text),
        _ => None,
    }
}
