//! Names and values for the kernel: modules and settings, processors and devices.

use std::collections::BTreeSet;

use crate::kernel_line::unquoted;
use base::size::ByteSize;
use document::format::{FormatFault, FormatResult, ensure};

/// The name of a kernel module, not a path.
pub fn module(text: &str) -> FormatResult {
    let body = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    ensure(
        text.len() <= 64 && body && first,
        "is not the name of a kernel module: letters, digits, '_' and '-'",
    )
}

/// A kernel setting as sysctl(8) names it: words joined by `.` or `/`, never a path out of `/proc/sys`.
pub fn sysctl_key(text: &str) -> FormatResult {
    let word = |word: &str| {
        let body = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        !word.is_empty() && body && !word.starts_with('-')
    };
    ensure(
        text.len() <= 200 && text.split(['.', '/']).all(word),
        "is not the name of a kernel setting: words of letters, digits, '_' and '-', joined by '.' or '/'",
    )
}

/// The value of a kernel setting: one line.
pub fn sysctl_value(text: &str) -> FormatResult {
    ensure(!text.trim().is_empty(), "is empty")?;
    ensure(
        text.len() <= 4096 && !text.chars().any(|c| c.is_control() && c != '\t'),
        "is not one line of text",
    )
}

/// Arguments of the kernel: visible ASCII, and spaces between them or in quotes.
pub fn arguments(text: &str) -> FormatResult {
    let clean = text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    ensure(text.len() <= 1024 && clean, "is not a line of kernel arguments")?;
    ensure(text.matches('"').count().is_multiple_of(2), "has a quote that does not end")?;
    // The text stands in a line of GRUB's configuration.
    ensure(
        !text.contains(['\'', '$', '\\', ';', '`', '{', '}', '|', '&', '<', '>']),
        "has a character that GRUB would read",
    )?;
    let own = |word: &str| {
        ["root=", "init=", "nqrust.", "systemd.gpt_auto"].iter().any(|own| word.starts_with(own))
    };
    ensure(!unquoted(text).iter().any(|word| own(word)), "sets an argument that belongs to the installer")
}

/// More processors than any kernel is built for.
const CPU_NUMBER_MAX: u32 = 8191;

/// Processors as the kernel lists them (`Documentation/core-api/printk-formats.rst`, "bitmap"): numbers and ranges in
/// ascending order, joined by commas.
pub fn cpu_list(text: &str) -> FormatResult {
    ensure(
        cpu_numbers(text).is_some(),
        "is not a list of processors such as 2-7,10: numbers and ranges in ascending order, joined by commas",
    )
}

/// The numbers in a list of processors; `None` if it is none.
#[must_use]
pub fn cpu_numbers(text: &str) -> Option<BTreeSet<u32>> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u32>().ok().filter(|number| digits && *number <= CPU_NUMBER_MAX)
    };
    let mut numbers = BTreeSet::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || numbers.last().is_some_and(|before| first <= *before) {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// How much memory a kernel that writes dumps gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashReservation {
    /// There is no such kernel.
    Never,
    /// As much as fits the memory of the machine.
    ByMemory,
    Fixed(ByteSize),
}

/// Less does not hold the kernel of any distribution with its initrd; more is a slip.
const CRASH_MEMORY: std::ops::RangeInclusive<u64> = 128..=4096;

/// Memory for a kernel that writes dumps: `true`, `false`, or a size in MiB or GiB as the kernel writes it.
pub fn crash_memory(text: &str) -> FormatResult {
    ensure(
        crash_reservation(text).is_some(),
        "is not the memory for a crash kernel: true, false, or a size from 128M to 4G, such as 384M",
    )
}

/// What a text says of that memory; `None` if it has another form.
#[must_use]
pub fn crash_reservation(text: &str) -> Option<CrashReservation> {
    let (digits, unit) = match text {
        "true" => return Some(CrashReservation::ByMemory),
        "false" => return Some(CrashReservation::Never),
        text => text.split_at(text.find(|c: char| !c.is_ascii_digit())?),
    };
    let factor = match unit {
        "M" | "Mi" | "MiB" => 1,
        "G" | "Gi" | "GiB" => 1024,
        _ => return None,
    };
    let mebibytes = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    CRASH_MEMORY.contains(&mebibytes).then(|| CrashReservation::Fixed(ByteSize::mib(mebibytes)))
}

/// Devices on the PCI bus that a text selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PciMatch {
    /// Every device with these numbers.
    Kind { vendor: u16, device: u16 },
    /// The device at this address, as sysfs spells it: `0000:3b:00.0`.
    Address(String),
}

/// Devices on the PCI bus: `VENDOR:DEVICE`, or `DOMAIN:BUS:SLOT.FUNCTION`, whose domain can be left out.
pub fn pci_device(text: &str) -> FormatResult {
    ensure(
        pci_match(text).is_some(),
        "is neither VENDOR:DEVICE such as 10de:2204 nor an address on the PCI bus such as 0000:3b:00.0",
    )
}

/// What a text selects on the PCI bus; `None` if it has another form.
#[must_use]
pub fn pci_match(text: &str) -> Option<PciMatch> {
    let hex = |text: &str, length: usize| {
        let digits = text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
        u16::from_str_radix(text, 16).ok().filter(|_| digits)
    };
    let Some((path, function)) = text.split_once('.') else {
        let (vendor, device) = text.split_once(':')?;
        return Some(PciMatch::Kind { vendor: hex(vendor, 4)?, device: hex(device, 4)? });
    };
    let parts: Vec<_> = path.split(':').collect();
    let (domain, bus, slot) = match parts[..] {
        [bus, slot] => ("0000", bus, slot),
        [domain, bus, slot] => (domain, bus, slot),
        _ => return None,
    };
    let (domain, bus) = (hex(domain, 4)?, hex(bus, 2)?);
    let slot = hex(slot, 2).filter(|slot| *slot < 32)?;
    let function = hex(function, 1).filter(|function| *function < 8)?;
    Some(PciMatch::Address(format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}")))
}

/// A console: a device, perhaps with speed, parity and bits, as the kernel's `console=` takes it.
pub fn tty(text: &str) -> FormatResult {
    let (device, options) = text.split_once(',').map_or((text, ""), |(device, options)| (device, options));
    let name = device.strip_prefix("tty").or(device.strip_prefix("hvc")).unwrap_or_default();
    let letters = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric());
    if !name.is_empty() && letters(name) && letters(options) && text.len() <= 32 {
        return Ok(());
    }
    let bare = ["console=", "/dev/"]
        .iter()
        .fold(text.trim(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    let better = Some(bare).filter(|bare| *bare != text && tty(bare).is_ok()).map(str::to_owned);
    Err(FormatFault::new("is not a console such as ttyS0,115200n8").suggest(better))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_names_are_not_paths() {
        for text in ["br_netfilter", "vhost-net", "8021q"] {
            assert_eq!(module(text), Ok(()), "{text}");
        }
        for text in ["", "../x", "a/b", "a b", "-a", "a.ko", "#a", ";", "a\nb"] {
            assert!(module(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn quotes_hide_no_argument_of_the_installer() {
        for text in ["quiet intel_iommu=on", "module.option=\"a b\"", "dyndbg=\"file a.c +p\""] {
            assert_eq!(arguments(text), Ok(()), "{text}");
        }
        for text in
            ["root=/dev/sda", "\"root=/dev/sda\"", "ro\"ot=\"x", "a nqrust.slot=b", "a;b", "a\"b", "$x"]
        {
            assert!(arguments(text).is_err(), "{text}");
        }
    }

    #[test]
    fn processors_are_listed_as_the_kernel_lists_them() {
        for (text, count) in [("0", 1), ("2-7", 6), ("1,3,5-6,8191", 5)] {
            assert_eq!(cpu_list(text), Ok(()), "{text}");
            assert_eq!(cpu_numbers(text).unwrap().len(), count, "{text}");
        }
        for text in ["", "a", "7-2", "1,1", "1-4,3", "1,", "-1", "8192", "1 2", "+1", "all", "0-31:2/4"] {
            assert!(cpu_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_for_a_crash_kernel_is_a_size_that_can_hold_one() {
        let mebibytes = |size| Some(CrashReservation::Fixed(ByteSize::mib(size)));
        for (text, meant) in [
            ("true", Some(CrashReservation::ByMemory)),
            ("false", Some(CrashReservation::Never)),
            ("128M", mebibytes(128)),
            ("384MiB", mebibytes(384)),
            ("1Gi", mebibytes(1024)),
            ("4G", mebibytes(4096)),
        ] {
            assert_eq!(crash_reservation(text), meant, "{text}");
            assert_eq!(crash_memory(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "yes",
            "auto",
            "256",
            "M",
            "127M",
            "5G",
            "256K",
            "256M@16M",
            "1G-2G:128M",
            "-1G",
            "99999999999999999999G",
        ] {
            assert!(crash_memory(text).is_err(), "{text}");
        }
    }

    #[test]
    fn devices_of_the_bus_are_named_by_kind_or_address() {
        for text in ["10de:2204", "8086:158B", "3b:00.0", "0000:3b:1f.7", "10000:e1:00.0".get(1..).unwrap()] {
            assert_eq!(pci_device(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "10de",
            "10de:22",
            "10de:220g",
            "3b:20.0",
            "3b:00.8",
            "0:3b:00.0",
            "3b.0",
            "a:b:c:d.0",
            "+0de:2204",
        ] {
            assert!(pci_device(text).is_err(), "{text}");
        }
    }

    #[test]
    fn setting_names_stay_below_proc_sys() {
        for text in ["net.ipv4.ip_forward", "net/ipv4/conf/eth0.100/forwarding", "vm.max_map_count"] {
            assert_eq!(sysctl_key(text), Ok(()), "{text}");
        }
        for text in ["", ".", "a..b", "../../etc/passwd", "/a", "a/", "-a.b", "a b", "a=b", "a\nb", "#a"] {
            assert!(sysctl_key(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn setting_values_are_one_line() {
        for text in ["1", "4096\t87380 6291456", "|/bin/core %p"] {
            assert_eq!(sysctl_value(text), Ok(()), "{text}");
        }
        for text in ["", "  ", "1\nkernel.core_pattern = x", "\u{1b}"] {
            assert!(sysctl_value(text).is_err(), "{text:?}");
        }
    }
}
