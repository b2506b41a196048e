//! `installer virtual-address`: tells keepalived whether the node is the only server of its cluster.
//!
//! The only server keeps the virtual address even while its API server is slow: no other node could take it. With a second server a
//! failed check moves the address. The nodes are watched through the API, and keepalived reloads its configuration without
//! releasing the address. While the API is away nothing changes, even over a restart: servers only join and leave through the API.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::vip;
use crate::configuration::{KEEPALIVED, VirtualRouter, is_alone, with_servers};
use crate::kubernetes::node::Node;
use crate::node_watch;
use base::command::{Invocation, Runner};
use base::files;
use machine::installed_node::InstalledNode;
use machine::paths::below;

const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Of nodes with a control plane; witnesses have none.
const SERVER: &str = "node-role.kubernetes.io/control-plane";

/// Follows the servers of the cluster of the node at `root`, until the process ends. `say` receives what is new, a line each.
///
/// # Errors
/// The node's document cannot be read, or gives it no name.
pub fn keep(root: &Path, runner: &dyn Runner, say: &mut dyn FnMut(&str)) -> Result<()> {
    let node = InstalledNode::open(root)?;
    node.warn(say);
    let name = node.name()?;
    let mut problem = String::new();
    loop {
        let mut fitted = Ok(());
        let followed = node_watch::follow(root, &mut |nodes| fitted = fit(root, runner, &name, nodes, say));
        let result = fitted.and(followed.map_err(anyhow::Error::msg));
        let new = result.err().map(|error| format!("{error:#}")).unwrap_or_default();
        if !new.is_empty() && new != problem {
            say(&new);
        }
        problem = new;
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Whether the node `name` is a server and no other node is.
fn only_server(name: &str, nodes: &BTreeMap<String, Node>) -> bool {
    let servers = nodes.iter().filter(|(_, node)| node.metadata.labels.contains_key(SERVER));
    servers.map(|(name, _)| name.as_str()).eq([name])
}

/// Makes keepalived's configuration what `nodes` ask for. A node that does not answer for a virtual address has none.
fn fit(
    root: &Path,
    runner: &dyn Runner,
    name: &str,
    nodes: &BTreeMap<String, Node>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let present = vip::configuration(root)?;
    let alone = only_server(name, nodes);
    if present.is_empty() || is_alone(&present) == alone {
        return Ok(());
    }
    let path = below(root, &VirtualRouter::path());
    files::write_atomically(&path, with_servers(&present, alone).as_bytes(), 0o600)?;
    let reload = Invocation::new("systemctl").args(["reload-or-restart", KEEPALIVED]);
    if let Err(error) = runner.run(&reload) {
        // The next look tries again.
        files::write_atomically(&path, present.as_bytes(), 0o600)?;
        return Err(error.context("telling keepalived of the servers of the cluster"));
    }
    say(match alone {
        true => {
            "This node is the only server of its cluster: it keeps the virtual address whether its API server answers or not."
        }
        false => "The cluster has other servers: one whose API server answers has the virtual address.",
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    use model::config::Timing;
    use serde_json::json;
    use testing::runner::ScriptedRunner;

    fn nodes(servers: &[&str], others: &[&str]) -> BTreeMap<String, Node> {
        let node = |name: &&str, label: &str| {
            let node = json!({ "metadata": { "name": name, "labels": { label: "" } } });
            ((*name).to_owned(), serde_json::from_value(node).unwrap())
        };
        let servers = servers.iter().map(|name| node(name, SERVER));
        servers.chain(others.iter().map(|name| node(name, "node-role.harvesterhci.io/witness"))).collect()
    }

    fn configuration(alone: bool) -> String {
        let router = VirtualRouter {
            vip: [192, 0, 2, 10].into(),
            device: "mgmt-br".to_owned(),
            own: [192, 0, 2, 11].into(),
            timing: Timing::Standard,
        };
        router.configuration(alone)
    }

    fn place(text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = below(root.path(), &VirtualRouter::path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        root
    }

    #[test]
    fn workers_and_witnesses_cannot_take_the_address_and_a_node_that_is_no_server_is_not_alone() {
        for (servers, others, alone) in [
            (&["node-1"][..], &["node-2", "node-3"][..], true),
            (&["node-1", "node-2"], &[], false),
            (&["node-2"], &["node-1"], false),
            (&[], &["node-1"], false),
            (&[], &[], false),
        ] {
            assert_eq!(only_server("node-1", &nodes(servers, others)), alone, "{servers:?} {others:?}");
        }
    }

    #[test]
    fn a_server_that_joins_or_leaves_is_told_to_keepalived_once() {
        let root = place(&configuration(false));
        let system = ScriptedRunner::silent();
        let mut said = 0;
        for (servers, alone, reloads) in [
            (&["node-1"][..], true, 1),
            (&["node-1"], true, 1),
            (&["node-1", "node-2"], false, 2),
            (&["node-1", "node-2", "node-3"], false, 2),
            (&["node-1"], true, 3),
        ] {
            fit(root.path(), &system, "node-1", &nodes(servers, &[]), &mut |_| said += 1).unwrap();
            assert_eq!(vip::configuration(root.path()).unwrap(), configuration(alone), "{servers:?}");
            assert_eq!(system.commands().len(), reloads, "{servers:?}");
        }
        assert_eq!(said, 3);
        assert_eq!(system.commands()[2], "systemctl reload-or-restart keepalived.service");
    }

    #[test]
    fn what_keepalived_was_not_told_is_told_with_the_next_look() {
        let root = place(&configuration(true));
        let system = ScriptedRunner::silent().fail("systemctl", "the manager does not answer").times(1);
        let look = || fit(root.path(), &system, "node-1", &nodes(&["node-1", "node-2"], &[]), &mut |_| {});
        assert!(look().is_err());
        assert_eq!(vip::configuration(root.path()).unwrap(), configuration(true));
        look().unwrap();
        assert_eq!(vip::configuration(root.path()).unwrap(), configuration(false));
    }

    #[test]
    fn a_node_without_a_virtual_address_has_nothing_to_tell() {
        let root = tempfile::tempdir().unwrap();
        fit(root.path(), &ScriptedRunner::new(), "node-1", &nodes(&["node-1"], &[]), &mut |_| panic!())
            .unwrap();
    }
}
