//! The types of the whole document.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::formats::FORMATS;
use crate::config::text::GroupName;
use crate::config::{Hostname, InstallConfig, MacAddress, Role};
use document::shape::{Shape, inline_schema};

/// A group of keys as the document has it: what it leaves out is not there.
pub type KeyGroup = Map<String, Value>;

/// The whole document.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterFile {
    /// Version of the document's scheme; 1.
    pub scheme_version: Option<u32>,
    /// The name of the cluster, and the part of an install configuration that all its nodes share. Each key goes to
    /// the nodes on which it works.
    #[schemars(with = "SharedKeys")]
    pub cluster: KeyGroup,
    /// Templates of machines by name: each the part of an install configuration that machines of one kind share.
    #[schemars(with = "BTreeMap<String, NodeKeys>", extend("propertyNames" = { "type": "string", "format": "group-name" }))]
    pub templates: BTreeMap<String, KeyGroup>,
    /// The machines, in pools of the same role and template.
    pub pools: Vec<Pool>,
}

/// Groups hold secrets, so that only the name is shown.
impl fmt::Debug for ClusterFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterFile").field("name", &self.name()).finish_non_exhaustive()
    }
}

/// Machines that are alike.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["name", "role"]))]
pub struct Pool {
    /// A name for people, such as `control`.
    pub name: Option<GroupName>,
    /// The part that its machines play in the cluster.
    pub role: Option<Role>,
    /// The template of its machines; none where `cluster` says all that they need.
    pub template: Option<GroupName>,
    /// The machines, one element for each.
    pub machines: Vec<Machine>,
}

/// Groups hold secrets, so that only the name is shown.
impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}

/// One machine, and what only it has.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["hostname"]))]
pub struct Machine {
    /// Its host name, `os.hostname`; also the name of its document.
    pub hostname: Option<Hostname>,
    /// Its address in the management network, whose method then is `static`.
    pub ip: Option<Ipv4Addr>,
    /// Hardware addresses of its cards in the management network, in place of other `interfaces`.
    pub macs: Vec<MacAddress>,
    /// Whether it creates the cluster; the first management machine does unless another says so.
    pub create: Option<bool>,
    /// What only this machine has: a part of an install configuration, stronger than the template.
    #[schemars(with = "NodeKeys")]
    pub overrides: KeyGroup,
}

/// The keys that all nodes share, for the schema.
#[derive(Debug)]
struct SharedKeys;

/// The keys that the nodes of one kind share, for the schema.
#[derive(Debug)]
struct NodeKeys;

impl JsonSchema for SharedKeys {
    fn schema_name() -> Cow<'static, str> {
        "Shared".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = part(generator, |key| key != "scheme_version");
        schema.insert("required".into(), Value::from(["name"].as_slice()));
        let name = serde_json::json!({
            "type": "string", "format": "group-name",
            "description": "The name of the cluster, for people; nodes do not know it.",
        });
        if let Some(Value::Object(keys)) = schema.get_mut("properties") {
            keys.insert("name".into(), name);
        }
        schema
    }
}

impl JsonSchema for NodeKeys {
    fn schema_name() -> Cow<'static, str> {
        "Part".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        part(generator, |key| matches!(key, "os" | "install" | "kubernetes"))
    }
}

/// The schema of an install configuration with some of its keys. None has a default: what is left out is left to
/// weaker parts.
fn part(generator: &mut SchemaGenerator, keep: fn(&str) -> bool) -> Schema {
    let mut schema = InstallConfig::json_schema(generator);
    schema.remove("description");
    if let Some(Value::Object(keys)) = schema.get_mut("properties") {
        keys.retain(|key, _| keep(key));
        for key in keys.values_mut().filter_map(Value::as_object_mut) {
            key.remove("default");
        }
    }
    schema
}

impl ClusterFile {
    /// The name of the cluster; empty where it has none.
    pub(super) fn name(&self) -> &str {
        self.cluster.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// The keys that all nodes share, as an install configuration.
    pub(super) fn shared(&self) -> KeyGroup {
        let mut shared = self.cluster.clone();
        shared.remove("name");
        shared
    }

    /// The same with its defaults.
    pub(super) fn shared_config(&self) -> InstallConfig {
        serde_json::from_value(Value::Object(self.shared())).unwrap_or_default()
    }

    /// The address at which further nodes find the cluster.
    pub(super) fn address(&self) -> Option<String> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let vip = || text(self.cluster.get("install").and_then(|install| install.get("vip")));
        text(self.cluster.get("server_url")).or_else(|| vip().map(|vip| format!("https://{vip}")))
    }

    /// Every machine with its pool and the indices of both.
    pub(super) fn machines(&self) -> impl Iterator<Item = (usize, usize, &Pool, &Machine)> {
        self.pools.iter().enumerate().flat_map(|(pool, group)| {
            group.machines.iter().enumerate().map(move |(index, machine)| (pool, index, group, machine))
        })
    }
}

/// The shape of the document. What its own groups need is left to [`rules`](super::rules), which do not lose a whole list because
/// one element of it has no name.
pub(super) fn shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let mut schema = inline_schema::<ClusterFile>();
        for group in ["/properties/cluster", "/properties/pools/items", MACHINE] {
            if let Some(Value::Object(group)) = schema.pointer_mut(group) {
                group.remove("required");
            }
        }
        Shape::of(&schema, FORMATS)
    });
    &SHAPE
}

/// The place of machines in the schema.
const MACHINE: &str = "/properties/pools/items/properties/machines/items";

/// How many nodes of each role a cluster has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounts {
    /// Nodes that run the control plane.
    pub management: usize,
    /// Nodes that only vote in etcd.
    pub witness: usize,
    /// Nodes that run neither, those of the role `default` included.
    pub worker: usize,
}

impl NodeCounts {
    #[must_use]
    pub fn members(&self) -> usize {
        self.management + self.witness
    }
}
