//! Disks, sizes and where payloads come from.

use crate::config::size_clause::SizeClause;
use base::size::ByteSize;
use document::format::{FormatFault, FormatResult, ensure};

pub fn byte_size(text: &str) -> FormatResult {
    if text.parse::<ByteSize>().is_ok() && !text.chars().any(char::is_control) {
        return Ok(());
    }
    Err(FormatFault::new(
        "is not a size: write a number with Ki, Mi, Gi or Ti, such as 150Gi, or with GB or TB, such as 480GB",
    )
    .suggest(tidy_size(text)))
}

/// The size that a person means who writes other letters or blanks than a size has.
fn tidy_size(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let split = text.find(|c: char| !c.is_ascii_digit() && !".,".contains(c))?;
    let (number, unit) = text.split_at(split);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "ki" | "kib" => "Ki",
        "mi" | "mib" => "Mi",
        "gi" | "gib" => "Gi",
        "ti" | "tib" => "Ti",
        "mb" | "m" => "MB",
        "gb" | "g" => "GB",
        "tb" | "t" => "TB",
        _ => return None,
    };
    Some(format!("{}{unit}", number.replace(',', "."))).filter(|text| text.parse::<ByteSize>().is_ok())
}

/// The path of a disk: absolute, below `/dev`, without detours.
pub fn device(text: &str) -> FormatResult {
    let below = text.strip_prefix("/dev/").unwrap_or_default();
    let name = |part: &str| {
        !matches!(part, "" | "." | "..") && !part.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    if text.len() <= 255 && below.split('/').all(name) {
        return match unfit_name(below) {
            Some(fault) => Err(fault),
            None => Ok(()),
        };
    }
    let lower = text.to_ascii_lowercase();
    if ["auto", "any", "first", "default", "smallest", "largest"].contains(&lower.as_str()) {
        return Err(FormatFault::new(
            "is not the path of a disk below /dev; remove the key to use the only disk of the machine",
        ));
    }
    if ["uuid=", "partuuid=", "label=", "partlabel="].iter().any(|begin| lower.starts_with(begin)) {
        return Err(FormatFault::new("names a file system or a partition; name a disk: /dev/disk/by-id/…"));
    }
    if text.parse::<SizeClause>().is_ok() || tidy_clause(text).is_some() {
        return Err(FormatFault::new(
            "is a size, not a path; choose a disk by its size with `device: {size: …}`",
        ));
    }
    Err(FormatFault::new("is not the path of a disk below /dev, such as /dev/disk/by-id/…")
        .suggest(tidy_device(text)))
}

/// The path that a person means by the name of a disk, or by a path with a `/` too many.
fn tidy_device(text: &str) -> Option<String> {
    let trimmed = text.trim().trim_end_matches('/');
    let links = ["ata-", "scsi-", "nvme-", "wwn-", "virtio-", "usb-", "mmc-"];
    let path = match trimmed {
        name if is_kernel_name(name) => format!("/dev/{name}"),
        name if links.iter().any(|begin| name.starts_with(begin)) => format!("/dev/disk/by-id/{name}"),
        path => path.to_owned(),
    };
    (path != text && device(&path).is_ok()).then_some(path)
}

/// The fault of a name below `/dev` that is never a whole disk for a system.
fn unfit_name(name: &str) -> Option<FormatFault> {
    if name.contains(['*', '?', '[']) {
        return Some(FormatFault::new(
            "has a wildcard, which is not allowed in a path; use `device: {model: …}`, `by_id` or `by_path`",
        ));
    }
    let numbered = |begin: &str| {
        let rest = name.strip_prefix(begin);
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let what = if numbered("sr") || numbered("scd") || name == "cdrom" || name == "dvd" {
        "is an optical drive"
    } else if numbered("loop") || numbered("ram") || numbered("zram") || numbered("nbd") || numbered("fd") {
        "is not a permanent disk of the machine"
    } else if name.starts_with("mmcblk") && (name.contains("boot") || name.ends_with("rpmb")) {
        "is the boot area of an eMMC, too small for a system"
    } else if numbered("nvme") {
        let message = "is the NVMe controller, not a disk; name one of its namespaces";
        return Some(FormatFault::new(message).suggest(Some(format!("/dev/{name}n1"))));
    } else {
        return None;
    };
    Some(FormatFault::new(format!("{what}; `lsblk` lists the disks")))
}

/// True if the kernel gives disks such names: `sda`, `nvme0n1`, `mmcblk0`.
fn is_kernel_name(text: &str) -> bool {
    let letters = ["sd", "vd", "xvd", "hd"];
    let lettered = letters.iter().filter_map(|driver| text.strip_prefix(driver));
    let mut lettered = lettered.map(|rest| rest.trim_end_matches(|c: char| c.is_ascii_digit()));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let namespace = |rest: &str| {
        rest.split_once('n').is_some_and(|(disk, rest)| {
            let (namespace, part) = rest.split_once('p').unwrap_or((rest, "1"));
            digits(disk) && digits(namespace) && digits(part)
        })
    };
    lettered.any(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_lowercase()))
        || text.strip_prefix("nvme").is_some_and(namespace)
        || ["mmcblk", "pmem", "md"].iter().filter_map(|name| text.strip_prefix(name)).any(digits)
}

/// The URL of the directory that has the content of a medium.
pub fn medium_url(text: &str) -> FormatResult {
    super::network::http_url(text)
}

/// Where a medium is: `local`, a path, or the URL of a directory or of an ISO.
pub fn iso_url(text: &str) -> FormatResult {
    if text == "local" || absolute_path(text).is_ok() {
        return Ok(());
    }
    if text.starts_with("ftp://") || text.starts_with("tftp://") {
        return Err(FormatFault::new("is an FTP or TFTP URL; serve the medium over HTTP"));
    }
    medium_url(text)
}

/// True if a place that is accepted as an `iso-url` is an ISO as one file on a server.
#[must_use]
pub fn is_iso_file(text: &str) -> bool {
    let path = text.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    path.starts_with("http") && path.ends_with(".iso")
}

/// A path from the root, without detours and control characters.
pub fn absolute_path(text: &str) -> FormatResult {
    let part = |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control);
    let below = text.strip_prefix('/').unwrap_or_default();
    ensure(
        text.len() <= 1024 && !below.is_empty() && below.split('/').all(part),
        "is not a path from the root such as /etc/motd, without '.', '..' and a '/' at the end",
    )
}

/// Trees that are not the node's own, or that the installer keeps itself.
const NOT_PERSISTENT: [&str; 9] = ["/tmp", "/proc", "/sys", "/dev", "/run", "/boot", "/usr", "/oem", "/etc"];

/// A directory whose content can be kept: not one that begins afresh at every boot for a reason.
pub fn persistent_path(text: &str) -> FormatResult {
    absolute_path(text)?;
    let below =
        |tree: &str| text.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    match NOT_PERSISTENT.into_iter().find(|tree| below(tree)) {
        Some("/etc") if text != "/etc" => Ok(()),
        Some(tree) => Err(FormatFault::new(format!("cannot be kept: {tree} is not persistent"))),
        None => {
            ensure(!text.contains([' ', '\\', '"']), "has a character that cannot be in the path of a mount")
        }
    }
}

/// The most bytes of the name of an iSCSI node (RFC 7143, section 4.2.7.1).
const ISCSI_NAME_BYTES: usize = 223;

/// The name of an iSCSI node: `iqn.YYYY-MM.` and the reversed name of a domain, perhaps with `:` and more, or `eui.` and `naa.` with
/// digits (RFC 7143, section 4.2.7; RFC 3722 folds its letters to lower case).
pub fn iscsi_name(text: &str) -> FormatResult {
    let is_name = |text: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
        let hexadecimal = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_hexdigit());
        text.len() <= ISCSI_NAME_BYTES
            && text.chars().all(fits)
            && match (text.strip_prefix("iqn."), text.strip_prefix("eui."), text.strip_prefix("naa.")) {
                (Some(rest), ..) => dated(rest).is_some_and(|domain| !domain.is_empty()),
                (_, Some(rest), _) => rest.len() == 16 && hexadecimal(rest),
                (_, _, Some(rest)) => matches!(rest.len(), 16 | 32) && hexadecimal(rest),
                _ => false,
            }
    };
    if is_name(text) {
        return Ok(());
    }
    let lower = text.trim().to_ascii_lowercase();
    let message = "is not an iSCSI name such as iqn.2026-01.com.example:node-1";
    Err(FormatFault::new(message).suggest(is_name(&lower).then_some(lower)))
}

/// The most bytes of an NVMe qualified name (NVM Express Base Specification 2.0, section 4.5).
const NQN_BYTES: usize = 223;

/// An NVMe qualified name: `nqn.YYYY-MM.` and the reversed name of a domain, `:` and more. Letters are told apart by their case. The
/// kernel takes the name in a list with commas.
pub fn nqn(text: &str) -> FormatResult {
    let fits = |c: char| c.is_ascii_graphic() && c != ',';
    let is_name = || {
        let (domain, own) = dated(text.strip_prefix("nqn.")?)?.split_once(':')?;
        Some(!domain.is_empty() && !own.is_empty())
    };
    ensure(
        text.len() <= NQN_BYTES && text.chars().all(fits) && is_name() == Some(true),
        "is not an NVMe qualified name such as nqn.2026-01.com.example:array-1",
    )
}

/// What follows the date of an iSCSI or NVMe name: `YYYY-MM.`.
fn dated(rest: &str) -> Option<&str> {
    let date = rest.as_bytes().get(..8)?;
    let digits = [0, 1, 2, 3, 5, 6].iter().all(|at| date[*at].is_ascii_digit());
    (digits && date[4] == b'-' && date[7] == b'.').then_some(&rest[8..])
}

/// An IPv4 address, perhaps with a port.
pub fn portal(text: &str) -> FormatResult {
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, Some(port)),
        None => (text, None),
    };
    super::network::ipv4(address)?;
    let plain = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = |port: &str| plain(port) && port.parse::<u16>().is_ok_and(|port| port > 0);
    ensure(port.is_none_or(is_port), "has no port from 1 to 65535 after the address, as in 192.0.2.10:3260")
}

pub fn size_clause(text: &str) -> FormatResult {
    ensure(!text.contains(char::is_control), "has a character that is not allowed in a range of sizes")?;
    match text.parse::<SizeClause>() {
        Ok(SizeClause { least: Some(least), most: Some(most) }) if least > most => {
            Err(FormatFault::new("is an empty range: its end is below its start"))
        }
        Ok(_) => Ok(()),
        Err(_) => {
            let suggestion = tidy_clause(text).filter(|text| text.parse::<SizeClause>().is_ok());
            let message = "is not a range of sizes such as >=480GB, <=2Ti or 400Gi..2Ti";
            Err(FormatFault::new(message).suggest(suggestion))
        }
    }
}

/// The range that a person means: `=>` and `≥` for `>=`, `-` or `to` for `..`, and sizes as [`tidy_size`] reads them.
/// `>480Gi` has no such form, since both ends of a range belong to it.
fn tidy_clause(text: &str) -> Option<String> {
    let size = |text: &str| match text.trim().parse::<ByteSize>() {
        Ok(_) => Some(text.trim().to_owned()),
        Err(_) => tidy_size(text),
    };
    let text = text.trim();
    for (signs, sign) in [([">=", "=>", "≥"], ">="), (["<=", "=<", "≤"], "<=")] {
        if let Some(rest) = signs.iter().find_map(|sign| text.strip_prefix(sign)) {
            return Some(format!("{sign}{}", size(rest)?));
        }
    }
    for between in ["...", "..", " to ", "-", "–"] {
        if let Some((least, most)) = text.split_once(between) {
            return Some(format!("{}..{}", size(least)?, size(most)?));
        }
    }
    size(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_spelling_of_a_size_is_answered_with_a_size() {
        for text in ["150Gi", "150GB", "150 G", "0.5Ti"] {
            assert_eq!(byte_size(text), Ok(()), "{text}");
        }
        assert_eq!(byte_size("150gib").unwrap_err().suggestion.as_deref(), Some("150Gi"));
        assert_eq!(byte_size("1,5tib").unwrap_err().suggestion.as_deref(), Some("1.5Ti"));
        assert_eq!(byte_size("many").unwrap_err().suggestion, None);
        for (text, better) in [
            ("=> 480gb", ">=480GB"),
            ("≤2TiB", "<=2TiB"),
            ("400Gi - 2Ti", "400Gi..2Ti"),
            ("400 to 500gb", "400..500GB"),
        ] {
            assert_eq!(size_clause(text).unwrap_err().suggestion.as_deref(), Some(better), "{text}");
        }
        assert_eq!(size_clause(">480Gi").unwrap_err().suggestion, None);
        for text in ["<= 500GB", ">=480G", "480GB", "0.5Ti", " 400Gi .. 2Ti "] {
            assert_eq!(size_clause(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_device_is_a_path_below_dev() {
        for text in ["/dev/sda", "/dev/disk/by-id/ata-QEMU_1", "/dev/disk/by-path/pci-0000:00:1f.2"] {
            assert_eq!(device(text), Ok(()), "{text}");
        }
        for text in
            ["", "sda", "/dev", "/dev/", "/etc/passwd", "/dev/../etc", "/dev//sda", "dev/sda", "/dev/a b"]
        {
            assert!(device(text).is_err(), "{text:?}");
        }
        for (text, better) in [
            ("sda", "/dev/sda"),
            ("/dev/sda/", "/dev/sda"),
            ("wwn-0x5000c500a1b2c3d4", "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"),
            ("/dev/nvme0", "/dev/nvme0n1"),
        ] {
            assert_eq!(device(text).unwrap_err().suggestion.as_deref(), Some(better), "{text}");
        }
    }

    #[test]
    fn what_is_never_a_disk_for_a_system_is_told() {
        for text in [
            "/dev/sr0",
            "/dev/cdrom",
            "/dev/loop0",
            "/dev/zram0",
            "/dev/mmcblk0boot0",
            "/dev/mmcblk0rpmb",
            "/dev/nvme*n1",
            "/dev/sd?",
            "UUID=8f3a",
            "LABEL=root",
            ">= 480 GB",
            "480GB",
            "smallest",
        ] {
            let fault = device(text).unwrap_err();
            assert!(fault.suggestion.is_none(), "{text}: {fault:?}");
        }
        for text in
            ["/dev/md127", "/dev/mapper/mpatha", "/dev/dm-0", "/dev/mmcblk0", "/dev/srv-disk", "/dev/rssda"]
        {
            assert_eq!(device(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn iscsi_names_have_one_of_three_forms() {
        for text in [
            "iqn.2026-01.com.example",
            "iqn.2026-01.com.example:storage.disk1",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
            "naa.62004567ba64678d0123456789abcdef",
        ] {
            assert_eq!(iscsi_name(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "node-1",
            "iqn.",
            "iqn.2026-01.",
            "iqn.26-01.com.example",
            "eui.1",
            "iqn.2026-01.com.example a",
        ] {
            assert_eq!(iscsi_name(text).unwrap_err().suggestion, None, "{text}");
        }
        let better = iscsi_name("IQN.2026-01.com.Example:Disk").unwrap_err().suggestion;
        assert_eq!(better.as_deref(), Some("iqn.2026-01.com.example:disk"));
        assert!(iscsi_name(&format!("iqn.2026-01.{}", "a".repeat(220))).is_err());
    }

    #[test]
    fn nvme_names_have_a_domain_and_a_name_of_it_and_no_comma() {
        for text in [
            "nqn.2026-01.com.example:array-1",
            "nqn.2014-08.org.nvmexpress:uuid:6e717273-0000-4000-8000-000000000001",
            "nqn.1992-08.com.Vendor:sn.4F2A_b+c",
        ] {
            assert_eq!(nqn(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "nqn.",
            "nqn.2026-01.com.example",
            "nqn.2026-01.:a",
            "nqn.2026-01.com.example:",
            "nqn.26-01.com.example:a",
            "nqn.2026-01.com.example:a,hostnqn=b",
            "nqn.2026-01.com.example:a b",
            "nqn.2026-01.com.example:\u{e4}",
            "iqn.2026-01.com.example:a",
        ] {
            assert!(nqn(text).is_err(), "{text}");
        }
        assert!(nqn(&format!("nqn.2026-01.com.example:{}", "a".repeat(200))).is_err());
    }

    #[test]
    fn a_portal_is_an_address_with_or_without_a_port() {
        for text in ["192.0.2.9", "192.0.2.9:3260", "192.0.2.9:1"] {
            assert_eq!(portal(text), Ok(()), "{text}");
        }
        for text in
            ["", "storage.example", "192.0.2.9:", "192.0.2.9:0", "192.0.2.9:+1", "192.0.2.9:70000", "fe80::1"]
        {
            assert!(portal(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_medium_is_an_http_url_without_credentials() {
        for text in ["http://192.0.2.1/media/", "https://example.org:8443/x"] {
            assert_eq!(medium_url(text), Ok(()), "{text}");
        }
        for text in
            ["", "ftp://a/", "http://", "http:///x", "http://a b/", "https://u:p@a/", "/mnt", "http://["]
        {
            assert!(medium_url(text).is_err(), "{text:?}");
        }
    }
}
