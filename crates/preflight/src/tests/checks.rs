//! Every check: passes, finds, cannot run.

use super::*;
use crate::planned_node::{AddressClaim, Proxy};
use machine::inventory::{DiskPath, RemoteTarget};
use model::config::Role;
use model::config::disk::Transport;
use model::hardware::CrashDumpSupport;
use model::network_disks::{CardAddress, CardSetup, DiskProtocol, NetworkDiskAccess, TargetPortal};

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 54);
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The outcome of a check of the machine for a production node.
fn of(machine: &Machine, name: &str) -> CheckOutcome {
    outcome(name, &machine.facts(), &PlannedNode::default(), &Answers::default())
}

#[test]
fn processors() {
    let machine = Machine::fit();
    expect(&of(&machine, "cpu"), "passed", "32 processors");
    machine.file("sys/devices/system/cpu/online", "0,2-7\n");
    expect(&of(&machine, "cpu"), "found", "7 processors, and a node in production should have 16");
    machine.file("sys/devices/system/cpu/online", "3-1\n");
    expect(&of(&machine, "cpu"), "could not run", "not a list");
    machine.remove("sys/devices/system/cpu/online");
    expect(&of(&machine, "cpu"), "could not run", "cpu/online");
}

#[test]
fn limits_follow_role_and_profile() {
    let machine = Machine::fit();
    machine.file("sys/devices/system/cpu/online", "0-3\n");
    machine.remove("sys/firmware/dmi");
    machine.file("proc/meminfo", "MemTotal: 8000000 kB\n");
    let witness = PlannedNode { role: Role::Witness, ..PlannedNode::default() };
    for name in ["cpu", "memory"] {
        let of = |node: &PlannedNode| outcome(name, &machine.facts(), node, &Answers::default());
        expect(&of(&witness), "passed", "");
        expect(&of(&trial()), "found", "a node for a trial should have");
        expect(&of(&PlannedNode::default()), "found", "a node in production should have");
    }
}

#[test]
fn memory() {
    let machine = Machine::fit();
    expect(&of(&machine, "memory"), "passed", "84 GiB");
    // Tables with less memory than the kernel has, or far more, are not plausible.
    for modules in [&[1024][..], &[0x7000; 8]] {
        machine.bytes("sys/firmware/dmi/tables/DMI", &crate::dmi::tests::table(modules));
        expect(&of(&machine, "memory"), "passed", "83.2 GiB");
    }
    machine.remove("sys/firmware/dmi");
    let tenth_less = (64 << 20) / 10 * 9 + 10;
    machine.file("proc/meminfo", &format!("MemTotal: {tenth_less} kB\n"));
    expect(&of(&machine, "memory"), "passed", "57.6 GiB");
    machine.file("proc/meminfo", "MemTotal: 59768832 kB\n");
    expect(&of(&machine, "memory"), "found", "57 GiB of memory, and a node in production should have 64 GiB");
    machine.file("proc/meminfo", "MemFree: 1 kB\n");
    expect(&of(&machine, "memory"), "could not run", "no MemTotal");
    machine.remove("proc/meminfo");
    expect(&of(&machine, "memory"), "could not run", "meminfo");
}

#[test]
fn the_machine_in_words() {
    let machine = Machine::fit();
    assert_eq!(machine.facts().describe(), "Server 9: 32 processors, 84 GiB of memory");
    machine.file("sys/devices/system/cpu/online", "0\n");
    machine.remove("sys/class/dmi/id/product_name");
    assert_eq!(machine.facts().describe(), "1 processor, 84 GiB of memory");
    assert_eq!(MachineFacts::of_inventory(inventory()).describe(), "");
}

#[test]
fn kvm_and_the_reason_for_its_absence() {
    let machine = Machine::fit();
    expect(&of(&machine, "kvm"), "passed", "/dev/kvm");
    machine.remove("dev/kvm");
    for (flags, next) in [("vmx", "kernel's messages"), ("hypervisor", "nested"), ("fpu", "firmware")] {
        machine.file("proc/cpuinfo", &format!("flags : {flags}\n"));
        let CheckOutcome::Found(finding) = of(&machine, "kvm") else { panic!("{flags}") };
        assert!(finding.next.contains(next), "{flags}: {}", finding.next);
    }
    let elsewhere = MachineFacts::of_inventory(inventory());
    let outcome = outcome("kvm", &elsewhere, &PlannedNode::default(), &Answers::default());
    expect(&outcome, "could not run", "on the machine itself");
}

#[test]
fn virtualisation() {
    let machine = Machine::fit();
    expect(&of(&machine, "virtualisation"), "passed", "a real machine (Server 9)");
    machine.file("proc/cpuinfo", "flags\t: fpu hypervisor\n");
    machine.file("sys/class/dmi/id/sys_vendor", "QEMU\n");
    expect(&of(&machine, "virtualisation"), "found", "a virtual machine (QEMU Server 9)");
    machine.file("proc/cpuinfo", "Features : neon\n");
    expect(&of(&machine, "virtualisation"), "could not run", "no flags");
}

/// Puts a PCI device there: its address, class, vendor and device.
fn pci(machine: &Machine, address: &str, numbers: [&str; 3], driver: Option<&str>) {
    let directory = format!("sys/bus/pci/devices/{address}");
    for (file, number) in ["class", "vendor", "device"].into_iter().zip(numbers) {
        machine.file(&format!("{directory}/{file}"), number);
    }
    if let Some(driver) = driver {
        let link = machine.0.path().join(directory).join("driver");
        std::os::unix::fs::symlink(format!("/sys/bus/pci/drivers/{driver}"), link).unwrap();
    }
}

#[test]
fn drivers_and_what_they_lack() {
    let machine = Machine::fit();
    expect(&of(&machine, "drivers"), "passed", "none on the PCI bus");
    pci(&machine, "0000:00:17.0", ["0x010601", "0x8086", "0xa182"], Some("ahci"));
    expect(&of(&machine, "drivers"), "passed", "the only one has a driver");
    pci(&machine, "0000:03:00.0", ["0x020000", "0x14e4", "0x168e"], Some("bnx2x"));
    expect(&of(&machine, "drivers"), "passed", "all 2 have a driver");
    let log = "6,1,1,-;bnx2x 0000:03:00.0: Direct firmware load for bnx2x/a.fw failed with error -2\n";
    machine.file("dev/kmsg", log);
    let CheckOutcome::Found(finding) = of(&machine, "drivers") else { panic!("the firmware") };
    assert!(finding.message.starts_with("bnx2x of 0000:03:00.0, "), "{}", finding.message);
    assert!(finding.message.contains("14e4:168e"), "{}", finding.message);
    assert!(finding.message.ends_with(" lacks the firmware bnx2x/a.fw"), "{}", finding.message);
    assert!(finding.next.contains("base.debian.firmware"), "{}", finding.next);
    pci(&machine, "0000:3b:00.0", ["0x020000", "0xffff", "0x16d6"], None);
    let CheckOutcome::Found(finding) = of(&machine, "drivers") else { panic!("the driver") };
    assert!(finding.message.starts_with("no driver for 0000:3b:00.0, "), "{}", finding.message);
    assert!(
        finding.message.contains("ffff:16d6") && finding.message.contains("bnx2x/a.fw"),
        "{}",
        finding.message
    );
    machine.file("dev/kmsg", "");
    let CheckOutcome::Found(finding) = of(&machine, "drivers") else { panic!("the driver alone") };
    assert!(finding.next.contains("newer kernel") && !finding.next.contains("firmware"), "{}", finding.next);
    let elsewhere = MachineFacts::of_inventory(inventory());
    let outcome = outcome("drivers", &elsewhere, &PlannedNode::default(), &Answers::default());
    expect(&outcome, "could not run", "on the machine itself");
}

#[test]
fn a_machine_without_a_usable_network_card_tells_those_that_it_cannot_use() {
    let machine = Machine::fit();
    pci(&machine, "0000:3b:00.0", ["0x020000", "0xffff", "0x16d6"], None);
    let facts = MachineFacts::scan(&machine.roots(), Inventory::default());
    let outcome = outcome("nic-link", &facts, &PlannedNode::default(), &Answers::default());
    expect(&outcome, "found", "these have none: 0000:3b:00.0, ");
}

#[test]
fn firmware() {
    let machine = Machine::fit();
    expect(&of(&machine, "firmware"), "passed", "UEFI");
    machine.remove("sys/firmware/efi");
    expect(&of(&machine, "firmware"), "found", "BIOS");
    machine.remove("sys/firmware");
    expect(&of(&machine, "firmware"), "could not run", "firmware");
}

#[test]
fn the_uuid_of_the_machine() {
    let machine = Machine::fit();
    let file = "sys/class/dmi/id/product_uuid";
    expect(&of(&machine, "dmi-uuid"), "passed", "4c4c4544-0042-3510-8052-b4c04f4a5a32");
    let shared = [
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
    ];
    for uuid in shared {
        machine.file(file, uuid);
        expect(&of(&machine, "dmi-uuid"), "found", "shared by many machines");
    }
    machine.file(file, "Not Settable\n");
    expect(&of(&machine, "dmi-uuid"), "found", "is not valid");
    machine.remove(file);
    expect(&of(&machine, "dmi-uuid"), "found", "has no product UUID");
    machine.remove("sys/class/dmi");
    expect(&of(&machine, "dmi-uuid"), "could not run", "no DMI");
}

/// The outcome of a check with changed disks and cards.
fn with(name: &str, node: &PlannedNode, change: impl FnOnce(&mut Inventory)) -> CheckOutcome {
    let mut facts = Machine::fit().facts();
    change(&mut facts.inventory);
    outcome(name, &facts, node, &Answers::default())
}

#[test]
fn the_size_of_the_disk() {
    let size = |gib| move |inventory: &mut Inventory| inventory.disks[0].size = ByteSize::gib(gib);
    let node = PlannedNode::default();
    expect(&with("disk-size", &node, |_| ()), "passed", "/dev/sda");
    expect(&with("disk-size", &node, size(300)), "mild", "should have 465.7 GiB");
    expect(&with("disk-size", &node, size(249)), "found", "should have 250 GiB");
    expect(&with("disk-size", &trial(), size(10)), "passed", "10 GiB");
    let witness = PlannedNode { role: Role::Witness, ..PlannedNode::default() };
    expect(&with("disk-size", &witness, size(180)), "passed", "180 GiB");
    expect(&with("disk-size", &node, |inventory| inventory.disks.clear()), "found", "no disk");
    let two = |inventory: &mut Inventory| inventory.disks.push(disk("sdb", ByteSize::gib(900)));
    expect(&with("disk-size", &node, two), "could not run", "2 disks");
    expect(&with("disk-speed", &node, two), "could not run", "see disk-size");
    let absent = PlannedNode { device: Some("/dev/sdz".parse().unwrap()), ..PlannedNode::default() };
    expect(&with("disk-size", &absent, two), "found", "there is no disk /dev/sdz");
    // Of two disks the one that is not for data is meant.
    let rest = PlannedNode { data_disk: Some("/dev/sda".parse().unwrap()), ..PlannedNode::default() };
    expect(&with("disk-size", &rest, two), "passed", "/dev/sdb");
    // With data on a disk of its own the system's may be smaller; on the same disk it may not.
    for (data, outcome) in [("/dev/sdb", "passed"), ("/dev/sda", "found"), ("/dev/sdz", "found")] {
        let device = Some("/dev/sda".parse().unwrap());
        let apart = PlannedNode { device, data_disk: Some(data.parse().unwrap()), ..PlannedNode::default() };
        let small = |inventory: &mut Inventory| {
            two(inventory);
            inventory.disks[0].size = ByteSize::gib(180);
        };
        expect(&with("disk-size", &apart, small), outcome, "180 GiB");
    }
}

#[test]
fn a_disk_over_the_network_needs_a_release_that_logs_in_and_a_card_of_its_own() {
    let of = |node: &PlannedNode, remote: bool, firmware: bool| {
        let mut facts = Machine::fit().facts();
        let target = "iqn.2026-01.com.example:a".to_owned();
        let portal = "192.0.2.9:3260".parse().unwrap();
        let protocol = DiskProtocol::Iscsi;
        if remote {
            facts.inventory.disks[0].remote =
                Some(RemoteTarget { protocol, target: target.clone(), portals: vec![portal] });
        }
        if firmware {
            let mac = facts.inventory.nics[0].mac.parse().unwrap();
            let address = CardAddress::Dhcp;
            facts.firmware_disks = NetworkDiskAccess {
                initiator: None,
                host: None,
                cards: vec![CardSetup { mac, address, gateway: None, vlan: None, mtu: None }],
                system_targets: Default::default(),
                targets: vec![TargetPortal { protocol, target, portal, chap: None }],
            };
        }
        outcome("network-disks", &facts, node, &Answers::default())
    };
    let node = |iscsi: Option<bool>| {
        // What is not needed is no way out.
        let protocols = |iscsi| if iscsi { DiskProtocol::Iscsi } else { DiskProtocol::NvmeTcp };
        PlannedNode { disk_protocols: iscsi.map(|iscsi| vec![protocols(iscsi)]), ..PlannedNode::default() }
    };
    expect(&of(&node(None), false, true), "passed", "no disk of the node is reached over the network");
    let told = "/dev/sda is iSCSI target iqn.2026-01.com.example:a at 192.0.2.9:3260";
    expect(&of(&node(Some(true)), true, true), "passed", told);
    expect(
        &of(&node(Some(true)), true, false),
        "mild",
        "the firmware has no iBFT with the target of the system",
    );
    expect(&of(&node(Some(false)), true, true), "found", "does not reach disks by iSCSI");
    expect(&of(&node(None), true, true), "could not run", told);
    let name = Machine::fit().facts().inventory.nics[0].name.parse().ok();
    let all_cards = vec![model::config::Interface { name, hw_addr: None }];
    let moved = PlannedNode { all_cards, ..node(Some(true)) };
    expect(&of(&moved, true, true), "found", "as a part of its bond the card would lose the address");
    expect(&of(&moved, false, false), "passed", "");
}

#[test]
fn a_disk_with_several_paths_needs_multipathd_in_the_initrd_of_the_release() {
    let paths = |count: usize| {
        move |inventory: &mut Inventory| {
            let path = |number| DiskPath {
                name: format!("sd{number}"),
                path: format!("/dev/sd{number}").into(),
                links: Vec::new(),
            };
            inventory.disks[0].paths = (0..count).map(path).collect();
        }
    };
    let node = |several_paths| PlannedNode { several_paths, ..PlannedNode::default() };
    for several_paths in [None, Some(false), Some(true)] {
        expect(&with("disk-paths", &node(several_paths), paths(0)), "passed", "one path leads to /dev/sda");
    }
    for count in [1, 2] {
        let told = format!("{count} paths lead to /dev/sda");
        expect(&with("disk-paths", &node(Some(true)), paths(count)), "passed", &told);
        expect(&with("disk-paths", &node(Some(false)), paths(count)), "found", &told);
        expect(&with("disk-paths", &node(None), paths(count)), "could not run", "the release is not known");
    }
    let mirrored = PlannedNode { mirror: "/dev/sdb".parse().ok(), ..node(Some(true)) };
    expect(
        &with("disk-paths", &mirrored, paths(2)),
        "found",
        "a mirror of disks with several paths is not supported",
    );
    let none = |inventory: &mut Inventory| inventory.disks.clear();
    expect(&with("disk-paths", &node(Some(true)), none), "could not run", "see disk-size");
}

#[test]
fn the_speed_of_the_disk() {
    let node = PlannedNode::default();
    expect(&with("disk-speed", &node, |_| ()), "passed", "/dev/sda");
    let spins = |inventory: &mut Inventory| inventory.disks[0].rotational = true;
    expect(&with("disk-speed", &node, spins), "found", "rotational");
    let stick = |inventory: &mut Inventory| inventory.disks[0].transport = Transport::Usb;
    expect(&with("disk-speed", &node, stick), "found", "USB");
    let none = |inventory: &mut Inventory| inventory.disks.clear();
    expect(&with("disk-speed", &node, none), "could not run", "see disk-size");
}

/// A node with these settings of the machine, and its document's other values.
fn hosting(host: &str) -> PlannedNode {
    PlannedNode::of(&model::config::parse(&format!("os: {{host: {host}}}"), "node.yaml").unwrap())
}

#[test]
fn what_the_machine_can_do_for_virtual_machines() {
    let machine = Machine::fit();
    let of = |host: &str| outcome("host-settings", &machine.facts(), &hosting(host), &Answers::default());
    expect(&of("{}"), "skipped", "os.host is empty");
    expect(&of("{huge_pages: [{size: 2M, count: 8}]}"), "found", "the processor has no huge pages of 2M");
    machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
    expect(&of("{huge_pages: [{size: 2M, count: 8}]}"), "passed", "the machine can do");
    // 84 GiB, of which the node needs 2.
    expect(&of("{huge_pages: [{size: 2M, count: 41984}]}"), "passed", "");
    expect(&of("{huge_pages: [{size: 2M, count: 41985}]}"), "found", "huge pages take 82.0 GiB of 84 GiB");
    expect(&of("{iommu: true}"), "found", "the firmware describes no IOMMU");
    machine.file("sys/firmware/acpi/tables/DMAR", "");
    expect(&of("{iommu: true}"), "passed", "");
    expect(&of("{sriov: [{name: ens9, functions: 2}]}"), "found", "there is no network card ens9");
    expect(&of("{sriov: [{name: ens1, functions: 2}]}"), "found", "ens1 has no virtual functions");
    machine.file("sys/class/net/ens1/address", "52:54:00:00:00:01\n");
    machine.file("sys/class/net/ens1/device/sriov_totalvfs", "8\n");
    expect(&of("{sriov: [{name: ens1, functions: 9}]}"), "found", "ens1 can have 8 virtual functions, not 9");
    expect(&of("{sriov: [{hw_addr: '52:54:00:00:00:01', functions: 8}]}"), "passed", "");
    expect(&of("{cpu: {governor: performance}}"), "found", "does not set the clock");
    let governors = "sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors";
    machine.file(governors, "powersave schedutil\n");
    expect(
        &of("{cpu: {governor: performance}}"),
        "found",
        "the governors powersave, schedutil, not performance",
    );
    expect(&of("{cpu: {governor: powersave}}"), "passed", "");
    machine.file("sys/devices/system/cpu/present", "0-3\n");
    expect(&of("{cpu: {isolated: 2-3}}"), "passed", "");
    expect(&of("{cpu: {isolated: 2-7}}"), "found", "there is no processor 4");
    expect(&of("{cpu: {isolated: 0-3}}"), "found", "names every processor");
    expect(&of("{nested_virtualization: true}"), "passed", "");
    machine.file("proc/cpuinfo", "flags : fpu\n");
    expect(&of("{nested_virtualization: false}"), "passed", "");
    expect(&of("{crash_kernel: true}"), "passed", "");
    expect(&of("{crash_kernel: 4G}"), "passed", "");
    let mut node = hosting("{crash_kernel: true}");
    node.crash_dumps = Some(CrashDumpSupport::NoMakedumpfile);
    let lacks = outcome("host-settings", &machine.facts(), &node, &Answers::default());
    expect(&lacks, "found", "the package makedumpfile in base.debian.include");
    node.crash_dumps = Some(CrashDumpSupport::NoKexecFile);
    let lacks = outcome("host-settings", &machine.facts(), &node, &Answers::default());
    expect(&lacks, "found", "cannot load another one for crashes (CONFIG_KEXEC_FILE)");
    let mut remote = machine.facts();
    let target = "iqn.2026-01.com.example:a".to_owned();
    let portals = vec!["192.0.2.9:3260".parse().unwrap()];
    remote.inventory.disks[0].remote = Some(RemoteTarget { protocol: DiskProtocol::Iscsi, target, portals });
    let lacks = outcome("host-settings", &remote, &hosting("{crash_kernel: true}"), &Answers::default());
    expect(
        &lacks,
        "found",
        "crash dumps cannot be written over the network, and the disk of the system is iSCSI target iqn",
    );
    expect(
        &outcome("host-settings", &remote, &hosting("{crash_kernel: false}"), &Answers::default()),
        "passed",
        "",
    );
    let mut small = machine.facts();
    for (mib, text, told) in [
        (1536, "true", "of 1.5 GiB of memory none is reserved for a crash kernel"),
        (1536, "768M", "the crash kernel takes 768 MiB of 1.5 GiB of memory, and leaves 768 MiB"),
    ] {
        if let Ok(memory) = &mut small.memory {
            memory.size = base::size::ByteSize::mib(mib);
        }
        let node = hosting(&format!("{{crash_kernel: {text}}}"));
        expect(&outcome("host-settings", &small, &node, &Answers::default()), "found", told);
    }
    let all = of("{nested_virtualization: true, cpu: {isolated: 2-7}}");
    expect(
        &all,
        "found",
        "there is no processor 4, which os.host.cpu.isolated names; the processor runs no virtual machines",
    );
    let elsewhere = MachineFacts::of_inventory(inventory());
    let unknown = outcome("host-settings", &elsewhere, &hosting("{iommu: true}"), &Answers::default());
    expect(&unknown, "could not run", "on the machine itself");
}

#[test]
fn modules_of_extensions_are_loaded_or_refused_as_the_kernel_would() {
    let machine = Machine::fit();
    let of = |coverage: Option<&str>| {
        let read = |text: &str| {
            let text = format!(
                r#"{{"format":1,"architecture":"amd64","kernel":"6.12","modules":[{text}],"firmware":[]}}"#
            );
            std::sync::Arc::new(model::hardware::HardwareCoverage::parse(text.as_bytes()).unwrap())
        };
        let node = PlannedNode { coverage: coverage.map(read), ..PlannedNode::default() };
        outcome("module-signatures", &machine.facts(), &node, &Answers::default())
    };
    let acme = r#"{"name":"acme","aliases":["pci:v0000ACE0*"],"outside":{}}"#;
    expect(&of(Some(acme)), "passed", "loads unsigned modules too");
    machine.file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    expect(&of(None), "skipped", "the release does not say");
    expect(&of(Some(acme)), "passed", "every module that this machine needs");
    machine.file("sys/bus/pci/devices/0000:3b:00.0/modalias", "pci:v0000ACE0d00000001\n");
    expect(&of(Some(acme)), "found", "pci 0000:3b:00.0 needs the module acme, which is not signed");
    expect(&of(Some(&acme.replace("ACE0", "ACE1"))), "passed", "every module");
    let elsewhere = MachineFacts::of_inventory(inventory());
    let unknown = outcome("module-signatures", &elsewhere, &PlannedNode::default(), &Answers::default());
    expect(&unknown, "could not run", "on the machine itself");
}

#[test]
fn devices_that_the_node_needs_are_not_passed_through() {
    let machine = Machine::fit();
    for (address, class, device, name) in [
        ("0000:3b:00.0", "0x030000", "0x2204", None),
        ("0000:00:17.0", "0x010601", "0xa182", Some("block/sda")),
        ("0000:03:00.0", "0x020000", "0x158b", Some("class/net/ens1/device")),
        ("0000:03:00.1", "0x020000", "0x158b", Some("class/net/ens2/device")),
    ] {
        pci(&machine, address, [class, "0x8086", device], None);
        if let Some(name) = name {
            let link = machine.0.path().join("sys").join(name);
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(machine.0.path().join("sys/bus/pci/devices").join(address), link)
                .unwrap();
        }
    }
    for name in ["ens1", "ens2"] {
        machine.file(&format!("sys/class/net/{name}/address"), "52:54:00:00:00:01\n");
    }
    let of = |passthrough: &str| {
        let text = format!(
            "install: {{mode: install, management_interface: {{interfaces: [{{name: ens1}}]}}}}\nos: {{host: {{passthrough: [{passthrough}]}}}}"
        );
        let node = PlannedNode::of(&model::config::parse(&text, "node.yaml").unwrap());
        outcome("passthrough", &machine.facts(), &node, &Answers::default())
    };
    expect(&of(""), "skipped", "is empty");
    expect(&of("'8086:2204'"), "passed", "needs none");
    expect(&of("'03:00.1'"), "passed", "needs none");
    expect(&of("'8086:158b'"), "found", "takes 0000:03:00.0 (8086:158b), on which the network card ens1 is");
    expect(&of("'0000:00:17.0'"), "found", "on which the disk sda is");
    expect(&of("'8086:ffff'"), "found", "there is no device 8086:ffff on the PCI bus");
}

#[test]
fn links() {
    let any = PlannedNode::default();
    let of = |names: &[&str]| PlannedNode { cards: named(names), ..PlannedNode::default() };
    let carrier = |carrier| {
        move |inventory: &mut Inventory| inventory.nics.iter_mut().for_each(|nic| nic.carrier = carrier)
    };
    expect(&with("nic-link", &any, |_| ()), "passed", "ens1");
    expect(&with("nic-link", &any, carrier(Some(false))), "found", "no network card has a link");
    expect(&with("nic-link", &any, carrier(None)), "could not run", "ens1, ens2 is down");
    expect(&with("nic-link", &any, |inventory| inventory.nics.clear()), "found", "there is no network card");
    expect(&with("nic-link", &of(&["ens1"]), |_| ()), "passed", "ens1 has a link");
    expect(&with("nic-link", &of(&["ens2"]), |_| ()), "found", "ens2 has no link");
    expect(&with("nic-link", &of(&["ens1", "ens2"]), |_| ()), "mild", "ens2 has no link");
    expect(&with("nic-link", &of(&["ens1"]), carrier(None)), "could not run", "ens1 is down");
    expect(
        &with("nic-link", &of(&["eth9"]), |_| ()),
        "found",
        "eth9 is no card of this machine, which has ens1 52:",
    );
    let wanted = Interface { name: None, hw_addr: Some("52:54:00:00:00:02".parse().unwrap()) };
    let by_address = PlannedNode { cards: vec![wanted], ..PlannedNode::default() };
    expect(&with("nic-link", &by_address, |_| ()), "found", "ens2 has no link");
}

#[test]
fn the_speed_of_cards() {
    let any = PlannedNode::default();
    let speed = |speed| move |inventory: &mut Inventory| inventory.nics[0].speed = speed;
    expect(&with("nic-speed", &any, |_| ()), "passed", "ens1 has 25 Gbit/s");
    let slow = with("nic-speed", &any, speed(Some(1000)));
    expect(&slow, "found", "ens1 has 1 Gbit/s, and a node in production should have 10 Gbit/s");
    expect(&with("nic-speed", &trial(), speed(Some(1000))), "passed", "1 Gbit/s");
    expect(&with("nic-speed", &trial(), speed(Some(100))), "found", "100 Mbit/s");
    expect(&with("nic-speed", &any, speed(None)), "could not run", "does not report its speed");
    let both = PlannedNode { cards: named(&["ens1", "ens2"]), ..PlannedNode::default() };
    expect(&with("nic-speed", &both, |_| ()), "could not run", "ens2 does not report its speed");
    expect(&with("nic-speed", &both, speed(Some(10))), "found", "ens1 has 10 Mbit/s");
    let absent = PlannedNode { cards: named(&["eth9"]), ..PlannedNode::default() };
    expect(
        &with("nic-speed", &absent, |_| ()),
        "could not run",
        "eth9 is no card of this machine; see nic-link",
    );
    expect(&with("nic-speed", &any, |inventory| inventory.nics.clear()), "could not run", "no network card");
}

fn on(name: &str, network: &Answers, node: &PlannedNode) -> CheckOutcome {
    outcome(name, &Machine::fit().facts(), node, network)
}

fn time_servers(servers: &[&str]) -> PlannedNode {
    let time_servers = servers.iter().map(|server| (*server).to_owned()).collect();
    PlannedNode { time_servers, name_servers: vec![SERVER], ..PlannedNode::default() }
}

fn telling(time: Result<TimeAnswer, NetworkTrouble>) -> Answers {
    Answers { time: [(HOST, time)].into(), ..Answers::default() }
}

#[test]
fn the_clock() {
    let node = time_servers(&["192.0.2.1"]);
    expect(&on("clock", &telling(offset(0, true)), &node), "passed", "within a second");
    expect(&on("clock", &telling(offset(60, true)), &node), "passed", "60 s behind");
    expect(&on("clock", &telling(offset(7300, true)), &node), "found", "the clock is 2 h behind 192.0.2.1");
    expect(&on("clock", &telling(offset(90, false)), &node), "found", "90 s ahead of");
    expect(&on("clock", &telling(silent()), &node), "could not run", "no time server gave the time");
    expect(
        &on("clock", &telling(silent()), &PlannedNode::default()),
        "could not run",
        "no time server to compare",
    );
    let early = PlannedNode { not_before: Some(1_814_400_001), ..PlannedNode::default() };
    expect(&on("clock", &telling(silent()), &early), "found", "2027-07-01T00:00:00Z, which is before");
    let late = PlannedNode { not_before: Some(1_814_400_000), ..node };
    expect(&on("clock", &telling(offset(0, true)), &late), "passed", "");
}

#[test]
fn time_servers_by_address_and_by_name() {
    let node = time_servers(&["192.0.2.1"]);
    expect(&on("ntp", &telling(offset(5, true)), &node), "passed", "192.0.2.1 gives the time");
    expect(&on("ntp", &telling(Ok(TimeAnswer::Unsynchronised)), &node), "found", "does not know the time");
    expect(&on("ntp", &telling(silent()), &node), "found", "192.0.2.1 does not answer");
    expect(&on("ntp", &telling(unable()), &node), "could not run", "192.0.2.1 cannot be reached");
    expect(&on("ntp", &telling(silent()), &PlannedNode::default()), "skipped", "no time server");
    expect(&on("ntp", &telling(silent()), &time_servers(&["ntp"])), "could not run", "no domain");
    expect(&on("ntp", &telling(silent()), &time_servers(&["2001:db8::1"])), "could not run", "IPv6");
    let name = time_servers(&["ntp.example.org"]);
    let knows = |answer| {
        let lookup = [((SERVER, "ntp.example.org".to_owned()), answer)].into();
        Answers { lookup, ..telling(offset(0, true)) }
    };
    let both = DnsAnswer::Addresses(vec![OTHER, HOST]);
    expect(&on("ntp", &knows(Ok(both)), &name), "passed", "ntp.example.org gives the time");
    expect(&on("ntp", &knows(Ok(DnsAnswer::NoSuchName)), &name), "found", "is unknown to 192.0.2.53");
    expect(&on("ntp", &knows(Ok(DnsAnswer::Addresses(vec![]))), &name), "found", "has no IPv4 address");
    expect(&on("ntp", &knows(silent()), &name), "could not run", "cannot be looked up: 192.0.2.53 does not");
    let refused = DnsAnswer::Unwilling("REFUSED".into());
    expect(&on("ntp", &knows(Ok(refused)), &name), "could not run", "answers REFUSED");
}

#[test]
fn one_finding_outweighs_what_is_not_known_and_both_are_told() {
    let network = Answers { time: [(HOST, silent()), (OTHER, unable())].into(), ..Answers::default() };
    let outcome = on("ntp", &network, &time_servers(&["192.0.2.54", "192.0.2.1"]));
    expect(&outcome, "found", "192.0.2.1 does not answer; 192.0.2.54 cannot be reached");
}

#[test]
fn name_servers() {
    let known = |answer| Answers {
        lookup: [((SERVER, "ntp.example.org".to_owned()), answer)].into(),
        ..Answers::default()
    };
    let node = time_servers(&["ntp.example.org", "192.0.2.1"]);
    let good = known(Ok(DnsAnswer::Addresses(vec![HOST])));
    expect(&on("dns", &good, &node), "passed", "192.0.2.53 knows ntp.example.org");
    expect(&on("dns", &known(Ok(DnsAnswer::NoSuchName)), &node), "found", "does not know ntp.example.org");
    let refused = DnsAnswer::Unwilling("SERVFAIL".into());
    expect(&on("dns", &known(Ok(refused)), &node), "found", "answers SERVFAIL for ntp.example.org");
    expect(&on("dns", &known(silent()), &node), "found", "192.0.2.53 does not answer");
    expect(&on("dns", &known(unable()), &node), "could not run", "192.0.2.53 cannot be reached");
    let second = PlannedNode { name_servers: vec![SERVER, OTHER], ..node.clone() };
    expect(&on("dns", &good, &second), "found", "192.0.2.54 does not answer");
    let none = PlannedNode { name_servers: vec![], ..node.clone() };
    expect(&on("dns", &good, &none), "found", "no name server to look up ntp.example.org");
    expect(
        &on("dns", &good, &PlannedNode { dhcp: true, ..none.clone() }),
        "could not run",
        "has announced no name server to this system",
    );
    let leased = Answers { resolvers: vec![SERVER], ..known(Ok(DnsAnswer::Addresses(vec![HOST]))) };
    expect(&on("dns", &leased, &PlannedNode { dhcp: true, ..none }), "passed", "192.0.2.53");
    expect(&on("dns", &good, &PlannedNode::default()), "skipped", "needs none");
}

#[test]
fn a_name_server_that_nobody_needs_a_name_from_has_only_to_answer() {
    let node = PlannedNode { name_servers: vec![SERVER], ..PlannedNode::default() };
    let refused = Ok(DnsAnswer::Unwilling("REFUSED".into()));
    let network = Answers { lookup: [((SERVER, String::new()), refused)].into(), ..Answers::default() };
    expect(&on("dns", &network, &node), "passed", "192.0.2.53 answers");
    expect(&on("dns", &Answers::default(), &node), "found", "does not answer");
}

#[test]
fn proxies() {
    let proxy = |host: &str, tls| Proxy { host: host.into(), port: 3128, tls };
    let node = |host| PlannedNode {
        proxies: vec![proxy(host, true)],
        name_servers: vec![SERVER],
        ..PlannedNode::default()
    };
    let network = |answer| Answers { proxy: Some(answer), ..Answers::default() };
    let good = network(Ok(()));
    expect(&on("proxy", &good, &node("192.0.2.1")), "passed", "192.0.2.1:3128 answers");
    assert_eq!(*good.asked.lock().unwrap(), ["proxy 192.0.2.1:3128 true"]);
    expect(&on("proxy", &network(silent()), &node("192.0.2.1")), "found", "192.0.2.1:3128 does not answer");
    expect(&on("proxy", &network(unable()), &node("192.0.2.1")), "could not run", "cannot be reached");
    expect(&on("proxy", &good, &node("proxy.example.org")), "could not run", "cannot be looked up");
    expect(&on("proxy", &good, &PlannedNode::default()), "skipped", "no proxy");
}

fn claim(cards: &[&str], vlan: u32) -> PlannedNode {
    let device = if vlan > 1 { "mgmt-br.20" } else { "mgmt-br" };
    let cards = named(cards);
    let claim = AddressClaim { address: HOST, key: "install.vip".into(), cards, vlan, device: device.into() };
    PlannedNode { claims: vec![claim], ..PlannedNode::default() }
}

#[test]
fn addresses_that_somebody_has() {
    let held =
        |holder| Answers { holder: [((HOST, "ens1".to_owned()), holder)].into(), ..Answers::default() };
    let other = Ok(AddressHolder::Other("52:54:00:aa:bb:cc".into()));
    for cards in [&["ens1"][..], &["ens2", "ens1"], &[]] {
        let node = claim(cards, 0);
        let free = held(Ok(AddressHolder::Nobody));
        expect(&on("address-conflict", &free, &node), "passed", "192.0.2.1 (install.vip) is free on ens1");
        assert_eq!(*free.asked.lock().unwrap(), ["holder 192.0.2.1 ens1"], "no card without a link is asked");
        let outcome = on("address-conflict", &held(other.clone()), &node);
        expect(&outcome, "found", "in use: the machine 52:54:00:aa:bb:cc answers for it on ens1");
        expect(&on("address-conflict", &held(unable()), &node), "could not run", "cannot be reached");
    }
}

#[test]
fn a_live_system_with_the_networks_of_the_node_asks_on_them() {
    for (vlan, device) in [(0, "mgmt-br"), (20, "mgmt-br.20")] {
        for (holder, outcome, told) in [
            (AddressHolder::Nobody, "passed", "is free on"),
            (AddressHolder::Own, "passed", "this machine's already"),
            (AddressHolder::Other("52:54:00:aa:bb:cc".into()), "found", "answers for it on"),
        ] {
            let network =
                Answers { holder: [((HOST, device.to_owned()), Ok(holder))].into(), ..Answers::default() };
            expect(&on("address-conflict", &network, &claim(&["ens1"], vlan)), outcome, told);
            assert_eq!(*network.asked.lock().unwrap(), [format!("holder 192.0.2.1 {device}")]);
        }
    }
}

#[test]
fn addresses_that_this_machine_has_or_that_nobody_can_ask_for() {
    let node = claim(&["ens1"], 0);
    // Another card of this machine answers too.
    for holder in [AddressHolder::Own, AddressHolder::Other("52:54:00:00:00:02".into())] {
        let network = Answers { holder: [((HOST, "ens1".into()), Ok(holder))].into(), ..Answers::default() };
        expect(&on("address-conflict", &network, &node), "passed", "this machine's already");
    }
    let network = Answers::default();
    expect(&on("address-conflict", &network, &claim(&["ens1"], 20)), "could not run", "VLAN 20");
    expect(&on("address-conflict", &network, &claim(&["ens2"], 0)), "could not run", "ens2 has no link");
    expect(&on("address-conflict", &network, &PlannedNode::default()), "skipped", "no fixed address");
    assert!(network.asked.lock().unwrap().is_empty());
}
