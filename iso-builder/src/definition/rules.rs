//! How the values of an image definition must fit together, and fit the files beside it. Every rule looks at the
//! document itself, so that a mistake in one place hides none in another.

use std::path::{Path, PathBuf};

use document::finding::Finding;
use document::format::Format;
use document::shape::{Shape, join};
use document::tree::{NodeKind, TreeNode};
use model::config::Distribution;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::architectures;
use super::formats::PathTarget;
use super::shape::shape;
use crate::extensions::ExtensionSpec;
use crate::extensions::spec::check_sources;
use crate::images::Runtime;
use crate::images::spec::{misfits, without_layers};
use crate::kubernetes::Kubernetes;
use crate::kubernetes::texts::architecture_named;
use crate::signing::spec::TrustSpec;

/// Checks that a path of the definition leads to the target; the error is the path relative to the current directory.
pub(super) type Search<'s> = &'s dyn Fn(&Path, PathTarget) -> Result<(), PathBuf>;

/// The findings about the document `root`; `value` is the part of it that has the right form.
pub(super) fn check(root: &TreeNode, value: &Value, search: Search<'_>) -> Vec<Finding> {
    let mut found = paths_lead_somewhere(root, search);
    found.extend(entries_have_one_source(root));
    found.extend(extensions_have_one_source(root));
    found.extend(architectures::findings(root));
    found.extend(typed::<Kubernetes>(value, "/kubernetes").iter().flat_map(Kubernetes::findings));
    found.extend(typed::<TrustSpec>(value, "/trust").iter().flat_map(TrustSpec::findings));
    found.extend(runtime_follows_from_kubernetes(value));
    found
}

fn paths_lead_somewhere(root: &TreeNode, search: Search<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let architectures = architectures::named(root);
    each_text(root, shape(), "", &mut |path, format, text| {
        // A text without a place for the name of an architecture gives the same path for each.
        let mut targets: Vec<_> = architectures
            .iter()
            .filter_map(|architecture| PathTarget::of(format, &architecture_named(text, *architecture)))
            .collect();
        targets.dedup();
        for (target, text) in targets {
            let Err(at) = search(&text, target) else { continue };
            let shown = at.display().to_string().replace(char::is_control, "\u{fffd}");
            found.push(Finding::new(path, "missing-file", format!("there is no {} {shown}", target.noun())));
        }
    });
    found
}

fn each_text(node: &TreeNode, shape: &Shape, path: &str, visit: &mut dyn FnMut(&str, &Format, &str)) {
    match (shape, &node.kind) {
        (Shape::Text { format: Some(format), .. }, NodeKind::Scalar { text, .. }) if !node.is_nothing() => {
            visit(path, format, text);
        }
        (Shape::List(shape), NodeKind::List(items)) => {
            for (index, item) in items.iter().enumerate() {
                each_text(item, shape, &format!("{path}[{index}]"), visit);
            }
        }
        (_, NodeKind::Map(entries)) => {
            for (key, value) in entries {
                if let Some(shape) = shape.at(&key.text) {
                    each_text(value, shape, &join(path, &key.text), visit);
                }
            }
        }
        _ => {}
    }
}

fn entries_have_one_source(root: &TreeNode) -> Vec<Finding> {
    let mut found = Vec::new();
    let entries = root.get("images").and_then(|images| images.get("preload"));
    for (index, entry) in items(entries).iter().enumerate() {
        let at = format!("images.preload[{index}]");
        let faults = match entry.kind {
            NodeKind::Map(_) => misfits(|key| entry.get(key).is_some()),
            _ => Vec::new(),
        };
        let layers = entry.get("layers");
        if faults.is_empty() && entry.get("name").is_some() && layers.is_none_or(is_empty_list) {
            found.push(Finding::new(format!("{at}.layers"), "missing-value", without_layers().message));
        }
        for fault in faults {
            let path = fault.key.map_or_else(|| at.clone(), |key| join(&at, key));
            found.push(Finding::new(path, "invalid-entry", fault.message));
        }
        for (layer, node) in items(layers).iter().enumerate() {
            if node.get("packages").is_some_and(is_empty_list) {
                let path = format!("{at}.layers[{layer}].packages");
                found.push(Finding::new(path, "missing-value", "a layer needs at least one package"));
            }
        }
    }
    found
}

fn extensions_have_one_source(root: &TreeNode) -> Vec<Finding> {
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for (index, entry) in items(root.get("extensions")).iter().enumerate() {
        let NodeKind::Map(_) = entry.kind else { continue };
        let at = format!("extensions[{index}]");
        if let Err(error) = check_sources(|key| entry.get(key).is_some()) {
            found.push(Finding::new(at, "invalid-entry", error.to_string()));
            continue;
        }
        let value = ["dkms", "source", "modules"].into_iter().find_map(|key| {
            let NodeKind::Scalar { text, .. } = &entry.get(key)?.kind else { return None };
            serde_json::from_value::<ExtensionSpec>(json!({ key: text })).ok()
        });
        let Some(name) = value.map(|extension| extension.name()) else { continue };
        if names.contains(&name) {
            let message = format!("the extension {name} is named twice");
            found.push(Finding::new(at, "duplicate-entry", message));
        }
        names.push(name);
    }
    found
}

fn runtime_follows_from_kubernetes(value: &Value) -> Option<Finding> {
    let distribution = typed::<Distribution>(value, "/kubernetes/distribution")?;
    let runtime = typed::<Runtime>(value, "/images/runtime")?;
    let message =
        format!("it is {} because `kubernetes.distribution` is; leave the key out", distribution.name());
    (runtime != distribution.into()).then(|| Finding::new("images.runtime", "superfluous-key", message))
}

/// The part of the document at this JSON pointer, if it is valid.
fn typed<T: DeserializeOwned>(value: &Value, pointer: &str) -> Option<T> {
    serde_json::from_value(value.pointer(pointer)?.clone()).ok()
}

fn items(node: Option<&TreeNode>) -> &[TreeNode] {
    match node.map(|node| &node.kind) {
        Some(NodeKind::List(items)) => items,
        _ => &[],
    }
}

fn is_empty_list(node: &TreeNode) -> bool {
    matches!(&node.kind, NodeKind::List(items) if items.is_empty())
}
