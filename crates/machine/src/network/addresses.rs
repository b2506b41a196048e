//! The addresses of this machine, from the output of iproute2 (`ip -json -details address`).

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Deserialize;

use crate::network::{MANAGEMENT, management_device};
use base::command::{Invocation, Runner};
use model::config::{InstallConfig, Method};

const PROGRAM_LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedNetwork {
    /// The device with the address, if the document names cards.
    pub(super) device: Option<String>,
    /// The bond below it, and the number of its cards in the document.
    pub(super) bond: Option<(String, usize)>,
    /// Whether a DHCP server gives the address.
    pub(super) dhcp: bool,
}

impl WantedNetwork {
    pub fn of(config: &InstallConfig) -> Self {
        let management = config.install.management_interface.as_ref();
        let device = management_device(config);
        let cards = management.map_or(0, |management| management.interfaces.len());
        Self {
            bond: device.is_some().then(|| (format!("{MANAGEMENT}-bo"), cards)),
            device,
            dhcp: management.is_none_or(|management| management.method == Method::Dhcp),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Device {
    ifname: String,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    link_type: String,
    master: Option<String>,
    /// Present for devices that are not hardware.
    linkinfo: Option<Info>,
    #[serde(default)]
    addr_info: Vec<Address>,
}

#[derive(Debug, Deserialize)]
struct Info {
    info_kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Address {
    family: String,
    local: Option<String>,
    prefixlen: Option<u8>,
    #[serde(default)]
    scope: String,
}

impl Device {
    fn is_card(&self) -> bool {
        let made = self.linkinfo.as_ref().is_some_and(|info| info.info_kind.is_some());
        self.link_type == "ether" && !made
    }

    fn address(&self) -> Option<String> {
        let usable = |address: &&Address| address.family == "inet" && address.scope == "global";
        let address = self.addr_info.iter().find(usable)?;
        Some(format!("{}/{}", address.local.as_ref()?, address.prefixlen?))
    }

    fn has_link(&self) -> bool {
        self.flags.iter().any(|flag| flag == "LOWER_UP")
    }
}

pub fn addresses(config: Option<&InstallConfig>, runner: &dyn Runner) -> Vec<String> {
    let networks =
        config.into_iter().flat_map(|config| &config.install.networks).map(|network| &*network.name);
    let names: Vec<_> = std::iter::once(MANAGEMENT).chain(networks).collect();
    let ip = Invocation::new("ip").args(["-json", "-details", "address"]).limit(PROGRAM_LIMIT);
    match runner.run(&ip) {
        Ok(json) => addresses_in(&names, &json),
        Err(error) => vec![format!("not known: {error}")],
    }
}

/// The addresses of each card, and of each device of the networks of these names: `DEVICE ADDRESS, ADDRESS`. Devices of pods are
/// not the node's own.
fn addresses_in(networks: &[&str], json: &[u8]) -> Vec<String> {
    let devices: Vec<Device> = serde_json::from_slice(json).unwrap_or_default();
    let own = |device: &&Device| {
        let made = |name: &&str| device.ifname.strip_prefix(name).is_some_and(|rest| rest.starts_with("-b"));
        device.is_card() || networks.iter().any(made)
    };
    let addresses = devices.iter().filter(own).filter_map(|device| {
        let global = device.addr_info.iter().filter(|address| address.scope == "global");
        let all: Vec<_> = global
            .filter_map(|address| Some(format!("{}/{}", address.local.as_ref()?, address.prefixlen?)))
            .collect();
        (!all.is_empty()).then(|| format!("{} {}", device.ifname, all.join(", ")))
    });
    addresses.collect()
}

/// The virtual addresses that the node has now, each with its device: addresses of a network of one, beside one of a real network.
pub fn virtual_addresses(json: &[u8]) -> Vec<(String, Ipv4Addr)> {
    let devices: Vec<Device> = serde_json::from_slice(json).unwrap_or_default();
    let of = |device: Device| {
        let global = |address: &&Address| address.family == "inet" && address.scope == "global";
        let addresses: Vec<_> = device.addr_info.iter().filter(global).collect();
        let (single, real): (Vec<_>, Vec<_>) =
            addresses.into_iter().partition(|address| address.prefixlen == Some(32));
        let found = single.into_iter().filter(|_| !real.is_empty()).filter_map(|one| one.local.as_ref());
        let found: Vec<_> =
            found.filter_map(|local| Some((device.ifname.clone(), local.parse().ok()?))).collect();
        found
    };
    devices.into_iter().flat_map(of).collect()
}

/// The address as `DEVICE has ADDRESS`, or why there is none.
pub fn judge(wanted: &WantedNetwork, json: &[u8]) -> Result<String, String> {
    let devices: Vec<Device> =
        serde_json::from_slice(json).map_err(|error| format!("the output of ip cannot be read: {error}"))?;
    let found = |device: &Device| Some(format!("{} has {}", device.ifname, device.address()?));
    let waits = if wanted.dhcp { "no DHCP server has given it one" } else { "NetworkManager has not set it" };
    let Some(name) = &wanted.device else {
        let cards: Vec<&Device> = devices.iter().filter(|device| device.is_card()).collect();
        return cards.iter().find_map(|device| found(device)).ok_or_else(|| match cards.as_slice() {
            [] => "the node has no network card that the kernel knows".to_owned(),
            cards if cards.iter().any(|card| card.has_link()) => {
                format!("no card has an IPv4 address: {waits}")
            }
            _ => "no card has a link: check cables and the switch".to_owned(),
        });
    };
    let Some(device) = devices.iter().find(|device| device.ifname == *name) else {
        return Err(format!("there is no device {name}: NetworkManager has not made it"));
    };
    found(device).ok_or_else(|| match below(wanted, &devices) {
        Some(why) => format!("{name} has no IPv4 address: {why}"),
        None => format!("{name} has no IPv4 address: {waits}"),
    })
}

/// The problem with the bond and its cards.
fn below(wanted: &WantedNetwork, devices: &[Device]) -> Option<String> {
    let (bond, cards) = wanted.bond.as_ref()?;
    let ports: Vec<&Device> =
        devices.iter().filter(|device| device.master.as_deref() == Some(bond.as_str())).collect();
    if ports.is_empty() {
        return Some(format!("none of the {cards} cards of install.management_interface is there"));
    }
    let linked = ports.iter().any(|port| port.has_link());
    let names = || ports.iter().map(|port| port.ifname.as_str()).collect::<Vec<_>>().join(", ");
    (!linked).then(|| format!("{} has no link: check cables and the switch", names()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn card(name: &str, flags: &[&str], master: Option<&str>) -> serde_json::Value {
        json!({"ifname": name, "flags": flags, "link_type": "ether", "master": master, "addr_info": []})
    }

    fn bridge(address: &str, scope: &str) -> serde_json::Value {
        json!({"ifname": "mgmt-br", "flags": ["UP"], "link_type": "ether", "linkinfo": {"info_kind": "bridge"},
               "addr_info": [
                   {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
                   {"family": "inet", "local": address, "prefixlen": 24, "scope": scope}]})
    }

    fn look(wanted: &WantedNetwork, devices: &[serde_json::Value]) -> Result<String, String> {
        judge(wanted, json!(devices).to_string().as_bytes())
    }

    #[test]
    fn a_virtual_address_is_one_beside_an_address_of_a_network() {
        let json = r#"[{"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8, "scope": "host"}]},
            {"ifname": "mgmt-br", "addr_info": [
                {"family": "inet", "local": "192.0.2.11", "prefixlen": 24, "scope": "global"},
                {"family": "inet", "local": "192.0.2.10", "prefixlen": 32, "scope": "global"},
                {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"}]},
            {"ifname": "tunl0", "addr_info": [{"family": "inet", "local": "10.52.0.1", "prefixlen": 32, "scope": "global"}]}]"#;
        let vip = ("mgmt-br".to_owned(), Ipv4Addr::new(192, 0, 2, 10));
        assert_eq!(virtual_addresses(json.as_bytes()), [vip]);
        assert_eq!(virtual_addresses(b"x"), []);
    }

    #[test]
    fn the_address_of_the_management_device_counts_and_no_other() {
        let wanted =
            WantedNetwork { device: Some("mgmt-br".into()), bond: Some(("mgmt-bo".into(), 2)), dhcp: true };
        let up = card("ens3", &["UP", "LOWER_UP"], Some("mgmt-bo"));
        let down = card("ens3", &["UP", "NO-CARRIER"], Some("mgmt-bo"));
        let bare = bridge("192.0.2.11", "host");
        let cases = [
            (vec![bridge("192.0.2.11", "global")], Ok("mgmt-br has 192.0.2.11/24")),
            (vec![up.clone()], Err("there is no device mgmt-br")),
            (vec![bare.clone()], Err("none of the 2 cards")),
            (vec![bare.clone(), down], Err("ens3 has no link")),
            (vec![bare, up], Err("no DHCP server")),
        ];
        for (devices, expected) in cases {
            match (look(&wanted, &devices), expected) {
                (Ok(told), Ok(expected)) => assert_eq!(told, expected),
                (Err(told), Err(expected)) => assert!(told.contains(expected), "{told}"),
                (told, _) => panic!("{told:?} for {expected:?}"),
            }
        }
    }

    #[test]
    fn without_named_cards_any_card_counts_but_no_device_of_the_pods() {
        let wanted = WantedNetwork { device: None, bond: None, dhcp: true };
        let mut cni = bridge("10.52.0.1", "global");
        cni["ifname"] = json!("cni0");
        let mut own = card("ens3", &["LOWER_UP"], None);
        assert!(look(&wanted, &[]).unwrap_err().contains("no network card"));
        assert!(look(&wanted, &[cni.clone(), own.clone()]).unwrap_err().contains("no DHCP server"));
        assert!(look(&wanted, &[card("ens3", &[], None)]).unwrap_err().contains("no card has a link"));
        own["addr_info"] =
            json!([{"family": "inet", "local": "192.0.2.7", "prefixlen": 25, "scope": "global"}]);
        assert_eq!(look(&wanted, &[cni, own]).unwrap(), "ens3 has 192.0.2.7/25");
        assert!(judge(&wanted, b"<").is_err());
    }
}
