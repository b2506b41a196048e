//! The virtual address of the cluster on a node that may answer for it.
//!
//! The first node has the address in its document. A later one may join at any address of its cluster, even that of another node,
//! so it asks the cluster. The configuration of keepalived is kept: after a power cut of the whole cluster the address comes back
//! without the API.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result};
use model::config::{Cidr, InstallConfig};
use serde::Deserialize;

use super::kubectl::{await_api, locally};
use crate::configuration::{CLUSTER, KEEPALIVED, VirtualRouter, is_alone};
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use base::files;
use machine::network::management_device;
use machine::paths::below;

/// In bytes; the configuration has some lines.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 16;

#[derive(Deserialize)]
struct ClusterFacts {
    data: Facts,
}

#[derive(Deserialize)]
struct Facts {
    vip: String,
}

/// Asks the API server of the node for the virtual address of the cluster.
pub(super) fn of_cluster(runner: &dyn Runner) -> Result<Option<Ipv4Addr>> {
    await_api(runner)?;
    let words =
        ["get", "configmap", CLUSTER, "--namespace", "kube-system", "--ignore-not-found", "--output", "json"];
    let told = locally(runner, &words).context("asking the cluster for its virtual address")?;
    let wrong = |why: String| {
        Failure::new(Class::Join, "the cluster does not tell its virtual address")
            .because(anyhow::anyhow!("the ConfigMap kube-system/{CLUSTER} {why}"))
            .hint("The node that created the cluster writes it; see there: journalctl --unit nqrust-kubeadm")
    };
    if told.trim_ascii().is_empty() {
        return Err(wrong("is not there yet".to_owned()).into());
    }
    let facts: ClusterFacts =
        serde_json::from_slice(&told).map_err(|_| wrong("has no key `vip`".to_owned()))?;
    match facts.data.vip.as_str() {
        "" => Ok(None),
        vip => vip.parse().map(Some).map_err(|_| wrong(format!("has {vip:?}, not an IPv4 address")).into()),
    }
}

/// The configuration that the node has; empty where there is none.
pub(super) fn configuration(root: &Path) -> Result<String> {
    let path = below(root, &VirtualRouter::path());
    match path.exists() {
        true => {
            Ok(String::from_utf8_lossy(&files::read_at_most(&path, CONFIGURATION_BYTES_MAX)?).into_owned())
        }
        false => Ok(String::new()),
    }
}

/// Configures keepalived for `vip`, or stops it.
pub(super) fn carry(
    root: &Path,
    runner: &dyn Runner,
    config: &InstallConfig,
    vip: Option<Ipv4Addr>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let path = below(root, &VirtualRouter::path());
    let present = configuration(root)?;
    let wanted = match vip {
        // Whether there are other servers, the node has seen last.
        Some(vip) => router(runner, config, vip)?.configuration(is_alone(&present)),
        None => String::new(),
    };
    if present == wanted {
        return Ok(());
    }
    let systemctl = |verb: &str| runner.run(&Invocation::new("systemctl").args([verb, KEEPALIVED])).map(drop);
    match vip {
        Some(vip) => {
            files::make_directory(path.parent().context("a file is in a directory")?, 0o700)?;
            files::write_atomically(&path, wanted.as_bytes(), 0o600)?;
            say(&format!("This node answers for the virtual address {vip} when it is its turn."));
            systemctl("restart")
        }
        None => {
            systemctl("stop")?;
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            say("The cluster has no virtual address any more.");
            Ok(())
        }
    }
}

/// The device in whose network the address is: that of the document, where it names cards.
fn router(runner: &dyn Runner, config: &InstallConfig, vip: Ipv4Addr) -> Result<VirtualRouter> {
    let ip = runner.run(&Invocation::new("ip").args(["-json", "-4", "address"]))?;
    let devices: Vec<Device> =
        serde_json::from_slice(&ip).context("reading what ip says of the node's addresses")?;
    let named = management_device(config);
    let of_document = |device: &&Device| named.as_ref().is_none_or(|name| *name == device.ifname);
    let found =
        devices.iter().filter(of_document).find_map(|device| Some((device, device.address_beside(vip)?)));
    let Some((device, own)) = found else {
        let place = named
            .map_or_else(|| "any network of this node".to_owned(), |name| format!("the network of {name}"));
        let what =
            format!("the virtual address {vip} is not in {place}, so that the node cannot answer for it");
        return Err(Failure::new(Class::Join, what)
            .hint("Nodes with a control plane need an address in the network of the virtual address; see: ip address")
            .into());
    };
    let timing = config.kubernetes.timing.unwrap_or_default();
    Ok(VirtualRouter { vip, device: device.ifname.clone(), own, timing })
}

/// The node's own address in the management network where the machine has no default route, as DHCP without a router leaves it;
/// none where there is one. kubeadm and the kubelet take the address of the default route (kubeadm `ChooseAPIServerBindAddress`).
///
/// # Errors
/// [`Class::Join`] if the management network has no address either.
pub(super) fn address_without_route(runner: &dyn Runner, config: &InstallConfig) -> Result<Option<Ipv4Addr>> {
    let routes = runner.run(&Invocation::new("ip").args(["-json", "-4", "route", "show", "default"]))?;
    let routes: Vec<serde_json::Value> =
        serde_json::from_slice(&routes).context("reading what ip says of the node's default route")?;
    if !routes.is_empty() {
        return Ok(None);
    }
    let ip = runner.run(&Invocation::new("ip").args(["-json", "-4", "address"]))?;
    let devices: Vec<Device> =
        serde_json::from_slice(&ip).context("reading what ip says of the node's addresses")?;
    let named = management_device(config);
    let of_document = |device: &&Device| named.as_ref().is_none_or(|name| *name == device.ifname);
    let found = devices.iter().filter(of_document).find_map(Device::own_address);
    found.map(Some).ok_or_else(|| {
        let place = named.unwrap_or_else(|| "any device of this node".to_owned());
        let what = format!("this node has no default route, and no IPv4 address on {place} either");
        Failure::new(Class::Join, what)
            .hint("Let the DHCP server name a router, or give the node a fixed address; see: ip address, ip route")
            .into()
    })
}

/// One device in the output of `ip -json -4 address`.
#[derive(Deserialize)]
struct Device {
    ifname: String,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    local: Option<Ipv4Addr>,
    prefixlen: u8,
    #[serde(default)]
    scope: String,
}

impl Device {
    /// The device's own address: a virtual one is alone in its network.
    fn own_address(&self) -> Option<Ipv4Addr> {
        let own = |address: &&Address| address.scope == "global" && address.prefixlen < 32;
        self.addr_info.iter().find(own)?.local
    }

    /// The device's address in the network in which `vip` is. The virtual address itself is in none.
    fn address_beside(&self, vip: Ipv4Addr) -> Option<Ipv4Addr> {
        let beside = |address: &&Address| {
            let network = address.local.map(|local| Cidr::containing(local, address.prefixlen));
            address.scope == "global"
                && address.local != Some(vip)
                && network.is_some_and(|network| network.contains(vip))
        };
        self.addr_info.iter().find(beside)?.local
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    /// A node with 192.0.2.11/24 on `mgmt-br`, in a cluster whose ConfigMap is `map`.
    fn system(map: &str) -> ScriptedRunner {
        let addresses = r#"[{"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
            {"ifname": "down0"},
            {"ifname": "mgmt-br", "addr_info": [
                {"local": "192.0.2.10", "prefixlen": 32, "scope": "global"},
                {"local": "192.0.2.11", "prefixlen": 24, "scope": "global"}]}]"#;
        ScriptedRunner::silent().answer("configmap", map).answer("ip ", addresses)
    }

    const VIP: Option<Ipv4Addr> = Some(Ipv4Addr::new(192, 0, 2, 10));

    fn carried(
        root: &Path,
        system: &ScriptedRunner,
        document: &str,
        vip: Option<Ipv4Addr>,
    ) -> Result<Vec<String>> {
        let config = model::config::parse(document, "f").unwrap();
        carry(root, system, &config, vip, &mut |_| {})?;
        Ok(system.take_commands().into_iter().filter(|run| run.starts_with("systemctl")).collect())
    }

    #[test]
    fn the_service_starts_again_when_the_address_changes_and_stops_without_one() {
        let root = tempfile::tempdir().unwrap();
        let system = system("");
        let carried = |vip| carried(root.path(), &system, "{}", vip).unwrap();
        assert!(carried(None).is_empty(), "there is nothing to stop");
        assert_eq!(carried(VIP), ["systemctl restart keepalived.service"]);
        let text = fs::read_to_string(below(root.path(), &VirtualRouter::path())).unwrap();
        assert!(text.contains("192.0.2.10/32 dev mgmt-br") && text.contains("priority 111"), "{text}");
        assert!(carried(VIP).is_empty(), "nothing has changed");
        assert_eq!(carried(Some(Ipv4Addr::new(192, 0, 2, 9))), ["systemctl restart keepalived.service"]);
        assert_eq!(carried(None), ["systemctl stop keepalived.service"]);
        assert!(!below(root.path(), &VirtualRouter::path()).exists());
    }

    #[test]
    fn an_address_that_the_node_cannot_answer_for_is_told() {
        let elsewhere = "install: {management_interface: {interfaces: [{name: ens3}], vlan_id: 7}}";
        for (document, vip, place) in [
            ("{}", Some(Ipv4Addr::new(198, 51, 100, 10)), "any network of this node"),
            (elsewhere, VIP, "the network of mgmt-br.7"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let told = carried(root.path(), &system(""), document, vip).unwrap_err().to_string();
            assert!(told.contains(&format!("is not in {place}")), "{told}");
            assert!(!below(root.path(), &VirtualRouter::path()).exists());
        }
    }

    #[test]
    fn without_a_default_route_the_node_has_the_address_of_its_management_network() {
        let found = |routes: &str, document| {
            let runner = system("").answer(" route ", routes);
            address_without_route(&runner, &model::config::parse(document, "f").unwrap())
        };
        let named = "install: {management_interface: {interfaces: [{name: ens3}]}}";
        let elsewhere = "install: {management_interface: {interfaces: [{name: ens3}], vlan_id: 7}}";
        assert_eq!(found(r#"[{"dst": "default"}]"#, named).unwrap(), None);
        for document in ["{}", named] {
            let own = Some(Ipv4Addr::new(192, 0, 2, 11));
            assert_eq!(found("[]", document).unwrap(), own, "the virtual address is not the node's own");
        }
        let told = base::failure::render(&found("[]", elsewhere).unwrap_err());
        assert!(told.contains("no IPv4 address on mgmt-br.7") && told.contains("name a router"), "{told}");
    }

    #[test]
    fn the_cluster_tells_an_address_or_that_it_has_none() {
        let asked = |map| of_cluster(&system(map));
        assert_eq!(asked(r#"{"data": {"vip": "192.0.2.10"}}"#).unwrap(), VIP);
        assert_eq!(asked(r#"{"data": {"vip": ""}}"#).unwrap(), None);
        for (told, why) in [
            ("", "is not there yet"),
            (r#"{"data": {}}"#, "has no key `vip`"),
            (r#"{"data": {"vip": "192.0.2.10 }\n"}}"#, "not an IPv4 address"),
        ] {
            let error = base::failure::render(&asked(told).unwrap_err());
            assert!(error.contains(why) && error.contains("journalctl --unit nqrust-kubeadm"), "{error}");
        }
    }
}
