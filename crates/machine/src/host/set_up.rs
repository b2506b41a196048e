//! Setting up what a running kernel can change, at each start of a node. Nothing here ends a boot: each failure is a line for the
//! journal, and the node starts without that setting.

use std::fs;
use std::path::Path;

use super::facts::HostFacts;
use super::needed::NeededDevices;
use super::{VFIO, huge_pages_file, policies};
use crate::inventory::nics;
use crate::inventory::pci::PciDevice;
use crate::inventory::sysfs::{attribute, driver, number};
use base::command::{Invocation, Runner};
use model::config::{HostSettings, Interface};

/// Before drivers are loaded for the devices of the machine: reserves huge pages and hands devices to `vfio-pci`. Returns lines for
/// the journal; those that begin with `warning:` are failures.
pub fn prepare(
    sys: &Path,
    settings: &HostSettings,
    needed: &NeededDevices,
    runner: &dyn Runner,
) -> Vec<String> {
    let mut notes = huge_pages(sys, settings);
    notes.extend(pass_through(sys, settings, needed, runner));
    notes
}

/// Once drivers have their devices: makes virtual functions, hands those that are selected to `vfio-pci`, and sets the governor.
pub fn settle(
    sys: &Path,
    settings: &HostSettings,
    needed: &NeededDevices,
    runner: &dyn Runner,
) -> Vec<String> {
    let mut notes = virtual_functions(sys, settings);
    notes.extend(pass_through(sys, settings, needed, runner));
    notes.extend(governor(sys, settings));
    notes
}

fn warning(key: &str, what: impl std::fmt::Display) -> String {
    format!("warning: os.host.{key}: {what}")
}

/// Writes a value for the kernel; the error says where.
fn write(path: &Path, value: &str) -> Result<(), String> {
    // An attribute of sysfs is written in place, by one write.
    fs::write(path, value).map_err(|error| format!("writing {value} to {}: {error}", path.display()))
}

/// The kernel's command line has reserved them already, unless the document has changed since the boot loader was told.
fn huge_pages(sys: &Path, settings: &HostSettings) -> Vec<String> {
    let mut notes = Vec::new();
    for pages in &settings.huge_pages {
        let (size, count) = (pages.size.word(), u64::from(pages.count));
        let file = huge_pages_file(sys, pages.size);
        let Some(before) = number(&file) else {
            notes.push(warning("huge_pages", format_args!("the processor has no pages of {size}")));
            continue;
        };
        if before == count {
            continue;
        }
        let written = write(&file, &count.to_string());
        let now = number(&file).unwrap_or(before);
        notes.push(match written {
            Err(error) => warning("huge_pages", error),
            Ok(()) if now == count => format!("{count} pages of {size} are reserved"),
            Ok(()) => warning(
                "huge_pages",
                format_args!(
                    "{now} of {count} pages of {size} are reserved: no more memory is free in one piece"
                ),
            ),
        });
    }
    notes
}

fn pass_through(
    sys: &Path,
    settings: &HostSettings,
    needed: &NeededDevices,
    runner: &dyn Runner,
) -> Vec<String> {
    if settings.passthrough.is_empty() {
        return Vec::new();
    }
    let facts = HostFacts::scan(sys);
    let selected = settings.passthrough.iter().flat_map(|selector| facts.selected(selector));
    let (taken, free): (Vec<_>, Vec<_>) = selected.partition(|device| needed.by(device).is_some());
    let mut notes: Vec<_> = taken
        .iter()
        .filter_map(|device| {
            let what = needed.by(device)?;
            Some(warning(
                "passthrough",
                format_args!("{} stays with the node: {what} is on it", device.address),
            ))
        })
        .collect();
    let other: Vec<_> = free.into_iter().filter(|device| device.driver.as_deref() != Some(VFIO)).collect();
    if other.is_empty() {
        return notes;
    }
    if let Err(error) = runner.run(&Invocation::new("modprobe").arg(VFIO)) {
        notes.push(warning("passthrough", format_args!("loading {VFIO}: {error:#}")));
        return notes;
    }
    notes.extend(facts.divided_groups(settings).into_iter().map(|clause| warning("passthrough", clause)));
    notes.extend(other.into_iter().map(|device| match bind(sys, device) {
        Ok(()) => format!("{VFIO} has {}", device.address),
        Err(error) => warning("passthrough", error),
    }));
    notes
}

/// Takes a device from its driver and gives it to `vfio-pci` (Documentation/ABI/testing/sysfs-bus-pci, `driver_override`).
fn bind(sys: &Path, device: &PciDevice) -> Result<(), String> {
    let bus = sys.join("bus/pci");
    let path = bus.join("devices").join(&device.address);
    write(&path.join("driver_override"), VFIO)?;
    if device.driver.is_some() {
        write(&path.join("driver/unbind"), &device.address)?;
    }
    write(&bus.join("drivers_probe"), &device.address)?;
    match driver(&path) {
        Some(found) if found == VFIO => Ok(()),
        found => {
            let has = found.map_or("no driver".to_owned(), |found| found);
            Err(format!("{has} has {}, not {VFIO}: the machine needs an IOMMU that is on", device.address))
        }
    }
}

fn virtual_functions(sys: &Path, settings: &HostSettings) -> Vec<String> {
    let mut notes = Vec::new();
    let present = nics::scan(sys);
    for card in &settings.sriov {
        let wanted = card.card();
        let Some(nic) = present.iter().find(|nic| nic.is(&wanted)) else {
            notes.push(warning("sriov", format_args!("there is no card {}", words(&wanted))));
            continue;
        };
        let device = sys.join("class/net").join(&nic.name).join("device");
        let count = u64::from(card.functions);
        let file = device.join("sriov_numvfs");
        let Some(before) = number(&file) else {
            notes.push(warning("sriov", format_args!("{} cannot have virtual functions", nic.name)));
            continue;
        };
        if before == count {
            continue;
        }
        // The number can only be changed from and to none.
        let none = if before == 0 { Ok(()) } else { write(&file, "0") };
        notes.push(match none.and_then(|()| write(&file, &count.to_string())) {
            Ok(()) => format!("{} has {count} virtual functions", nic.name),
            Err(error) => {
                let most = number(&device.join("sriov_totalvfs")).unwrap_or_default();
                warning("sriov", format_args!("{} can have {most} virtual functions: {error}", nic.name))
            }
        });
    }
    notes
}

/// A card as the document names it.
pub(super) fn words(card: &Interface) -> String {
    let words = [card.name.as_deref(), card.hw_addr.as_deref()];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn governor(sys: &Path, settings: &HostSettings) -> Vec<String> {
    let Some(governor) = settings.cpu.governor else { return Vec::new() };
    let policies = policies(sys);
    if policies.is_empty() {
        return vec![warning("cpu.governor", "the kernel does not set the clock of these processors")];
    }
    let files = policies.iter().map(|policy| policy.join("scaling_governor"));
    let other = files.filter(|file| attribute(file).as_deref() != Some(governor.name()));
    let failed = other.filter_map(|file| write(&file, governor.name()).err());
    // One is enough: the processors of a machine are alike.
    failed.take(1).map(|error| warning("cpu.governor", error)).collect()
}
