//! NetworkManager profiles of the node's networks.
//!
//! The cards of a network form a bond `NAME-bo`, even a single one; the bond is the port of a VLAN-aware bridge `NAME-br`, to
//! which virtual machines are attached later; the node's own address is on the bridge, or on the VLAN device `NAME-br.ID`. The
//! management network is called `mgmt`. Without a named card there is one profile for every wired card.

pub mod activate;
pub mod addresses;
pub mod exposed;
mod keyfile;

use std::net::Ipv4Addr;

use uuid::Uuid;

use crate::nics::CardSelectors;
pub use crate::nics::MANAGEMENT;
use crate::node_files::NodeFile;
use keyfile::Keyfile;
use model::config::network::NetworkMethod;
use model::config::rules::prefix_length;
use model::config::{BondOptions, InstallConfig, Interface, ManagementInterface, Method, Network};

/// The namespace of the profiles' UUIDs: a random constant, so that a profile keeps its identity.
const NAMESPACE: Uuid = Uuid::from_u128(0x6f0d_3a52_8f1b_4c7e_9d64_1b0c_57a2_e83d);

/// The name of the profile of every wired card in its network.
const ANY_CARD: &str = "any";
/// Where NetworkManager reads profiles, from the root.
const PROFILES: &str = "etc/NetworkManager/system-connections";
/// The interval of a bond's link monitoring in milliseconds.
const MIIMON_MS: u32 = 100;
/// NetworkManager's value for waiting for a DHCP server without end.
const FOREVER: &str = "2147483647";

/// One network, from either part of the document.
struct NetworkPlan<'a> {
    name: &'a str,
    cards: &'a [Interface],
    address: Address,
    gateway: Option<Ipv4Addr>,
    servers: &'a [Ipv4Addr],
    mtu: u32,
    vlan: Option<u32>,
    bond: Option<&'a BondOptions>,
}

/// The node's own address in a network.
enum Address {
    None,
    Dhcp,
    Static(Ipv4Addr, u8),
}

/// The profiles of the document's networks, and the files that they need. `cards` has the selector of each card that the document
/// names.
#[must_use]
pub fn files(config: &InstallConfig, cards: &CardSelectors) -> Vec<NodeFile> {
    let default = ManagementInterface::default();
    let management = config.install.management_interface.as_ref().unwrap_or(&default);
    let management = of_management(config, management);
    let mut files = vec![settings(), inherit_hardware_addresses()];
    if management.cards.is_empty() {
        files.push(any_card(&management));
    } else {
        files.extend(profiles(&management, cards));
    }
    files.extend(config.install.networks.iter().flat_map(|network| profiles(&of_network(network), cards)));
    files
}

/// Like [`files`], without those that the document writes itself.
#[must_use]
pub fn own_files(config: &InstallConfig, cards: &CardSelectors) -> Vec<NodeFile> {
    let written = |file: &NodeFile| {
        config.os.write_files.iter().any(|further| further.path.trim_start_matches('/') == file.path)
    };
    files(config, cards).into_iter().filter(|file| !written(file)).collect()
}

/// The device with the node's address in the management network, if cards are named.
#[must_use]
pub fn management_device(config: &InstallConfig) -> Option<String> {
    let management = config.install.management_interface.as_ref()?;
    (!management.interfaces.is_empty()).then(|| of_management(config, management).top())
}

/// The profiles of one network with named cards, and the devices that they make.
struct NetworkProfiles {
    /// Profile and device of the bridge.
    bridge: (String, String),
    bond: (String, String),
    /// Profile and device of the VLAN with the address, if there is one.
    vlan: Option<(String, String)>,
    ports: Vec<String>,
}

/// The networks with named cards, in the document's order.
fn chains(config: &InstallConfig) -> Vec<NetworkProfiles> {
    let management = config.install.management_interface.iter().map(|network| of_management(config, network));
    let plans = management.chain(config.install.networks.iter().map(of_network));
    let chain = |plan: NetworkPlan<'_>| NetworkProfiles {
        bridge: (profile_id(plan.name, "bridge"), plan.bridge()),
        bond: (profile_id(plan.name, "bond"), plan.bond()),
        vlan: plan.vlan.map(|_| (profile_id(plan.name, "vlan"), plan.top())),
        ports: (0..plan.cards.len()).map(|index| profile_id(plan.name, &port_role(index))).collect(),
    };
    plans.filter(|plan| !plan.cards.is_empty()).map(chain).collect()
}

fn port_role(index: usize) -> String {
    format!("port{index}")
}

fn profile_id(network: &str, role: &str) -> String {
    format!("nqrust-{network}-{role}")
}

/// The device with the node's address in a network, if cards are named.
#[must_use]
pub fn device(network: &str, vlan_id: u32) -> String {
    let bridge = format!("{network}-br");
    tag(vlan_id).map_or_else(|| bridge.clone(), |id| format!("{bridge}.{id}"))
}

fn of_management<'a>(config: &'a InstallConfig, management: &'a ManagementInterface) -> NetworkPlan<'a> {
    let address = match management.method {
        Method::Static => address(management.ip, management.subnet_mask),
        Method::Dhcp => Address::Dhcp,
    };
    NetworkPlan {
        name: MANAGEMENT,
        cards: &management.interfaces,
        address,
        gateway: management.gateway,
        servers: &config.os.dns_nameservers,
        mtu: management.mtu,
        vlan: tag(management.vlan_id),
        bond: management.bond_options.as_ref(),
    }
}

fn of_network(network: &Network) -> NetworkPlan<'_> {
    let address = match network.method {
        NetworkMethod::None => Address::None,
        NetworkMethod::Dhcp => Address::Dhcp,
        NetworkMethod::Static => address(network.ip, network.subnet_mask),
    };
    NetworkPlan {
        name: &network.name,
        cards: &network.interfaces,
        address,
        gateway: None,
        servers: &[],
        mtu: network.mtu,
        vlan: tag(network.vlan_id),
        bond: network.bond_options.as_ref(),
    }
}

/// The rules of the document guarantee both for a static network.
fn address(ip: Option<Ipv4Addr>, mask: Option<Ipv4Addr>) -> Address {
    match (ip, mask.and_then(prefix_length)) {
        (Some(ip), Some(length)) => Address::Static(ip, length),
        _ => Address::Dhcp,
    }
}

/// 0 and 1 mean untagged.
fn tag(id: u32) -> Option<u32> {
    (id > 1).then_some(id)
}

impl NetworkPlan<'_> {
    fn bond(&self) -> String {
        format!("{}-bo", self.name)
    }

    fn bridge(&self) -> String {
        device(self.name, 0)
    }

    fn top(&self) -> String {
        device(self.name, self.vlan.unwrap_or_default())
    }

    fn is_management(&self) -> bool {
        self.name == MANAGEMENT
    }
}

fn profiles(plan: &NetworkPlan<'_>, cards: &CardSelectors) -> Vec<NodeFile> {
    let mut files: Vec<_> =
        plan.cards.iter().enumerate().map(|(index, card)| port(plan, index, card, cards)).collect();
    files.push(bond(plan, cards));
    files.push(bridge(plan));
    files.extend(plan.vlan.map(|id| vlan(plan, id)));
    files
}

/// Begins the profile `role` of a network; a device that is part of another names it and its kind.
fn begin(
    plan: &NetworkPlan<'_>,
    role: &str,
    kind: &str,
    device: Option<&str>,
    part_of: Option<(&str, &str)>,
) -> Keyfile {
    let id = profile_id(plan.name, role);
    let mut keyfile = Keyfile::default();
    keyfile.section("connection");
    keyfile.text("uuid", &Uuid::new_v5(&NAMESPACE, id.as_bytes()).to_string());
    keyfile.text("id", &id);
    keyfile.text("type", kind);
    if let Some(device) = device {
        keyfile.text("interface-name", device);
    }
    keyfile.text("autoconnect-priority", "100");
    // A switch may start later than the node.
    keyfile.text("autoconnect-retries", "0");
    if let Some((whole, kind)) = part_of {
        keyfile.text("master", whole);
        keyfile.text("slave-type", kind);
    }
    keyfile
}

fn end(plan: &NetworkPlan<'_>, role: &str, keyfile: Keyfile) -> NodeFile {
    let path = format!("{PROFILES}/{}.nmconnection", profile_id(plan.name, role));
    NodeFile::new(&path, 0o600, keyfile.0)
}

fn port(plan: &NetworkPlan<'_>, index: usize, card: &Interface, cards: &CardSelectors) -> NodeFile {
    let role = port_role(index);
    let name = card.name.as_deref();
    // A name follows board, slot and firmware; the permanent address stays with the card.
    let remembered = || name.and_then(|name| cards.address(name)).map(|address| address.to_string());
    let address = card.hw_addr.as_deref().map(str::to_owned).or_else(remembered);
    let name = name.filter(|_| address.is_none()).map(|name| cards.name(name));
    let mut keyfile = begin(plan, &role, "ethernet", name, Some((&plan.bond(), "bond")));
    ethernet(&mut keyfile, plan.mtu, address.as_deref());
    end(plan, &role, keyfile)
}

fn bond(plan: &NetworkPlan<'_>, cards: &CardSelectors) -> NodeFile {
    let mut keyfile = begin(plan, "bond", "bond", Some(&plan.bond()), Some((&plan.bridge(), "bridge")));
    ethernet(&mut keyfile, plan.mtu, None);
    let default = BondOptions::default();
    let options = plan.bond.unwrap_or(&default);
    keyfile.section("bond");
    keyfile.text("mode", options.mode.name());
    // The driver watches the links in one way: by ARP where the document asks for it.
    if options.arp_interval.is_none() {
        keyfile.text("miimon", &options.miimon.unwrap_or(MIIMON_MS).to_string());
    }
    if let Some(primary) = &options.primary {
        // The kernel accepts only a name.
        keyfile.text("primary", cards.name(primary));
    }
    for (name, value) in options.further() {
        keyfile.text(name, &value);
    }
    keyfile.section("bridge-port");
    keyfile.text("vlans", &vlans(plan));
    end(plan, "bond", keyfile)
}

/// The VLANs of the bond's port of the bridge: untagged frames as VLAN 1, and the VLAN of the address.
fn vlans(plan: &NetworkPlan<'_>) -> String {
    let tagged = plan.vlan.map(|id| format!(",{id}")).unwrap_or_default();
    format!("1 pvid untagged{tagged}")
}

fn bridge(plan: &NetworkPlan<'_>) -> NodeFile {
    let mut keyfile = begin(plan, "bridge", "bridge", Some(&plan.bridge()), None);
    ethernet(&mut keyfile, plan.mtu, None);
    keyfile.section("bridge");
    keyfile.text("stp", "false");
    keyfile.text("vlan-filtering", "true");
    keyfile.text("vlan-default-pvid", "1");
    if let Some(id) = plan.vlan {
        keyfile.text("vlans", &id.to_string());
    }
    if plan.vlan.is_some() {
        no_address(&mut keyfile)
    } else {
        addresses(&mut keyfile, plan)
    }
    end(plan, "bridge", keyfile)
}

fn vlan(plan: &NetworkPlan<'_>, id: u32) -> NodeFile {
    let mut keyfile = begin(plan, "vlan", "vlan", Some(&plan.top()), None);
    ethernet(&mut keyfile, plan.mtu, None);
    keyfile.section("vlan");
    keyfile.text("id", &id.to_string());
    keyfile.text("parent", &plan.bridge());
    addresses(&mut keyfile, plan);
    end(plan, "vlan", keyfile)
}

/// One profile for every wired card, if the document names none.
fn any_card(plan: &NetworkPlan<'_>) -> NodeFile {
    let mut keyfile = begin(plan, ANY_CARD, "ethernet", None, None);
    // NM_CONNECTION_MULTI_CONNECT_MULTIPLE: every wired card may use the profile at the same time.
    keyfile.text("multi-connect", "3");
    ethernet(&mut keyfile, plan.mtu, None);
    addresses(&mut keyfile, plan);
    end(plan, ANY_CARD, keyfile)
}

fn ethernet(keyfile: &mut Keyfile, mtu: u32, card: Option<&str>) {
    keyfile.section("ethernet");
    if let Some(mac) = card {
        // NetworkManager compares this with the permanent address of a card.
        keyfile.text("mac-address", &mac.to_ascii_uppercase());
    }
    if mtu > 0 {
        keyfile.text("mtu", &mtu.to_string());
    }
}

fn no_address(keyfile: &mut Keyfile) {
    for section in ["ipv4", "ipv6"] {
        keyfile.section(section);
        keyfile.text("method", "disabled");
    }
}

fn addresses(keyfile: &mut Keyfile, plan: &NetworkPlan<'_>) {
    let method = match plan.address {
        Address::None => return no_address(keyfile),
        Address::Dhcp => "auto",
        Address::Static(..) => "manual",
    };
    keyfile.section("ipv4");
    keyfile.text("method", method);
    if let Address::Static(ip, length) = plan.address {
        let gateway = plan.gateway.map(|gateway| format!(",{gateway}")).unwrap_or_default();
        keyfile.text("address1", &format!("{ip}/{length}{gateway}"));
        // A network of one address does not have its gateway, which needs a route of its own over the card.
        if let Some(gateway) = plan.gateway.filter(|_| length == 32) {
            keyfile.text("route1", &format!("{gateway}/32"));
        }
    } else {
        keyfile.text("dhcp-timeout", FOREVER);
    }
    if !plan.is_management() {
        // The default route and the name servers are those of the management network.
        keyfile.text("never-default", "true");
        keyfile.text("ignore-auto-dns", "true");
    } else if !plan.servers.is_empty() {
        keyfile.list("dns", plan.servers.iter().map(ToString::to_string));
        keyfile.text("ignore-auto-dns", "true");
    }
    keyfile.section("ipv6");
    keyfile.text("method", if plan.is_management() { "auto" } else { "disabled" });
}

/// By default NetworkManager makes a DHCP profile for every other card; a node has only the profiles of its document.
fn settings() -> NodeFile {
    NodeFile::new("etc/NetworkManager/conf.d/10-nqrust.conf", 0o644, "[main]\nno-auto-default=*\n")
}

/// Bonds and bridges take the hardware address of a card, to which DHCP servers give addresses. By its default udev would give
/// them addresses made from the machine id (systemd.link(5), `MACAddressPolicy=`).
fn inherit_hardware_addresses() -> NodeFile {
    let text = "[Match]\nOriginalName=*-bo *-br\n\n[Link]\nMACAddressPolicy=none\n";
    NodeFile::new("etc/systemd/network/80-nqrust.link", 0o644, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Nic;
    use crate::nics::RememberedCards;
    use model::config::parse;

    /// The text of the profile `nqrust-NAME` of a document.
    fn profile(document: &str, name: &str) -> String {
        profile_with(document, name, &CardSelectors::default())
    }

    fn profile_with(document: &str, name: &str, cards: &CardSelectors) -> String {
        let path = format!("etc/NetworkManager/system-connections/nqrust-{name}.nmconnection");
        let files = files(&parse(document, "f").unwrap(), cards);
        let file = files.iter().find(|file| file.path == path);
        assert!(files.iter().all(|file| !file.path.contains("system-connections") || file.mode == 0o600));
        String::from_utf8(file.unwrap_or_else(|| panic!("{path} in {files:?}")).bytes.clone()).unwrap()
    }

    fn count(document: &str) -> usize {
        let files = files(&parse(document, "f").unwrap(), &CardSelectors::default());
        files.iter().filter(|file| file.path.ends_with(".nmconnection")).count()
    }

    const ONE: &str =
        "install: {management_interface: {interfaces: [{name: ens3, hw_addr: '52:54:00:aB:34:56'}]}}";

    #[test]
    fn a_card_is_matched_by_its_permanent_address_when_there_is_one() {
        let port = profile(ONE, "mgmt-port0");
        assert!(port.contains("mac-address=52:54:00:AB:34:56\n") && !port.contains("interface-name"));
        assert!(port.contains("master=mgmt-bo\nslave-type=bond\n"), "{port}");
        assert_eq!(
            port,
            profile(&ONE.replace("aB", "Ab"), "mgmt-port0"),
            "the spelling of an address does not matter"
        );
        let named = profile("install: {management_interface: {interfaces: [{name: ens3}]}}", "mgmt-port0");
        assert!(named.contains("interface-name=ens3\n") && !named.contains("mac-address"));
    }

    #[test]
    fn a_card_that_is_remembered_is_matched_by_its_address_and_a_preferred_one_told_by_its_new_name() {
        let document = "install: {management_interface: {interfaces: [{name: ens3}, {name: ens4}], \
                        bond_options: {primary: ens4}}}";
        let nic = |name: &str, last: u8| Nic {
            name: name.into(),
            mac: format!("52:54:00:00:00:{last:02x}"),
            carrier: None,
            speed: None,
            driver: None,
            temporary_mac: false,
        };
        let config = parse(document, "f").unwrap();
        let remembered = RememberedCards::default().after(&config, &[nic("ens3", 3), nic("ens4", 4)]);
        // Another board: the second card has another name, the first was replaced by one of the same name.
        let cards = CardSelectors::of(&config, &remembered, &[nic("ens3", 7), nic("enp9s0", 4)]);
        let replaced = profile_with(document, "mgmt-port0", &cards);
        assert!(
            replaced.contains("interface-name=ens3\n") && !replaced.contains("mac-address"),
            "{replaced}"
        );
        let renamed = profile_with(document, "mgmt-port1", &cards);
        assert!(
            renamed.contains("mac-address=52:54:00:00:00:04\n") && !renamed.contains("interface-name"),
            "{renamed}"
        );
        assert!(profile_with(document, "mgmt-bond", &cards).contains("primary=enp9s0\n"));
        // In the initrd, names are unknown.
        let early = CardSelectors::of(&config, &remembered, &[]);
        let port = profile_with(document, "mgmt-port0", &early);
        assert!(
            port.contains("mac-address=52:54:00:00:00:03\n") && !port.contains("interface-name"),
            "{port}"
        );
    }

    #[test]
    fn one_card_too_is_a_bond_below_a_bridge_that_has_the_address() {
        assert_eq!(count(ONE), 3);
        let bond = profile(ONE, "mgmt-bond");
        assert!(
            bond.contains("interface-name=mgmt-bo\n") && bond.contains("master=mgmt-br\nslave-type=bridge\n")
        );
        assert!(bond.contains("[bond]\nmode=active-backup\nmiimon=100\n"), "{bond}");
        let bridge = profile(ONE, "mgmt-bridge");
        assert!(
            bridge.contains("[ipv4]\nmethod=auto\n") && bridge.contains("vlan-filtering=true\n"),
            "{bridge}"
        );
    }

    #[test]
    fn options_of_a_bond_are_the_drivers_own_by_name_whatever_the_document_calls_them() {
        let with = |options: &str| {
            let card = "install: {management_interface: {interfaces: [eth0, eth1], bond_options";
            profile(&format!("{card}: {options}}}}}"), "mgmt-bond")
        };
        let bond =
            with("{mode: 4, updelay: 200, lacp_rate: 1, xmit_hash_policy: 1, ad_select: 2, min_links: '1'}");
        let options = "[bond]\nmode=802.3ad\nmiimon=100\nupdelay=200\nlacp_rate=fast\nxmit_hash_policy=layer3+4\n\
                       ad_select=count\nmin_links=1\n";
        assert!(bond.contains(options), "{bond}");
        let bond =
            with("{mode: 1, arp_interval: 500, arp_ip_target: '192.0.2.1,192.0.2.2', arp_validate: 3}");
        let options = "[bond]\nmode=active-backup\narp_interval=500\narp_ip_target=192.0.2.1,192.0.2.2\narp_validate=all\n";
        assert!(bond.contains(options), "{bond}");
    }

    #[test]
    fn a_gateway_outside_a_network_of_one_address_is_reached_over_the_card() {
        let document = |mask: &str, gateway: &str| {
            format!(
                "os: {{dns_nameservers: [192.0.2.53]}}\ninstall:\n  management_interface:\n    interfaces: [{{name: a1}}]\n    \
                 method: static\n    ip: 192.0.2.2\n    subnet_mask: {mask}\n    gateway: {gateway}\n"
            )
        };
        let bridge = profile(&document("255.255.255.255", "198.51.100.1"), "mgmt-bridge");
        assert!(bridge.contains("address1=192.0.2.2/32,198.51.100.1\nroute1=198.51.100.1/32\n"), "{bridge}");
        assert!(!profile(&document("255.255.255.0", "192.0.2.1"), "mgmt-bridge").contains("route1"));
    }

    #[test]
    fn a_vlan_carries_the_address_and_the_bridge_has_none() {
        let document = "os: {dns_nameservers: [192.0.2.53]}\ninstall:\n  management_interface:\n    interfaces: [{name: a1}]\n    \
            method: static\n    ip: 192.0.2.2\n    subnet_mask: 255.255.255.0\n    gateway: 192.0.2.1\n    vlan_id: 100\n    mtu: 9000\n";
        assert_eq!(count(document), 4);
        let vlan = profile(document, "mgmt-vlan");
        assert!(
            vlan.contains("interface-name=mgmt-br.100\n")
                && vlan.contains("[vlan]\nid=100\nparent=mgmt-br\n")
        );
        assert!(vlan.contains("address1=192.0.2.2/24,192.0.2.1\ndns=192.0.2.53;\n"), "{vlan}");
        let bridge = profile(document, "mgmt-bridge");
        assert!(bridge.contains("vlans=100\n") && bridge.contains("[ipv4]\nmethod=disabled\n"), "{bridge}");
        assert!(profile(document, "mgmt-bond").contains("vlans=1 pvid untagged,100\n"));
        for name in ["mgmt-port0", "mgmt-bond", "mgmt-bridge", "mgmt-vlan"] {
            assert!(profile(document, name).contains("mtu=9000\n"), "{name}");
        }
        let config = parse(document, "f").unwrap();
        assert_eq!(management_device(&config).as_deref(), Some("mgmt-br.100"));
    }

    #[test]
    fn a_further_network_has_neither_default_route_nor_address_unless_asked() {
        let document = "install:\n  networks:\n  - {name: storage, interfaces: [{name: b1}], method: dhcp}\n  \
            - {name: vms, interfaces: [{name: c1}]}\n";
        let storage = profile(document, "storage-bridge");
        assert!(storage.contains("interface-name=storage-br\n") && storage.contains("never-default=true\n"));
        assert!(profile(document, "vms-bridge").contains("[ipv4]\nmethod=disabled\n"));
    }

    #[test]
    fn without_a_named_card_there_is_one_profile_for_all() {
        let any = profile("os: {dns_nameservers: [192.0.2.1, 192.0.2.2]}", "mgmt-any");
        assert!(
            any.contains("multi-connect=3\n")
                && any.contains("dns=192.0.2.1;192.0.2.2;\nignore-auto-dns=true\n")
        );
        assert_eq!(count("{}"), 1);
    }
}
