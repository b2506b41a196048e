//! Machines with hardware of many kinds, as QEMU has it: what `installer inventory` says of each, nodes on some of them, and recorded
//! servers against three kernels of Debian.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::size::ByteSize;
use machine::inventory::{Disk as FoundDisk, Inventory};
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::console::screen;
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine, PATHS_WWN, Vm};
use nqrust_tests::{secrets, steps};
use serde_json::{Value, json};
use testing::servers::{RecordedServer, SERVERS, write_inventories};

use crate::questions::{open_help_access, root_shell};

/// From the addition or removal of a device to the kernel's knowledge of it, on an emulated processor.
const DEVICE_LIMIT: Duration = Duration::from_secs(120);

/// What is put into a running machine, as QMP's `device_add` has it, and what the installer has to find then.
struct ZooMachine {
    name: &'static str,
    /// The first of them are the first to be added, and the last to be removed.
    devices: fn() -> Vec<Value>,
    /// Size in MiB and transport of each disk.
    disks: &'static [(u64, &'static str)],
    /// The driver of each network card.
    cards: &'static [&'static str],
    /// Bus and driver of all that they are reached through.
    drivers: &'static [(&'static str, &'static str)],
}

/// A device on the bus of the board.
fn device(driver: &str, id: &str) -> Value {
    json!({ "driver": driver, "id": id })
}

/// A disk of so many MiB on `bus`. Its bytes are zeros.
fn disk(driver: &str, id: &str, bus: &str, mib: u64) -> Value {
    json!({ "driver": driver, "id": id, "bus": bus, "drive": format!("{id}-zeros"), "mib": mib })
}

/// A network card without a cable's other end.
fn card(driver: &str, number: u8) -> Value {
    json!({ "driver": driver, "id": format!("card{number}"), "mac": format!("52:54:00:6e:72:{number:02x}") })
}

/// On the board with PCI.
const OLD: [ZooMachine; 6] = [
    ZooMachine {
        name: "lsi53c895a-e1000",
        devices: || {
            let disk = disk("scsi-hd", "disk1", "scsi1.0", 1101);
            vec![device("lsi53c895a", "scsi1"), disk, card("e1000", 1)]
        },
        disks: &[(1101, "scsi")],
        cards: &["e1000"],
        drivers: &[("pci", "e1000"), ("pci", "sym53c8xx"), ("scsi", "sd")],
    },
    ZooMachine {
        name: "am53c974-rtl8139",
        devices: || {
            let disk = disk("scsi-hd", "disk1", "scsi1.0", 1102);
            vec![device("am53c974", "scsi1"), disk, card("rtl8139", 2)]
        },
        disks: &[(1102, "scsi")],
        cards: &["8139cp"],
        drivers: &[("pci", "8139cp"), ("pci", "am53c974"), ("scsi", "sd")],
    },
    ZooMachine {
        name: "pvscsi-vmxnet3",
        devices: || {
            let disk = disk("scsi-hd", "disk1", "scsi1.0", 1103);
            vec![device("pvscsi", "scsi1"), disk, card("vmxnet3", 3)]
        },
        disks: &[(1103, "scsi")],
        cards: &["vmxnet3"],
        drivers: &[("pci", "vmw_pvscsi"), ("pci", "vmxnet3"), ("scsi", "sd")],
    },
    ZooMachine {
        name: "megasas-e1000e",
        devices: || {
            let disk = disk("scsi-hd", "disk1", "scsi1.0", 1104);
            vec![device("megasas", "scsi1"), disk, card("e1000e", 4)]
        },
        disks: &[(1104, "scsi")],
        cards: &["e1000e"],
        drivers: &[("pci", "e1000e"), ("pci", "megaraid_sas"), ("scsi", "sd")],
    },
    // QEMU's mptsas tells nobody of a disk that comes later: a node is installed on it below.
    ZooMachine {
        name: "virtio-scsi-i82559c",
        devices: || {
            let disk = disk("scsi-hd", "disk1", "scsi1.0", 1105);
            vec![device("virtio-scsi-pci", "scsi1"), disk, card("i82559c", 5)]
        },
        disks: &[(1105, "virtio")],
        cards: &["e100"],
        drivers: &[("pci", "e100"), ("pci", "virtio-pci"), ("scsi", "sd"), ("virtio", "virtio_scsi")],
    },
    ZooMachine {
        name: "virtio",
        devices: || vec![disk("virtio-blk-pci", "disk1", "pci.0", 1106), card("virtio-net-pci", 6)],
        disks: &[(1106, "virtio")],
        cards: &["virtio_net"],
        drivers: &[
            ("pci", "virtio-pci"),
            ("pci", "virtio-pci"),
            ("virtio", "virtio_blk"),
            ("virtio", "virtio_net"),
        ],
    },
];

/// On the board with PCI Express, whose slots are `slot1` to `slot3`.
const NEW: [ZooMachine; 5] = [
    ZooMachine {
        name: "nvme-vmxnet3",
        devices: || {
            let mut controller = disk("nvme", "disk1", "slot1", 1209);
            controller["serial"] = "nqrust-alone".into();
            let mut card = card("vmxnet3", 7);
            card["bus"] = "slot2".into();
            vec![controller, card]
        },
        disks: &[(1209, "nvme")],
        cards: &["vmxnet3"],
        drivers: &[("pci", "nvme"), ("pci", "vmxnet3")],
    },
    ZooMachine {
        name: "megasas-gen2-e1000e",
        devices: || {
            let mut controller = device("megasas-gen2", "scsi1");
            controller["bus"] = "slot1".into();
            let mut card = card("e1000e", 8);
            card["bus"] = "slot2".into();
            vec![controller, disk("scsi-hd", "disk1", "scsi1.0", 1203), card]
        },
        disks: &[(1203, "scsi")],
        cards: &["e1000e"],
        drivers: &[("pci", "e1000e"), ("pci", "megaraid_sas"), ("scsi", "sd")],
    },
    ZooMachine {
        name: "usb3-storage-usb-net",
        devices: || vec![disk("usb-storage", "disk1", "usb.0", 1204), card("usb-net", 9)],
        disks: &[(1204, "usb")],
        cards: &["cdc_subset"],
        drivers: &[("pci", "xhci_hcd"), ("scsi", "sd"), ("usb", "cdc_subset"), ("usb", "usb-storage")],
    },
    ZooMachine {
        name: "usb2-storage",
        devices: || {
            let mut controller = device("usb-ehci", "ehci");
            controller["bus"] = "slot1".into();
            vec![controller, disk("usb-storage", "disk1", "ehci.0", 1205)]
        },
        disks: &[(1205, "usb")],
        cards: &[],
        drivers: &[("pci", "ehci-pci"), ("scsi", "sd"), ("usb", "usb-storage")],
    },
    ZooMachine {
        name: "usb-attached-scsi",
        devices: || {
            let mut bridge = device("usb-uas", "uas");
            bridge["bus"] = "usb.0".into();
            vec![bridge, disk("scsi-hd", "disk1", "uas.0", 1206)]
        },
        disks: &[(1206, "usb")],
        cards: &[],
        drivers: &[("pci", "xhci_hcd"), ("scsi", "sd"), ("usb", "uas")],
    },
];

/// What the board with PCI Express has from the beginning beside the parts of every machine: a disk of SATA, a memory card, a disk of two
/// paths, one of an NVMe subsystem with two controllers, and two of an NVMe controller with two namespaces.
const FIXED: &str = "-device pcie-root-port,id=slot1,chassis=1 -device pcie-root-port,id=slot2,chassis=2 \
     -device pcie-root-port,id=slot3,chassis=3 \
     -blockdev null-co,node-name=card,size=1073741824,read-zeroes=on -device sdhci-pci -device sd-card,drive=card \
     -blockdev null-co,node-name=shared,size=1308622848,read-zeroes=on -device nvme-subsys,id=subsystem \
     -device nvme,id=left,serial=nqrust-shared,subsys=subsystem -device nvme,id=right,serial=nqrust-shared,subsys=subsystem \
     -device nvme-ns,drive=shared,bus=left \
     -blockdev null-co,node-name=first,size=1259339776,read-zeroes=on -blockdev null-co,node-name=second,size=1260388352,read-zeroes=on \
     -device nvme,id=both,serial=nqrust-namespaces -device nvme-ns,drive=first,bus=both,nsid=1 \
     -device nvme-ns,drive=second,bus=both,nsid=2";

#[test]
#[ignore = "two boots and eleven machines: `make soak` runs it"]
fn machines_of_many_kinds_are_known_by_their_inventories() {
    scenario("zoo", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let fleet = artifacts.path("inventories");
        fs::create_dir_all(&fleet)?;
        let mut checks = Checks::default();

        let old = Machine::new("old-board", Firmware::Bios).old_board().cdrom(&medium.full).network(MAC);
        let mut vm = live_shell(&old, artifacts)?;
        let base = inventory(&mut vm)?;
        fits(&base, &base_machine("the board with PCI", &[], &["virtio_net"]), &mut checks)?;
        each(&mut vm, &OLD, &base, &fleet, &mut checks)?;
        vm.kill()?;

        let plain = Disk::empty(artifacts.disk("sata.qcow2"), ByteSize::mib(1207))?;
        let paths = Disk::empty_raw(artifacts.disk("paths.img"), ByteSize::mib(1208))?;
        let new = Machine::new("new-board", Firmware::Uefi).cdrom(&medium.full).sata(&plain);
        let new = new.scsi_path(&paths).scsi_path(&paths).network(MAC).further(FIXED);
        let mut vm = live_shell(&new, artifacts)?;
        let base = inventory(&mut vm)?;
        keep(&fleet, "new-board", &base)?;
        fixed_parts(&base, &mut checks)?;
        each(&mut vm, &NEW, &base, &fleet, &mut checks)?;
        vm.kill()?;

        // What works with the medium works with the nodes that it installs.
        let judged = judged(&medium, &fleet)?;
        for machine in &judged {
            checks.equal(
                &format!("whether {} comes up", machine["machine"]),
                &machine["reasons"],
                &Value::Null,
            );
        }
        checks.equal("the machines that were judged", judged.len(), OLD.len() + NEW.len() + 1);
        checks.finish("the inventories of machines of many kinds")
    });
}

/// Boots the live system and opens a shell on its console.
fn live_shell(machine: &Machine, artifacts: &Artifacts) -> Result<Vm> {
    let mut vm = machine.start(artifacts)?;
    screen(&mut vm, &["what this machine becomes"], steps::INSTALL_LIMIT, artifacts)?;
    let password = open_help_access(&mut vm, artifacts)?;
    root_shell(&mut vm, &password)?;
    let quiet = "stty -echo cols 500; export TERM=dumb PAGER=cat; dmesg --console-off";
    ensure!(vm.serial.run(quiet, steps::COMMAND_LIMIT)?.code == 0, "the shell could not be made quiet");
    Ok(vm)
}

fn inventory(vm: &mut Vm) -> Result<Inventory> {
    let told = vm.serial.run("udevadm settle; installer inventory", steps::COMMAND_LIMIT)?;
    serde_json::from_str(&told.text).with_context(|| format!("reading the inventory {}", told.text))
}

fn keep(fleet: &Path, name: &str, inventory: &Inventory) -> Result<()> {
    Ok(fs::write(fleet.join(format!("{name}.json")), serde_json::to_vec_pretty(inventory)?)?)
}

/// Puts each machine's parts into the running one, compares what is found, and takes them out.
fn each(
    vm: &mut Vm,
    machines: &[ZooMachine],
    base: &Inventory,
    fleet: &Path,
    checks: &mut Checks,
) -> Result<()> {
    for machine in machines {
        let what = || format!("the machine {}", machine.name);
        let added = add(vm, machine).with_context(what)?;
        let (disks, cards) = (base.disks.len() + machine.disks.len(), base.nics.len() + machine.cards.len());
        let complete = |found: &Inventory| found.disks.len() == disks && found.nics.len() == cards;
        let found = wait(vm, complete).with_context(what)?;
        keep(fleet, machine.name, &found)?;
        fits(&beyond(&found, base), &Expected::of(machine), checks)?;
        remove(vm, &added).with_context(what)?;
        wait(vm, |found| found == base).with_context(what)?;
    }
    Ok(())
}

/// Adds the parts of a machine; returns their identifiers and those of the content of disks.
fn add(vm: &mut Vm, machine: &ZooMachine) -> Result<Vec<(String, Option<String>)>> {
    let (mut added, mut bridge) = (Vec::new(), None);
    for mut device in (machine.devices)() {
        let id = device["id"].as_str().context("an identifier")?.to_owned();
        let content = device["drive"].as_str().map(str::to_owned);
        if let Some(content) = &content {
            let bytes = device["mib"].as_u64().context("a size")? << 20;
            device.as_object_mut().context("a device")?.remove("mib");
            let zeros =
                json!({ "driver": "null-co", "node-name": content, "size": bytes, "read-zeroes": true });
            vm.qmp.execute("blockdev-add", zeros)?;
        }
        if device["driver"] == "usb-uas" {
            bridge = Some(id.clone());
        }
        vm.qmp.execute("device_add", device)?;
        added.push((id, content));
    }
    if let Some(id) = bridge {
        // QEMU plugs a bridge in when it is told that all disks are behind it.
        let path = format!("/machine/peripheral/{id}");
        vm.qmp.execute("qom-set", json!({ "path": path, "property": "attached", "value": true }))?;
    }
    Ok(added)
}

fn remove(vm: &mut Vm, added: &[(String, Option<String>)]) -> Result<()> {
    for (id, content) in added.iter().rev() {
        vm.qmp.execute("device_del", json!({ "id": id }))?;
        Deadline::after(DEVICE_LIMIT).every(MACHINE_INTERVAL).poll(
            &format!("the removal of {id}"),
            || {
                // A device that is gone is no child of the machine any more.
                let listed = vm.qmp.execute("qom-list", json!({ "path": "/machine/peripheral" }))?;
                let listed = listed.as_array().context("a list of devices")?;
                Ok(listed.iter().all(|child| child["name"] != *id).then_some(()))
            },
        )?;
        if let Some(content) = content {
            // The device lets go of its content a moment after it has gone.
            let what = format!("the removal of {content}");
            Deadline::after(DEVICE_LIMIT)
                .poll(&what, || Ok(vm.qmp.execute("blockdev-del", json!({ "node-name": content })).ok()))?;
        }
    }
    Ok(())
}

/// Looks at the machine until it is as wanted.
fn wait(vm: &mut Vm, wanted: impl Fn(&Inventory) -> bool) -> Result<Inventory> {
    let mut last = Inventory::default();
    let waited = Deadline::after(DEVICE_LIMIT).every(MACHINE_INTERVAL).poll("the devices", || {
        last = inventory(vm)?;
        Ok(wanted(&last).then(|| last.clone()))
    });
    waited
        .with_context(|| format!("the last inventory: {}", serde_json::to_string(&last).unwrap_or_default()))
}

/// What `found` has and `base` has not.
fn beyond(found: &Inventory, base: &Inventory) -> Inventory {
    let mut more = found.clone();
    more.disks.retain(|disk| base.disks.iter().all(|known| known.name != disk.name));
    more.nics.retain(|nic| base.nics.iter().all(|known| known.name != nic.name));
    if let (Some(hardware), Some(known)) = (&mut more.hardware, &base.hardware) {
        hardware.devices.retain(|device| !known.devices.contains(device));
        hardware.unbound.retain(|device| !known.unbound.contains(device));
    }
    more
}

/// What an inventory has to say.
struct Expected {
    name: &'static str,
    disks: Vec<(u64, &'static str)>,
    cards: Vec<&'static str>,
    /// Empty if that is not compared.
    drivers: Vec<(&'static str, &'static str)>,
}

impl Expected {
    fn of(machine: &ZooMachine) -> Self {
        let ZooMachine { name, disks, cards, drivers, .. } = machine;
        Self { name, disks: disks.to_vec(), cards: cards.to_vec(), drivers: drivers.to_vec() }
    }
}

fn base_machine(name: &'static str, disks: &[(u64, &'static str)], cards: &[&'static str]) -> Expected {
    Expected { name, disks: disks.to_vec(), cards: cards.to_vec(), drivers: Vec::new() }
}

/// Size in MiB and transport.
fn size_and_transport(disk: &FoundDisk) -> (u64, String) {
    (disk.size.get() >> 20, disk.transport.to_string())
}

/// Compares the inventory with what QEMU was given.
fn fits(found: &Inventory, expected: &Expected, checks: &mut Checks) -> Result<()> {
    let what = |part: &str| format!("the {part} of {}", expected.name);
    let mut disks: Vec<_> =
        found.disks.iter().filter(|disk| !disk.boot_medium).map(size_and_transport).collect();
    disks.sort();
    let wanted: Vec<_> = expected.disks.iter().map(|(mib, how)| (*mib, (*how).to_owned())).collect();
    checks.equal(&what("disks"), disks, wanted);
    let cards: Vec<_> = found.nics.iter().map(|nic| nic.driver.as_deref().unwrap_or_default()).collect();
    checks.equal(&what("cards"), cards, expected.cards.clone());
    let hardware = found.hardware.as_ref().context("an inventory with drivers")?;
    for device in &hardware.devices {
        // It is a part of the kernel, which does not say what it drives.
        let told = device.claimed || device.driver == "virtio-pci";
        checks.that(&format!("{} claims {}", device.driver, device.modalias), told);
        checks.that(&format!("{} is used", device.address), !device.used_by.is_empty());
    }
    checks.equal(&what("devices without a driver"), hardware.unbound.as_slice(), &[]);
    if !expected.drivers.is_empty() {
        let mut drivers: Vec<_> =
            hardware.devices.iter().map(|device| (device.bus.as_str(), device.driver.as_str())).collect();
        drivers.sort_unstable();
        checks.equal(&what("drivers"), drivers, expected.drivers.clone());
    }
    Ok(())
}

/// The parts that the board with PCI Express has from the beginning.
fn fixed_parts(base: &Inventory, checks: &mut Checks) -> Result<()> {
    let disks =
        [(1024, "mmc"), (1201, "nvme"), (1202, "nvme"), (1207, "ata"), (1208, "virtio"), (1248, "nvme")];
    fits(base, &base_machine("the board with PCI Express", &disks, &["virtio_net"]), checks)?;
    let find = |transport: &str| {
        base.disks.iter().find(|disk| !disk.optical && disk.transport.to_string() == transport)
    };
    let map = find("virtio").context("the disk of two paths")?;
    checks.equal("the paths of the disk that has two", map.paths.len(), 2);
    let wwn = map.wwn.as_deref().unwrap_or_default();
    checks.that(&format!("it is known by its WWN: {wwn}"), wwn.contains(PATHS_WWN));
    let shared = base.disks.iter().find(|disk| disk.size == ByteSize::mib(1248));
    let shared = &shared.context("the disk of the NVMe subsystem")?.name;
    let devices = &base.hardware.as_ref().context("an inventory with drivers")?.devices;
    let through: BTreeSet<_> = devices
        .iter()
        .filter(|device| device.used_by.contains(shared))
        .map(|device| (device.bus.as_str(), device.driver.as_str(), device.address.as_str()))
        .collect();
    let drivers: Vec<_> = through.iter().map(|(bus, driver, _)| (*bus, *driver)).collect();
    checks.equal("what leads to a disk with two controllers", drivers, vec![("pci", "nvme"); 2]);
    Ok(())
}

/// What `iso-builder check` says of each machine of a directory, by the medium.
fn judged(medium: &Medium, fleet: &Path) -> Result<Vec<Value>> {
    let mut check = programs::iso_builder()?;
    check.args(["check", "--format", "json"]).arg(nqrust_tests::paths::workspace().join(medium::DEFINITION));
    check.arg("--inventories").arg(fleet).arg("--medium").arg(&medium.full);
    check.arg("--installer").arg(nqrust_tests::paths::installer()?);
    let ended = programs::run(&mut check, steps::COMMAND_LIMIT)?;
    let told: Value =
        serde_json::from_str(&ended.stdout).with_context(|| format!("reading {}", ended.said()))?;
    Ok(told["machines"].as_array().context("a list of machines")?.clone())
}

/// The release of Debian before that of the definitions, and packages of these that it lacks.
const OLDER: (&str, [&str; 1]) = ("bookworm", ["linux-sysctl-defaults"]);
/// The suite with the newest kernel for the release of the definitions.
const BACKPORTS: &str = "trixie-backports";

/// The medium of the definition with firmware for servers, changed by `change`. It takes the place of the one before.
fn with_firmware(change: impl FnOnce(&mut serde_yaml::Value) -> Result<()>) -> Result<Medium> {
    Medium::built_apart("zoo-kernels", |directory| {
        let definition = medium::stage(directory, &json!({}))?;
        let mut document: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
        document.as_mapping_mut().context("a definition")?.remove("install_config");
        document["base"]["debian"]["firmware"] = "servers".into();
        change(&mut document)?;
        fs::write(&definition, serde_yaml::to_string(&document)?)?;
        Ok(definition)
    })
}

/// The packages of the base.
fn packages(document: &mut serde_yaml::Value) -> Result<&mut Vec<serde_yaml::Value>> {
    document["base"]["debian"]["include"].as_sequence_mut().context("the definition includes packages")
}

#[test]
#[ignore = "three media: `make soak` runs it"]
fn of_recorded_servers_those_come_up_with_three_kernels_that_are_known_to() {
    scenario("zoo-kernels", |artifacts| {
        let fleet = artifacts.path("servers");
        fs::create_dir_all(&fleet)?;
        write_inventories(&fleet);
        let mut checks = Checks::default();
        let older = with_firmware(|document| {
            document["packages"]["suite"] = OLDER.0.into();
            packages(document)?
                .retain(|package| package.as_str().is_none_or(|name| !OLDER.1.contains(&name)));
            Ok(())
        })?;
        compare((OLDER.0, &older), &fleet, |server| server.reasons[0], artifacts, &mut checks)?;
        let current = with_firmware(|_| Ok(()))?;
        compare(("trixie", &current), &fleet, |server| server.reasons[1], artifacts, &mut checks)?;
        let newest = with_firmware(|document| {
            document["packages"]["mirrors"] = serde_yaml::to_value([
                "deb http://deb.debian.org/debian trixie main",
                &format!("deb http://deb.debian.org/debian {BACKPORTS} main"),
            ])?;
            for package in packages(document)? {
                if package.as_str().is_some_and(|name| name.starts_with("linux-image-amd64")) {
                    *package = format!("linux-image-amd64/{BACKPORTS} [amd64]").into();
                }
            }
            Ok(())
        })?;
        compare((BACKPORTS, &newest), &fleet, |server| server.reasons[2], artifacts, &mut checks)?;
        let plain = steps::medium_without_configuration(&Identity::load()?)?;
        compare(
            ("trixie without firmware", &plain),
            &fleet,
            |server| server.without_firmware,
            artifacts,
            &mut checks,
        )?;
        checks.finish("recorded servers and three kernels")
    });
}

/// Compares what a medium says of each server with what is known.
fn compare(
    (name, medium): (&str, &Medium),
    fleet: &Path,
    known: impl Fn(&RecordedServer) -> &'static [&'static str],
    artifacts: &Artifacts,
    checks: &mut Checks,
) -> Result<()> {
    let told = judged(medium, fleet)?;
    artifacts.append("judged.txt", &format!("{name}\n{}\n", serde_json::to_string_pretty(&told)?))?;
    checks.equal(&format!("the servers judged by {name}"), told.len(), SERVERS.len());
    for (server, told) in SERVERS.iter().zip(&told) {
        let reasons: Vec<_> = told["reasons"].as_array().into_iter().flatten().collect();
        let reasons: Vec<_> = reasons.iter().filter_map(|why| why.as_str()).collect();
        checks.equal(&format!("{} with {name}", server.name), reasons.as_slice(), known(server));
    }
    Ok(())
}

/// A machine that a node is installed on.
struct NodeMachine {
    name: &'static str,
    document: Document,
    /// In GiB; the first is that of the system.
    disks: &'static [u64],
    machine: fn(&str, &[Disk]) -> Machine,
    /// What the disk of the system is reached through, and the driver of the card.
    drivers: (&'static str, &'static str),
}

/// Installs on a machine and starts the node there: the card has the name that it had in the live system, and the initrd has the driver of
/// the disk.
fn installed_and_started(node: &NodeMachine) {
    scenario(&format!("zoo-{}", node.name), |artifacts| {
        let identity = Identity::load()?;
        let NodeMachine { name, document, disks, machine, drivers: (driver, card) } = node;
        let medium = Medium::shared(&document.hostname, &document.to_json(&identity))?;
        let disks = disks.iter().enumerate().map(|(number, gib)| {
            Disk::empty(artifacts.disk(&format!("disk{number}.qcow2")), ByteSize::gib(*gib))
        });
        let disks: Vec<_> = disks.collect::<Result<_>>()?;
        let console = steps::install(&machine("install", &disks).cdrom(&medium.full), artifacts)?;
        let (vm, ssh) = steps::boot(&machine("first-boot", &disks), &identity, artifacts)?;
        let mut checks = Checks::default();
        node::check_document(&ssh, document, &mut checks)?;
        node::check_immutable(&ssh, &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        let found: Inventory = serde_json::from_str(&ssh.run("sudo -n installer inventory")?)?;
        artifacts.append("inventory.json", &serde_json::to_string_pretty(&found)?)?;
        for nic in &found.nics {
            checks.contains("what the install said", &console, &nic.name);
        }
        let hardware = found.hardware.as_ref().context("an inventory with drivers")?;
        let early: Vec<_> =
            hardware.devices.iter().filter(|device| device.early).map(|one| one.driver.as_str()).collect();
        checks.that(&format!("the disk is reached through {driver}: {early:?}"), early.contains(driver));
        let cards: Vec<_> = found.nics.iter().map(|nic| nic.driver.as_deref()).collect();
        checks.equal("the drivers of the cards", cards, vec![Some(*card)]);
        if document.data_disk.is_some() {
            let holders: Vec<_> = found.disks.iter().map(|disk| disk.holders.is_empty()).collect();
            checks.equal("whether disks are not used", holders, vec![false, false]);
        }
        // The node would not lose its hardware under its own release.
        let fleet = artifacts.path("inventories");
        fs::create_dir_all(&fleet)?;
        keep(&fleet, name, &found)?;
        checks.equal("what it would lose", &judged(&medium, &fleet)?[0]["reasons"], &Value::Null);
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        checks.finish(name)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// The links to the namespaces of the controller that has several, without the number.
const NAMESPACES: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nqrust-namespaces";

/// A node on the only disk.
fn only_disk() -> Document {
    Document { device: None, ..Document::new("node-h") }
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn a_node_is_installed_on_ide_with_e1000_on_the_old_board_and_starts() {
    installed_and_started(&NodeMachine {
        name: "ide-e1000",
        document: only_disk(),
        disks: &[32],
        machine: |purpose, disks| {
            steps::node(purpose, Firmware::Bios, "").old_board().cards("e1000").sata(&disks[0])
        },
        drivers: ("ata_piix", "e1000"),
    });
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn a_node_is_installed_on_megasas_with_e1000e_and_starts() {
    installed_and_started(&NodeMachine {
        name: "megasas-e1000e",
        document: only_disk(),
        disks: &[32],
        machine: |purpose, disks| {
            steps::node(purpose, Firmware::Bios, "").cards("e1000e").controller("megasas-gen2", &disks[0])
        },
        drivers: ("megaraid_sas", "e1000e"),
    });
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn a_node_is_installed_on_mptsas_with_vmxnet3_and_starts() {
    installed_and_started(&NodeMachine {
        name: "mptsas-vmxnet3",
        document: only_disk(),
        disks: &[32],
        machine: |purpose, disks| {
            steps::node(purpose, Firmware::Bios, "").cards("vmxnet3").controller("mptsas1068", &disks[0])
        },
        drivers: ("mptsas", "vmxnet3"),
    });
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn a_node_is_installed_on_one_namespace_with_its_data_on_another_and_starts() {
    let document = Document {
        // Their nodes can be swapped at the next start.
        device: Some(format!("{NAMESPACES}_1")),
        data_disk: Some(format!("{NAMESPACES}_2")),
        ..Document::new("node-n")
    };
    installed_and_started(&NodeMachine {
        name: "namespaces-rtl8139",
        document,
        disks: &[32, 24],
        machine: |purpose, disks| {
            let machine = steps::node(purpose, Firmware::Uefi, "").cards("rtl8139");
            machine.nvme_namespace(&disks[0], 1).nvme_namespace(&disks[1], 2)
        },
        drivers: ("nvme", "8139cp"),
    });
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn a_node_is_installed_on_a_disk_by_usb_and_starts() {
    installed_and_started(&NodeMachine {
        name: "usb-e1000e",
        document: only_disk(),
        disks: &[32],
        machine: |purpose, disks| {
            steps::node(purpose, Firmware::Uefi, "").cards("e1000e").usb_disk(&disks[0])
        },
        drivers: ("usb-storage", "e1000e"),
    });
}

#[test]
#[ignore = "hardware matrix: `make soak` runs it"]
fn a_node_is_installed_on_pvscsi_with_vmxnet3_and_starts() {
    // Debian's OVMF has no driver for it.
    installed_and_started(&NodeMachine {
        name: "pvscsi-vmxnet3",
        document: only_disk(),
        disks: &[32],
        machine: |purpose, disks| {
            steps::node(purpose, Firmware::Bios, "").cards("vmxnet3").controller("pvscsi", &disks[0])
        },
        drivers: ("vmw_pvscsi", "vmxnet3"),
    });
}
