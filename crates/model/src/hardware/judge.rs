//! What a machine would lose under a release: a decision without effects.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::coverage::{CoveredModule, CrashDumpSupport, HardwareCoverage};
use super::in_use::{DeviceInUse, HardwareInUse};
use super::naming::renamed;
use super::scheme::NamingScheme;
use super::sysctl;
use crate::network_disks::DiskProtocol;
use formats::kernel_modules::kernel_name;

/// The kernel argument that chooses the scheme by which network cards are named (systemd-udevd.service(8)).
const SCHEME: &str = "net.naming-scheme=";
/// The kernel argument with which network cards keep the kernel's names.
const NO_NAMES: &str = "net.ifnames=0";

/// Something that works now, or is named by the configuration, and would not work under a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostHardware {
    /// The device, the network card, or the key of the configuration.
    pub subject: String,
    /// The network cards and disks that are reached through it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    #[serde(flatten)]
    pub problem: HardwareProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "kebab-case")]
pub enum HardwareProblem {
    /// No module of the release drives the device.
    NoDriver { driver: String },
    /// The device has to work before the OS image is open, and no module of the initrd drives it.
    NotInInitrd { module: String },
    /// Files that the module may ask for, that the machine has now, and the release does not.
    NoFirmware { module: String, files: Vec<String> },
    /// Udev of the release names the card otherwise.
    Renamed { to: String },
    /// The node is on disks with several paths, and the initrd of the release has no multipathd.
    NoMultipath,
    /// With Secure Boot the kernel would refuse a module that is needed: nobody has signed it, or a key that the machine does not trust.
    RefusedModule { module: String, signed: bool },
    /// The configuration asks for a crash kernel, and the initrd of the release has no makedumpfile.
    NoCrashDumps,
    /// The same, and the kernel of the release cannot load one.
    NoKexecFile,
    /// The node is on disks that are reached by iSCSI, and the initrd of the release does not log in.
    NoIscsi,
    /// The data of the node is on a disk that is reached by NVMe over TCP, and the initrd of the release does not connect.
    NoNvmeTcp,
    /// The configuration names a module that the kernel of the release does not have.
    NoModule { module: String },
    /// The configuration sets a kernel setting of a module that the kernel of the release does not have.
    NoSysctl { module: String },
}

impl HardwareProblem {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoDriver { .. } => {
                "Build the release with a kernel that has the driver, or with the extension that brings it."
            }
            Self::NotInInitrd { .. } => {
                "Build the release with an overlay for the initrd in which dracut adds the module (add_drivers); for a module of an \
                 extension, with its key `initrd: true`."
            }
            Self::NoFirmware { .. } => {
                "Build the release with the package that has the firmware, in base.debian.include."
            }
            Self::Renamed { .. } => {
                "Keep the scheme with the kernel argument net.naming-scheme, or change what names the card."
            }
            Self::NoMultipath => {
                "Build the release with the package multipath-tools, in base.debian.include."
            }
            Self::RefusedModule { signed: true, .. } => {
                "Enroll the certificate of the release's modules on this machine, /usr/share/nqrust/modules.der of its image: \
                 mokutil --import FILE, then restart and confirm it at the console."
            }
            Self::RefusedModule { signed: false, .. } => {
                "Build the release with kernel.module_certificate and --module-key, and enroll the certificate on this machine \
                 (mokutil --import)."
            }
            Self::NoCrashDumps => {
                "Build the release with the package makedumpfile in base.debian.include, or remove os.host.crash_kernel."
            }
            Self::NoKexecFile => {
                "Remove os.host.crash_kernel, or build the release with a kernel that has CONFIG_KEXEC_FILE; those of Debian for Arm do not."
            }
            Self::NoIscsi => "Build the release with the package open-iscsi, in base.debian.include.",
            Self::NoNvmeTcp => {
                "Build the release with this iso-builder or a later one, and a kernel that has the module nvme-tcp."
            }
            Self::NoModule { .. } => {
                "Remove the module from the configuration, or build the release with it."
            }
            Self::NoSysctl { .. } => "Remove the key from os.sysctls, or build the release with the module.",
        }
    }
}

impl fmt::Display for LostHardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.subject)?;
        if !self.used_by.is_empty() {
            write!(f, " ({})", self.used_by.join(", "))?;
        }
        match &self.problem {
            HardwareProblem::NoDriver { driver } => {
                write!(f, " has the driver {driver} now and would have none")
            }
            HardwareProblem::NotInInitrd { module } => {
                write!(f, " is needed to start, and the initrd would lack its driver {module}")
            }
            HardwareProblem::NoFirmware { module, files } => {
                write!(f, " would lack firmware for its driver {module}: ")?;
                let first: Vec<_> = files.iter().take(3).map(String::as_str).collect();
                f.write_str(&first.join(", "))?;
                match files.len() - first.len() {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            HardwareProblem::Renamed { to } => write!(f, " would be named {to}"),
            HardwareProblem::NoMultipath => {
                f.write_str(" have several paths, and the initrd would lack multipathd")
            }
            HardwareProblem::RefusedModule { module, signed } => {
                let how =
                    if *signed { "signed by a key that this machine does not trust" } else { "not signed" };
                write!(
                    f,
                    " needs the module {module}, which is {how}, and with Secure Boot the kernel would refuse it"
                )
            }
            HardwareProblem::NoCrashDumps => {
                f.write_str(" asks for crash dumps, and the initrd would lack makedumpfile")
            }
            HardwareProblem::NoKexecFile => {
                f.write_str(" asks for crash dumps, and the kernel would be one without CONFIG_KEXEC_FILE")
            }
            HardwareProblem::NoIscsi => {
                f.write_str(" are reached by iSCSI, and the initrd would not log in to their targets")
            }
            HardwareProblem::NoNvmeTcp => {
                f.write_str(" is reached by NVMe over TCP, and the initrd would not connect to its subsystem")
            }
            HardwareProblem::NoModule { module } => {
                write!(f, " names the module {module}, which the kernel would not have")
            }
            HardwareProblem::NoSysctl { module } => {
                write!(f, " comes with the module {module}, which the kernel would not have")
            }
        }
    }
}

impl LostHardware {
    /// What a node on disks with several paths loses under a release whose initrd has no multipathd.
    #[must_use]
    pub fn multipath() -> Self {
        let (subject, problem) = ("the disks of the node".to_owned(), HardwareProblem::NoMultipath);
        Self { subject, used_by: Vec::new(), problem }
    }

    /// What a node with a crash kernel loses under a release.
    #[must_use]
    pub fn crash_dumps(support: CrashDumpSupport) -> Option<Self> {
        let problem = match support {
            CrashDumpSupport::Supported => return None,
            CrashDumpSupport::NoMakedumpfile => HardwareProblem::NoCrashDumps,
            CrashDumpSupport::NoKexecFile => HardwareProblem::NoKexecFile,
        };
        Some(Self { subject: "os.host.crash_kernel".to_owned(), used_by: Vec::new(), problem })
    }

    /// What a node on disks that are reached by `protocol` loses under a release whose initrd does not.
    #[must_use]
    pub fn network_disks(protocol: DiskProtocol) -> Self {
        let (subject, problem) = match protocol {
            DiskProtocol::Iscsi => ("the disks of the node", HardwareProblem::NoIscsi),
            DiskProtocol::NvmeTcp => ("the data disk of the node", HardwareProblem::NoNvmeTcp),
        };
        Self { subject: subject.to_owned(), used_by: Vec::new(), problem }
    }
}

/// The modules that a configuration names, also by their kernel settings.
#[derive(Clone, Debug, Default)]
pub struct NamedModules {
    /// `os.modules`.
    pub loaded: Vec<String>,
    /// The kernel arguments of the node, with those of the release.
    pub arguments: Vec<String>,
    /// The keys of `os.sysctls`. Those of the kernel itself are not compared.
    pub sysctls: Vec<String>,
    /// The modules of the kernel that runs. An argument is one for a module only if that is among them; a setting of a module that is
    /// not among them has no effect now.
    pub present: BTreeSet<String>,
}

/// What `machine` would lose under the release that has `coverage`.
#[must_use]
pub fn judge(
    machine: &HardwareInUse,
    named: &NamedModules,
    coverage: &HardwareCoverage,
) -> Vec<LostHardware> {
    let mut lost: Vec<_> =
        machine.devices.iter().filter_map(|device| device_lost(device, coverage)).collect();
    let chosen = named.arguments.iter().rev().find_map(|argument| argument.strip_prefix(SCHEME));
    let scheme = match chosen {
        Some(name) => NamingScheme::parse(name),
        None => coverage.naming_scheme,
    };
    if let Some(scheme) = scheme.filter(|_| !named.arguments.iter().any(|argument| argument == NO_NAMES)) {
        lost.extend(machine.cards.iter().filter_map(|card| {
            let problem = HardwareProblem::Renamed { to: renamed(card, scheme)? };
            Some(LostHardware {
                subject: format!("{} {}", card.name, card.mac),
                used_by: Vec::new(),
                problem,
            })
        }));
    }
    lost.extend(named_lost(named, coverage));
    lost
}

fn device_lost(device: &DeviceInUse, coverage: &HardwareCoverage) -> Option<LostHardware> {
    let problem = device_problem(device, coverage)?;
    let subject = format!("{} {}", device.bus, device.address);
    Some(LostHardware { subject, used_by: device.used_by.clone(), problem })
}

fn device_problem(device: &DeviceInUse, coverage: &HardwareCoverage) -> Option<HardwareProblem> {
    // A part of the kernel that is no module says nothing of its devices.
    let module = device.module.as_deref()?;
    let mut drivers: Vec<&CoveredModule> = match device.claimed {
        true => coverage.drivers(&device.modalias).collect(),
        false => Vec::new(),
    };
    // Many kernels do not say which devices a module drives that is built in, so its name has to do.
    drivers.extend(coverage.module(module).filter(|found| !device.claimed || found.built_in));
    let Some(first) = drivers.first() else {
        return Some(HardwareProblem::NoDriver { driver: device.driver.clone() });
    };
    let same = drivers.iter().find(|driver| driver.name == kernel_name(module));
    if device.early && !drivers.iter().any(|driver| driver.is_early()) {
        let module = same.unwrap_or(first).name.clone();
        return Some(HardwareProblem::NotInInitrd { module });
    }
    let same = same?;
    let gone = |file: &&String| same.firmware.contains(*file) && !coverage.firmware.contains(*file);
    let mut files: Vec<String> = device.firmware.iter().filter(gone).cloned().collect();
    // A driver that wants later versions of the files that are there now.
    let plain = same.firmware.iter().all(|file| !file.contains('*'));
    if !device.firmware.is_empty() && plain && same.firmware.is_disjoint(&coverage.firmware) {
        files = same.firmware.iter().cloned().collect();
    }
    (!files.is_empty()).then(|| HardwareProblem::NoFirmware { module: same.name.clone(), files })
}

/// Modules by their names in `os.modules` or in kernel arguments, such as `kvm_intel.nested=1`.
fn named_lost(named: &NamedModules, coverage: &HardwareCoverage) -> Vec<LostHardware> {
    let lacks = |name: &str| coverage.module(name).is_none() && coverage.drivers(name).next().is_none();
    let lost = |subject: String, module: &str| LostHardware {
        subject,
        used_by: Vec::new(),
        problem: HardwareProblem::NoModule { module: module.to_owned() },
    };
    let loaded = named.loaded.iter().filter(|module| lacks(module));
    let loaded = loaded.map(|module| lost("os.modules".to_owned(), module));
    let arguments = named.arguments.iter().filter_map(|argument| {
        let (module, _) = argument.split('=').next()?.split_once('.')?;
        let is_module = named.present.contains(&kernel_name(module));
        (is_module && lacks(module)).then(|| lost(format!("the kernel argument {argument}"), module))
    });
    let sysctls = named.sysctls.iter().filter_map(|key| {
        let module = sysctl::module_of(key)?;
        (named.present.contains(module) && lacks(module)).then(|| LostHardware {
            subject: format!("{key} in os.sysctls"),
            used_by: Vec::new(),
            problem: HardwareProblem::NoSysctl { module: module.to_owned() },
        })
    });
    loaded.chain(arguments).chain(sysctls).collect()
}

#[cfg(test)]
mod tests {
    use super::super::in_use::NamedCard;
    use super::*;

    fn texts(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    fn module(name: &str, initrd: bool, aliases: &[&str], firmware: &[&str]) -> CoveredModule {
        let (aliases, firmware) = (texts(aliases), texts(firmware));
        CoveredModule { name: name.into(), initrd, aliases, firmware, ..CoveredModule::default() }
    }

    fn coverage(modules: Vec<CoveredModule>, firmware: &[&str]) -> HardwareCoverage {
        HardwareCoverage {
            kernel: "6.12.1-amd64".into(),
            systemd: Some(257),
            naming_scheme: NamingScheme::of_systemd(257),
            modules,
            firmware: texts(firmware),
            ..HardwareCoverage::default()
        }
    }

    fn device(module: &str) -> DeviceInUse {
        DeviceInUse {
            bus: "pci".into(),
            address: "0000:3b:00.0".into(),
            modalias: "pci:v000014E4d0000168Esv1".into(),
            driver: module.into(),
            module: Some(module.into()),
            claimed: true,
            used_by: vec!["ens1f0".into()],
            ..DeviceInUse::default()
        }
    }

    fn told(device: DeviceInUse, coverage: &HardwareCoverage) -> Vec<String> {
        let machine = HardwareInUse { devices: vec![device], ..HardwareInUse::default() };
        judge(&machine, &NamedModules::default(), coverage).iter().map(ToString::to_string).collect()
    }

    const ALIAS: &str = "pci:v000014E4d0000168Esv*";

    #[test]
    fn a_device_needs_a_module_that_says_that_it_drives_it() {
        let with = coverage(vec![module("bnx2x", false, &[ALIAS], &[])], &[]);
        assert_eq!(told(device("bnx2x"), &with), [""; 0]);
        let lost = "pci 0000:3b:00.0 (ens1f0) has the driver bnx2x now and would have none";
        // The module is there and has forgotten the device, as old ones of mpt3sas.
        let forgotten = coverage(vec![module("bnx2x", false, &["pci:v000014E4d00009999sv*"], &[])], &[]);
        for without in [coverage(vec![], &[]), forgotten] {
            assert_eq!(told(device("bnx2x"), &without), [lost]);
        }
        // Another driver is as good.
        let other = coverage(vec![module("bnx3", false, &[ALIAS], &[])], &[]);
        assert_eq!(told(device("bnx2x"), &other), [""; 0]);
        // One that is built in need not say what it drives.
        let mut built_in = coverage(vec![module("bnx2x", false, &[], &[])], &[]);
        assert_eq!(told(device("bnx2x"), &built_in), [lost]);
        built_in.modules[0].built_in = true;
        assert_eq!(told(device("bnx2x"), &built_in), [""; 0]);
        // What is no module has no patterns.
        assert_eq!(told(DeviceInUse { module: None, ..device("pcieport") }, &coverage(vec![], &[])), [""; 0]);
    }

    #[test]
    fn a_device_that_somebody_has_bound_needs_only_that_module() {
        let bound = || DeviceInUse { claimed: false, ..device("vfio-pci") };
        assert_eq!(told(bound(), &coverage(vec![module("vfio_pci", false, &[], &[])], &[])), [""; 0]);
        let without = coverage(vec![module("bnx2x", false, &[ALIAS], &[])], &[]);
        assert_eq!(
            told(bound(), &without),
            ["pci 0000:3b:00.0 (ens1f0) has the driver vfio-pci now and would have none"]
        );
    }

    #[test]
    fn the_disk_of_the_system_needs_its_driver_in_the_initrd() {
        let early = || DeviceInUse { early: true, used_by: vec!["sda".into()], ..device("megaraid_sas") };
        let covered = |initrd| coverage(vec![module("megaraid_sas", initrd, &[ALIAS], &[])], &[]);
        assert_eq!(told(early(), &covered(true)), [""; 0]);
        assert_eq!(
            told(early(), &covered(false)),
            ["pci 0000:3b:00.0 (sda) is needed to start, and the initrd would lack its driver megaraid_sas"]
        );
        let mut built_in = covered(false);
        built_in.modules[0].built_in = true;
        assert_eq!(told(early(), &built_in), [""; 0]);
    }

    #[test]
    fn firmware_that_is_there_now_and_wanted_later_must_not_go() {
        let wants = ["b/1.fw", "b/2.fw", "b/3.fw", "b/4.fw"];
        let now = |files: &[&str]| DeviceInUse {
            firmware: files.iter().map(|file| (*file).to_owned()).collect(),
            ..device("bnx2x")
        };
        let with = |files: &[&str]| coverage(vec![module("bnx2x", false, &[ALIAS], &wants)], files);
        let lost = |files: &str| {
            [format!("pci 0000:3b:00.0 (ens1f0) would lack firmware for its driver bnx2x: {files}")]
        };
        assert_eq!(told(now(&["b/1.fw"]), &with(&["b/1.fw"])), [""; 0]);
        assert_eq!(told(now(&["b/1.fw", "b/2.fw"]), &with(&["b/1.fw"])), lost("b/2.fw"));
        // What is missing now is no loss.
        assert_eq!(told(now(&[]), &with(&[])), [""; 0]);
        // The new driver wants a later version.
        assert_eq!(told(now(&["b/0.fw"]), &with(&["b/0.fw"])), lost("b/1.fw, b/2.fw, b/3.fw and 1 more"));
        assert_eq!(told(now(&["b/0.fw"]), &with(&["b/4.fw"])), [""; 0]);
    }

    #[test]
    fn names_follow_the_scheme_of_the_release_or_that_of_an_argument() {
        let card = NamedCard {
            name: "enp59s0f0".into(),
            mac: "52:54:00:00:00:01".into(),
            scheme: NamingScheme::of_systemd(252),
            by_policy: true,
            path: Some("enp59s0f0".into()),
            firmware_slot: Some(2),
            ..NamedCard::default()
        };
        let machine = HardwareInUse { cards: vec![card], ..HardwareInUse::default() };
        let told = |arguments: &[&str]| -> Vec<String> {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            let named = NamedModules { arguments, ..NamedModules::default() };
            judge(&machine, &named, &coverage(vec![], &[])).iter().map(ToString::to_string).collect()
        };
        let renamed = ["enp59s0f0 52:54:00:00:00:01 would be named ens2f0"];
        assert_eq!(told(&["quiet"]), renamed);
        assert_eq!(told(&["net.naming-scheme=v252"]), [""; 0]);
        assert_eq!(told(&["net.naming-scheme=v252", "net.naming-scheme=v257"]), renamed);
        assert_eq!(told(&["net.naming-scheme=unknown"]), [""; 0]);
        assert_eq!(told(&["net.ifnames=0"]), [""; 0]);
    }

    #[test]
    fn modules_of_the_configuration_are_looked_for_by_name_alias_and_setting() {
        let modules =
            vec![module("br_netfilter", false, &["net-pf-16"], &[]), module("kvm_amd", false, &[], &[])];
        let named = NamedModules {
            loaded: ["br-netfilter", "net-pf-16", "ip_tables"].map(str::to_owned).to_vec(),
            arguments: [
                "quiet",
                "kvm_amd.nested=1",
                "kvm-intel.nested=1",
                "printk.time=1",
                "a.b",
                "root=x.y",
            ]
            .map(str::to_owned)
            .to_vec(),
            sysctls: [
                "net.bridge.bridge-nf-call-iptables",
                "net.ipv4.vs.conntrack",
                "vm.swappiness",
                "net.sctp.rto_min",
            ]
            .map(str::to_owned)
            .to_vec(),
            // A kernel without SCTP does not have its settings now.
            present: texts(&["kvm_intel", "kvm_amd", "root", "br_netfilter", "ip_vs"]),
        };
        let lost = judge(&HardwareInUse::default(), &named, &coverage(modules, &[]));
        let told: Vec<_> = lost.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "os.modules names the module ip_tables, which the kernel would not have",
                "the kernel argument kvm-intel.nested=1 names the module kvm-intel, which the kernel would not have",
                "net.ipv4.vs.conntrack in os.sysctls comes with the module ip_vs, which the kernel would not have",
            ]
        );
        assert_eq!(
            serde_json::to_string(&lost[0]).unwrap(),
            r#"{"subject":"os.modules","problem":"no-module","module":"ip_tables"}"#
        );
    }
}
