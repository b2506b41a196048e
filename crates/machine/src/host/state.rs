//! What came of the settings, for the status of a node.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::facts::{HostFacts, IommuState};
use super::set_up::words;
use super::{VFIO, huge_pages_file, policies};
use crate::inventory::nics;
use crate::inventory::sysfs::{attribute, number};
use base::failure::{Class, Classify};
use base::files::{make_directory, read_text, write_atomically};
use base::size::ByteSize;
use model::config::Os;
use model::config::formats::kernel;

/// One setting of the machine, and what is found of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingState {
    /// The key below `os.host`.
    pub key: String,
    /// What is found, in words.
    pub found: String,
    /// Whether it is what the document asks for.
    pub in_effect: bool,
}

impl fmt::Display for SettingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, found, in_effect } = self;
        write!(f, "{key}: {found}{}", if *in_effect { "" } else { ", NOT as the document asks" })
    }
}

/// The state of every setting of the document on the running system at `root`, in the order of the keys; none on one that does not
/// run.
#[must_use]
pub fn states(root: &Path, os: &Os) -> Vec<SettingState> {
    let settings = &os.host;
    let sys = root.join("sys");
    if settings.is_empty() || !sys.join("kernel").is_dir() {
        return Vec::new();
    }
    let facts = HostFacts::scan(&sys);
    let mut states = Vec::new();
    let mut state = |key: &str, found: String, in_effect: bool| {
        states.push(SettingState { key: key.to_owned(), found, in_effect });
    };
    for pages in &settings.huge_pages {
        let now = number(&huge_pages_file(&sys, pages.size)).unwrap_or_default();
        let found = format!("{now} of {} pages of {}", pages.count, pages.size.word());
        state("huge_pages", found, now == u64::from(pages.count));
    }
    if settings.uses_iommu() {
        let found = match facts.iommu {
            IommuState::Used => "in use",
            IommuState::Unused => "not in use",
            IommuState::Absent => "none in this machine",
        };
        state("iommu", found.to_owned(), facts.iommu == IommuState::Used);
    }
    for selector in &settings.passthrough {
        let devices: Vec<_> = facts.selected(selector).collect();
        let each = devices.iter().map(|device| {
            format!("{} has {}", device.address, device.driver.as_deref().unwrap_or("no driver"))
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let found = if devices.is_empty() { "no such device".to_owned() } else { each };
        let all = !devices.is_empty() && devices.iter().all(|device| device.driver.as_deref() == Some(VFIO));
        state("passthrough", format!("{selector}: {found}"), all);
    }
    for clause in facts.divided_groups(settings) {
        state("passthrough", clause, false);
    }
    let present = nics::scan(&sys);
    for card in &settings.sriov {
        let wanted = card.card();
        let nic = present.iter().find(|nic| nic.is(&wanted));
        let now = nic.map(|nic| {
            let file = sys.join("class/net").join(&nic.name).join("device/sriov_numvfs");
            number(&file).unwrap_or_default()
        });
        let found = now.map_or("no such card".to_owned(), |now| {
            format!("{now} of {} virtual functions", card.functions)
        });
        state("sriov", format!("{}: {found}", words(&wanted)), now == Some(u64::from(card.functions)));
    }
    if let Some(governor) = settings.cpu.governor {
        let policies = policies(&sys);
        let now: Vec<_> =
            policies.iter().filter_map(|policy| attribute(&policy.join("scaling_governor"))).collect();
        let other = now.iter().find(|now| *now != governor.name());
        let found = other.or(now.first()).map_or("none", String::as_str).to_owned();
        state("cpu.governor", found, !now.is_empty() && other.is_none());
    }
    if let Some(isolated) = &settings.cpu.isolated {
        let now = attribute(&sys.join("devices/system/cpu/isolated")).unwrap_or_default();
        let numbers = kernel::cpu_numbers(&now).unwrap_or_default();
        let found = if now.is_empty() { "none".to_owned() } else { now };
        state("cpu.isolated", found, numbers == isolated.numbers());
    }
    if let Some(nested) = settings.nested_virtualization {
        let parameter = ["kvm_intel", "kvm_amd"]
            .iter()
            .find_map(|module| attribute(&sys.join("module").join(module).join("parameters/nested")));
        let now = parameter.map(|now| matches!(now.as_str(), "Y" | "1"));
        let found = match now {
            Some(true) => "on",
            Some(false) => "off",
            None => "KVM is not loaded",
        };
        state("nested_virtualization", found.to_owned(), now == Some(nested));
    }
    if settings.has_crash_kernel() {
        let (found, loaded) = crash_kernel(root);
        state("crash_kernel", found, loaded);
    }
    let missing = missing_words(root, os);
    if !missing.is_empty() {
        let found = format!("this start was without {} (restart the node)", missing.join(" "));
        state("kernel arguments", found, false);
    }
    states
}

/// The memory that is reserved for a crash kernel; none if nothing is.
#[must_use]
pub fn crash_reservation(sys: &Path) -> Option<ByteSize> {
    number(&sys.join("kernel/kexec_crash_size")).filter(|size| *size > 0).map(ByteSize::bytes)
}

/// Why no crash kernel is loaded at this start, in a clause.
const CRASH_KERNEL_REASON: &str = "run/nqrust/crash-kernel";

/// Notes for the status why the node at `root` has no crash kernel at this start; none if it has one, or needs none.
///
/// # Errors
/// The file cannot be written or removed.
pub fn note_crash_kernel(root: &Path, reason: Option<&str>) -> Result<()> {
    let path = root.join(CRASH_KERNEL_REASON);
    match reason {
        Some(reason) => {
            make_directory(&root.join("run/nqrust"), 0o755)?;
            write_atomically(&path, reason.as_bytes(), 0o644)
        }
        None if path.exists() => {
            fs::remove_file(&path).class(Class::DiskIo, || format!("removing {}", path.display()))
        }
        None => Ok(()),
    }
}

/// What is found of the kernel for crashes, and whether it is loaded.
fn crash_kernel(root: &Path) -> (String, bool) {
    let sys = root.join("sys");
    let loaded = number(&sys.join("kernel/kexec_crash_loaded")) == Some(1);
    let reason = read_text(&root.join(CRASH_KERNEL_REASON)).map(|text| text.trim().to_owned());
    match (crash_reservation(&sys), loaded) {
        (None, _) => (reason.unwrap_or_else(|_| "no memory is reserved".to_owned()), false),
        (Some(size), true) => (format!("loaded, {size} reserved"), true),
        (Some(size), false) => match reason {
            Ok(reason) => (format!("not loaded, {size} reserved: {reason}"), false),
            Err(_) => (format!("not loaded, {size} reserved (journalctl -u nqrust-crash says why)"), false),
        },
    }
}

/// The arguments that follow from the settings and that the running kernel was started without.
fn missing_words(root: &Path, os: &Os) -> Vec<String> {
    let line = read_text(&root.join("proc/cmdline")).unwrap_or_default();
    let started: Vec<_> = line.split_whitespace().collect();
    let wanted = os.host_words(model::architecture::Architecture::of_this_program());
    wanted.into_iter().filter(|word| !started.contains(&word.as_str())).collect()
}
