//! Which disks are meant, and which may be wiped.

use document::finding::Finding;

use super::shared::{is_unattended, repeated};
use crate::config::disk::Transport;
use crate::config::sizes::PartitionSizes;
use crate::config::{DiskClauses, DiskSelector, InstallConfig, Keep, Role, Wipe};
use base::size::ByteSize;

const DEVICE: &str = "install.device";
const MIRROR: &str = "install.mirror";
const DATA: &str = "install.data_disk";
const LIST: &str = "install.wipe_disks_list";

fn selectors(config: &InstallConfig) -> impl Iterator<Item = (&'static str, &DiskSelector)> {
    let install = &config.install;
    let all = [(DEVICE, &install.device), (MIRROR, &install.mirror), (DATA, &install.data_disk)];
    all.into_iter().filter_map(|(path, selector)| selector.as_ref().map(|selector| (path, selector)))
}

/// The system, the data and what is to be wiped are on different disks, as far as the document tells.
pub(super) fn different_disks(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let mut findings = Vec::new();
    if install.data_disk.is_some() && install.device == install.data_disk {
        // The reference product takes it like this too, and configurations say it.
        let message = "this is `install.device`, so it has no effect: the data gets a partition on that disk";
        findings.push(Finding::warning(DATA, "same-disk", message));
    }
    for (index, wiped) in install.wipe_disks_list.iter().enumerate() {
        let named = |(_, selector): &(&str, &DiskSelector)| **selector == DiskSelector::Path(wiped.clone());
        if let Some((path, _)) = selectors(config).find(named) {
            let message =
                format!("this is `{path}`, which the install wipes anyway; the list is for other disks");
            findings.push(Finding::new(format!("{LIST}[{index}]"), "same-disk", message));
        }
    }
    let again = "this disk is listed already";
    let twice = repeated(&install.wipe_disks_list);
    findings.extend(
        twice.map(|(later, _)| Finding::warning(format!("{LIST}[{later}]"), "repeated-entry", again)),
    );
    findings
}

/// A mirror has two disks, both named.
pub(super) fn mirrors_have_two_disks(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let Some(mirror) = &install.mirror else { return Vec::new() };
    let mut findings = Vec::new();
    if install.device.is_none() && is_unattended(config) {
        let message = "`install.mirror` needs `install.device`, the disk that it mirrors";
        findings.push(Finding::new(DEVICE, "missing-value", message));
    }
    for (path, other) in [(DEVICE, &install.device), (DATA, &install.data_disk)] {
        if other.as_ref() == Some(mirror) {
            let message = format!("this is `{path}`; the mirror of the system is a disk of its own");
            findings.push(Finding::new(MIRROR, "same-disk", message));
        }
    }
    findings
}

/// Disks of `wipe_disks_list` need permission to be wiped.
pub(super) fn wiping_is_allowed(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let keys =
        [(LIST, !install.wipe_disks_list.is_empty()), ("install.wipe_all_disks", install.wipe_all_disks)];
    let given: Vec<_> = keys.into_iter().filter(|(_, given)| *given).collect();
    match install.wipe {
        Wipe::None => {
            let message = "`install.wipe: none` forbids wiping";
            let finding = |(path, _)| Finding::new(path, "conflicting-keys", message);
            given.into_iter().map(finding).collect()
        }
        Wipe::AllListed if given.is_empty() => {
            let message =
                "neither `wipe_disks_list` nor `wipe_all_disks` is set, so this is the same as selected";
            vec![Finding::warning("install.wipe", "no-effect", message)]
        }
        Wipe::AllListed | Wipe::Selected => Vec::new(),
    }
}

/// There can be something to keep, and it may stay while the rest goes.
pub(super) fn keeping_is_possible(config: &InstallConfig) -> Vec<Finding> {
    const KEEP: &str = "install.keep";
    let install = &config.install;
    let mut findings: Vec<_> = repeated(&install.keep)
        .map(|(later, _)| {
            Finding::warning(format!("{KEEP}[{later}]"), "repeated-entry", "this is listed already")
        })
        .collect();
    if !install.keep.contains(&Keep::Data) {
        return findings;
    }
    if install.own_role() == Role::Witness {
        let message = "a witness keeps no data of virtual machines";
        findings.push(Finding::new(KEEP, "conflicting-keys", message));
    }
    let apart = install.data_disk.is_some() && install.data_disk != install.device;
    if install.wipe == Wipe::None && !apart {
        let message = "`install.wipe: none` forbids replacing the old system around the data";
        findings.push(Finding::new("install.wipe", "conflicting-keys", message).suggest("selected"));
    }
    findings
}

/// Clauses describe a disk that there can be and that is large enough.
pub(super) fn clauses_can_match(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, selector) in selectors(config) {
        if let DiskSelector::Clauses(clauses) = selector {
            findings.extend(contradictions(path, clauses));
            findings.extend(too_small(path, clauses, config));
        }
    }
    findings
}

fn contradictions(path: &str, clauses: &DiskClauses) -> Vec<Finding> {
    if *clauses == DiskClauses::default() {
        let message = "the group is empty, so any disk would match";
        return vec![Finding::new(path, "unclear-disk", message)];
    }
    let mut findings = Vec::new();
    let flash = matches!(clauses.transport, Some(Transport::Nvme | Transport::NvmeTcp | Transport::Mmc));
    if flash && clauses.rotational == Some(true) {
        let message = "no disk that is attached like this has spinning platters";
        findings.push(Finding::new(format!("{path}.rotational"), "unmatched-disk", message));
    }
    let texts = [
        ("serial", &clauses.serial),
        ("wwn", &clauses.wwn),
        ("model", &clauses.model),
        ("by_id", &clauses.by_id),
        ("by_path", &clauses.by_path),
    ];
    for (key, text) in texts {
        let Some(text) = text else { continue };
        let path = format!("{path}.{key}");
        if text.trim().is_empty() || text.chars().all(|c| "*?".contains(c)) {
            findings.push(Finding::new(path, "unclear-disk", "the text would match any disk"));
        } else if key.starts_with("by_") && text.contains('/') {
            let message = "this is a full path; write only the name of the link";
            let name = text.rsplit('/').next().unwrap_or_default();
            findings.push(Finding::new(path, "unmatched-disk", message).suggest(name));
        }
    }
    findings
}

/// The least that a disk must have for what it is to hold.
fn least(path: &str, config: &InstallConfig) -> ByteSize {
    let install = &config.install;
    let separate = install.data_disk.is_some() && install.data_disk != install.device;
    let apart = separate || install.role == Role::Witness;
    let sizes = PartitionSizes::of(install.profile);
    match (path == DATA, apart) {
        (true, _) => sizes.data_minimum,
        (false, true) => sizes.witness_minimum,
        (false, false) => sizes.disk_minimum,
    }
}

fn too_small(path: &str, clauses: &DiskClauses, config: &InstallConfig) -> Option<Finding> {
    let most = clauses.size?.most?;
    let least = least(path, config);
    let message = if most < least {
        format!("{most} is less than the {least} that the disk needs")
    } else {
        let persistent =
            config.install.persistent_partition_size.filter(|size| path == DEVICE && *size >= most)?;
        format!("{most} is too small for a persistent partition of {persistent}")
    };
    Some(Finding::new(format!("{path}.size"), "unmatched-disk", message))
}

/// Disks are named by what stays the same from boot to boot.
pub(super) fn paths_last(config: &InstallConfig) -> Vec<Finding> {
    let chosen = selectors(config).filter_map(|(path, selector)| match selector {
        DiskSelector::Path(device) => Some((path.to_owned(), &**device)),
        DiskSelector::Clauses(_) => None,
    });
    let listed = config.install.wipe_disks_list.iter().enumerate();
    let listed = listed.map(|(index, device)| (format!("{LIST}[{index}]"), &**device));
    chosen.chain(listed).filter_map(|(path, device)| judge(path, device)).collect()
}

fn judge(path: String, device: &str) -> Option<Finding> {
    let name = device.strip_prefix("/dev/")?;
    if let Some(disk) = partition_of(name) {
        let message = "this is a partition; the installer takes whole disks";
        return Some(Finding::new(path, "not-a-disk", message).suggest(format!("/dev/{disk}")));
    }
    let kernel = ["sd", "vd", "hd", "xvd", "nvme", "mmcblk"].iter().any(|kind| name.starts_with(kind));
    let message = "the kernel may give this name to another disk at the next boot; `ls -l /dev/disk/by-id` lists stable names";
    kernel.then(|| Finding::warning(path, "device-by-name", message))
}

/// The disk of a partition that is named as the kernel or as udev does.
fn partition_of(name: &str) -> Option<&str> {
    let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if bare.len() == name.len() {
        return None;
    }
    if let Some(disk) = bare.strip_suffix("-part").filter(|_| name.starts_with("disk/")) {
        return Some(disk);
    }
    let lettered = ["sd", "vd", "hd", "xvd"].iter().any(|kind| {
        bare.strip_prefix(kind)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_lowercase()))
    });
    let numbered = bare.strip_suffix('p').filter(|disk| {
        (disk.starts_with("nvme") || disk.starts_with("mmcblk"))
            && disk.ends_with(|c: char| c.is_ascii_digit())
    });
    if lettered { Some(bare) } else { numbered }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_told_from_disks() {
        for (name, disk) in [
            ("sda1", Some("sda")),
            ("sda", None),
            ("vdb12", Some("vdb")),
            ("nvme0n1", None),
            ("nvme0n1p3", Some("nvme0n1")),
            ("mmcblk0", None),
            ("mmcblk0p1", Some("mmcblk0")),
            ("disk/by-id/ata-X-part2", Some("disk/by-id/ata-X")),
            ("disk/by-id/ata-X2", None),
            ("disk/by-path/pci-0000:00:1f.2-ata-1", None),
        ] {
            assert_eq!(partition_of(name), disk, "{name}");
        }
    }
}
