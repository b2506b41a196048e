//! The nodes of the cluster as the API tells them: a list, and then each change.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::api::kubelet::KubeApi;
use crate::kubernetes::node::Node;
use machine::paths::KUBELET_ACCESS;

/// How long the API server sends changes before it ends the answer. Changes that others made on the node are corrected at the same
/// interval.
const WATCH_SECONDS: u64 = 60;
const TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS + 15);
/// A node with thousands of images has some hundred kilobytes.
const EVENT_BYTES_MAX: u64 = 8 << 20;

/// One change (Kubernetes API concepts, "Efficient detection of changes").
#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    object: serde_json::Value,
}

/// Lists the nodes and follows them until the API server ends the answer. `tell` gets all nodes at first and after each change.
///
/// # Errors
/// Why the API cannot be asked, a clause.
pub(super) fn follow(root: &Path, tell: &mut dyn FnMut(&BTreeMap<String, Node>)) -> Result<(), String> {
    let api = KubeApi::open_for(root, KUBELET_ACCESS, TIMEOUT)?;
    let list = api.nodes()?;
    let mut nodes: BTreeMap<String, Node> =
        list.items.into_iter().map(|node| (node.metadata.name.clone(), node)).collect();
    tell(&nodes);
    let mut changes = BufReader::new(api.node_changes(&list.metadata.resource_version, WATCH_SECONDS)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = changes.by_ref().take(EVENT_BYTES_MAX).read_until(b'\n', &mut line);
        // The answer ends on time, or with the server: both begin again with a list.
        if read.map_err(|error| format!("the API server ended its answer early: {error}"))? == 0 {
            return Ok(());
        }
        let Some(changed) = change(&line, &mut nodes) else { return Ok(()) };
        if changed {
            tell(&nodes);
        }
    }
}

/// Applies one line; none if the rest of the answer is of no use. Says whether a node has changed.
fn change(line: &[u8], nodes: &mut BTreeMap<String, Node>) -> Option<bool> {
    let event: Event = serde_json::from_slice(line).ok()?;
    let node = |value| serde_json::from_value::<Node>(value).ok();
    match event.kind.as_str() {
        "ADDED" | "MODIFIED" => {
            let node = node(event.object)?;
            nodes.insert(node.metadata.name.clone(), node);
            Some(true)
        }
        "DELETED" => Some(nodes.remove(&node(event.object)?.metadata.name).is_some()),
        "BOOKMARK" => Some(false),
        // The version of the list is too old by now.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(kind: &str, name: &str) -> Vec<u8> {
        format!(r#"{{"type":"{kind}","object":{{"kind":"Node","metadata":{{"name":"{name}","resourceVersion":"9"}}}}}}"#).into_bytes()
    }

    #[test]
    fn changes_are_applied_and_an_error_ends_the_answer() {
        let mut nodes = BTreeMap::new();
        assert_eq!(change(&event("ADDED", "a"), &mut nodes), Some(true));
        assert_eq!(change(&event("MODIFIED", "b"), &mut nodes), Some(true));
        assert_eq!(change(&event("BOOKMARK", ""), &mut nodes), Some(false));
        assert_eq!(nodes.len(), 2);
        assert_eq!(change(&event("DELETED", "a"), &mut nodes), Some(true));
        assert_eq!(change(&event("DELETED", "a"), &mut nodes), Some(false));
        assert_eq!(nodes.into_keys().collect::<Vec<_>>(), ["b"]);
        let gone = br#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;
        assert_eq!(change(gone, &mut BTreeMap::new()), None);
    }

    proptest! {
        #[test]
        fn any_line_is_a_change_or_ends_the_answer(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            change(&line, &mut BTreeMap::new());
        }
    }
}
