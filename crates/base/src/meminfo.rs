//! Amounts of memory that the kernel tells in `/proc/meminfo` (proc_meminfo(5)).

use crate::size::ByteSize;

/// The amount of this name in the text of that file, such as `MemAvailable`; none if there is none, or it is no number of kB.
#[must_use]
pub fn amount(meminfo: &str, name: &str) -> Option<ByteSize> {
    let mut lines = meminfo.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kibibytes: u64 = lines.next()?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024).map(ByteSize::bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_found_by_its_whole_name() {
        let text =
            "MemTotal:       65843212 kB\nMemAvailable:    2048 kB\nMem: 1 kB\nHugePages_Total:       4\n";
        assert_eq!(amount(text, "MemAvailable"), Some(ByteSize::mib(2)));
        assert_eq!(amount(text, "Mem"), Some(ByteSize::bytes(1024)));
        for name in ["MemFree", "HugePages_Total", "HugePages"] {
            assert_eq!(amount(text, name), None, "{name}");
        }
        assert_eq!(amount("MemTotal: 18446744073709551615 kB\n", "MemTotal"), None);
    }
}
