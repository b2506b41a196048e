//! A machine made of files of sysfs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;
use model::config::{InstallConfig, parse};
use testing::runner::ScriptedRunner;

struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.file("bus/pci/drivers_probe", "");
        machine.file("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
        for policy in ["policy0", "policy1"] {
            machine.file(&format!("devices/system/cpu/cpufreq/{policy}/scaling_governor"), "powersave\n");
            let available = format!("devices/system/cpu/cpufreq/{policy}/scaling_available_governors");
            machine.file(&available, "performance powersave\n");
        }
        machine.file("devices/system/cpu/present", "0-7\n");
        machine
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn sys(&self) -> PathBuf {
        self.0.path().join("sys")
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.sys().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.sys().join(path)).unwrap()
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.sys().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.sys().join(target), path).unwrap();
    }

    /// A device behind a bridge, with this driver.
    fn pci(&self, address: &str, [vendor, device]: [&str; 2], driver: &str) -> String {
        let place = format!("devices/pci0000:00/0000:00:01.0/{address}");
        for (file, text) in
            [("class", "0x020000"), ("vendor", vendor), ("device", device), ("driver_override", "")]
        {
            self.file(&format!("{place}/{file}"), text);
        }
        self.link(&format!("bus/pci/devices/{address}"), &place);
        self.file(&format!("bus/pci/drivers/{driver}/unbind"), "");
        self.link(&format!("{place}/driver"), &format!("bus/pci/drivers/{driver}"));
        place
    }

    /// A network card on such a device, which can have some virtual functions.
    fn card(&self, name: &str, address: &str, functions: Option<u32>) {
        let place = self.pci(address, ["0x8086", "0x158b"], "i40e");
        self.file(&format!("{place}/net/{name}/address"), "52:54:00:00:00:0a\n");
        self.link(&format!("{place}/net/{name}/device"), &place);
        self.link(&format!("class/net/{name}"), &format!("{place}/net/{name}"));
        if let Some(functions) = functions {
            self.file(&format!("{place}/sriov_totalvfs"), &format!("{functions}\n"));
            self.file(&format!("{place}/sriov_numvfs"), "0\n");
        }
    }

    /// A disk on such a device, with a partition that is mounted through a mapping.
    fn mounted_disk(&self, address: &str) {
        let place = self.pci(address, ["0x144d", "0xa808"], "nvme");
        self.file(&format!("{place}/nvme/nvme0/nvme0n1/nvme0n1p4/partition"), "4\n");
        self.link("block/nvme0n1", &format!("{place}/nvme/nvme0/nvme0n1"));
        self.file("devices/virtual/block/dm-0/dev", "253:0\n");
        self.link(
            "devices/virtual/block/dm-0/slaves/nvme0n1p4",
            &format!("{place}/nvme/nvme0/nvme0n1/nvme0n1p4"),
        );
        self.link("dev/block/253:0", "devices/virtual/block/dm-0");
        let mounts = self.root().join("proc/self/mountinfo");
        fs::create_dir_all(mounts.parent().unwrap()).unwrap();
        fs::write(
            mounts,
            "22 1 253:0 / / ro - squashfs /dev/mapper/root ro\n23 22 0:5 / /run rw - tmpfs run rw\n",
        )
        .unwrap();
    }
}

fn config(host: &str) -> InstallConfig {
    parse(&format!("os: {{host: {host}}}"), "node.yaml").unwrap()
}

#[test]
fn a_machine_says_what_it_can_do() {
    let machine = Machine::new();
    assert_eq!(HostFacts::scan(&machine.sys()).iommu, IommuState::Absent);
    machine.file("firmware/acpi/tables/DMAR", "");
    assert_eq!(HostFacts::scan(&machine.sys()).iommu, IommuState::Unused);
    machine.file("class/iommu/dmar0/x", "");
    machine.card("ens5", "0000:3b:00.0", Some(64));
    machine.card("ens6", "0000:3b:00.1", None);
    machine.mounted_disk("0000:3c:00.0");
    let facts = HostFacts::scan(&machine.sys());
    assert_eq!(facts.iommu, IommuState::Used);
    assert_eq!(facts.virtual_functions.into_iter().collect::<Vec<_>>(), [("ens5".to_owned(), 64)]);
    let addresses: Vec<_> =
        facts.addresses.iter().map(|(name, address)| format!("{name} {address}")).collect();
    assert_eq!(addresses, ["ens5 0000:3b:00.0", "ens6 0000:3b:00.1", "nvme0n1 0000:3c:00.0"]);
    assert_eq!(facts.governors.unwrap().into_iter().collect::<Vec<_>>(), ["performance", "powersave"]);
    assert_eq!(facts.cpus.unwrap().len(), 8);
    assert_eq!(facts.page_sizes.into_iter().collect::<Vec<_>>(), [HugePageSize::Mib2]);
}

#[test]
fn huge_pages_are_reserved_and_what_the_processor_lacks_is_told() {
    let machine = Machine::new();
    let config = config("{huge_pages: [{size: 2M, count: 512}, {size: 1G, count: 4}]}");
    let notes = prepare(&machine.sys(), &config.os.host, &NeededDevices::default(), &ScriptedRunner::new());
    assert_eq!(
        notes,
        ["512 pages of 2M are reserved", "warning: os.host.huge_pages: the processor has no pages of 1G"]
    );
    assert_eq!(machine.text("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), "512");
    let told: Vec<_> = states(machine.root(), &config.os).iter().map(ToString::to_string).collect();
    assert_eq!(told[0], "huge_pages: 512 of 512 pages of 2M");
    assert_eq!(told[1], "huge_pages: 0 of 4 pages of 1G, NOT as the document asks");
    assert!(
        told[2].starts_with("kernel arguments: this start was without hugepagesz=2M hugepages=512 "),
        "{told:?}"
    );
}

#[test]
fn a_device_goes_to_vfio_and_what_the_node_needs_stays() {
    let machine = Machine::new();
    machine.pci("0000:3b:00.0", ["0x10de", "0x2204"], "nouveau");
    machine.mounted_disk("0000:3c:00.0");
    machine.card("ens5", "0000:3d:00.0", None);
    let config = config("{passthrough: ['10de:2204', '3c:00.0', '8086:158b']}");
    let facts = HostFacts::scan(&machine.sys());
    let needed = NeededDevices::of_running(machine.root(), &facts, ["ens5"]);
    assert_eq!(
        needed.taken_by(&config.os.host, &facts),
        [
            "`os.host.passthrough` takes 0000:3c:00.0 (3c:00.0), on which the disk nvme0n1p4 is",
            "`os.host.passthrough` takes 0000:3d:00.0 (8086:158b), on which the network card ens5 is",
        ]
    );
    let runner = ScriptedRunner::silent();
    let notes = prepare(&machine.sys(), &config.os.host, &needed, &runner);
    assert_eq!(runner.commands(), ["modprobe vfio-pci"]);
    assert!(notes[0].contains("0000:3c:00.0 stays with the node: the disk nvme0n1p4 is on it"), "{notes:?}");
    assert!(notes[1].contains("0000:3d:00.0 stays with the node"), "{notes:?}");
    // No kernel binds the device here, and that is told too.
    assert!(notes[2].contains("nouveau has 0000:3b:00.0, not vfio-pci"), "{notes:?}");
    let device = "bus/pci/devices/0000:3b:00.0";
    assert_eq!(machine.text(&format!("{device}/driver_override")), "vfio-pci");
    assert_eq!(machine.text("bus/pci/drivers/nouveau/unbind"), "0000:3b:00.0");
    assert_eq!(machine.text("bus/pci/drivers_probe"), "0000:3b:00.0");
    assert_eq!(machine.text("bus/pci/devices/0000:3c:00.0/driver_override"), "");
    // Once the kernel has bound it, nothing is done again.
    fs::remove_file(machine.sys().join(device).join("driver")).unwrap();
    machine.link("devices/pci0000:00/0000:00:01.0/0000:3b:00.0/driver", "bus/pci/drivers/vfio-pci");
    let again = prepare(&machine.sys(), &config.os.host, &needed, &ScriptedRunner::new());
    assert_eq!(again.len(), 2, "{again:?}");
    let told = states(machine.root(), &config.os);
    assert!(told[1].in_effect && told[1].found == "10de:2204: 0000:3b:00.0 has vfio-pci", "{told:?}");
    assert!(!told[2].in_effect, "{told:?}");
}

#[test]
fn devices_of_one_iommu_group_are_passed_through_together() {
    let machine = Machine::new();
    for (address, driver) in [
        ("0000:3b:00.0", "nouveau"),
        ("0000:3b:00.1", "snd_hda_intel"),
        ("0000:00:01.0", "pcieport"),
        ("0000:3c:00.0", "e1000e"),
    ] {
        machine.pci(address, ["0x10de", "0x2204"], driver);
    }
    let told = |passthrough: &str| {
        let config = config(&format!("{{passthrough: [{passthrough}]}}"));
        HostFacts::scan(&machine.sys()).divided_groups(&config.os.host)
    };
    assert!(told("'3b:00.0'").is_empty(), "without an IOMMU there are no groups");
    for (group, address) in
        [("14", "0000:3b:00.0"), ("14", "0000:3b:00.1"), ("14", "0000:00:01.0"), ("15", "0000:3c:00.0")]
    {
        machine.file(&format!("kernel/iommu_groups/{group}/devices/{address}/x"), "");
    }
    let clause = "0000:3b:00.0 is in the IOMMU group 14 with 0000:3b:00.1 (driver snd_hda_intel), which stays with the node";
    assert_eq!(told("'3b:00.0'"), [clause]);
    assert!(told("'3b:00.0', '3b:00.1'").is_empty() && told("'3c:00.0'").is_empty());
    let config = config("{passthrough: ['3b:00.0']}");
    let (none, runner) = (NeededDevices::default(), ScriptedRunner::silent());
    let notes = prepare(&machine.sys(), &config.os.host, &none, &runner);
    assert_eq!(notes[0], format!("warning: os.host.passthrough: {clause}"));
    let states = states(machine.root(), &config.os);
    assert!(states.iter().any(|state| state.found == clause && !state.in_effect), "{states:?}");
}

#[test]
fn a_driver_that_cannot_be_loaded_is_told() {
    let machine = Machine::new();
    machine.pci("0000:3b:00.0", ["0x10de", "0x2204"], "nouveau");
    let config = config("{passthrough: ['3b:00.0']}");
    let notes = prepare(
        &machine.sys(),
        &config.os.host,
        &NeededDevices::default(),
        &ScriptedRunner::failing("no module"),
    );
    assert!(notes[0].starts_with("warning: os.host.passthrough: loading vfio-pci: "), "{notes:?}");
    assert_eq!(machine.text("bus/pci/drivers/nouveau/unbind"), "", "the device stays with its driver");
}

#[test]
fn cards_get_their_virtual_functions_and_processors_their_governor() {
    let machine = Machine::new();
    machine.card("ens5", "0000:3b:00.0", Some(64));
    let config = config(
        "{sriov: [{name: ens5, functions: 8}, {name: ens9, functions: 2}], cpu: {governor: performance}}",
    );
    let none = NeededDevices::default();
    let notes = settle(&machine.sys(), &config.os.host, &none, &ScriptedRunner::new());
    assert_eq!(notes, ["ens5 has 8 virtual functions", "warning: os.host.sriov: there is no card ens9"]);
    assert_eq!(machine.text("class/net/ens5/device/sriov_numvfs"), "8");
    assert_eq!(machine.text("devices/system/cpu/cpufreq/policy1/scaling_governor"), "performance");
    let told: Vec<_> = states(machine.root(), &config.os).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "sriov: ens5: 8 of 8 virtual functions",
            "sriov: ens9: no such card, NOT as the document asks",
            "cpu.governor: performance",
        ]
    );
    assert_eq!(settle(&machine.sys(), &config.os.host, &none, &ScriptedRunner::new()).len(), 1);
}

#[test]
fn a_machine_that_does_not_set_its_clock_says_so() {
    let machine = Machine::new();
    fs::remove_dir_all(machine.sys().join("devices/system/cpu/cpufreq")).unwrap();
    let config = config("{cpu: {governor: performance}}");
    let notes = settle(&machine.sys(), &config.os.host, &NeededDevices::default(), &ScriptedRunner::new());
    assert_eq!(
        notes,
        ["warning: os.host.cpu.governor: the kernel does not set the clock of these processors"]
    );
    assert!(!states(machine.root(), &config.os)[0].in_effect);
}

#[test]
fn a_crash_kernel_is_loaded_or_it_is_said_what_lacks() {
    let machine = Machine::new();
    let config = config("{crash_kernel: 256M}");
    fs::create_dir_all(machine.root().join("proc")).unwrap();
    fs::write(machine.root().join("proc/cmdline"), "quiet crashkernel=256M\n").unwrap();
    let told = || {
        let states = states(machine.root(), &config.os);
        assert_eq!(states.len(), 1, "{states:?}");
        states[0].to_string()
    };
    assert_eq!(told(), "crash_kernel: no memory is reserved, NOT as the document asks");
    machine.file("kernel/kexec_crash_size", "268435456\n");
    machine.file("kernel/kexec_crash_loaded", "0\n");
    assert_eq!(
        told(),
        "crash_kernel: not loaded, 256 MiB reserved (journalctl -u nqrust-crash says why), NOT as the document asks"
    );
    note_crash_kernel(machine.root(), Some("it is too large")).unwrap();
    assert_eq!(
        told(),
        "crash_kernel: not loaded, 256 MiB reserved: it is too large, NOT as the document asks"
    );
    note_crash_kernel(machine.root(), None).unwrap();
    machine.file("kernel/kexec_crash_loaded", "1\n");
    assert_eq!(told(), "crash_kernel: loaded, 256 MiB reserved");
}

#[test]
fn what_the_command_line_had_is_in_effect() {
    let machine = Machine::new();
    machine.file("devices/system/cpu/isolated", "2-7\n");
    machine.file("module/kvm_intel/parameters/nested", "Y\n");
    let config = config("{cpu: {isolated: 2-7}, nested_virtualization: true}");
    fs::create_dir_all(machine.root().join("proc")).unwrap();
    fs::write(machine.root().join("proc/cmdline"), "quiet isolcpus=2-7 nohz_full=2-7 rcu_nocbs=2-7\n")
        .unwrap();
    let told: Vec<_> = states(machine.root(), &config.os).iter().map(ToString::to_string).collect();
    assert_eq!(told, ["cpu.isolated: 2-7", "nested_virtualization: on"]);
    fs::write(machine.root().join("proc/cmdline"), "quiet isolcpus=2-7\n").unwrap();
    let last = states(machine.root(), &config.os).pop().unwrap();
    assert!(last.found.contains("without nohz_full=2-7 rcu_nocbs=2-7 (restart"), "{last:?}");
    assert!(states(machine.root(), &InstallConfig::default().os).is_empty());
}
