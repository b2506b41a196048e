//! The cluster file: a whole cluster as pools of machines that are made from templates.
//!
//! It is a source of install configurations, not another kind of them: what all nodes share, and each template, is a
//! part of an install configuration, with its keys in their places. [`read`] finds the mistakes of form, [`layers`]
//! puts the install configuration of each machine together with the merge of the configuration's own sources,
//! [`nodes`] holds each against the rules of single nodes, and [`rules`] see the whole. [`render`] makes documents of
//! it and [`output`] is what touches the disk. `installer validate --cluster` and `installer render` call this.

mod layers;
mod nodes;
mod output;
mod places;
mod read;
#[cfg(test)]
mod reference;
mod render;
mod rules;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::shape::Shape;
use crate::config::text::GroupName;
use crate::config::{Hostname, InstallConfig, MacAddress, Role};
use base::encode;

pub use output::{Report, write};
pub use read::{Checked, check, load};
pub use render::{Rendered, shown};

/// A group of keys as the document has it: what it leaves out is not there.
pub type Group = Map<String, Value>;

/// The whole document.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterFile {
    /// Version of the document's scheme; 1.
    pub scheme_version: Option<u32>,
    /// The name of the cluster, and the part of an install configuration that all its nodes share. Each key goes to
    /// the nodes on which it works.
    #[schemars(with = "Shared")]
    pub cluster: Group,
    /// Templates of machines by name: each the part of an install configuration that machines of one kind share.
    #[schemars(with = "BTreeMap<String, Part>", extend("propertyNames" = { "type": "string", "format": "group-name" }))]
    pub templates: BTreeMap<String, Group>,
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
    #[schemars(with = "Part")]
    pub overrides: Group,
}

/// What all nodes share, for the schema.
#[derive(Debug)]
struct Shared;

/// What the nodes of one kind share, for the schema.
#[derive(Debug)]
struct Part;

impl JsonSchema for Shared {
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

impl JsonSchema for Part {
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

/// The JSON Schema of the document, as `installer schema --cluster` prints it.
#[must_use]
pub fn json_schema() -> String {
    encode::json_text(&schemars::schema_for!(ClusterFile))
}

/// The shape of the document. What its own groups need is left to [`rules`], which do not lose a whole list because
/// one element of it has no name.
fn shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
        let mut schema = settings.into_generator().into_root_schema_for::<ClusterFile>().to_value();
        for group in ["/properties/cluster", "/properties/pools/items", MACHINE] {
            if let Some(Value::Object(group)) = schema.pointer_mut(group) {
                group.remove("required");
            }
        }
        Shape::of(&schema)
    });
    &SHAPE
}

/// Where the schema has the machines.
const MACHINE: &str = "/properties/pools/items/properties/machines/items";

/// How many nodes of each role a cluster has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Nodes that run the control plane.
    pub management: usize,
    /// Nodes that only vote in etcd.
    pub witness: usize,
    /// Nodes that run neither, those of the role `default` included.
    pub worker: usize,
}

impl Counts {
    /// Members of etcd.
    #[must_use]
    pub fn members(&self) -> usize {
        self.management + self.witness
    }
}
