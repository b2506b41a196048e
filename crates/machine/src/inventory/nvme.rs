//! Connections to NVMe subsystems over TCP, from sysfs (`drivers/nvme/host/sysfs.c` of the kernel). Each is a controller. The kernel joins
//! those of one subsystem itself: the disk is below the subsystem, and its paths are hidden.

use std::net::SocketAddrV4;
use std::path::Path;

use super::disk::RemoteTarget;
use super::sysfs::{attribute, names};
use model::network_disks::DiskProtocol;

/// The state of a controller that works, as the kernel has it.
const LIVE: &str = "live";

/// A connection, and the address that it was made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NvmeConnection {
    pub(crate) subsystem: String,
    pub(crate) portal: Option<SocketAddrV4>,
    pub(crate) live: bool,
}

/// All connections of this machine over TCP.
#[must_use]
pub(crate) fn connections(sys: &Path) -> Vec<NvmeConnection> {
    let class = sys.join("class/nvme");
    names(&class).iter().filter_map(|name| connection(&class.join(name))).collect()
}

/// The connection of the controller at `place` in sysfs; none for one that is not reached over TCP.
fn connection(place: &Path) -> Option<NvmeConnection> {
    if attribute(&place.join("transport"))? != "tcp" {
        return None;
    }
    let live = attribute(&place.join("state")).as_deref() == Some(LIVE);
    let portal = attribute(&place.join("address")).as_deref().and_then(portal);
    Some(NvmeConnection { subsystem: attribute(&place.join("subsysnqn"))?, portal, live })
}

/// The address of `traddr=192.0.2.9,trsvcid=4420,src_addr=192.0.2.7`.
fn portal(address: &str) -> Option<SocketAddrV4> {
    let part = |key: &str| address.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    Some(SocketAddrV4::new(part("traddr")?.parse().ok()?, part("trsvcid")?.parse().ok()?))
}

/// The subsystem of the disk at `place`, its directory in the device tree: that of a subsystem has the disk and links to the
/// controllers, or that of the one controller has the disk.
#[must_use]
pub(super) fn remote(place: &Path) -> Option<RemoteTarget> {
    let above = place.parent()?;
    let of_subsystem = above.file_name()?.to_str()?.starts_with("nvme-subsys");
    let found: Vec<_> = match of_subsystem {
        true => names(above).iter().filter_map(|name| connection(&above.join(name))).collect(),
        false => connection(above).into_iter().collect(),
    };
    let target = found.first()?.subsystem.clone();
    let portals = found.into_iter().filter_map(|connection| connection.portal).collect();
    Some(RemoteTarget { protocol: DiskProtocol::NvmeTcp, target, portals })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::inventory::{Inventory, Roots};
    use model::config::disk::Transport;
    use testing::machine::MachineTree;

    /// Makes the kernel show a connection, which is the controller `number` of its only subsystem.
    pub(crate) fn connect(root: &Path, number: u32, subsystem: &str, portal: &str, state: &str) {
        let (address, port) = portal.split_once(':').unwrap();
        let place = root.join(format!("sys/devices/virtual/nvme-fabrics/ctl/nvme{number}"));
        std::fs::create_dir_all(&place).unwrap();
        for (file, text) in [
            ("transport", "tcp"),
            ("subsysnqn", subsystem),
            ("address", &format!("traddr={address},trsvcid={port},src_addr=192.0.2.7")),
            ("state", state),
        ] {
            std::fs::write(place.join(file), format!("{text}\n")).unwrap();
        }
        for class in ["class/nvme", "devices/virtual/nvme-subsystem/nvme-subsys0"] {
            let link = root.join("sys").join(class).join(format!("nvme{number}"));
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(&place, link).unwrap();
        }
    }

    const SUBSYSTEM: &str = "nqn.2026-01.com.example:array-1";

    fn disk(machine: &MachineTree, name: &str, place: &str) {
        let node = format!("sys/devices/{place}/{name}");
        machine.file(&format!("{node}/dev"), "259:0\n");
        machine.file(&format!("{node}/size"), "2048\n");
        machine.link(&format!("sys/block/{name}"), &format!("../devices/{place}/{name}"));
    }

    #[test]
    fn a_disk_of_a_subsystem_has_the_addresses_of_all_its_controllers_and_one_in_the_machine_has_none() {
        let machine = MachineTree::new("");
        connect(machine.path(), 1, SUBSYSTEM, "192.0.2.9:4420", "live");
        connect(machine.path(), 2, SUBSYSTEM, "192.0.2.10:4420", "connecting");
        disk(&machine, "nvme0n1", "virtual/nvme-subsystem/nvme-subsys0");
        disk(&machine, "nvme0c1n1", "virtual/nvme-fabrics/ctl/nvme1");
        machine.file("sys/devices/virtual/nvme-fabrics/ctl/nvme1/nvme0c1n1/hidden", "1\n");
        disk(&machine, "nvme5n1", "pci0000:00/0000:00:04.0/nvme/nvme5");
        machine.file("sys/devices/pci0000:00/0000:00:04.0/nvme/nvme5/transport", "pcie\n");
        let inventory = Inventory::scan(&Roots::below(machine.path())).unwrap();
        let [far, own] = &inventory.disks[..] else { panic!("{:?}", inventory.disks) };
        assert_eq!((far.name.as_str(), far.transport), ("nvme0n1", Transport::NvmeTcp));
        let told = far.identify();
        assert!(
            told.ends_with(
                ", NVMe subsystem nqn.2026-01.com.example:array-1 at 192.0.2.9:4420, 192.0.2.10:4420"
            ),
            "{told}"
        );
        assert_eq!((own.transport, &own.remote), (Transport::Nvme, &None));
        let text = serde_json::to_string(&inventory).unwrap();
        assert!(
            text.contains(r#""transport":"nvme-tcp""#) && text.contains(r#""protocol":"nvme-tcp""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), inventory);
    }

    #[test]
    fn a_kernel_that_joins_no_paths_has_the_disk_below_its_controller() {
        let machine = MachineTree::new("");
        connect(machine.path(), 1, SUBSYSTEM, "192.0.2.9:4420", "live");
        disk(&machine, "nvme1n1", "virtual/nvme-fabrics/ctl/nvme1");
        let inventory = Inventory::scan(&Roots::below(machine.path())).unwrap();
        assert_eq!(inventory.disks[0].remote.as_ref().unwrap().portals.len(), 1);
    }

    #[test]
    fn the_state_of_each_connection_is_read_and_an_address_of_ipv6_is_none() {
        let machine = MachineTree::new("");
        connect(machine.path(), 1, SUBSYSTEM, "192.0.2.9:4420", "live");
        connect(machine.path(), 2, SUBSYSTEM, "192.0.2.10:4420", "connecting");
        machine.file("sys/class/nvme/nvme5/transport", "pcie\n");
        let states: Vec<_> =
            connections(&machine.path().join("sys")).iter().map(|found| found.live).collect();
        assert_eq!(states, [true, false]);
        assert_eq!(portal("traddr=192.0.2.9,trsvcid=4421").unwrap().to_string(), "192.0.2.9:4421");
        assert_eq!(portal("traddr=fe80::1,trsvcid=4420"), None);
    }
}
