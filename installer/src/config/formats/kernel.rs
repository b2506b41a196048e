//! Names and values for the kernel: modules and settings.

use super::{Checked, ensure};

/// The name of a kernel module, not a path.
pub fn module(text: &str) -> Checked {
    let body = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    ensure(
        text.len() <= 64 && body && first,
        "is not the name of a kernel module: letters, digits, '_' and '-'",
    )
}

/// A kernel setting as sysctl(8) names it: words joined by `.` or `/`, never a path out of `/proc/sys`.
pub fn sysctl_key(text: &str) -> Checked {
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
pub fn sysctl_value(text: &str) -> Checked {
    ensure(!text.trim().is_empty(), "is empty")?;
    ensure(
        text.len() <= 4096 && !text.chars().any(|c| c.is_control() && c != '\t'),
        "is not one line of text",
    )
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
