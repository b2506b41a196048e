//! Settings of the machine under the virtual machines.

use document::finding::Finding;

use super::shared::repeated;
use crate::architecture::Architecture;
use crate::boot::grub::HOST_WORDS_BYTES_MAX;
use crate::config::InstallConfig;
use crate::config::host::HugePageSize;
use crate::kernel_line::unquoted;

/// Arguments of which the line of the document has precedence, because they take more than the settings say.
const REFINED: [&str; 3] = ["intel_iommu", "iommu", "iommu.passthrough"];
/// All that follows from huge pages: a count belongs to the size before it, so no further one can stand on the same line.
const HUGE_PAGES: [&str; 3] = ["default_hugepagesz", "hugepagesz", "hugepages"];

/// Each size of huge pages has one count, and one is the default.
pub(super) fn sizes_are_given_once(config: &InstallConfig) -> Vec<Finding> {
    let pages = &config.os.host.huge_pages;
    let sizes: Vec<HugePageSize> = pages.iter().map(|pages| pages.size).collect();
    let again = "pages of this size are listed already";
    let repeated = repeated(&sizes)
        .map(|(later, _)| Finding::new(format!("os.host.huge_pages[{later}].size"), "repeated-entry", again));
    let defaults = pages.iter().enumerate().filter(|(_, pages)| pages.default).skip(1);
    let message = "another size is the default already";
    let second = defaults.map(|(index, _)| {
        Finding::new(format!("os.host.huge_pages[{index}].default"), "conflicting-keys", message)
    });
    repeated.chain(second).collect()
}

/// Each card has one number of virtual functions, and each device is passed through once.
pub(super) fn devices_are_given_once(config: &InstallConfig) -> Vec<Finding> {
    let host = &config.os.host;
    let selected: Vec<_> = host.passthrough.iter().map(|device| device.parsed()).collect();
    let mut findings: Vec<_> = repeated(&selected)
        .map(|(later, _)| {
            let place = format!("os.host.passthrough[{later}]");
            Finding::warning(place, "repeated-entry", "this device is listed already")
        })
        .collect();
    let names: Vec<_> = host
        .sriov
        .iter()
        .map(|card| {
            let address = card.hw_addr.as_ref().map(|address| address.to_ascii_lowercase());
            address.or_else(|| card.name.as_ref().map(ToString::to_string))
        })
        .collect();
    findings.extend(repeated(&names).filter(|(later, _)| names[*later].is_some()).map(|(later, _)| {
        Finding::new(format!("os.host.sriov[{later}]"), "repeated-entry", "this card is listed already")
    }));
    let unnamed = names.iter().enumerate().filter(|(_, name)| name.is_none());
    findings.extend(unnamed.map(|(index, _)| {
        let message = "the card has neither `name` nor `hw_addr`; give one of them";
        Finding::new(format!("os.host.sriov[{index}]"), "missing-value", message)
    }));
    findings
}

/// The kernel needs a processor for its own work, and starts on the first one.
pub(super) fn a_processor_is_left(config: &InstallConfig) -> Vec<Finding> {
    let isolated = config.os.host.cpu.isolated.as_ref();
    let first = isolated.is_some_and(|isolated| isolated.numbers().contains(&0));
    let message =
        "processor 0 is isolated, on which the kernel starts and does work of its own; leave it out";
    first.then(|| Finding::warning("os.host.cpu.isolated", "boot-processor", message)).into_iter().collect()
}

/// What follows for the kernel fits into the sector that a node keeps for it.
pub(super) fn arguments_fit(config: &InstallConfig) -> Vec<Finding> {
    let length = Architecture::ALL.map(|of| config.os.host_words(of).join(" ").len()).into_iter().max();
    let fits = length.is_none_or(|length| length <= HOST_WORDS_BYTES_MAX);
    let message = "the list is too long for the kernel's command line; write neighbors as ranges such as 2-7";
    (!fits).then(|| Finding::new("os.host.cpu.isolated", "long-cpu-list", message)).into_iter().collect()
}

/// No argument of the kernel is set twice, by a setting and by the line of the document.
pub(super) fn arguments_are_given_once(config: &InstallConfig) -> Vec<Finding> {
    const PATH: &str = "os.additional_kernel_arguments";
    let Some(line) = config.os.additional_kernel_arguments.as_deref() else { return Vec::new() };
    let host = &config.os.host;
    let both = [Architecture::Amd64, Architecture::Arm64].map(|of| host.kernel_words(of)).concat();
    let set = |name: &str| both.iter().any(|word| name_of(word) == name);
    let own = unquoted(line);
    let finding = |word: &String| {
        let name = name_of(word);
        let key = match name {
            name if HUGE_PAGES.contains(&name) && !host.huge_pages.is_empty() => "os.host.huge_pages",
            name if !set(name) => return None,
            name if REFINED.contains(&name) && host.iommu => "os.host.iommu",
            name if REFINED.contains(&name) => "os.host.passthrough",
            "crashkernel" => "os.host.crash_kernel",
            _ => "os.host.cpu.isolated",
        };
        let refined = REFINED.contains(&name) && !word.ends_with("=off") && *word != "iommu.passthrough=0";
        Some(match refined {
            true => {
                let message = format!("`{name}` follows from `{key}` too; what is given here counts");
                Finding::warning(PATH, "repeated-argument", message)
            }
            false => {
                let message = format!("`{name}` is set by `{key}` too; remove it here, or the other key");
                Finding::new(PATH, "conflicting-keys", message)
            }
        })
    };
    own.iter().filter_map(finding).collect()
}

fn name_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}
