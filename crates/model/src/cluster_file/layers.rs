//! The install configuration of each machine: what all nodes share, under its template, under what only it has.
//!
//! The merge is that of the sources of an install: a stronger layer replaces a value or a list, and merges a group key
//! by key. The layers know where in the cluster file each of their values stands.

use serde_json::{Value, json};

use super::document::{ClusterFile, KeyGroup, Machine, Pool};
use super::places::{self, CLUSTER, TOKENS};
use crate::config::rules::idle;
use crate::config::sources::merge::SourcedValue;
use crate::config::{Install, InstallConfig, Mode, Role};
use document::shape::join;

/// Part of an install configuration that comes from one place of the file. The numbers are those of the sources of a
/// [`SourcedValue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub(super) enum Layer {
    /// Defaults that follow from the file's own keys.
    Assumed,
    /// `cluster`.
    Shared,
    Template,
    Overrides,
    /// Values of the file's own keys.
    Given,
}

impl Layer {
    pub(super) const ALL: [Self; 5] =
        [Self::Assumed, Self::Shared, Self::Template, Self::Overrides, Self::Given];
}

/// One node of the cluster. It holds secrets and has no `Debug`.
pub(super) struct ClusterNode {
    pub(super) pool: usize,
    /// Its index in the pool.
    pub(super) machine: usize,
    /// Its name; of a machine without one, its path.
    pub(super) name: String,
    pub(super) template: Option<String>,
    /// Its part in the cluster; none where the pool says none.
    pub(super) role: Option<Role>,
    pub(super) creates: bool,
    /// The node document as far as the file gives it, without defaults.
    pub(super) merged: SourcedValue,
    /// The same with its defaults; none where a mistake in the file has left something that cannot be used.
    pub(super) config: Option<InstallConfig>,
}

pub(super) fn nodes(file: &ClusterFile) -> Vec<ClusterNode> {
    let creator = creator(file);
    let shared = file.shared_config();
    let node = |(pool, index, group, machine): (usize, usize, &Pool, &Machine)| {
        let creates = creator == Some((pool, index));
        let mode = if creates { Mode::Create } else { Mode::Join };
        let role = group.role.unwrap_or_default();
        let template = group.template.as_ref().map(ToString::to_string);
        let layers = [
            assumed(machine),
            without(file.shared(), &not_for(&shared, mode, role)),
            template.as_ref().and_then(|name| file.templates.get(name)).cloned().unwrap_or_default(),
            machine.overrides.clone(),
            given(file, machine, mode, role),
        ];
        let pieces = layers.into_iter().zip(Layer::ALL);
        let pieces = pieces.map(|(group, layer)| SourcedValue::of(&Value::Object(group), layer as usize));
        let empty = SourcedValue::of(&json!({}), Layer::Assumed as usize);
        let merged = pieces.fold(empty, SourcedValue::under);
        ClusterNode {
            pool,
            machine: index,
            name: machine.hostname.as_ref().map_or_else(|| places::machine(pool, index), ToString::to_string),
            template,
            role: group.role,
            creates,
            config: serde_json::from_value(merged.value()).ok(),
            merged,
        }
    };
    file.machines().map(node).collect()
}

/// The paths of what all nodes share that a node of this mode and role does not get: what does nothing there, and the token of
/// servers where agents have their own.
fn not_for(shared: &InstallConfig, mode: Mode, role: Role) -> Vec<String> {
    let mut paths = idle(shared, mode, role);
    let agent = Install { mode, role, ..Install::default() }.is_agent();
    if agent && shared.kubernetes.agent_token.is_some() {
        paths.extend(TOKENS.map(str::to_owned));
    }
    paths
}

/// Which machine creates the cluster: the one that says so, or the first that manages.
fn creator(file: &ClusterFile) -> Option<(usize, usize)> {
    let manages = |pool: &Pool| pool.role == Some(Role::Management);
    let first = |says: fn(Option<bool>) -> bool| {
        file.machines().find(|(_, _, pool, machine)| manages(pool) && says(machine.create))
    };
    let found = first(|create| create == Some(true)).or_else(|| first(|create| create != Some(false)));
    found.map(|(pool, index, ..)| (pool, index))
}

/// An address of a machine's own is a static one, unless a template says what will then be a contradiction.
fn assumed(machine: &Machine) -> KeyGroup {
    let method = json!({ "install": { "management_interface": { "method": "static" } } });
    machine.ip.and(method.as_object().cloned()).unwrap_or_default()
}

/// The values of the file's own keys for one machine.
fn given(file: &ClusterFile, machine: &Machine, mode: Mode, role: Role) -> KeyGroup {
    let mut management = KeyGroup::new();
    if let Some(ip) = machine.ip {
        management.insert("ip".into(), ip.to_string().into());
    }
    if !machine.macs.is_empty() {
        let cards = machine.macs.iter().map(|mac| json!({ "hw_addr": mac }));
        management.insert("interfaces".into(), cards.collect());
    }
    let mut install = KeyGroup::new();
    install.insert("mode".into(), mode.name().into());
    install.insert("role".into(), role.name().into());
    if !management.is_empty() {
        install.insert("management_interface".into(), Value::Object(management));
    }
    let mut group = KeyGroup::new();
    group.insert("scheme_version".into(), file.scheme_version.unwrap_or(1).into());
    group.insert("install".into(), Value::Object(install));
    if let Some(hostname) = &machine.hostname {
        group.insert("os".into(), json!({ "hostname": hostname }));
    }
    if let (Mode::Join, Some(address)) = (mode, file.address()) {
        group.insert("server_url".into(), address.into());
    }
    group
}

/// The group without the keys at these paths; a group that is empty then goes too.
fn without(mut group: KeyGroup, paths: &[String]) -> KeyGroup {
    for path in paths {
        remove(&mut group, path);
    }
    group
}

fn remove(group: &mut KeyGroup, path: &str) {
    let Some((first, rest)) = path.split_once('.') else {
        group.remove(path);
        return;
    };
    if let Some(Value::Object(inner)) = group.get_mut(first) {
        remove(inner, rest);
        if inner.is_empty() {
            group.remove(first);
        }
    }
}

impl ClusterNode {
    /// Where the file has the value at a path of the install configuration; where it has none, where this machine
    /// could have it.
    pub(super) fn at(&self, file: &ClusterFile, path: &str) -> String {
        let layer = self.layer(path).unwrap_or(Layer::Overrides);
        self.place(file, layer, path)
    }

    /// True if it runs, or may come to run, the control plane.
    pub(super) fn may_serve(&self) -> bool {
        matches!(self.role, Some(Role::Management | Role::Default))
    }

    pub(super) fn path(&self) -> String {
        places::machine(self.pool, self.machine)
    }

    /// The layer that has the value at a path of the install configuration; none where the file does not say it, and
    /// for a group, which several layers may have.
    pub(super) fn layer(&self, path: &str) -> Option<Layer> {
        // A single value and a list have whatever is below them; a group ends at itself.
        let below = join(path, "?");
        let (source, at) = self.merged.nearest(&below);
        (at == below).then(|| Layer::ALL[source.min(Layer::ALL.len() - 1)])
    }

    /// Where the file has a value of the install configuration, if `layer` is what has it.
    pub(super) fn place(&self, file: &ClusterFile, layer: Layer, path: &str) -> String {
        let own = self.path();
        match (layer, &self.template) {
            (Layer::Shared, _) => join(CLUSTER, path),
            (Layer::Template, Some(name)) => join(&places::template(name), path),
            (Layer::Overrides, _) | (Layer::Template, None) => join(&join(&own, "overrides"), path),
            (Layer::Assumed | Layer::Given, _) => self.place_given(file, path).unwrap_or(own),
        }
    }

    /// Every place of the file that can have the value.
    pub(super) fn places(&self, file: &ClusterFile, path: &str) -> Vec<String> {
        let parts = [Layer::Shared, Layer::Template, Layer::Overrides];
        parts
            .map(|layer| self.place(file, layer, path))
            .into_iter()
            .chain(self.place_given(file, path))
            .collect()
    }

    /// Where the file's own keys say it; none for what they do not say.
    fn place_given(&self, file: &ClusterFile, path: &str) -> Option<String> {
        let own = self.path();
        let card = path.strip_prefix("install.management_interface.interfaces");
        Some(match path {
            "os.hostname" => join(&own, "hostname"),
            "install.role" => join(&places::pool(self.pool), "role"),
            "install.management_interface.ip" | "install.management_interface.method" => join(&own, "ip"),
            "scheme_version" => "scheme_version".to_owned(),
            "server_url" if file.cluster.contains_key("server_url") => join(CLUSTER, "server_url"),
            "server_url" => join(CLUSTER, "install.vip"),
            // `macs[1]` is `interfaces[1].hw_addr`.
            _ => join(&own, &format!("macs{}", card?.split('.').next().unwrap_or_default())),
        })
    }
}
