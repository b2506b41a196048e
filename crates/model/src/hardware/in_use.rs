//! The devices that a machine works with, and those that it cannot use for want of a driver.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::scheme::{NamingScheme, known_scheme};

/// The devices between the processor and the disks and network cards of a machine, with the drivers that they have now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardwareInUse {
    /// The kernel's release, as `uname -r` prints it.
    pub kernel: String,
    /// By bus and address.
    pub devices: Vec<DeviceInUse>,
    /// Network cards with a name of udev's, by name.
    pub cards: Vec<NamedCard>,
    /// Network cards and disk controllers on the PCI bus that no driver has, by address; none in documents of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unbound: Vec<UnboundDevice>,
}

/// A device with a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInUse {
    /// The bus of sysfs: `pci`, `usb`, `virtio`, `scsi`.
    pub bus: String,
    /// Its name there, such as `0000:3b:00.0`.
    pub address: String,
    /// The kernel's description of it, by which drivers are found.
    pub modalias: String,
    /// The driver that has it.
    pub driver: String,
    /// The module that the driver is of; none for a part of the kernel that is no module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Whether that module says that it drives the device. If not, somebody has bound the device to it, as for passing it through to a
    /// virtual machine.
    pub claimed: bool,
    /// The network cards and disks that are reached through it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    /// Whether the disk with the file systems of the node is reached through it, so that it has to work before the OS image is open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early: bool,
    /// The files of firmware that the module may ask for and that the system has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware: Vec<String>,
}

/// A device without a driver. Which disks or ports are behind it is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnboundDevice {
    /// Domain, bus, device and function, such as `0000:3b:00.0`.
    pub address: String,
    pub kind: UnboundKind,
    /// The kernel's description of it, by which drivers are found.
    pub modalias: String,
}

/// What a device without a driver is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnboundKind {
    NetworkCard,
    DiskController,
}

impl UnboundDevice {
    /// Its vendor and its device, as lspci(8) writes them, such as `8086:57b1`; none if the description has another form.
    fn ids(&self) -> Option<String> {
        let (vendor, rest) = self.modalias.strip_prefix("pci:v")?.split_once('d')?;
        let device = rest.split_once("sv")?.0;
        let [vendor, device] = [vendor, device].map(|number| u32::from_str_radix(number, 16).ok());
        Some(format!("{:04x}:{:04x}", vendor?, device?))
    }
}

impl fmt::Display for UnboundDevice {
    /// `pci 0000:3b:00.0 (8086:57b1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.ids();
        write!(f, "pci {} ({})", self.address, ids.as_deref().unwrap_or(&self.modalias))
    }
}

/// A network card, with what udev has made its name of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedCard {
    pub name: String,
    pub mac: String,
    /// The scheme by which udev has named it; none if this program does not know that.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_scheme")]
    pub scheme: Option<NamingScheme>,
    /// Whether udev has taken the first of the next three as the name. If not, the name is somebody else's and stays.
    pub by_policy: bool,
    /// udev's `ID_NET_NAME_ONBOARD`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onboard: Option<String>,
    /// udev's `ID_NET_NAME_SLOT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// udev's `ID_NET_NAME_PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The number of the slot by the firmware (ACPI `_SUN`), of the card or of the device that it is a function of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware_slot: Option<u32>,
    /// Whether the slot that hotplug knows is that of a bridge above the card, not of the card itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bridge_slot: bool,
}
