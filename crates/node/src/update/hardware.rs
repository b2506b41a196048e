//! What this node would lose under a release: its devices, its document and its kernel arguments against what the release can drive.

use std::collections::BTreeSet;

use serde::Serialize;

use base::failure::{Class, Failure};
use base::files::read_text;
use formats::kernel_modules;
use machine::inventory::{Inventory, Roots};
use machine::module_trust::{module_trust, present_devices};
use model::boot::BootParameters;
use model::config::InstallConfig;
use model::hardware::{HardwareCoverage, HardwareInUse, LostHardware, NamedModules, judge};
use model::kernel_line::unquoted;
use model::network_disks::DiskProtocol;
use model::release::Release;

/// Whether a node works under a release as it does now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HardwareVerdict {
    /// How many devices were compared; none if the release does not say what it can drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<usize>,
    /// What would not work.
    pub lost: Vec<LostHardware>,
}

impl HardwareVerdict {
    /// The verdict on `release`, which has `coverage`, for the machine of `roots` with the node document `config`.
    ///
    /// # Errors
    /// The disks of the machine cannot be read.
    pub fn of(
        roots: &Roots,
        config: &InstallConfig,
        release: &Release,
        coverage: Option<&HardwareCoverage>,
    ) -> anyhow::Result<Self> {
        let lost_disks = lost_disks(roots, coverage);
        let Some(coverage) = coverage else {
            return Ok(Self { devices: None, lost: lost_disks });
        };
        let machine = Inventory::scan_with_hardware(roots)?.hardware.unwrap_or_default();
        let named = named(roots, &machine, config, release);
        let lost_dumps = Some(coverage.crash_dump_support()).filter(|_| config.os.host.has_crash_kernel());
        let lost_dumps = lost_dumps.and_then(LostHardware::crash_dumps);
        let refused = module_trust(&roots.sys)
            .map(|trust| trust.refused(&present_devices(&roots.sys), &named.loaded, coverage))
            .unwrap_or_default();
        let lost = judge(&machine, &named, coverage).into_iter().chain(refused);
        let lost = lost.chain(lost_disks).chain(lost_dumps);
        Ok(Self { devices: Some(machine.devices.len()), lost: lost.collect() })
    }

    /// What the verdict comes to, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        match (self.devices, self.lost.len()) {
            (None, 0) => "not checked: the release does not say what it can drive".into(),
            (Some(1), 0) => "the driver in use is in the release".into(),
            (Some(count), 0) => format!("the drivers of {count} devices are in the release"),
            (_, _) => {
                let lost: Vec<_> = self.lost.iter().map(ToString::to_string).collect();
                format!("accepted although {}", lost.join("; "))
            }
        }
    }

    /// Fails if something would not work.
    ///
    /// # Errors
    /// [`Class::Hardware`], with all of it and what to do.
    pub fn require(&self, release: &Release) -> Result<(), Failure> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let lost: Vec<_> = self.lost.iter().map(ToString::to_string).collect();
        let hints: BTreeSet<_> = self.lost.iter().map(|lost| lost.problem.hint()).collect();
        let hints: Vec<_> = hints.into_iter().collect();
        let what = format!("{} {} does not fit the hardware of this node", release.name, release.version);
        Err(Failure::new(Class::Hardware, what)
            .because(anyhow::anyhow!("{}", lost.join("; ")))
            .hint(format!("{} To update nevertheless: --accept-hardware", hints.join(" "))))
    }
}

/// The disks of the running node that the initrd of the release could not bring: those with several paths, and those over the network.
fn lost_disks(roots: &Roots, coverage: Option<&HardwareCoverage>) -> Vec<LostHardware> {
    let line = read_text(&roots.proc.join("cmdline")).unwrap_or_default();
    let Some(installed) = BootParameters::parse(&line).ok().flatten() else { return Vec::new() };
    let maps = !installed.multipath.is_empty() && !coverage.is_some_and(|coverage| coverage.multipath);
    let reached = coverage.map(HardwareCoverage::disk_protocols).unwrap_or_default();
    let remote = [DiskProtocol::Iscsi, DiskProtocol::NvmeTcp].into_iter();
    let unreached =
        remote.filter(|protocol| installed.network_disks.by(*protocol) && !reached.contains(protocol));
    maps.then(LostHardware::multipath).into_iter().chain(unreached.map(LostHardware::network_disks)).collect()
}

fn named(roots: &Roots, machine: &HardwareInUse, config: &InstallConfig, release: &Release) -> NamedModules {
    let own = config.os.additional_kernel_arguments.as_deref().unwrap_or_default();
    let own = unquoted(own);
    let modules = roots.lib.join("modules").join(&machine.kernel);
    let tables = kernel_modules::read_tables(&modules).unwrap_or_default();
    let files = kernel_modules::paths(&modules).unwrap_or_default();
    NamedModules {
        loaded: config.os.modules.iter().map(ToString::to_string).collect(),
        arguments: release.kernel_arguments.iter().cloned().chain(own).collect(),
        sysctls: config.os.sysctls.keys().cloned().collect(),
        present: tables.into_keys().chain(files.into_keys()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use base::failure::render;
    use model::hardware::coverage::FORMAT;
    use testing::kernel::module_tree;
    use testing::machine::MachineTree;
    use testing::release::release;

    use super::*;

    fn machine() -> MachineTree {
        let machine = MachineTree::new("");
        machine.file("proc/sys/kernel/osrelease", "6.1.0\n");
        module_tree(&machine.path().join("lib/modules/6.1.0"));
        let device = "sys/devices/pci0000:00/0000:3b:00.0";
        machine.file(&format!("{device}/modalias"), "pci:v000014E4d0000168Esv1sd1bc02sc00i00");
        machine.link(&format!("{device}/subsystem"), "../../../bus/pci");
        machine.link(&format!("{device}/driver"), "../../../bus/pci/drivers/bnx2x");
        machine.link("sys/bus/pci/drivers/bnx2x/module", "../../../../module/bnx2x");
        machine.link("sys/class/net/ens1f0/device", "../../../devices/pci0000:00/0000:3b:00.0");
        machine.file("sys/class/net/ens1f0/address", "52:54:00:12:34:56\n");
        machine
    }

    fn verdict(coverage: Option<&str>, document: &str) -> HardwareVerdict {
        verdict_on(&machine(), coverage, document)
    }

    fn verdict_on(machine: &MachineTree, coverage: Option<&str>, document: &str) -> HardwareVerdict {
        let coverage = coverage.map(|modules| {
            let text = format!(
                r#"{{"format":{FORMAT},"architecture":"amd64","kernel":"6.12","modules":[{modules}],"firmware":[]}}"#
            );
            HardwareCoverage::parse(text.as_bytes()).unwrap()
        });
        let config = model::config::parse(document, "f").unwrap();
        HardwareVerdict::of(&Roots::below(machine.path()), &config, &release(), coverage.as_ref()).unwrap()
    }

    const DOCUMENT: &str = "os: {hostname: node1}";
    const BNX2X: &str = r#"{"name":"bnx2x","aliases":["pci:v000014E4d0000168Esv*"]}"#;

    #[test]
    fn a_release_that_says_nothing_of_hardware_is_taken_and_that_is_told() {
        let verdict = verdict(None, DOCUMENT);
        verdict.require(&release()).unwrap();
        assert_eq!(verdict.summary(), "not checked: the release does not say what it can drive");
    }

    #[test]
    fn a_node_on_a_disk_with_several_paths_takes_only_a_release_whose_initrd_has_multipathd() {
        let machine = machine();
        let line = "nqrust.slot=a nqrust.config=PARTUUID=0a0b0c0d-0000-4000-8000-000000000003 \
                    nqrust.persistent=PARTUUID=0a0b0c0d-0000-4000-8000-000000000007 nqrust.multipath=3600c0ff0\n";
        machine.file("proc/cmdline", line);
        for coverage in [None, Some(BNX2X)] {
            let refused = verdict_on(&machine, coverage, DOCUMENT);
            let text = render(&refused.require(&release()).unwrap_err().into());
            for part in [
                "the disks of the node have several paths, and the initrd would lack multipathd",
                "Build the release with the package multipath-tools, in base.debian.include.",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert!(refused.summary().starts_with("accepted although the disks"), "{}", refused.summary());
        }
        let capable = format!(r#"{BNX2X}],"multipath":true,"aside":["#);
        verdict_on(&machine, Some(&capable), DOCUMENT).require(&release()).unwrap();
    }

    #[test]
    fn a_node_with_secure_boot_takes_only_a_release_whose_modules_its_kernel_would_load() {
        let machine = machine();
        let outside = |outside: &str| format!(r#"{BNX2X},{{"name":"acme","outside":{{{outside}}}}}"#);
        let unsigned = outside(r#""loaded":true"#);
        verdict_on(&machine, Some(&unsigned), DOCUMENT).require(&release()).unwrap();
        machine.file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        let refused = verdict_on(&machine, Some(&unsigned), DOCUMENT).require(&release()).unwrap_err();
        assert_eq!(refused.class(), Class::Hardware);
        let text = render(&refused.into());
        for part in [
            "the release needs the module acme, which is not signed, and with Secure Boot the kernel would refuse it",
            "Build the release with kernel.module_certificate and --module-key",
            "To update nevertheless: --accept-hardware",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let signed = outside(&format!(r#""loaded":true,"signer":"{}""#, "0a".repeat(32)));
        let text =
            render(&verdict_on(&machine, Some(&signed), DOCUMENT).require(&release()).unwrap_err().into());
        assert!(text.contains("mokutil --import FILE"), "{text}");
        // Nothing loads it, and no device wants it.
        verdict_on(&machine, Some(&outside("")), DOCUMENT).require(&release()).unwrap();
    }

    #[test]
    fn a_node_with_a_crash_kernel_takes_only_a_release_that_can_write_dumps() {
        let document = "os: {host: {crash_kernel: true}}";
        let refused = verdict(Some(BNX2X), document);
        let text = render(&refused.require(&release()).unwrap_err().into());
        for part in [
            "os.host.crash_kernel asks for crash dumps, and the initrd would lack makedumpfile",
            "Build the release with the package makedumpfile in base.debian.include, or remove os.host.crash_kernel.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let capable = format!(r#"{BNX2X}],"crash_dumps":true,"kexec_file":true,"aside":["#);
        verdict(Some(&capable), document).require(&release()).unwrap();
        let other_kernel = capable.replace(r#""kexec_file":true"#, r#""kexec_file":false"#);
        let text = render(&verdict(Some(&other_kernel), document).require(&release()).unwrap_err().into());
        assert!(text.contains("the kernel would be one without CONFIG_KEXEC_FILE"), "{text}");
        verdict(Some(BNX2X), "os: {host: {crash_kernel: false}}").require(&release()).unwrap();
        // One that says nothing of what it can drive says nothing of dumps either.
        verdict(None, document).require(&release()).unwrap();
    }

    #[test]
    fn a_node_on_a_disk_over_the_network_takes_only_a_release_whose_initrd_reaches_it() {
        for (used, able, other, parts) in [
            (
                "data",
                "iscsi",
                "nvme_tcp",
                [
                    "the disks of the node are reached by iSCSI, and the initrd would not log in to their targets",
                    "Build the release with the package open-iscsi, in base.debian.include.",
                ],
            ),
            (
                "data-nvme",
                "nvme_tcp",
                "iscsi",
                [
                    "the data disk of the node is reached by NVMe over TCP, and the initrd would not connect to its subsystem",
                    "a kernel that has the module nvme-tcp.",
                ],
            ),
        ] {
            let machine = machine();
            let line = "nqrust.slot=a nqrust.config=PARTUUID=0a0b0c0d-0000-4000-8000-000000000003 \
                        nqrust.persistent=PARTUUID=0a0b0c0d-0000-4000-8000-000000000007 nqrust.network_disks=";
            machine.file("proc/cmdline", &format!("{line}{used}\n"));
            let capable = |of: &str| format!(r#"{BNX2X}],"{of}":true,"aside":["#);
            for coverage in [None, Some(BNX2X), Some(&capable(other))] {
                let refused = verdict_on(&machine, coverage, DOCUMENT);
                let text = render(&refused.require(&release()).unwrap_err().into());
                for part in parts {
                    assert!(text.contains(part), "{part}: {text}");
                }
            }
            verdict_on(&machine, Some(&capable(able)), DOCUMENT).require(&release()).unwrap();
        }
    }

    #[test]
    fn a_release_with_the_drivers_of_this_node_is_taken() {
        let verdict = verdict(Some(BNX2X), DOCUMENT);
        verdict.require(&release()).unwrap();
        assert_eq!(verdict.summary(), "the driver in use is in the release");
    }

    #[test]
    fn a_release_without_a_driver_or_a_module_of_the_document_is_refused_with_what_to_do() {
        let document =
            "os: {modules: [bnx2x, megaraid_sas], additional_kernel_arguments: 'virtio_net.a=1 quiet'}";
        let failure = verdict(Some(r#"{"name":"ahci"}"#), document).require(&release()).unwrap_err();
        assert_eq!(failure.class(), Class::Hardware);
        let text = render(&failure.into());
        for part in [
            "does not fit the hardware of this node",
            "pci 0000:3b:00.0 (ens1f0) has the driver bnx2x now and would have none",
            "os.modules names the module megaraid_sas",
            "the kernel argument virtio_net.a=1 names the module virtio_net",
            "Build the release with a kernel that has the driver, or with the extension that brings it.",
            "--accept-hardware",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let lost = verdict(Some(r#"{"name":"ahci"}"#), DOCUMENT);
        assert!(
            lost.summary().starts_with("accepted although pci 0000:3b:00.0 (ens1f0)"),
            "{}",
            lost.summary()
        );
    }
}
