//! Text to a cluster file: mistakes of form, then those of each node, then those of the whole; all at once.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::dialect::ClusterDialect;
use super::document::{ClusterFile, NodeCounts, shape};
use super::layers::{self, ClusterNode};
use super::places::{MOVED, SHARED_ONLY, is_within, within};
use super::{nodes, render, rules};
use crate::config::{Diagnostic, Invalid, Mode, Secret};
use base::failure::{Class, Classify};
use base::files::named;
use document::diagnostic::{Problem, Source};
use document::echo::{self, MistakePaths};
use document::shape_check::ShapeCheck;
use document::span::Span;
use document::tree;

#[derive(Debug)]
pub struct ValidClusterFile {
    pub name: String,
    pub counts: NodeCounts,
    /// The document of each node, in the order of the file.
    pub documents: Vec<render::RenderedDocument>,
    /// The digest of each template that a node is made from, by name.
    pub templates: std::collections::BTreeMap<String, String>,
    /// In the order of its lines.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the file at `path`. A file that cannot be read and a document with mistakes are
/// [`Class::Invalid`].
pub fn load(path: &Path) -> Result<ValidClusterFile> {
    let name = named::told(path);
    let text = named::read_text(path).class(Class::Invalid, || format!("reading the cluster file {name}"))?;
    Ok(check(&text, &name).map_err(|invalid| invalid.failure(&format!("the cluster file {name}")))?)
}

/// Reads and checks a document; `name` is what messages call it. Every mistake and every warning comes with its place.
pub fn check(text: &str, name: &str) -> Result<ValidClusterFile, Invalid> {
    let tree = tree::read(text).map_err(|problem| Source::unread(name, text).diagnose(vec![problem]))?;
    let mut walk = ShapeCheck::new(&ClusterDialect);
    let value = tree.root.as_ref().and_then(|root| walk.value(root, shape(), "")).unwrap_or_default();
    misplaced(&mut walk);
    let typed = |value: Value| match value {
        Value::Null => Some(ClusterFile::default()),
        value => serde_json::from_value(value).ok(),
    };
    let file = typed(value.clone()).unwrap_or_else(|| {
        walk.problems.push(Problem::unusable(Span::default()));
        ClusterFile::default()
    });
    let mistakes = MistakePaths::of(walk.problems.iter());
    let nodes = layers::nodes(&file);
    let judge = |file: &ClusterFile, nodes: &[ClusterNode]| {
        let mut findings = rules::check(file, nodes);
        findings.extend(nodes::check(file, nodes, &mistakes));
        findings
    };
    let other = |value: Value| typed(value).map(|file| judge(&file, &layers::nodes(&file)));
    let findings = echo::undisputed(judge(&file, &nodes), &[&walk.unusable], &value, other);
    walk.findings(findings, &mistakes);
    if nodes.iter().any(|node| node.config.is_none()) && walk.is_clean() {
        walk.problems.push(Problem::unusable(Span::default()));
    }
    let agents = if walk.is_clean() { render::derived_agent_token(&file) } else { Ok(None) };
    let agents = agents.unwrap_or_else(|error| {
        let message = format!("no token for agents follows from this one: {error:#}");
        let span = walk.places.get("cluster.token").copied().unwrap_or_default();
        walk.problems.push(Problem::new(span, "cluster.token", "unusable-token", message));
        None
    });
    let clean = walk.is_clean();
    let told = Source::new(name, text, walk.hidden, &tree.comments).diagnose(walk.problems);
    if clean { Ok(accept(&file, nodes, agents.as_ref(), told.0)) } else { Err(told) }
}

impl ValidClusterFile {
    /// The cluster in a few words: how many nodes of which role, and which one creates it.
    #[must_use]
    pub fn summary(&self) -> String {
        let NodeCounts { management, witness, worker } = self.counts;
        let some = |count: usize, noun: &str| {
            let plural = if noun.ends_with('s') { "es" } else { "s" };
            (count > 0).then(|| format!("{count} {noun}{}", if count == 1 { "" } else { plural }))
        };
        let parts = [some(management, "management node"), some(witness, "witness"), some(worker, "worker")];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        let creator = self.documents.iter().find(|document| document.entry.mode == Mode::Create);
        let creator = creator.map(|document| format!("; {} creates it", document.entry.hostname));
        format!("the cluster `{}`, {}{}", self.name, parts.join(", "), creator.unwrap_or_default())
    }
}

fn accept(
    file: &ClusterFile,
    nodes: Vec<ClusterNode>,
    agents: Option<&Secret>,
    warnings: Vec<Diagnostic>,
) -> ValidClusterFile {
    ValidClusterFile {
        name: file.name().to_owned(),
        counts: rules::counts(&nodes),
        documents: nodes.iter().map(|node| render::document(file, node, agents)).collect(),
        templates: render::digests(file, &nodes),
        warnings,
    }
}

/// Keys of an install configuration that stand in a part of the file that is not theirs.
fn misplaced(walk: &mut ShapeCheck) {
    let mut problems = Vec::new();
    for (path, span) in &walk.places {
        let inner = within(path);
        if inner.is_empty() || inner == path {
            continue;
        }
        if let Some((key, why, instead)) = MOVED.iter().find(|(key, ..)| *key == inner) {
            let message = format!("`{key}` is not allowed here: {why}");
            let suggestion = (!instead.is_empty()).then(|| (*instead).to_owned());
            problems.push(Problem::new(*span, path, "misplaced-key", message).suggest(suggestion));
        } else if !is_within(path, "cluster") && SHARED_ONLY.contains(&inner) {
            let message = format!("all nodes share `{inner}`, so it stands in `cluster`");
            let suggestion = Some(format!("cluster.{inner}"));
            problems.push(Problem::new(*span, path, "misplaced-key", message).suggest(suggestion));
        }
    }
    // The places have no order, and two mistakes can begin at one character.
    problems.sort_by(|one, other| one.path.cmp(&other.path));
    walk.problems.extend(problems);
}
