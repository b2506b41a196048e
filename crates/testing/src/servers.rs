//! Servers of known makes, and what is known of each under three kernels of Debian.
//!
//! No inventory is the copy of one machine. Each is put together from the parts that its maker sells it with. Vendors and devices are those
//! of the list of the PCI ID project, and so are subsystems where it has them, but for the newest parts of `asrock-b850`, `dell-r7725` and
//! `supermicro-x14`, which the list of 2023 has not. Hardware addresses are of the range for documentation (RFC 7042, 2.1.2), and there
//! are no serial numbers. The drivers are those of the kernel that an inventory names, or of another source where Debian's kernel has none.
//!
//! The answers are not taken from this program. depmod(8) and modinfo(8) were asked about the packages of the kernels, and
//! `dpkg-deb --contents` about those of the firmware. [`KernelExtract`] has what they say of these machines.

use std::fs;
use std::path::Path;

use crate::kernel::module;

/// A server with the reasons for which it would not come up; none where it would.
pub struct RecordedServer {
    pub name: &'static str,
    /// As `installer inventory` prints it.
    pub inventory: &'static str,
    /// Under each of [`KERNELS`], with the firmware of `servers`.
    pub reasons: [&'static [&'static str]; 3],
    /// Under the second of them without any firmware.
    pub without_firmware: &'static [&'static str],
}

macro_rules! server {
    ($name:literal, $reasons:expr, $without_firmware:expr) => {
        RecordedServer {
            name: $name,
            inventory: include_str!(concat!("inventories/servers/", $name, ".json")),
            reasons: $reasons,
            without_firmware: $without_firmware,
        }
    };
}

const ARM64: &[&str] = &["the machine is arm64, the release is for amd64"];
/// No kernel of Debian has the driver of Fusion-io.
const FUSION_IO: &[&str] = &["pci 0000:07:00.0 (fioa) has the driver iodrive now and would have none"];
/// Linux has the driver of the E610 since 6.14.
const E610: &[&str] = &[
    "it has no network card with a driver: pci 0000:31:00.0 (8086:57b1) has none now and would have none, pci 0000:31:00.1 (8086:57b1) has none now and would have none",
];
/// Linux knows the RTL8127A since 6.16.
const RTL8127: &[&str] = &["pci 0000:03:00.0 (enp3s0) has the driver r8169 now and would have none"];

/// In the order of their names.
pub const SERVERS: [RecordedServer; 12] = [
    server!("ampere-altra", [ARM64, ARM64, ARM64], ARM64),
    server!(
        "asrock-b850",
        [
            RTL8127,
            RTL8127,
            // The firmware of Debian 13 is older than the card.
            &["pci 0000:03:00.0 (enp3s0) would lack firmware for its driver r8169: rtl_nic/rtl8127a-1.fw"],
        ],
        RTL8127
    ),
    server!(
        "dell-r710",
        [&[], &[], &[]],
        &[
            "pci 0000:01:00.0 (eno1) would lack firmware for its driver bnx2: bnx2/bnx2-mips-06-6.2.3.fw, bnx2/bnx2-mips-09-6.2.1b.fw, bnx2/bnx2-rv2p-06-6.0.15.fw and 2 more",
            "pci 0000:01:00.1 (eno2) would lack firmware for its driver bnx2: bnx2/bnx2-mips-06-6.2.3.fw, bnx2/bnx2-mips-09-6.2.1b.fw, bnx2/bnx2-rv2p-06-6.0.15.fw and 2 more",
            "pci 0000:02:00.0 (eno3) would lack firmware for its driver bnx2: bnx2/bnx2-mips-06-6.2.3.fw, bnx2/bnx2-mips-09-6.2.1b.fw, bnx2/bnx2-rv2p-06-6.0.15.fw and 2 more",
            "pci 0000:02:00.1 (eno4) would lack firmware for its driver bnx2: bnx2/bnx2-mips-06-6.2.3.fw, bnx2/bnx2-mips-09-6.2.1b.fw, bnx2/bnx2-rv2p-06-6.0.15.fw and 2 more",
        ]
    ),
    server!(
        "dell-r730xd",
        [&[], &[], &[]],
        &[
            "pci 0000:01:00.0 (eno1) would lack firmware for its driver bnx2x: bnx2x/bnx2x-e1-7.13.15.0.fw, bnx2x/bnx2x-e1-7.13.21.0.fw, bnx2x/bnx2x-e1h-7.13.15.0.fw and 3 more",
            "pci 0000:01:00.1 (eno2) would lack firmware for its driver bnx2x: bnx2x/bnx2x-e1-7.13.15.0.fw, bnx2x/bnx2x-e1-7.13.21.0.fw, bnx2x/bnx2x-e1h-7.13.15.0.fw and 3 more",
        ]
    ),
    server!("dell-r7525", [&[], &[], &[]], &[]),
    server!(
        "dell-r7725",
        [
            // Linux knows the SAS5116 since 6.6 and the BCM57608 since 6.8.
            &[
                "pci 0000:41:00.0 (sda) has the driver mpi3mr now and would have none",
                "pci 0000:c1:00.0 (ens3np0) has the driver bnxt_en now and would have none",
            ],
            &[],
            &[],
        ],
        &[]
    ),
    server!("hpe-dl360p-gen8", [FUSION_IO, FUSION_IO, FUSION_IO], FUSION_IO),
    server!("hpe-dl380-gen10", [&[], &[], &[]], &[]),
    server!(
        "lenovo-sr650",
        [&[], &[], &[]],
        &[
            "pci 0000:af:00.0 (ens2f0) would lack firmware for its driver qede: qed/qed_init_values_zipped-8.59.1.0.bin",
            "pci 0000:af:00.1 (ens2f1) would lack firmware for its driver qede: qed/qed_init_values_zipped-8.59.1.0.bin",
        ]
    ),
    server!("supermicro-h11", [&[], &[], &[]], &[]),
    server!(
        "supermicro-x13",
        [&[], &[], &[]],
        &[
            "pci 0000:2a:00.0 (ens1f0np0) would lack firmware for its driver ice: intel/ice/ddp/ice.pkg",
            "pci 0000:2a:00.1 (ens1f1np1) would lack firmware for its driver ice: intel/ice/ddp/ice.pkg",
        ]
    ),
    server!("supermicro-x14", [E610, E610, &[]], E610),
];

/// What three kernels of Debian have for the servers, the oldest first: that of Debian 12, that of Debian 13, and the newest that its
/// backports had.
pub const KERNELS: [KernelExtract; 3] = [
    KernelExtract(include_str!("kernels/debian-12.txt")),
    KernelExtract(include_str!("kernels/debian-13.txt")),
    KernelExtract(include_str!("kernels/debian-13-backports.txt")),
];

/// What a kernel has for the servers, as text of a word and its value a line: `kernel RELEASE`; `module NAME`, with the `alias`,
/// `depends` and `firmware` that it says of itself below it, and `initrd` if the initrd has it, as that of a medium with Debian 13 did;
/// `file NAME` for the files of firmware of `servers`. All patterns are there of drivers that another of the kernels has for more of the
/// servers.
#[derive(Clone, Copy)]
pub struct KernelExtract(&'static str);

impl KernelExtract {
    fn lines(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split_once(' ').unwrap_or((line, "")))
    }

    /// As `uname -r` prints it.
    pub fn release(self) -> &'static str {
        self.lines().find(|(word, _)| *word == "kernel").unwrap().1
    }

    /// The modules that the initrd has.
    pub fn early(self) -> Vec<&'static str> {
        let mut module = "";
        let mut early = Vec::new();
        for (word, value) in self.lines() {
            match word {
                "module" => module = value,
                "initrd" => early.push(module),
                _ => {}
            }
        }
        early
    }

    /// Fills `root` with the modules of the kernel, as depmod leaves them, and with the firmware.
    pub fn lay_out(self, root: &Path) {
        let directory = root.join("usr/lib/modules").join(self.release());
        fs::create_dir_all(&directory).unwrap();
        let mut modules: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
        for (word, value) in self.lines() {
            match word {
                "module" => modules.push((value, Vec::new())),
                "alias" | "depends" | "firmware" => modules.last_mut().unwrap().1.push((word, value)),
                "file" => {
                    let path = root.join("usr/lib/firmware").join(format!("{value}.xz"));
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, "x").unwrap();
                }
                _ => {}
            }
        }
        let (mut aliases, mut needed) = (String::new(), String::new());
        for (name, info) in modules {
            fs::write(directory.join(format!("{name}.ko")), module(&info)).unwrap();
            let of = |wanted: &str| -> Vec<&str> {
                info.iter().filter(|(word, _)| *word == wanted).map(|(_, value)| *value).collect()
            };
            aliases.extend(of("alias").iter().map(|pattern| format!("alias {pattern} {name}\n")));
            let files: Vec<_> = of("depends").iter().map(|name| format!("{name}.ko")).collect();
            needed += &format!("{name}.ko: {}\n", files.join(" "));
        }
        fs::write(directory.join("modules.alias"), aliases).unwrap();
        fs::write(directory.join("modules.dep"), needed).unwrap();
    }
}

/// Writes the inventory of each server into `directory`, as NAME.json.
pub fn write_inventories(directory: &Path) {
    for server in SERVERS {
        fs::write(directory.join(format!("{}.json", server.name)), server.inventory).unwrap();
    }
}
