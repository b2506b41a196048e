//! The properties of the machine, from sysfs, procfs and the firmware's tables. Runs no program.
//!
//! An unknown [`Fact`] says why, so that a check on it can say that it could not run. Everything is read below [`Roots`]; a test
//! reads a directory.

use std::path::Path;

use super::dmi;
use base::files::{read_at_most, read_text};
use base::meminfo;
use base::size::ByteSize;
use machine::host::HostFacts;
use machine::inventory::pci::PciDevice;
use machine::inventory::{Inventory, Roots};
use machine::module_trust::{module_trust, present_devices};
use machine::network_disks::firmware;
use model::hardware::{ModuleTrust, PresentDevice};
use model::network_disks::NetworkDiskAccess;

/// A property of the machine, or why it is not known, a clause.
pub type Fact<T> = Result<T, String>;

#[derive(Clone, Debug)]
pub struct MachineFacts {
    pub cpus: Fact<u32>,
    pub memory: Fact<MemorySize>,
    pub kvm: Fact<bool>,
    pub processor: Fact<Processor>,
    /// Maker and model, if the firmware has them.
    pub model: Option<String>,
    pub uefi: Fact<bool>,
    /// The network cards and disk controllers on the PCI bus.
    pub devices: Fact<Vec<PciDevice>>,
    /// What it can do for virtual machines.
    pub host: Fact<HostFacts>,
    /// The keys that the kernel trusts for modules, if it loads signed ones only.
    pub module_trust: Fact<Option<ModuleTrust>>,
    /// The devices for which modules of extensions could be.
    pub present: Fact<Vec<PresentDevice>>,
    /// The firmware's UUID; `None` if the firmware has none.
    pub uuid: Fact<Option<String>>,
    /// How the firmware reaches disks over the network (iBFT).
    pub firmware_disks: NetworkDiskAccess,
    pub inventory: Inventory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySize {
    pub size: ByteSize,
    /// All installed memory. `false`: the kernel's number, without what firmware and kernel reserve.
    pub fitted: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    pub hypervisor: bool,
    /// It has VT-x or AMD-V, and the firmware has not disabled it.
    pub virtualises: bool,
}

impl MachineFacts {
    #[must_use]
    pub fn scan(roots: &Roots, inventory: Inventory) -> Self {
        Self {
            cpus: cpus(&roots.sys),
            memory: memory(roots),
            kvm: exists(&roots.dev.join("kvm")),
            processor: processor(&roots.proc),
            model: model(&roots.sys),
            uefi: exists(&roots.sys.join("firmware")).and_then(|there| match there {
                true => exists(&roots.sys.join("firmware/efi")),
                false => Err("the kernel reports nothing about the firmware".into()),
            }),
            devices: Ok(PciDevice::scan(roots)),
            host: Ok(HostFacts::scan(&roots.sys)),
            module_trust: Ok(module_trust(&roots.sys)),
            present: Ok(present_devices(&roots.sys)),
            uuid: uuid(&roots.sys),
            firmware_disks: firmware::read(&roots.sys),
            inventory,
        }
    }

    /// Maker and model, processors and memory, as far as they are known; in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let cpus = self.cpus.as_ref().ok().map(|count| match count {
            1 => "1 processor".to_owned(),
            count => format!("{count} processors"),
        });
        let memory = self.memory.as_ref().ok().map(|memory| format!("{} of memory", memory.size));
        let sizes = cpus.into_iter().chain(memory).collect::<Vec<_>>().join(", ");
        let parts = [self.model.clone().unwrap_or_default(), sizes];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }

    /// Another machine, of which only the inventory is known.
    #[must_use]
    pub fn of_inventory(inventory: Inventory) -> Self {
        fn unknown<T>() -> Fact<T> {
            Err("an inventory file does not contain it; run the check on the machine itself".into())
        }
        Self {
            cpus: unknown(),
            memory: unknown(),
            kvm: unknown(),
            processor: unknown(),
            model: None,
            uefi: unknown(),
            devices: unknown(),
            host: unknown(),
            module_trust: unknown(),
            present: unknown(),
            uuid: unknown(),
            firmware_disks: NetworkDiskAccess::default(),
            inventory,
        }
    }
}

fn exists(path: &Path) -> Fact<bool> {
    path.try_exists().map_err(|error| format!("looking for {}: {error}", path.display()))
}

fn text(path: &Path) -> Fact<String> {
    read_text(path).map_err(|error| format!("{error:#}"))
}

/// The kernel writes a list of ranges (Documentation/admin-guide/cputopology.rst).
fn cpus(sys: &Path) -> Fact<u32> {
    let path = sys.join("devices/system/cpu/online");
    let list = text(&path)?;
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.sum::<Option<u32>>().ok_or_else(|| format!("{} is not a list of processors", path.display()))
}

/// The installed memory, if the firmware's tables are plausible: no less than the kernel has, and not so much more that the
/// kernel must have been limited.
fn memory(roots: &Roots) -> Fact<MemorySize> {
    let table = read_at_most(&roots.sys.join("firmware/dmi/tables/DMI"), 1 << 20).ok();
    let fitted = table.and_then(|table| dmi::memory(&table));
    let path = roots.proc.join("meminfo");
    let usable = text(&path).and_then(|text| {
        meminfo::amount(&text, "MemTotal").ok_or_else(|| format!("{} has no MemTotal", path.display()))
    });
    match (fitted, usable) {
        (Some(fitted), Ok(usable)) if fitted >= usable && fitted.get() / 4 * 3 <= usable.get() => {
            Ok(MemorySize { size: fitted, fitted: true })
        }
        (_, Ok(usable)) => Ok(MemorySize { size: usable, fitted: false }),
        (Some(fitted), Err(_)) => Ok(MemorySize { size: fitted, fitted: true }),
        (None, Err(why)) => Err(why),
    }
}

fn processor(proc: &Path) -> Fact<Processor> {
    let path = proc.join("cpuinfo");
    let text = text(&path)?;
    let line = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == "flags"));
    let (_, flags) = line.ok_or_else(|| format!("{} has no flags", path.display()))?;
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    Ok(Processor { hypervisor: has("hypervisor"), virtualises: has("vmx") || has("svm") })
}

fn model(sys: &Path) -> Option<String> {
    let words = ["sys_vendor", "product_name"].map(|file| text(&sys.join("class/dmi/id").join(file)));
    let words: Vec<_> =
        words.iter().flatten().map(|word| word.trim()).filter(|word| !word.is_empty()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// The kernel leaves the file out if all bits of the UUID are the same (drivers/firmware/dmi_scan.c), and only root can read it.
fn uuid(sys: &Path) -> Fact<Option<String>> {
    let directory = sys.join("class/dmi/id");
    if !exists(&directory)? {
        return Err("the kernel shows no DMI tables".into());
    }
    let path = directory.join("product_uuid");
    if !exists(&path)? { Ok(None) } else { text(&path).map(|text| Some(text.trim().to_owned())) }
}
