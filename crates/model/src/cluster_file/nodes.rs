//! Each node against the rules of install configurations. What they find is placed in the cluster file, and what holds
//! for several machines is told once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::document::ClusterFile;
use super::layers::{ClusterNode, Layer};
use super::places::{self, CLUSTER, MOVED, is_shared_only};
use crate::config::rules::{self, no_overlap};
use crate::config::{Cidr, InstallConfig, Role};
use document::echo::MistakePaths;
use document::finding::Finding;
use document::shape::join;

/// A finding of a rule of single nodes, and the nodes that it is about.
struct NodeFinding {
    /// Which layer has the value and where the file has it; none where no layer has it.
    place: Option<(Layer, String)>,
    finding: Finding,
    nodes: Vec<usize>,
}

/// The findings of the rules of single nodes, at their places in the cluster file. `mistakes` are those that are known already.
pub(super) fn check(file: &ClusterFile, nodes: &[ClusterNode], mistakes: &MistakePaths) -> Vec<Finding> {
    let mut all: Vec<NodeFinding> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        // Without its template half of a machine is missing, and every rule would say so.
        let whole = node.template.as_ref().is_none_or(|name| file.templates.contains_key(name));
        let Some(config) = node.config.as_ref().filter(|_| whole && node.role.is_some()) else { continue };
        for finding in breaches(file, node, config) {
            let places = node.places(file, &finding.path);
            if places.iter().any(|place| mistakes.within(place)) {
                continue;
            }
            let layer = node.layer(&finding.path);
            let place = layer.map(|layer| (layer, node.place(file, layer, &finding.path)));
            match known.entry((place.clone(), finding.clone())) {
                Entry::Occupied(at) => all[*at.get()].nodes.push(index),
                Entry::Vacant(new) => {
                    new.insert(all.len());
                    all.push(NodeFinding { place, finding, nodes: vec![index] });
                }
            }
        }
    }
    all.into_iter().flat_map(|told| told.placed(nodes)).collect()
}

fn breaches(file: &ClusterFile, node: &ClusterNode, config: &InstallConfig) -> Vec<Finding> {
    let mut findings = rules::check(config);
    if node.role == Some(Role::Worker) {
        findings.extend(no_overlap(&told_the_ranges(file, config)));
    }
    // The rules of the whole say this of the cluster's address.
    findings.retain(|finding| finding.path != "server_url");
    findings
}

/// A worker's document does not have the networks of pods and services, and its own must not overlap them all the same.
fn told_the_ranges(file: &ClusterFile, config: &InstallConfig) -> InstallConfig {
    let shared = file.shared_config().install;
    let mut told = config.clone();
    let default = |(address, length)| Cidr::containing(address, length);
    told.install.cluster_pod_cidr = shared.cluster_pod_cidr.or_else(|| Some(default(rules::PODS)));
    told.install.cluster_service_cidr =
        shared.cluster_service_cidr.or_else(|| Some(default(rules::SERVICES)));
    // Of these the first node's document says whether they overlap.
    told.system_settings.clear();
    told
}

impl NodeFinding {
    /// The finding where the file has what it is about, or could have it.
    fn placed(self, nodes: &[ClusterNode]) -> Vec<Finding> {
        let Self { place, finding, nodes: found } = self;
        let Some((layer, path)) = place else { return absent(finding, nodes, &found) };
        let users = match layer {
            Layer::Shared if !is_shared_only(&finding.path) => nodes.len(),
            Layer::Template => {
                let template = &nodes[found[0]].template;
                nodes.iter().filter(|node| node.template == *template).count()
            }
            _ => found.len(),
        };
        let message = match found.len() < users {
            true => format!("{} (on {})", finding.message, names(nodes, &found)),
            false => finding.message,
        };
        vec![Finding { path, message, ..finding }]
    }
}

/// A value that no layer has: it is missing where the machines that lack it meet.
fn absent(finding: Finding, nodes: &[ClusterNode], found: &[usize]) -> Vec<Finding> {
    let path = &finding.path;
    let with = |place: String| Finding {
        severity: finding.severity,
        path: place,
        code: finding.code,
        message: finding.message.clone(),
        suggestion: finding.suggestion.clone(),
    };
    if let Some((.., key)) = MOVED.iter().find(|(key, ..)| key == path) {
        return found.iter().map(|index| with(join(&nodes[*index].path(), key))).collect();
    }
    if found.len() == nodes.len() || is_shared_only(path) {
        return vec![with(join(CLUSTER, path))];
    }
    let template = &nodes[found[0]].template;
    let mut users = nodes.iter().enumerate().filter(|(_, node)| node.template == *template);
    if let Some(name) = template
        && users.all(|(index, _)| found.contains(&index))
        && found.iter().all(|index| nodes[*index].template == *template)
    {
        return vec![with(join(&places::template(name), path))];
    }
    let mut first = with(join(&join(&nodes[found[0]].path(), "overrides"), path));
    if found.len() > 1 {
        first.message = format!("{} (on {})", first.message, names(nodes, found));
    }
    vec![first]
}

/// Machines in words; of many, the first.
fn names(nodes: &[ClusterNode], found: &[usize]) -> String {
    const MOST: usize = 3;
    let mut names: Vec<_> = found.iter().map(|index| nodes[*index].name.clone()).collect();
    if names.len() > MOST {
        let rest = names.len() - MOST + 1;
        names.truncate(MOST - 1);
        names.push(format!("{rest} others"));
    }
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}
