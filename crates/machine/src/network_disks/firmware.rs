//! The iSCSI Boot Firmware Table, with which firmware and iPXE leave to the system how the disk is reached that it booted from. The
//! module `iscsi_ibft` shows it below `/sys/firmware/ibft` (the kernel's Documentation/ABI/testing/sysfs-ibft).

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use crate::inventory::directory_names;
use crate::inventory::sysfs::attribute;
use base::command::{Invocation, Runner};
use model::config::rules::prefix_length;
use model::config::{Chap, Secret};
use model::network_disks::{CardAddress, CardSetup, DiskProtocol, NetworkDiskAccess, TargetPortal};

/// The first bit of `flags`: the firmware has filled in the structure.
const VALID: u32 = 1;
/// `origin` of an address from a DHCP server (`MIB_IF_TYPE` of the table's specification, "IP address prefix origin").
const ORIGIN_DHCP: u32 = 3;
/// `chap-type` of a target that does not ask who this is.
const NO_CHAP: u32 = 0;

/// The most bytes of the name of an iSCSI node (RFC 7143, section 4.2.7.1).
const NAME_BYTES: usize = 223;

/// Loads the module for the table, and reads that. udev does not load it, and on a machine without a table it is refused.
#[must_use]
pub fn load_and_read(root: &Path, runner: &dyn Runner) -> NetworkDiskAccess {
    let _ = runner.run(&Invocation::new("modprobe").arg("iscsi_ibft"));
    read(&root.join("sys"))
}

/// What the table has; empty if there is none. Parts that are not filled in, IPv6 addresses, and names and passwords that cannot be ones are
/// left out: the kernel has checked the lengths and the checksum of the table, and not what it says.
#[must_use]
pub fn read(sys: &Path) -> NetworkDiskAccess {
    let table = sys.join("firmware/ibft");
    let names = directory_names(&table);
    let parts = |kind: &'static str| {
        let names = names.iter().filter(move |name| name.starts_with(kind));
        names
            .map(|name| table.join(name))
            .filter(|part| flag(part, "flags").is_none_or(|flags| flags & VALID != 0))
    };
    NetworkDiskAccess {
        initiator: iscsi_name(&table.join("initiator/initiator-name")),
        host: None,
        cards: parts("ethernet").filter_map(|part| card(&part)).collect(),
        system_targets: BTreeSet::new(),
        targets: parts("target").filter_map(|part| target(&part)).collect(),
    }
}

fn card(part: &Path) -> Option<CardSetup> {
    let mac = attribute(&part.join("mac"))?.parse().ok()?;
    let dhcp = flag(part, "origin") == Some(ORIGIN_DHCP) || address(part, "dhcp").is_some();
    let given = (address(part, "ip-addr"), address(part, "subnet-mask").and_then(prefix_length));
    let address_given = match given {
        (Some(ip), Some(prefix)) if !dhcp => CardAddress::Static { ip, prefix },
        _ => CardAddress::Dhcp,
    };
    let vlan = flag(part, "vlan").and_then(|id| u16::try_from(id).ok()).filter(|id| *id > 1);
    let gateway = address(part, "gateway").filter(|_| address_given != CardAddress::Dhcp);
    Some(CardSetup { mac, address: address_given, gateway, vlan, mtu: None })
}

fn target(part: &Path) -> Option<TargetPortal> {
    let target = iscsi_name(&part.join("target-name"))?;
    let port = flag(part, "port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
    let portal = SocketAddrV4::new(address(part, "ip-addr")?, port);
    let named = || {
        let user = attribute(&part.join("chap-name"))?.parse().ok()?;
        let password =
            attribute(&part.join("chap-secret")).filter(|text| !text.contains(char::is_control))?;
        Some(Chap { user, password: Secret::new(password) })
    };
    let chap = if flag(part, "chap-type") == Some(NO_CHAP) { None } else { named() };
    Some(TargetPortal { protocol: DiskProtocol::Iscsi, target, portal, chap })
}

/// A name, which goes on a line of open-iscsi's files. Its letters may be capital ones: what the firmware has logged in with is right.
fn iscsi_name(file: &Path) -> Option<String> {
    let fits = |text: &String| text.len() <= NAME_BYTES && text.chars().all(|c| c.is_ascii_graphic());
    attribute(file).filter(fits).filter(|text| !text.starts_with('-'))
}

fn flag(part: &Path, name: &str) -> Option<u32> {
    attribute(&part.join(name))?.parse().ok()
}

/// An IPv4 address that is not empty.
fn address(part: &Path, name: &str) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = attribute(&part.join(name))?.parse().ok()?;
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(files: &[(&str, &str)]) -> NetworkDiskAccess {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = root.path().join("firmware/ibft").join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{text}\n")).unwrap();
        }
        read(root.path())
    }

    /// As iPXE writes it: with the address that it had from DHCP, and without saying so.
    const OF_IPXE: [(&str, &str); 11] = [
        ("initiator/initiator-name", "iqn.2010-04.org.ipxe:11223344"),
        ("ethernet0/flags", "3"),
        ("ethernet0/mac", "52:54:00:6e:71:02"),
        ("ethernet0/ip-addr", "10.0.4.15"),
        ("ethernet0/subnet-mask", "255.255.255.0"),
        ("ethernet0/gateway", "10.0.4.2"),
        ("ethernet0/vlan", "0"),
        ("target0/flags", "3"),
        ("target0/ip-addr", "10.0.4.2"),
        ("target0/port", "3260"),
        ("target0/target-name", "iqn.2026-01.com.example:a"),
    ];

    #[test]
    fn the_table_of_ipxe_names_card_address_and_target() {
        let access = table(&OF_IPXE);
        assert_eq!(access.initiator.as_deref(), Some("iqn.2010-04.org.ipxe:11223344"));
        let [card] = &access.cards[..] else { panic!("{access:?}") };
        assert_eq!(card.address, CardAddress::Static { ip: Ipv4Addr::new(10, 0, 4, 15), prefix: 24 });
        assert_eq!((card.gateway, card.vlan), (Some(Ipv4Addr::new(10, 0, 4, 2)), None));
        let [target] = &access.targets[..] else { panic!("{access:?}") };
        assert_eq!(target.portal.to_string(), "10.0.4.2:3260");
        assert_eq!(target.chap, None);
    }

    #[test]
    fn an_address_of_dhcp_a_vlan_and_a_password_are_kept() {
        let further = [
            ("ethernet0/origin", "3"),
            ("ethernet0/vlan", "7"),
            ("target0/chap-type", "1"),
            ("target0/chap-name", "node-1"),
            ("target0/chap-secret", "correct horse"),
        ];
        let files: Vec<_> = OF_IPXE.into_iter().chain(further).collect();
        let access = table(&files);
        assert_eq!((access.cards[0].address, access.cards[0].vlan), (CardAddress::Dhcp, Some(7)));
        let chap = access.targets[0].chap.as_ref().unwrap();
        assert_eq!((chap.user.as_str(), chap.password.expose()), ("node-1", "correct horse"));
    }

    #[test]
    fn a_table_of_garbage_names_nothing_and_adds_no_line_to_a_file() {
        let with = |path: &'static str, text: &'static str| {
            let files = OF_IPXE.into_iter().map(|(at, own)| (at, if at == path { text } else { own }));
            let chap =
                [("target0/chap-type", "1"), ("target0/chap-name", "n"), ("target0/chap-secret", "a\nb = c")];
            table(&files.chain(chap).collect::<Vec<_>>())
        };
        for text in ["iqn.x\nInitiatorAlias=y", "--login", "\u{fffd}\u{fffd}", "a b"] {
            assert_eq!(with("initiator/initiator-name", text).initiator, None, "{text:?}");
            assert!(with("target0/target-name", text).is_empty(), "{text:?}");
        }
        assert!(with("target0/target-name", Box::leak("a".repeat(300).into_boxed_str())).is_empty());
        for (file, text) in [
            ("target0/port", "65536"),
            ("target0/port", "-1"),
            ("target0/ip-addr", "10.0.4.2.9"),
            ("target0/flags", "0"),
        ] {
            assert!(with(file, text).is_empty(), "{file} {text}");
        }
        assert!(with("ethernet0/mac", "zz").cards.is_empty());
        assert_eq!(with("ethernet0/subnet-mask", "255.0.255.0").cards[0].address, CardAddress::Dhcp);
        assert_eq!(with("ethernet0/vlan", "70000").cards[0].vlan, None);
        let capital = with("target0/target-name", "iqn.2026-01.com.Example:A");
        assert_eq!(
            (capital.targets[0].target.as_str(), &capital.targets[0].chap),
            ("iqn.2026-01.com.Example:A", &None)
        );
    }

    #[test]
    fn parts_that_firmware_left_empty_do_not_count() {
        let further = [
            ("target1/flags", "0"),
            ("target1/ip-addr", "10.0.5.2"),
            ("target1/port", "3260"),
            ("target1/target-name", "iqn.2026-01.com.example:b"),
            ("target2/ip-addr", "fe80::1"),
            ("ethernet1/mac", "00:00:00:00:00:00"),
        ];
        let files: Vec<_> = OF_IPXE.into_iter().chain(further).collect();
        let access = table(&files);
        assert_eq!((access.cards.len(), access.targets.len()), (1, 1));
        assert!(table(&[]).is_empty());
    }
}
