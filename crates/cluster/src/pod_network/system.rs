//! The pod network on a node: the configuration of the plugins, routes, and rules of the packet filter.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use model::config::Cidr;
use serde::Deserialize;
use serde_json::json;

use super::nodes::PodRoutes;
use base::command::{Invocation, Runner};
use base::files;
use machine::paths::below;

const PLUGINS: &str = "/etc/cni/net.d/10-nqrust.conflist";
const BRIDGE: &str = "cni0";
/// Marks our routes, so that no other is touched (rtnetlink(7): numbers above `RTPROT_STATIC` are free).
const PROTOCOL: &str = "147";
const TABLE: &str = "nqrust_pods";

/// Applies `wanted`; returns a clause for each route that failed.
pub(super) fn bring(root: &Path, wanted: &PodRoutes, pods: Cidr, runner: &dyn Runner) -> Result<Vec<String>> {
    if let Some(own) = wanted.own {
        filter(own, pods, runner)?;
        plugins(root, own, runner)?;
    }
    routes(&wanted.others, runner)
}

/// Writes the configuration of the plugins; pods start when it is there.
fn plugins(root: &Path, own: Cidr, runner: &dyn Runner) -> Result<()> {
    let configuration = json!({
        "cniVersion": "1.0.0",
        "name": "nqrust",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": true,
                "isDefaultGateway": true,
                "hairpinMode": true,
                "ipam": { "type": "host-local", "ranges": [[{ "subnet": own.to_string() }]] },
            },
            { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true },
        ],
    });
    let path = below(root, PLUGINS);
    let text = format!("{configuration:#}\n");
    let before = files::read_text(&path).ok();
    if before.as_deref() == Some(&text) {
        return Ok(());
    }
    if before.is_some() {
        // The node has joined again and has another network; the plugin does not change the bridge's address.
        let gone = Invocation::new("ip").args(["link", "delete", BRIDGE]);
        // There is none if no pod has run yet.
        drop(runner.run(&gone));
    }
    files::make_directory(path.parent().context("a file is in a directory")?, 0o755)?;
    files::write_atomically(&path, text.as_bytes(), 0o644)
}

/// Pods reach each other with their own addresses, and the rest of the world with the node's.
fn filter(own: Cidr, pods: Cidr, runner: &dyn Runner) -> Result<()> {
    let rules = format!(
        "table ip {TABLE} {{}}\ndelete table ip {TABLE}\ntable ip {TABLE} {{\n  chain postrouting {{\n    type nat hook postrouting \
         priority srcnat; policy accept;\n    ip saddr {own} ip daddr != {pods} oifname != \"{BRIDGE}\" masquerade\n  }}\n}}\n"
    );
    let nft = Invocation::new("nft").args(["--file", "-"]).stdin(rules);
    runner.run(&nft).map(drop).context("writing the rules for what pods send to other networks")
}

#[derive(Deserialize)]
struct Route {
    dst: String,
    gateway: Option<String>,
}

fn routes(wanted: &BTreeMap<Cidr, Ipv4Addr>, runner: &dyn Runner) -> Result<Vec<String>> {
    let show = Invocation::new("ip").args(["-json", "-4", "route", "show", "proto", PROTOCOL]);
    let listed = runner.run(&show).context("reading the routes of the node")?;
    let present: Vec<Route> = match listed.trim_ascii() {
        [] => Vec::new(),
        json => serde_json::from_slice(json).context("reading the routes of the node")?,
    };
    let present: BTreeMap<String, Option<String>> =
        present.into_iter().map(|route| (route.dst, route.gateway)).collect();
    let mut failed = Vec::new();
    for (pods, node) in wanted {
        let (pods, node) = (pods.to_string(), node.to_string());
        if present.get(&pods).is_some_and(|gateway| gateway.as_ref() == Some(&node)) {
            continue;
        }
        let replace =
            Invocation::new("ip").args(["-4", "route", "replace", &pods, "via", &node, "proto", PROTOCOL]);
        if runner.run(&replace).is_err() {
            failed.push(format!(
                "there is no route to the pods of {node}: it is not in the same segment as this node"
            ));
        }
    }
    let stale = present.keys().filter(|pods| !wanted.keys().any(|wanted| wanted.to_string() == **pods));
    for pods in stale {
        let delete = Invocation::new("ip").args(["-4", "route", "delete", pods, "proto", PROTOCOL]);
        runner.run(&delete).with_context(|| format!("removing the route to {pods}"))?;
    }
    Ok(failed)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    /// A node with a route to 10.52.9.0/24, which refuses routes by way of 198.51.100.9.
    pub(crate) fn system() -> ScriptedRunner {
        let known = r#"[{"dst": "10.52.9.0/24", "gateway": "192.0.2.9"}, {"dst": "10.52.2.0/24", "gateway": "192.0.2.2"}]"#;
        ScriptedRunner::silent()
            .answer("route show", known)
            .fail("via 198.51.100.9", "Nexthop has invalid gateway")
    }

    /// The commands with their standard input, a line each.
    pub(crate) fn asked(system: &ScriptedRunner) -> String {
        let line = |run: &Invocation| format!("{}{}\n", run.display(), String::from_utf8_lossy(&run.stdin));
        system.invocations().iter().map(line).collect()
    }

    fn wanted(own: &str, others: &[(&str, [u8; 4])]) -> PodRoutes {
        let others = others.iter().map(|(pods, node)| (pods.parse().unwrap(), Ipv4Addr::from(*node)));
        PodRoutes { own: own.parse().ok(), others: others.collect(), problems: Vec::new() }
    }

    #[test]
    fn routes_follow_the_nodes_and_others_are_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let system = system();
        let wanted = wanted(
            "10.52.0.0/24",
            &[
                ("10.52.1.0/24", [192, 0, 2, 1]),
                ("10.52.2.0/24", [192, 0, 2, 2]),
                ("10.52.3.0/24", [198, 51, 100, 9]),
            ],
        );
        let failed = bring(root.path(), &wanted, "10.52.0.0/16".parse().unwrap(), &system).unwrap();
        assert_eq!(
            failed,
            ["there is no route to the pods of 198.51.100.9: it is not in the same segment as this node"]
        );
        let asked = asked(&system);
        assert!(asked.contains("route replace 10.52.1.0/24 via 192.0.2.1 proto 147"), "{asked}");
        assert!(
            asked.contains("route delete 10.52.9.0/24 proto 147") && !asked.contains("replace 10.52.2.0"),
            "{asked}"
        );
        assert!(asked.contains("ip saddr 10.52.0.0/24 ip daddr != 10.52.0.0/16"), "{asked}");
        let plugins = files::read_text(&below(root.path(), PLUGINS)).unwrap();
        assert!(plugins.contains("10.52.0.0/24") && !asked.contains("link delete"), "{plugins}");
    }

    #[test]
    fn a_node_that_has_another_network_gets_a_new_bridge() {
        let root = tempfile::tempdir().unwrap();
        let system = system();
        for own in ["10.52.0.0/24", "10.52.0.0/24", "10.52.7.0/24"] {
            bring(root.path(), &wanted(own, &[]), "10.52.0.0/16".parse().unwrap(), &system).unwrap();
        }
        let asked = asked(&system);
        assert_eq!(asked.matches("link delete cni0").count(), 1, "{asked}");
    }
}
