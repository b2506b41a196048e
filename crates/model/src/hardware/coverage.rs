//! `hardware.json`: what the kernel, the initrd and the firmware of a release can drive.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::scheme::{NamingScheme, known_scheme};
use crate::architecture::Architecture;
use crate::network_disks::DiskProtocol;
use base::digest::Digest;
use formats::kernel_modules::{kernel_name, matches};

/// The version of the format that this program writes and reads. Keys that it does not know are left alone.
pub const FORMAT: u32 = 1;

/// The most bytes that a `hardware.json` has. That of Debian's kernel with all firmware has less than 3 MiB.
pub const LARGEST: u64 = 64 << 20;

/// The file of an initrd by which a kernel that starts in place of a crashed one writes its dump.
pub const INITRD_DUMP_PROGRAM: &str = "usr/bin/makedumpfile";

/// What a release can drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareCoverage {
    pub format: u32,
    pub architecture: Architecture,
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// The version of systemd, whose udev names network cards; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub systemd: Option<u32>,
    /// The scheme by which it names network cards unless a kernel argument says otherwise; none if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_scheme")]
    pub naming_scheme: Option<NamingScheme>,
    /// Whether its initrd starts multipathd for the disks that a node names, so that a node can be on a disk with several paths.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multipath: bool,
    /// Whether its initrd has makedumpfile, so that a node can write a dump when its kernel crashes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crash_dumps: bool,
    /// Whether its kernel takes a kernel for crashes from files (`CONFIG_KEXEC_FILE`); none if the image does not have the configuration
    /// of its kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kexec_file: Option<bool>,
    /// Whether its initrd logs in to iSCSI targets, so that a node can be on a disk that is reached over the network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub iscsi: bool,
    /// Whether its initrd connects to NVMe subsystems over TCP, so that the data of a node can be there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nvme_tcp: bool,
    /// By name.
    pub modules: Vec<CoveredModule>,
    /// Files below the directories of firmware of the OS image, without the ends of packed ones; by name.
    pub firmware: BTreeSet<String>,
}

/// That of an image without modules, of which nothing is known.
impl Default for HardwareCoverage {
    fn default() -> Self {
        Self {
            format: FORMAT,
            architecture: Architecture::default(),
            kernel: String::new(),
            systemd: None,
            naming_scheme: None,
            multipath: false,
            crash_dumps: false,
            kexec_file: None,
            iscsi: false,
            nvme_tcp: false,
            modules: Vec::new(),
            firmware: BTreeSet::new(),
        }
    }
}

/// A module of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredModule {
    /// With `_`, as the kernel has it.
    pub name: String,
    /// Whether it is part of the kernel itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub built_in: bool,
    /// Whether the initrd has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub initrd: bool,
    /// The devices that it drives: patterns for the `modalias` of sysfs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub aliases: BTreeSet<String>,
    /// Files of firmware that it may ask for. Few machines need more than some of them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub firmware: BTreeSet<String>,
    /// How it is signed, if it is not of the kernel's own packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideModule>,
}

/// Whether a node can write crash dumps by its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashDumpSupport {
    Supported,
    /// The initrd has no makedumpfile.
    NoMakedumpfile,
    /// The kernel was built without `CONFIG_KEXEC_FILE`, as Debian's for Arm are.
    NoKexecFile,
}

/// What is known of a module that is not of the kernel's own packages: of an extension, or from an overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideModule {
    /// Whether the release loads it at every start, whatever the machine has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loaded: bool,
    /// Who has signed it ([`formats::module_signature::SignerId`]); none if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<Digest>,
}

impl CoveredModule {
    /// Whether it can drive a device before the OS image is open.
    #[must_use]
    pub fn is_early(&self) -> bool {
        self.built_in || self.initrd
    }
}

/// Why a file is no `hardware.json`.
#[derive(Debug, thiserror::Error)]
pub enum ParseCoverageError {
    /// Not JSON, or not of this shape.
    #[error("hardware.json is not readable")]
    Json(#[from] serde_json::Error),
    /// Written by another generation of the builder.
    #[error("hardware.json has format {0}; this program reads format {FORMAT}")]
    Format(u32),
}

impl HardwareCoverage {
    #[must_use]
    pub fn crash_dump_support(&self) -> CrashDumpSupport {
        match (self.crash_dumps, self.kexec_file) {
            (_, Some(false)) => CrashDumpSupport::NoKexecFile,
            (false, _) => CrashDumpSupport::NoMakedumpfile,
            (true, _) => CrashDumpSupport::Supported,
        }
    }

    /// # Errors
    /// The bytes have another format.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseCoverageError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_slice(bytes)?;
        match format {
            FORMAT => Ok(serde_json::from_slice(bytes)?),
            other => Err(ParseCoverageError::Format(other)),
        }
    }

    /// The canonical bytes: JSON in one line with a final newline. The same coverage gives the same bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = base::encode::json_line(self);
        bytes.push(b'\n');
        bytes
    }

    /// The protocols by which its initrd reaches disks over the network.
    #[must_use]
    pub fn disk_protocols(&self) -> Vec<DiskProtocol> {
        let all = [(self.iscsi, DiskProtocol::Iscsi), (self.nvme_tcp, DiskProtocol::NvmeTcp)];
        all.into_iter().filter(|(has, _)| *has).map(|(_, protocol)| protocol).collect()
    }

    /// The module with this name, in which `-` and `_` are the same.
    #[must_use]
    pub fn module(&self, name: &str) -> Option<&CoveredModule> {
        let name = kernel_name(name);
        self.modules.iter().find(|module| module.name == name)
    }

    /// The modules that drive the device with this `modalias`.
    pub fn drivers<'a>(&'a self, modalias: &'a str) -> impl Iterator<Item = &'a CoveredModule> {
        self.modules.iter().filter(move |module| module.aliases.iter().any(|alias| matches(alias, modalias)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_and_reading_give_the_same_coverage_and_unknown_keys_are_left_alone() {
        let module = CoveredModule {
            name: "bnx2x".into(),
            initrd: true,
            aliases: ["pci:v000014E4d0000168Esv*".to_owned()].into(),
            firmware: ["bnx2x/a.fw".to_owned()].into(),
            ..CoveredModule::default()
        };
        let coverage = HardwareCoverage {
            format: FORMAT,
            architecture: Architecture::Amd64,
            kernel: "6.12.1-amd64".into(),
            systemd: Some(257),
            naming_scheme: NamingScheme::of_systemd(257),
            multipath: true,
            crash_dumps: true,
            kexec_file: Some(true),
            iscsi: true,
            nvme_tcp: true,
            modules: vec![
                module,
                CoveredModule { name: "ahci".into(), built_in: true, ..CoveredModule::default() },
            ],
            firmware: ["bnx2x/a.fw".to_owned()].into(),
        };
        let bytes = coverage.to_bytes();
        assert_eq!(
            String::from_utf8(bytes.clone()).unwrap(),
            concat!(
                r#"{"format":1,"architecture":"amd64","kernel":"6.12.1-amd64","systemd":257,"naming_scheme":"v257","#,
                r#""multipath":true,"crash_dumps":true,"kexec_file":true,"iscsi":true,"nvme_tcp":true,"modules":[{"name":"bnx2x","initrd":true,"aliases":["pci:v000014E4d0000168Esv*"],"#,
                r#""firmware":["bnx2x/a.fw"]},{"name":"ahci","built_in":true}],"firmware":["bnx2x/a.fw"]}"#,
                "\n"
            )
        );
        assert_eq!(HardwareCoverage::parse(&bytes).unwrap(), coverage);
        let text = String::from_utf8(bytes).unwrap();
        let later = text.replace(r#""format":1,"#, r#""format":1,"sysctls":["a.b"],"#);
        assert_eq!(HardwareCoverage::parse(later.as_bytes()).unwrap(), coverage);
        let unknown = text.replace("v257", "v300");
        assert_eq!(HardwareCoverage::parse(unknown.as_bytes()).unwrap().naming_scheme, None);
        let other = text.replace(r#""format":1"#, r#""format":2"#);
        assert!(matches!(HardwareCoverage::parse(other.as_bytes()), Err(ParseCoverageError::Format(2))));
        assert!(matches!(HardwareCoverage::parse(b"{}"), Err(ParseCoverageError::Json(_))));
        assert!(coverage.module("bnx2x").unwrap().is_early() && coverage.module("ahci").unwrap().is_early());
        let drivers = coverage.drivers("pci:v000014E4d0000168Esv1");
        assert_eq!(drivers.map(|module| module.name.as_str()).collect::<Vec<_>>(), ["bnx2x"]);
    }

    /// A kernel of Debian has some 20,000 patterns, a large server some 100 devices.
    #[test]
    fn many_devices_are_matched_with_many_patterns_in_a_moment() {
        let module = |number: u32| CoveredModule {
            name: format!("m{number}"),
            aliases: (0..10).map(|n| format!("pci:v{n:08X}d{number:08X}sv*sd*bc*sc*i*")).collect(),
            ..CoveredModule::default()
        };
        let coverage = HardwareCoverage {
            kernel: "1".into(),
            modules: (0..2000).map(module).collect(),
            ..HardwareCoverage::default()
        };
        let begin = std::time::Instant::now();
        for number in 0..100_u32 {
            let alias = format!("pci:v00000003d{number:08X}sv00000000sd00000000bc02sc00i00");
            let found: Vec<_> = coverage.drivers(&alias).map(|module| module.name.clone()).collect();
            assert_eq!(found, [format!("m{number}")]);
        }
        // Without optimization it takes less than half a second.
        assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
    }
}
