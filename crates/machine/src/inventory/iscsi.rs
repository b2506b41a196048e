//! Logins to iSCSI targets, from sysfs (`iscsi_session` and `iscsi_connection`, drivers/scsi/scsi_transport_iscsi.c of the kernel).

use std::net::SocketAddrV4;
use std::path::Path;

use super::sysfs::{attribute, names, number};

/// The state of a login that works, as the kernel has it.
const LOGGED_IN: &str = "LOGGED_IN";

/// A login, and the address that it was made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IscsiSession {
    pub(crate) target: String,
    /// Of the first connection; none while there is no connection.
    pub(crate) portal: Option<SocketAddrV4>,
    pub(crate) logged_in: bool,
    /// The group of portals of the target that answers (RFC 7143, section 4.1).
    pub(crate) portal_group: Option<u64>,
}

/// All logins of this machine.
#[must_use]
pub(crate) fn sessions(sys: &Path) -> Vec<IscsiSession> {
    let class = sys.join("class/iscsi_session");
    names(&class).iter().filter_map(|name| session(sys, name)).collect()
}

/// The login of the kernel's name, such as `session1`.
#[must_use]
pub(crate) fn session(sys: &Path, name: &str) -> Option<IscsiSession> {
    let place = sys.join("class/iscsi_session").join(name);
    let own_number = name.strip_prefix("session")?;
    let connections = sys.join("class/iscsi_connection");
    let own = format!("connection{own_number}:");
    let connection = names(&connections).into_iter().find(|name| name.starts_with(&own));
    let portal = connection.and_then(|name| {
        let part = |file: &str| attribute(&connections.join(&name).join(file));
        let ip = part("persistent_address")?.parse().ok()?;
        Some(SocketAddrV4::new(ip, part("persistent_port")?.parse().ok()?))
    });
    let logged_in = attribute(&place.join("state")).as_deref() == Some(LOGGED_IN);
    let portal_group = number(&place.join("tpgt"));
    Some(IscsiSession { target: attribute(&place.join("targetname"))?, portal, logged_in, portal_group })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::inventory::{Inventory, RemoteTarget, Roots};
    use base::size::ByteSize;
    use model::config::disk::Transport;
    use model::network_disks::DiskProtocol;
    use testing::machine::MachineTree;

    /// Makes the kernel show a login.
    pub(crate) fn log_in(root: &Path, number: u32, target: &str, portal: &str, state: &str) {
        let session = format!("sys/class/iscsi_session/session{number}");
        let connection = format!("sys/class/iscsi_connection/connection{number}:0");
        let (address, port) = portal.split_once(':').unwrap();
        for (file, text) in [
            (format!("{session}/targetname"), target),
            (format!("{session}/state"), state),
            (format!("{session}/tpgt"), "1"),
            (format!("{connection}/persistent_address"), address),
            (format!("{connection}/persistent_port"), port),
        ] {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{text}\n")).unwrap();
        }
    }

    fn remote(target: &str, portals: &[&str]) -> Option<RemoteTarget> {
        let portals = portals.iter().map(|portal| portal.parse().unwrap()).collect();
        Some(RemoteTarget { protocol: DiskProtocol::Iscsi, target: target.into(), portals })
    }

    const TARGET: &str = "iqn.2026-01.com.example:a";

    /// The disks `sda` and `sdb`, each of a login of its own to the same target, and `sdc`, which is the machine's own.
    fn machine() -> MachineTree {
        let machine = MachineTree::new("");
        for (name, number, place) in [
            ("sda", "8:0", "host2/session1/target2:0:0/2:0:0:1"),
            ("sdb", "8:16", "host3/session12/target3:0:0/3:0:0:1"),
            ("sdc", "8:32", "host0/target0:0:0/0:0:0:0"),
        ] {
            let node = format!("sys/devices/platform/{place}/block/{name}");
            machine.file(&format!("{node}/dev"), &format!("{number}\n"));
            machine.file(&format!("{node}/size"), "2048\n");
            machine.file(&format!("{node}/queue/logical_block_size"), "512\n");
            machine.link(&format!("sys/block/{name}"), &format!("../devices/platform/{place}/block/{name}"));
        }
        log_in(machine.path(), 1, TARGET, "192.0.2.9:3260", "LOGGED_IN");
        log_in(machine.path(), 12, TARGET, "192.0.2.10:3260", "LOGGED_IN");
        machine
    }

    #[test]
    fn a_disk_of_a_login_is_told_with_its_target_and_a_disk_of_the_machine_has_none() {
        let inventory = Inventory::scan(&Roots::below(machine().path())).unwrap();
        let found: Vec<_> =
            inventory.disks.iter().map(|disk| (disk.transport, disk.remote.clone())).collect();
        assert_eq!(
            found,
            [
                (Transport::Iscsi, remote(TARGET, &["192.0.2.9:3260"])),
                (Transport::Iscsi, remote(TARGET, &["192.0.2.10:3260"])),
                (Transport::Scsi, None),
            ]
        );
        let told = inventory.disks[0].identify();
        assert!(told.ends_with(", iSCSI target iqn.2026-01.com.example:a at 192.0.2.9:3260"), "{told}");
        let text = serde_json::to_string(&inventory).unwrap();
        assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), inventory);
    }

    #[test]
    fn a_disk_of_several_logins_has_the_addresses_of_all() {
        let machine = machine();
        machine.disk("dm-0", "253:0", ByteSize::mib(1));
        machine.file("sys/block/dm-0/dm/uuid", "mpath-3600c0ff0\n");
        machine.file("sys/block/dm-0/dm/name", "3600c0ff0\n");
        for path in ["sda", "sdb"] {
            machine.file(&format!("sys/block/dm-0/slaves/{path}/x"), "");
        }
        let inventory = Inventory::scan(&Roots::below(machine.path())).unwrap();
        let map = inventory.disks.iter().find(|disk| disk.is_map()).unwrap();
        assert_eq!(map.remote, remote(TARGET, &["192.0.2.9:3260", "192.0.2.10:3260"]));
    }
}
