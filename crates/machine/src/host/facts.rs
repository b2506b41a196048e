//! What a machine can do for virtual machines, from sysfs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{huge_pages_file, policies};
use crate::inventory::pci::PciDevice;
use crate::inventory::sysfs::{attribute, number};
use crate::inventory::{directory_names, nics};
use model::config::formats::kernel::{self, PciMatch};
use model::config::host::HugePageSize;
use model::config::{HostSettings, PciSelector};

/// What a machine can do for virtual machines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Every device on the PCI bus.
    pub devices: Vec<PciDevice>,
    /// The addresses of network cards and disks on that bus, by the kernel's names of the latter.
    pub addresses: BTreeMap<String, String>,
    pub iommu: IommuState,
    /// The IOMMU group of each device by its address; empty where the kernel does not use an IOMMU.
    pub groups: BTreeMap<String, String>,
    /// How many virtual functions each network card can have, by its name; only cards that can.
    pub virtual_functions: BTreeMap<String, u64>,
    /// The governors that every processor has; `None` if the kernel does not set the clock.
    pub governors: Option<BTreeSet<String>>,
    /// The processors that are there; `None` if the kernel does not tell.
    pub cpus: Option<BTreeSet<u32>>,
    /// The sizes of huge pages that the processor has.
    pub page_sizes: BTreeSet<HugePageSize>,
}

/// Whether the machine has an IOMMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IommuState {
    #[default]
    Absent,
    /// The firmware describes one, which this kernel does not use.
    Unused,
    Used,
}

/// The tables in which firmware describes the IOMMU of Intel, of AMD and of Arm (ACPI 6.5, 5.2.6).
const IOMMU_TABLES: [&str; 3] = ["DMAR", "IVRS", "IORT"];

impl HostFacts {
    #[must_use]
    pub fn scan(sys: &Path) -> Self {
        let cards = nics::scan(sys).into_iter().map(|nic| nic.name);
        let disks = directory_names(&sys.join("block"));
        let card = |name: &String| sys.join("class/net").join(name).join("device");
        let cards: Vec<_> = cards.collect();
        let of_cards = cards.iter().filter_map(|name| Some((name.clone(), pci_address(&card(name))?)));
        let of_disks =
            disks.iter().filter_map(|name| Some((name.clone(), pci_address(&sys.join("block").join(name))?)));
        let total = |name: &String| {
            let total = number(&card(name).join("sriov_totalvfs")).filter(|total| *total > 0)?;
            Some((name.clone(), total))
        };
        let sizes = [HugePageSize::Mib2, HugePageSize::Gib1];
        Self {
            devices: PciDevice::all(sys),
            addresses: of_cards.chain(of_disks).collect(),
            iommu: IommuState::of(sys),
            groups: groups(sys),
            virtual_functions: cards.iter().filter_map(total).collect(),
            governors: governors(sys),
            cpus: attribute(&sys.join("devices/system/cpu/present"))
                .and_then(|list| kernel::cpu_numbers(&list)),
            page_sizes: sizes.into_iter().filter(|size| huge_pages_file(sys, *size).exists()).collect(),
        }
    }

    /// The devices that a selector means.
    pub fn selected(&self, selector: &PciSelector) -> impl Iterator<Item = &PciDevice> {
        let wanted = selector.parsed();
        self.devices.iter().filter(move |device| match &wanted {
            PciMatch::Kind { vendor, device: kind } => (device.vendor, device.device) == (*vendor, *kind),
            PciMatch::Address(address) => device.address == *address,
        })
    }

    /// A clause for each device that is passed through and shares its IOMMU group with one that a driver of the node has. VFIO gives
    /// a virtual machine whole groups only, in which it leaves bridges alone (Documentation/driver-api/vfio.rst).
    #[must_use]
    pub fn divided_groups(&self, settings: &HostSettings) -> Vec<String> {
        let selected: BTreeSet<&str> = settings
            .passthrough
            .iter()
            .flat_map(|selector| self.selected(selector))
            .map(|device| device.address.as_str())
            .collect();
        let others = |address: &str| -> Vec<String> {
            let group = self.groups.get(address);
            let shares = |device: &&PciDevice| group.is_some() && self.groups.get(&device.address) == group;
            let held = self
                .devices
                .iter()
                .filter(shares)
                .filter(|device| !selected.contains(device.address.as_str()));
            held.filter_map(|device| {
                let driver = device.driver.as_deref().filter(|driver| !HARMLESS_DRIVERS.contains(driver))?;
                Some(format!("{} (driver {driver})", device.address))
            })
            .collect()
        };
        let divided = selected.iter().filter_map(|address| {
            let others = others(address);
            let group = self.groups.get(*address)?;
            (!others.is_empty()).then(|| {
                format!(
                    "{address} is in the IOMMU group {group} with {}, which stays with the node",
                    others.join(", ")
                )
            })
        });
        divided.collect()
    }
}

/// Drivers in whose hands a device does not keep its group from a virtual machine.
const HARMLESS_DRIVERS: [&str; 3] = [super::VFIO, "pci-stub", "pcieport"];

impl IommuState {
    fn of(sys: &Path) -> Self {
        if !directory_names(&sys.join("class/iommu")).is_empty() {
            return Self::Used;
        }
        let tables = sys.join("firmware/acpi/tables");
        match IOMMU_TABLES.iter().any(|table| tables.join(table).exists()) {
            true => Self::Unused,
            false => Self::Absent,
        }
    }
}

/// The IOMMU groups (Documentation/ABI/testing/sysfs-kernel-iommu_groups).
fn groups(sys: &Path) -> BTreeMap<String, String> {
    let directory = sys.join("kernel/iommu_groups");
    let members = |group: String| {
        let devices = directory_names(&directory.join(&group).join("devices"));
        devices.into_iter().map(move |address| (address, group.clone()))
    };
    directory_names(&directory).into_iter().flat_map(members).collect()
}

/// The governors that every policy has.
fn governors(sys: &Path) -> Option<BTreeSet<String>> {
    let available = |policy: &std::path::PathBuf| -> BTreeSet<String> {
        let names = attribute(&policy.join("scaling_available_governors")).unwrap_or_default();
        names.split_whitespace().map(str::to_owned).collect()
    };
    policies(sys).iter().map(available).reduce(|all, more| all.intersection(&more).cloned().collect())
}

/// The address on the PCI bus of what a path in sysfs leads to: of the last device of that bus on the way to it.
pub(super) fn pci_address(path: &Path) -> Option<String> {
    let place = path.canonicalize().ok()?;
    let names = place.components().rev().filter_map(|part| part.as_os_str().to_str());
    names
        .filter_map(|name| match kernel::pci_match(name)? {
            // Only the kernel's own spelling is a device's name here.
            PciMatch::Address(address) if address == name => Some(address),
            _ => None,
        })
        .next()
}
