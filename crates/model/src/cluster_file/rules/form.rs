//! Rules about required keys.

use crate::cluster_file::document::ClusterFile;
use crate::cluster_file::layers::ClusterNode;
use crate::cluster_file::places;
use document::finding::Finding;
use document::nearest::nearest;
use document::shape::join;

/// The document is of the scheme that this program reads.
pub(super) fn scheme_version(file: &ClusterFile, _: &[ClusterNode]) -> Vec<Finding> {
    let message = "this program reads documents of scheme version 1";
    let wrong = file.scheme_version.filter(|version| *version != 1);
    let finding = |_| Finding::new("scheme_version", "unsupported-scheme-version", message).suggest("1");
    wrong.map(finding).into_iter().collect()
}

/// The file has what it cannot be without.
pub(super) fn is_complete(file: &ClusterFile, nodes: &[ClusterNode]) -> Vec<Finding> {
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
pub(super) fn templates_are_there(file: &ClusterFile, _: &[ClusterNode]) -> Vec<Finding> {
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
