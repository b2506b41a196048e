//! The devices that this machine works with, from a disk or a network card up to the bus of the processor, with their drivers.
//!
//! sysfs has each device below the one that it is reached through (Documentation/ABI/stable/sysfs-devices). What a driver says of
//! itself is in the directory of the running kernel's modules, what udev has made of names in its records.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::holders::HolderKind;
use super::nics::Nic;
use super::pci::{PciDevice, PciKind};
use super::sysfs::{Roots, attribute, driver, names};
use super::udev::UdevRecord;
use formats::kernel_modules::{self, ModuleInfo, kernel_name, matches};
use model::hardware::{DeviceInUse, HardwareInUse, NamedCard, NamingScheme, UnboundDevice, UnboundKind};

/// What has to be mounted before anything else of a node starts.
const EARLY_MOUNTS: [&str; 3] = ["/", "/var", "/oem"];
/// The policy of systemd for names, where no file of its own says otherwise.
const DEFAULT_LINK: &str = "99-default.link";
/// Bridges of PCI (PCI Code and ID Assignment Specification 1.11, 1.1). The kernel itself drives them.
const BRIDGE: &str = "0x06";

/// The devices behind these disks and network cards, and those that have no driver.
#[must_use]
pub fn scan(roots: &Roots, disks: &[Disk], nics: &[Nic]) -> HardwareInUse {
    let kernel = attribute(&roots.proc.join("sys/kernel/osrelease")).unwrap_or_default();
    let mut scan = DeviceScan::new(roots, &roots.lib.join("modules").join(&kernel));
    for nic in nics {
        scan.add(&roots.sys.join("class/net").join(&nic.name).join("device"), &nic.name, false);
    }
    for disk in disks {
        let early = is_early(disk);
        let paths = disk.paths.iter().map(|path| path.name.as_str());
        for name in [disk.name.as_str()].into_iter().chain(paths) {
            let device = roots.sys.join("block").join(name).join("device");
            scan.add(&device, &disk.name, early);
            for controller in controllers(&device) {
                scan.add(&controller, &disk.name, early);
            }
        }
    }
    let mut cards: Vec<_> = nics.iter().map(|nic| named_card(roots, nic)).collect();
    cards.sort_by(|one, other| one.name.cmp(&other.name));
    HardwareInUse {
        kernel,
        devices: scan.devices.into_values().collect(),
        cards,
        unbound: unbound(&roots.sys),
    }
}

/// The controllers of an NVMe subsystem. The kernel has the disks of one that may have several controllers below the subsystem, which is
/// no device of a bus; links in its directory lead to the controllers (drivers/nvme/host/core.c, `nvme_init_subsystem`).
fn controllers(device: &Path) -> Vec<PathBuf> {
    let links = names(device).into_iter().filter(|name| {
        let number = name.strip_prefix("nvme").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    links.map(|name| device.join(name)).filter(|path| path.is_symlink()).collect()
}

/// The network cards and disk controllers on the PCI bus that no driver has.
fn unbound(sys: &Path) -> Vec<UnboundDevice> {
    let devices = PciDevice::all(sys).into_iter().filter(|device| device.driver.is_none());
    devices
        .filter_map(|device| {
            let kind = match device.kind {
                PciKind::NetworkCard => UnboundKind::NetworkCard,
                PciKind::DiskController => UnboundKind::DiskController,
                PciKind::Other => return None,
            };
            let modalias = attribute(&sys.join("bus/pci/devices").join(&device.address).join("modalias"))?;
            Some(UnboundDevice { address: device.address, kind, modalias })
        })
        .collect()
}

/// Whether the file systems of the running node are on the disk.
fn is_early(disk: &Disk) -> bool {
    disk.holders.iter().any(|holder| {
        let point = holder.name.as_deref().unwrap_or_default();
        holder.kind == HolderKind::Mount && EARLY_MOUNTS.contains(&point)
    })
}

struct DeviceScan<'a> {
    roots: &'a Roots,
    /// The root of sysfs, without links.
    top: PathBuf,
    tables: BTreeMap<String, ModuleInfo>,
    files: BTreeMap<String, PathBuf>,
    dependencies: BTreeMap<String, Vec<String>>,
    devices: BTreeMap<(String, String), DeviceInUse>,
}

impl<'a> DeviceScan<'a> {
    /// For a kernel whose modules are in `modules`. Without them, a module is taken not to claim its devices.
    fn new(roots: &'a Roots, modules: &Path) -> Self {
        Self {
            roots,
            top: fs::canonicalize(&roots.sys).unwrap_or_else(|_| roots.sys.clone()),
            tables: kernel_modules::read_tables(modules).unwrap_or_default(),
            files: kernel_modules::paths(modules).unwrap_or_default(),
            dependencies: kernel_modules::dependencies(modules).unwrap_or_default(),
            devices: BTreeMap::new(),
        }
    }

    /// Adds the device at `link` and all that it is reached through, for `user`.
    fn add(&mut self, link: &Path, user: &str, early: bool) {
        let Ok(device) = fs::canonicalize(link) else { return };
        for path in device.ancestors().take_while(|path| path.starts_with(&self.top) && *path != self.top) {
            let Some((key, found)) = self.device(path) else { continue };
            let known = self.devices.entry(key).or_insert(found);
            known.early |= early;
            if !known.used_by.iter().any(|known| known == user) {
                known.used_by.push(user.to_owned());
            }
        }
    }

    /// The device at `path`; none if that is none, has no driver, or is a bridge.
    fn device(&self, path: &Path) -> Option<((String, String), DeviceInUse)> {
        let modalias = attribute(&path.join("modalias"))?;
        let driver = driver(path)?;
        let bus = link_name(&path.join("subsystem"))?;
        if attribute(&path.join("class")).is_some_and(|class| bus == "pci" && class.starts_with(BRIDGE)) {
            return None;
        }
        let address = path.file_name()?.to_str()?.to_owned();
        let module = link_name(&path.join("driver/module"));
        let info = module.as_deref().and_then(|module| self.tables.get(&kernel_name(module)));
        let claimed = info.is_some_and(|info| info.aliases.iter().any(|alias| matches(alias, &modalias)));
        let firmware = module.as_deref().map(|module| self.firmware(module)).unwrap_or_default();
        let found = DeviceInUse {
            bus: bus.clone(),
            address: address.clone(),
            modalias,
            driver,
            module,
            claimed,
            firmware,
            ..DeviceInUse::default()
        };
        Some(((bus, address), found))
    }

    /// The files that a module, or one that it depends on, may ask for and that are there.
    fn firmware(&self, module: &str) -> Vec<String> {
        let name = kernel_name(module);
        let needed = self.dependencies.get(&name).into_iter().flatten();
        let wanted: BTreeSet<String> = needed.chain([&name]).flat_map(|name| self.wanted(name)).collect();
        let directory = self.roots.lib.join("firmware");
        let there = |file: &String| {
            let places = ["updates/", ""].into_iter().flat_map(|place| {
                ["", ".xz", ".zst"].map(|end| directory.join(format!("{place}{file}{end}")))
            });
            places.into_iter().any(|place| place.exists())
        };
        wanted.into_iter().filter(there).collect()
    }

    /// The files that the module with this name itself may ask for.
    fn wanted(&self, name: &str) -> BTreeSet<String> {
        match self.files.get(name).filter(|path| kernel_modules::is_plain(path)) {
            Some(path) => kernel_modules::read_file(path).unwrap_or_default().firmware,
            None => self.tables.get(name).map(|info| info.firmware.clone()).unwrap_or_default(),
        }
    }
}

/// The last part of what a link leads to.
fn link_name(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

fn named_card(roots: &Roots, nic: &Nic) -> NamedCard {
    let path = roots.sys.join("class/net").join(&nic.name);
    let record = UdevRecord::of_card(roots, attribute(&path.join("ifindex")).as_deref());
    let [onboard, slot, address] =
        ["ID_NET_NAME_ONBOARD", "ID_NET_NAME_SLOT", "ID_NET_NAME_PATH"].map(|key| record.first(&[key]));
    let first = onboard.as_ref().or(slot.as_ref()).or(address.as_ref());
    let own_link = record.first(&["ID_NET_LINK_FILE"]).is_some_and(|file| !file.ends_with(DEFAULT_LINK));
    let device = fs::canonicalize(path.join("device")).ok();
    let above: Vec<&Path> =
        device.iter().flat_map(|device| device.ancestors()).filter(|path| is_pci(path)).collect();
    NamedCard {
        name: nic.name.clone(),
        mac: nic.mac.clone(),
        scheme: record.first(&["ID_NET_NAMING_SCHEME"]).as_deref().and_then(NamingScheme::parse),
        by_policy: !own_link && first == Some(&nic.name),
        onboard,
        slot,
        path: address,
        firmware_slot: firmware_slot(&above),
        bridge_slot: is_slot_of_bridge(roots, &above),
    }
}

fn is_pci(path: &Path) -> bool {
    link_name(&path.join("subsystem")).as_deref() == Some("pci")
}

/// The number of the slot by ACPI: that of the card, or if it is one of several functions, of the bridge above. `above` is the card and
/// the bridges above it.
fn firmware_slot(above: &[&Path]) -> Option<u32> {
    let number = |path: &&Path| attribute(&path.join("firmware_node/sun"))?.parse().ok();
    let card = above.first()?;
    number(card).or_else(|| above.get(1).filter(|_| is_multifunction(card)).and_then(number))
}

/// Bit 7 of the header type (PCI Local Bus Specification 3.0, 6.1).
fn is_multifunction(card: &Path) -> bool {
    let bytes = base::files::read_at_most(&card.join("config"), 64 << 10).unwrap_or_default();
    bytes.get(0x0e).is_some_and(|kind| kind & 0x80 != 0)
}

/// Whether hotplug knows a slot for a bridge above the card, and none for the card.
fn is_slot_of_bridge(roots: &Roots, above: &[&Path]) -> bool {
    let directory = roots.sys.join("bus/pci/slots");
    let slots: Vec<String> = names(&directory)
        .iter()
        .filter_map(|slot| attribute(&directory.join(slot).join("address")))
        .collect();
    let has = |path: &&Path| {
        let address = path.file_name().unwrap_or_default().to_string_lossy();
        let device = address.split('.').next().unwrap_or_default();
        slots.iter().any(|slot| slot == device)
    };
    above.first().is_some_and(|card| !has(card)) && above.iter().skip(1).any(has)
}

#[cfg(test)]
mod tests {
    use base::size::ByteSize;
    use testing::kernel::module_tree;
    use testing::machine::MachineTree;

    use super::super::Inventory;
    use super::*;

    /// A machine with the kernel of [`module_tree`].
    fn machine(mounts: &str) -> MachineTree {
        let machine = MachineTree::new(mounts);
        machine.file("proc/sys/kernel/osrelease", "6.1.0\n");
        module_tree(&machine.path().join("lib/modules/6.1.0"));
        machine
    }

    /// A device below `sys/devices`, with a driver that has a module.
    fn device(
        machine: &MachineTree,
        path: &str,
        bus: &str,
        modalias: &str,
        driver: &str,
        module: Option<&str>,
    ) {
        let at = format!("sys/devices/{path}");
        let up = "../".repeat(path.split('/').count() + 1);
        machine.file(&format!("{at}/modalias"), modalias);
        machine.link(&format!("{at}/subsystem"), &format!("{up}bus/{bus}"));
        machine.link(&format!("{at}/driver"), &format!("{up}bus/{bus}/drivers/{driver}"));
        let driver = format!("sys/bus/{bus}/drivers/{driver}");
        machine.file(&format!("{driver}/uevent"), "");
        let known = machine.path().join(&driver).join("module").is_symlink();
        if let Some(module) = module.filter(|_| !known) {
            machine.link(&format!("{driver}/module"), &format!("../../../../module/{module}"));
        }
    }

    fn scanned(machine: &MachineTree) -> HardwareInUse {
        let roots = Roots::below(machine.path());
        Inventory::scan_with_hardware(&roots).unwrap().hardware.unwrap()
    }

    #[test]
    fn a_card_needs_every_driver_up_to_the_bus_of_the_processor_but_for_bridges() {
        let machine = machine("");
        let pci = "pci0000:00/0000:00:03.0";
        device(&machine, pci, "pci", "pci:v00001AF4d00001000", "virtio-pci", Some("virtio_pci"));
        device(
            &machine,
            &format!("{pci}/virtio0"),
            "virtio",
            "virtio:d00000001v00001AF4",
            "virtio_net",
            Some("virtio_net"),
        );
        machine.link("sys/class/net/ens3/device", "../../../devices/pci0000:00/0000:00:03.0/virtio0");
        machine.file("sys/class/net/ens3/address", "52:54:00:12:34:56\n");
        let bridge = "pci0000:00/0000:00:1c.0";
        device(&machine, bridge, "pci", "pci:bridge", "pcieport", None);
        machine.file(&format!("sys/devices/{bridge}/class"), "0x060400\n");
        let card = format!("{bridge}/0000:03:00.0");
        device(&machine, &card, "pci", "pci:v000014E4d0000168Esv1sd1bc02sc00i00", "bnx2x", Some("bnx2x"));
        machine.link("sys/class/net/enp3s0/device", &format!("../../../devices/{card}"));
        machine.file("sys/class/net/enp3s0/address", "52:54:00:12:34:57\n");
        machine.file("lib/firmware/bnx2x/bnx2x-e2-7.13.15.0.fw.xz", "x");
        let found = scanned(&machine);
        let told: Vec<_> = found
            .devices
            .iter()
            .map(|device| {
                (device.address.as_str(), device.driver.as_str(), device.claimed, device.used_by.join(","))
            })
            .collect();
        assert_eq!(
            told,
            [
                ("0000:00:03.0", "virtio-pci", false, "ens3".into()),
                ("0000:03:00.0", "bnx2x", true, "enp3s0".into()),
                ("virtio0", "virtio_net", true, "ens3".into()),
            ]
        );
        assert_eq!(found.devices[1].firmware, ["bnx2x/bnx2x-e2-7.13.15.0.fw"]);
        assert_eq!(
            (found.kernel.as_str(), found.devices.iter().any(|device| device.early)),
            ("6.1.0", false)
        );
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<HardwareInUse>(&text).unwrap(), found);
    }

    #[test]
    fn the_disk_with_the_file_systems_of_the_node_is_needed_early_and_others_are_not() {
        let machine =
            machine("1 0 8:1 / / ro - squashfs /dev/sda1 ro\n2 0 8:17 / /data rw - ext4 /dev/sdb1 rw\n");
        for (name, number, place) in [("sda", "8:0", "0000:00:1f.2"), ("sdb", "8:16", "0000:00:1f.5")] {
            machine.disk(name, number, ByteSize::gib(8));
            let part = number.replace(":0", ":1").replace(":16", ":17");
            machine.partition(name, &format!("{name}1"), &part);
            let path = format!("pci0000:00/{place}");
            device(&machine, &path, "pci", "pci:v00008086d00002922sv0sd0bc01sc06i01", "ahci", Some("ahci"));
            machine.link(&format!("sys/block/{name}/device"), &format!("../../devices/{path}"));
        }
        let found = scanned(&machine);
        let told: Vec<_> = found
            .devices
            .iter()
            .map(|device| (device.used_by.join(","), device.early, device.claimed))
            .collect();
        assert_eq!(told, [("sda".into(), true, true), ("sdb".into(), false, true)]);
    }

    #[test]
    fn a_disk_of_an_nvme_subsystem_needs_the_drivers_of_all_its_controllers() {
        let machine = machine("1 0 259:1 / / ro - squashfs /dev/nvme0n1p1 ro\n");
        machine.disk("nvme0n1", "259:0", ByteSize::gib(8));
        machine.partition("nvme0n1", "nvme0n1p1", "259:1");
        let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
        machine.file(&format!("{subsystem}/subsysnqn"), "nqn.2014-08.org.nvmexpress:x\n");
        machine.file(&format!("{subsystem}/nvme0n1/size"), "1\n");
        for (number, place) in ["0000:01:00.0", "0000:02:00.0"].into_iter().enumerate() {
            let path = format!("pci0000:00/{place}");
            let modalias = "pci:v0000144Dd0000A824sv0000144Dsd0000A801bc01sc08i02";
            device(&machine, &path, "pci", modalias, "nvme", Some("nvme"));
            machine.file(&format!("sys/devices/{path}/nvme/nvme{number}/transport"), "pcie\n");
            let up = "../../../";
            machine.link(&format!("{subsystem}/nvme{number}"), &format!("{up}{path}/nvme/nvme{number}"));
        }
        machine.link("sys/block/nvme0n1/device", "../../devices/virtual/nvme-subsystem/nvme-subsys0");
        let found = scanned(&machine);
        let told: Vec<_> = found
            .devices
            .iter()
            .map(|device| (device.address.as_str(), device.used_by.join(","), device.early))
            .collect();
        assert_eq!(
            told,
            [("0000:01:00.0", "nvme0n1".into(), true), ("0000:02:00.0", "nvme0n1".into(), true)]
        );
    }

    #[test]
    fn cards_and_controllers_without_a_driver_are_told_and_others_are_not() {
        let machine = machine("");
        for (address, class, modalias) in [
            ("0000:31:00.0", "0x020000", "pci:v00008086d000057B1sv00008086sd00000001bc02sc00i00"),
            ("0000:07:00.0", "0x018000", "pci:v00001AEDd00002001sv00001AEDsd00002001bc01sc80i00"),
            ("0000:00:1f.5", "0x0c8000", "pci:v00008086d0000A1A4sv0sd0bc0Csc80i00"),
            ("0000:00:17.0", "0x010601", "pci:v00008086d0000A182sv0sd0bc01sc06i01"),
        ] {
            let at = format!("sys/bus/pci/devices/{address}");
            for (file, text) in
                [("class", class), ("vendor", "0x8086"), ("device", "0x0001"), ("modalias", modalias)]
            {
                machine.file(&format!("{at}/{file}"), &format!("{text}\n"));
            }
        }
        machine.link("sys/bus/pci/devices/0000:00:17.0/driver", "../../drivers/ahci");
        let found = scanned(&machine).unbound;
        let told: Vec<_> = found.iter().map(|device| (device.to_string(), device.kind)).collect();
        assert_eq!(
            told,
            [
                ("pci 0000:07:00.0 (1aed:2001)".into(), UnboundKind::DiskController),
                ("pci 0000:31:00.0 (8086:57b1)".into(), UnboundKind::NetworkCard),
            ]
        );
    }

    #[test]
    fn what_udev_and_the_firmware_know_of_names_is_read() {
        let machine = machine("");
        let bridge = "pci0000:00/0000:00:1c.0";
        let card = format!("{bridge}/0000:3b:00.0");
        for path in [bridge, &card] {
            device(&machine, path, "pci", "pci:x", "bnx2x", Some("bnx2x"));
        }
        machine.link("sys/class/net/ens4f0/device", &format!("../../../devices/{card}"));
        machine.file("sys/class/net/ens4f0/address", "52:54:00:12:34:56\n");
        machine.file("sys/class/net/ens4f0/ifindex", "2\n");
        machine.file("sys/bus/pci/slots/4/address", "0000:00:1c\n");
        machine.file(&format!("sys/devices/{bridge}/firmware_node/sun"), "7\n");
        let record = |link: &str| {
            format!(
                "I:1\nE:ID_NET_NAMING_SCHEME=v252\nE:ID_NET_NAME_SLOT=ens4f0\nE:ID_NET_NAME_PATH=enp59s0f0\n\
                 E:ID_NET_LINK_FILE=/usr/lib/systemd/network/{link}\n"
            )
        };
        machine.file("udev/n2", &record("99-default.link"));
        let card_of = |machine: &MachineTree| scanned(machine).cards.remove(0);
        let found = card_of(&machine);
        assert_eq!(found.scheme, NamingScheme::parse("v252"));
        assert_eq!((found.slot.as_deref(), found.path.as_deref()), (Some("ens4f0"), Some("enp59s0f0")));
        assert!(found.by_policy && found.bridge_slot && found.onboard.is_none());
        // Only one of several functions has the slot of what is above it.
        assert_eq!(found.firmware_slot, None);
        fs::write(
            machine.path().join(format!("sys/devices/{card}/config")),
            [[0; 0x0e].as_slice(), &[0x80]].concat(),
        )
        .unwrap();
        assert_eq!(card_of(&machine).firmware_slot, Some(7));
        machine.file("udev/n2", &record("10-mine.link"));
        assert!(!card_of(&machine).by_policy);
    }
}
