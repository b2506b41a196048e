//! What the machines of a cluster must be to one another. A rule sees the file and its nodes; it names the path of the
//! file that it is about.

mod address;
mod counts;
mod plan;
mod unique;

use super::layers::ClusterNode;
use super::places;
use super::{ClusterFile, Counts};
use crate::config::Role;
use crate::config::nearest::nearest;
use crate::config::rules::Finding;
use crate::config::shape::join;

pub(super) use counts::counts;
pub(super) use unique::own_cards;

type Rule = fn(&ClusterFile, &[ClusterNode]) -> Vec<Finding>;

/// Every rule.
const RULES: &[Rule] = &[
    scheme_version,
    is_complete,
    templates_are_there,
    unique::pools,
    unique::hostnames,
    unique::addresses,
    unique::cards,
    counts::one_creates,
    counts::etcd_can_decide,
    counts::witness_fits,
    counts::copies_have_room,
    address::is_known,
    address::is_nobodys,
    address::is_certified,
    plan::one_subnet,
    plan::one_packet_size,
    plan::one_vlan,
    plan::one_method,
];

/// What all rules find; each mistake of one place once.
pub(super) fn check(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for finding in RULES.iter().flat_map(|rule| rule(file, nodes)) {
        // What machines have from one template is one mistake, however many machines there are.
        if !findings.iter().any(|known| known.path == finding.path && known.code == finding.code) {
            findings.push(finding);
        }
    }
    findings
}

fn scheme_version(file: &ClusterFile, _: &[ClusterNode]) -> Vec<Finding> {
    let message = "this program reads documents of scheme version 1";
    let wrong = file.scheme_version.filter(|version| *version != 1);
    let finding = |_| Finding::new("scheme_version", "unsupported-scheme-version", message).suggest("1");
    wrong.map(finding).into_iter().collect()
}

/// The file has what it cannot be without.
fn is_complete(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut missing = |path: String, message: &str| {
        findings.push(Finding::new(path, "missing-value", message));
    };
    if file.name().is_empty() {
        missing("cluster.name".to_owned(), "the cluster needs a `name`");
    }
    if nodes.is_empty() {
        missing("pools".to_owned(), "a cluster needs at least one pool with a machine");
    }
    for (index, pool) in file.pools.iter().enumerate() {
        let path = |key| join(&places::pool(index), key);
        if pool.name.is_none() {
            missing(path("name"), "the pool needs a `name`");
        }
        if pool.role.is_none() {
            missing(path("role"), "the pool needs a `role`: management, worker, witness or default");
        }
    }
    for (pool, index, ..) in file.machines().filter(|(.., machine)| machine.hostname.is_none()) {
        missing(join(&places::machine(pool, index), "hostname"), "the machine needs a `hostname`");
    }
    findings
}

/// Each pool is made from a template that there is.
fn templates_are_there(file: &ClusterFile, _: &[ClusterNode]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, pool) in file.pools.iter().enumerate() {
        let Some(name) = pool.template.as_ref().filter(|name| !file.templates.contains_key(&***name)) else {
            continue;
        };
        let path = join(&places::pool(index), "template");
        let finding = Finding::new(path, "unknown-template", format!("there is no template `{name}`"));
        let near = nearest(name, file.templates.keys().map(String::as_str)).map(str::to_owned);
        findings.push(Finding { suggestion: near, ..finding });
    }
    findings
}

impl ClusterNode {
    /// Where the file has the value at a path of the install configuration; where it has none, where this machine
    /// could have it.
    fn at(&self, file: &ClusterFile, path: &str) -> String {
        let layer = self.layer(path).unwrap_or(super::layers::Layer::Overrides);
        self.place(file, layer, path)
    }

    /// Whether it runs, or may come to run, the control plane.
    fn may_serve(&self) -> bool {
        matches!(self.role, Some(Role::Management | Role::Default))
    }
}

/// How many nodes of each role there are.
fn count(nodes: &[ClusterNode], role: Role) -> usize {
    nodes.iter().filter(|node| node.role == Some(role)).count()
}

fn tally(nodes: &[ClusterNode]) -> Counts {
    Counts {
        management: count(nodes, Role::Management),
        witness: count(nodes, Role::Witness),
        worker: count(nodes, Role::Worker) + count(nodes, Role::Default),
    }
}
