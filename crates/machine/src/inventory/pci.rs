//! The network cards and disk controllers on the PCI bus, whether the kernel has a driver for each, and the firmware that their drivers
//! did not find.
//!
//! Devices are those of sysfs (Documentation/ABI/testing/sysfs-bus-pci); missing firmware is told by the kernel's log only
//! (Documentation/driver-api/firmware). Names are those of the PCI ID project, if the system has its list.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc::O_NONBLOCK;

use super::sysfs::{Roots, attribute, driver, names};

/// The list of names, in the place where Debian's package `pci.ids` has it.
const NAMES: &str = "/usr/share/misc/pci.ids";
/// The longest record of the kernel's log (`PRINTKRB_RECORD_MAX` and its head), with room to spare.
const RECORD_BYTES: usize = 8192;
/// The most bytes of the log that are read: its buffer has a few MiB at most.
const LOG_BYTES_MAX: usize = 16 << 20;

/// What a device is for, as far as an install cares (PCI Code and ID Assignment Specification 1.11, 1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciKind {
    /// Class 02.
    NetworkCard,
    /// Class 01.
    DiskController,
    /// Any other class.
    Other,
}

/// A device on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// Domain, bus, device and function, such as `0000:3b:00.0`.
    pub address: String,
    pub kind: PciKind,
    pub vendor: u16,
    pub device: u16,
    /// The driver that has it.
    pub driver: Option<String>,
    /// Maker and model, of those that lack a driver or firmware, if they are known.
    pub name: Option<String>,
    /// Files of firmware that its driver asked for and did not get.
    pub missing_firmware: Vec<String>,
}

impl PciDevice {
    /// Every device of the bus, by its address. What a driver lacks, and names, are not looked for.
    #[must_use]
    pub fn all(sys: &Path) -> Vec<Self> {
        let directory = sys.join("bus/pci/devices");
        names(&directory).into_iter().filter_map(|address| device(&directory, address)).collect()
    }

    /// The network cards and disk controllers, by their addresses.
    #[must_use]
    pub fn scan(roots: &Roots) -> Vec<Self> {
        let mut all = Self::all(&roots.sys);
        all.retain(|device| device.kind != PciKind::Other);
        if all.is_empty() {
            return all;
        }
        let mut missing = missing_firmware(&kernel_log(&roots.dev.join("kmsg")));
        for device in &mut all {
            device.missing_firmware = missing.remove(&device.address).unwrap_or_default();
        }
        let mut lacking = all.iter_mut().filter(|device| device.lacks_something()).peekable();
        if lacking.peek().is_some() {
            // The list has more than a MiB, and nobody is told the others.
            let list = fs::read_to_string(NAMES).unwrap_or_default();
            lacking.for_each(|device| device.name = name(&list, device.vendor, device.device));
        }
        all
    }

    fn lacks_something(&self) -> bool {
        self.driver.is_none() || !self.missing_firmware.is_empty()
    }
}

impl fmt::Display for PciDevice {
    /// `0000:3b:00.0, Broadcom Inc. and subsidiaries BCM57412 (14e4:16d6)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.address)?;
        match &self.name {
            Some(name) => write!(f, "{name} ({:04x}:{:04x})", self.vendor, self.device),
            None => write!(f, "{:04x}:{:04x}", self.vendor, self.device),
        }
    }
}

/// The device with this address below a directory of sysfs.
fn device(directory: &Path, address: String) -> Option<PciDevice> {
    let path = directory.join(&address);
    let number =
        |file: &str| u32::from_str_radix(attribute(&path.join(file))?.trim_start_matches("0x"), 16).ok();
    let kind = match number("class")? >> 16 {
        0x01 => PciKind::DiskController,
        0x02 => PciKind::NetworkCard,
        _ => PciKind::Other,
    };
    Some(PciDevice {
        address,
        kind,
        vendor: u16::try_from(number("vendor")?).ok()?,
        device: u16::try_from(number("device")?).ok()?,
        driver: driver(&path),
        name: None,
        missing_firmware: Vec::new(),
    })
}

/// The kernel's log as text, one record in each line; empty where it may not be read.
fn kernel_log(path: &Path) -> String {
    let mut log = String::new();
    let Ok(mut file) = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path) else { return log };
    let mut record = vec![0; RECORD_BYTES];
    while log.len() < LOG_BYTES_MAX {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(count) => log.push_str(&String::from_utf8_lossy(&record[..count])),
            // Records were overwritten before they were read; the next read goes on behind them.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    log
}

/// The files that drivers did not get, by the addresses of their devices. The kernel writes `bnx2x 0000:03:00.0: Direct firmware load for
/// FILE failed with error -2`, Debian's kernel `firmware: failed to load FILE (-2)` (drivers/base/firmware_loader/main.c).
fn missing_firmware(log: &str) -> BTreeMap<String, Vec<String>> {
    let mut missing: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in log.lines() {
        let file = ["Direct firmware load for ", "firmware: failed to load "].iter().find_map(|begin| {
            let (before, after) = line.split_once(begin)?;
            Some((before, after.split_whitespace().next()?))
        });
        let Some((before, file)) = file else { continue };
        let address = before.trim_end_matches([':', ' ']).rsplit(' ').next().unwrap_or_default();
        let files = missing.entry(address.to_owned()).or_default();
        if !files.iter().any(|known| known == file) {
            files.push(file.to_owned());
        }
    }
    missing
}

/// Maker and model in the list of the PCI ID project: a line for each vendor, below it one with a tabulator for each device.
fn name(list: &str, vendor: u16, device: u16) -> Option<String> {
    let (vendor, device) = (format!("{vendor:04x}  "), format!("\t{device:04x}  "));
    let mut lines = list.lines();
    let maker = lines.find_map(|line| line.strip_prefix(&vendor))?;
    let mut models = lines.take_while(|line| line.starts_with(['\t', '#']) || line.is_empty());
    Some(match models.find_map(|line| line.strip_prefix(&device)) {
        Some(model) => format!("{maker} {model}"),
        None => maker.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn put(root: &Path, address: &str, [class, vendor, device]: [&str; 3], driver: Option<&str>) {
        let directory = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&directory).unwrap();
        for (file, text) in [("class", class), ("vendor", vendor), ("device", device)] {
            fs::write(directory.join(file), format!("{text}\n")).unwrap();
        }
        if let Some(driver) = driver {
            symlink(format!("../../../../bus/pci/drivers/{driver}"), directory.join("driver")).unwrap();
        }
    }

    #[test]
    fn cards_and_controllers_are_found_with_their_drivers_and_what_these_did_not_find() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "0000:3b:00.0", ["0x020000", "0x14e4", "0x16d6"], None);
        put(root.path(), "0000:03:00.0", ["0x020000", "0x14e4", "0x168e"], Some("bnx2x"));
        put(root.path(), "0000:00:17.0", ["0x010601", "0x8086", "0xa182"], Some("ahci"));
        put(root.path(), "0000:00:02.0", ["0x030000", "0x8086", "0x1912"], Some("i915"));
        put(root.path(), "0000:00:1f.2", ["unreadable", "0x8086", "0x1912"], None);
        let log = "6,900,1,-;bnx2x 0000:03:00.0: Direct firmware load for bnx2x/bnx2x-e2-7.13.21.0.fw failed with error -2\n \
                   SUBSYSTEM=pci\n\
                   3,901,2,-;bnx2x 0000:03:00.0: firmware: failed to load bnx2x/bnx2x-e2-7.13.21.0.fw (-2)\n\
                   3,902,3,-;bnx2x 0000:03:00.0: firmware: failed to load bnx2x/bnx2x-e2-7.13.15.0.fw (-2)\n";
        fs::create_dir_all(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/kmsg"), log).unwrap();
        let found = PciDevice::scan(&Roots::below(root.path()));
        let told: Vec<_> = found
            .iter()
            .map(|device| (device.address.as_str(), device.kind, device.driver.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                ("0000:00:17.0", PciKind::DiskController, Some("ahci")),
                ("0000:03:00.0", PciKind::NetworkCard, Some("bnx2x")),
                ("0000:3b:00.0", PciKind::NetworkCard, None),
            ]
        );
        assert_eq!(found[1].missing_firmware, ["bnx2x/bnx2x-e2-7.13.21.0.fw", "bnx2x/bnx2x-e2-7.13.15.0.fw"]);
        assert!(found[0].missing_firmware.is_empty() && found[2].missing_firmware.is_empty());
        assert!(PciDevice::scan(&Roots::below(&root.path().join("nowhere"))).is_empty());
    }

    #[test]
    fn a_device_is_named_by_maker_and_model_as_far_as_the_list_has_them() {
        let list = "# a comment\n14e4  Broadcom Inc. and subsidiaries\n\t1600  NetXtreme BCM5752\n\t\t103c 3015  PCIe LAN\n\
                    \t16d6  BCM57412 NetXtreme-E 10Gb\n8086  Intel Corporation\n\t16d6  another\n";
        for (vendor, device, expected) in [
            (0x14e4, 0x16d6, Some("Broadcom Inc. and subsidiaries BCM57412 NetXtreme-E 10Gb")),
            (0x14e4, 0x1601, Some("Broadcom Inc. and subsidiaries")),
            (0x8086, 0x16d6, Some("Intel Corporation another")),
            (0x8086, 0x1600, Some("Intel Corporation")),
            (0x1234, 0x1600, None),
        ] {
            assert_eq!(name(list, vendor, device).as_deref(), expected);
        }
        assert_eq!(name("", 1, 1), None);
        let device = PciDevice {
            address: "0000:3b:00.0".into(),
            kind: PciKind::NetworkCard,
            vendor: 0x14e4,
            device: 0x16d6,
            driver: None,
            name: None,
            missing_firmware: vec![],
        };
        assert_eq!(device.to_string(), "0000:3b:00.0, 14e4:16d6");
        let named = PciDevice { name: Some("A card".into()), ..device };
        assert_eq!(named.to_string(), "0000:3b:00.0, A card (14e4:16d6)");
    }

    proptest::proptest! {
        #[test]
        fn no_log_makes_the_reader_fall(log in "(.{0,30}(Direct firmware load for |firmware: failed to load ).{0,30}\n){0,4}") {
            let _ = missing_firmware(&log);
        }
    }
}
