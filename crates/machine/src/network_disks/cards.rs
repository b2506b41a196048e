//! The files for network cards over which disks are reached. systemd-networkd sets them up in the live system, in the initrd and on the
//! node; the files are below `/run`, which goes from the initrd to the node, so that an address stays what it is. NetworkManager, which
//! has all other networks, leaves the cards alone.

use model::config::Cidr;
use model::network_disks::{CardAddress, CardSetup, NetworkDiskAccess};

use crate::node_files::NodeFile;

/// Below this directory networkd reads its files, from the root.
const NETWORKS: &str = "run/systemd/network";
/// The metric of routes that a DHCP server offers: above those of NetworkManager, which has the default route of the node.
const METRIC: u32 = 2000;

/// No address but that of the disks, which stays whatever happens to the link or to networkd: with it the node would lose its disk.
const LASTING: &str =
    "LinkLocalAddressing=no\nIPv6AcceptRA=no\nKeepConfiguration=yes\nIgnoreCarrierLoss=yes\n";

/// The files of all cards; none without cards.
#[must_use]
pub fn files(access: &NetworkDiskAccess) -> Vec<NodeFile> {
    if access.cards.is_empty() {
        return Vec::new();
    }
    let own = access.cards.iter().enumerate().flat_map(|(index, card)| card_files(index, card, access));
    let foreign = "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n";
    own.chain([
        // Routes that other programs add, those of pods for instance, are not networkd's.
        NodeFile::new("run/systemd/networkd.conf.d/10-nqrust.conf", 0o644, foreign),
        NodeFile::new("run/NetworkManager/conf.d/10-nqrust-storage.conf", 0o644, unmanaged(access)),
    ])
    .collect()
}

/// The device that has the address of a card with a VLAN.
fn vlan_device(index: usize, vlan: u16) -> String {
    format!("storage{index}.{vlan}")
}

fn card_files(index: usize, card: &CardSetup, access: &NetworkDiskAccess) -> Vec<NodeFile> {
    let file =
        |name: String, text: String| NodeFile::new(&format!("{NETWORKS}/10-nqrust-{name}"), 0o644, text);
    // That of a VLAN is not permanent, so only the card itself has it.
    let matched = format!("[Match]\nPermanentMACAddress={}\n", card.mac);
    let mtu = card.mtu.map(|mtu| format!("MTUBytes={mtu}\n")).unwrap_or_default();
    let link = format!("\n[Link]\n{mtu}RequiredForOnline=no\n");
    let addressed = |matched: &str| format!("{matched}{link}{}", network(card, access));
    let Some(vlan) = card.vlan else {
        return vec![file(format!("storage{index}.network"), addressed(&matched))];
    };
    let device = vlan_device(index, vlan);
    vec![
        file(
            format!("storage{index}.network"),
            format!("{matched}{link}\n[Network]\nVLAN={device}\n{LASTING}"),
        ),
        file(
            format!("storage{index}-vlan.netdev"),
            format!("[NetDev]\nName={device}\nKind=vlan\n\n[VLAN]\nId={vlan}\n"),
        ),
        file(format!("storage{index}-vlan.network"), addressed(&format!("[Match]\nName={device}\n"))),
    ]
}

/// The address, and the ways to targets behind a router.
fn network(card: &CardSetup, access: &NetworkDiskAccess) -> String {
    let mut text = "\n[Network]\n".to_owned();
    match card.address {
        CardAddress::Dhcp => text += "DHCP=ipv4\n",
        CardAddress::Static { ip, prefix } => text += &format!("Address={ip}/{prefix}\n"),
    }
    text += LASTING;
    match card.address {
        CardAddress::Dhcp => {
            // The hardware address is what servers know the card by in the firmware, in the initrd and on the node.
            text += &format!(
                "\n[DHCPv4]\nClientIdentifier=mac\nRouteMetric={METRIC}\nUseDNS=no\nUseNTP=no\nUseHostname=no\nUseDomains=no\n"
            );
        }
        CardAddress::Static { ip, prefix } => {
            let own = Cidr::containing(ip, prefix);
            let outside: std::collections::BTreeSet<_> = access
                .targets
                .iter()
                .map(|way| *way.portal.ip())
                .filter(|portal| !own.contains(*portal))
                .collect();
            for (portal, gateway) in outside.into_iter().filter_map(|portal| Some((portal, card.gateway?))) {
                text += &format!("\n[Route]\nDestination={portal}/32\nGateway={gateway}\n");
                // A network of one address has no router inside it.
                if !own.contains(gateway) {
                    text += "GatewayOnLink=yes\n";
                }
            }
        }
    }
    text
}

/// A section of its own for each card: a list of devices would be replaced by that of another file.
fn unmanaged(access: &NetworkDiskAccess) -> String {
    let section = |name: String, matched: String| {
        format!("[device-nqrust-{name}]\nmatch-device={matched}\nmanaged=0\n")
    };
    let cards = access.cards.iter().enumerate();
    let sections = cards.flat_map(|(index, card)| {
        let vlan = card.vlan.map(|vlan| {
            section(format!("storage{index}-vlan"), format!("interface-name:{}", vlan_device(index, vlan)))
        });
        [Some(section(format!("storage{index}"), format!("mac:{}", card.mac))), vlan].into_iter().flatten()
    });
    sections.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::network_disks::{DiskProtocol, TargetPortal};

    fn access(address: CardAddress, vlan: Option<u16>) -> NetworkDiskAccess {
        let gateway = (address != CardAddress::Dhcp).then(|| "192.0.2.1".parse().unwrap());
        let mac = "52:54:00:00:00:04".parse().unwrap();
        let target = |portal: &str| TargetPortal {
            protocol: DiskProtocol::Iscsi,
            target: "iqn.2026-01.com.example:a".into(),
            portal: portal.parse().unwrap(),
            chap: None,
        };
        NetworkDiskAccess {
            initiator: None,
            host: None,
            cards: vec![CardSetup { mac, address, gateway, vlan, mtu: Some(9000) }],
            system_targets: Default::default(),
            targets: vec![target("192.0.2.9:3260"), target("198.51.100.9:3260"), target("198.51.100.9:3261")],
        }
    }

    fn text(files: &[NodeFile], path: &str) -> String {
        let file = files.iter().find(|file| file.path.ends_with(path)).unwrap_or_else(|| panic!("no {path}"));
        String::from_utf8(file.bytes.clone()).unwrap()
    }

    #[test]
    fn a_static_address_is_kept_and_only_targets_behind_the_router_are_reached_over_it() {
        let ip = "192.0.2.7".parse().unwrap();
        let files = files(&access(CardAddress::Static { ip, prefix: 24 }, None));
        assert_eq!(
            text(&files, "10-nqrust-storage0.network"),
            "[Match]\nPermanentMACAddress=52:54:00:00:00:04\n\n[Link]\nMTUBytes=9000\nRequiredForOnline=no\n\n\
             [Network]\nAddress=192.0.2.7/24\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nKeepConfiguration=yes\nIgnoreCarrierLoss=yes\n\n\
             [Route]\nDestination=198.51.100.9/32\nGateway=192.0.2.1\n"
        );
        assert_eq!(
            text(&files, "10-nqrust-storage.conf"),
            "[device-nqrust-storage0]\nmatch-device=mac:52:54:00:00:00:04\nmanaged=0\n"
        );
        assert!(text(&files, "networkd.conf.d/10-nqrust.conf").contains("ManageForeignRoutes=no"));
        assert!(super::files(&NetworkDiskAccess::default()).is_empty());
    }

    #[test]
    fn a_router_outside_a_network_of_one_address_is_reached_over_the_card() {
        let ip = "203.0.113.7".parse().unwrap();
        let files = files(&access(CardAddress::Static { ip, prefix: 32 }, None));
        let text = text(&files, "10-nqrust-storage0.network");
        let route = "[Route]\nDestination=198.51.100.9/32\nGateway=192.0.2.1\nGatewayOnLink=yes\n";
        assert!(text.contains(route), "{text}");
    }

    #[test]
    fn an_address_of_dhcp_is_kept_too_and_gives_the_node_no_name_servers() {
        let files = files(&access(CardAddress::Dhcp, None));
        let text = text(&files, "10-nqrust-storage0.network");
        for part in ["DHCP=ipv4\n", "KeepConfiguration=yes\n", "ClientIdentifier=mac\n", "UseDNS=no\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("[Route]"), "{text}");
    }

    #[test]
    fn the_address_of_a_vlan_is_on_its_device() {
        let files = files(&access(CardAddress::Dhcp, Some(7)));
        assert!(text(&files, "storage0.network").contains("VLAN=storage0.7\n"));
        assert!(!text(&files, "storage0.network").contains("DHCP="));
        assert!(text(&files, "storage0-vlan.netdev").ends_with("Kind=vlan\n\n[VLAN]\nId=7\n"));
        assert!(text(&files, "storage0-vlan.network").contains("Name=storage0.7\n"));
        assert!(text(&files, "storage.conf").contains("match-device=interface-name:storage0.7\nmanaged=0\n"));
    }
}
