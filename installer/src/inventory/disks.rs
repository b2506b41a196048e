//! Disks from `/sys/block`.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::usage::Usage;
use super::{Disk, FoundPartition, Roots, Transport, attribute, names, number, table};
use crate::size::ByteSize;

/// The kernel counts `size` and `start` in units of 512 bytes whatever the sector size
/// (Documentation/ABI/stable/sysfs-block).
const UNIT: u64 = 512;

/// Devices that are made of others, or of memory, and so are never a machine's own disk.
const SYNTHETIC: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "nbd", "fd", "mtdblock"];

pub(super) fn scan(roots: &Roots) -> Result<Vec<Disk>> {
    let block = roots.sys.join("block");
    std::fs::read_dir(&block).with_context(|| format!("listing {}", block.display()))?;
    let usage = Usage::read(roots)?;
    let links = links(&roots.dev.join("disk"));
    let mut disks = Vec::new();
    for name in names(&block) {
        if SYNTHETIC.iter().any(|prefix| name.starts_with(prefix)) || hidden(&block.join(&name)) {
            continue;
        }
        let disk = disk(roots, &name, &usage, &links);
        let present = disk.size.get() > 0;
        if present && (!disk.optical || disk.boot_medium) {
            disks.push(disk);
        }
    }
    Ok(disks)
}

/// Paths of a multipath NVMe device are disks that cannot be opened; the kernel marks them hidden.
fn hidden(path: &Path) -> bool {
    number(&path.join("hidden")) == Some(1)
}

fn disk(roots: &Roots, name: &str, usage: &Usage, links: &BTreeMap<String, Vec<PathBuf>>) -> Disk {
    let path = &roots.sys.join("block").join(name);
    let flag = |file: &str| number(&path.join(file)) == Some(1);
    let text = |files: &[&str]| files.iter().find_map(|file| attribute(&path.join(file)));
    let sector = |file: &str| {
        number(&path.join("queue").join(file)).and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(512)
    };
    let partitions: Vec<_> = names(path)
        .into_iter()
        .filter(|child| path.join(child).join("partition").exists())
        .map(|child| partition(roots, &path.join(&child), child, links))
        .collect();
    let mut in_use = usage.of(path, name);
    in_use.extend(partitions.iter().flat_map(|part| usage.of(&path.join(&part.name), &part.name)));
    let boot_medium =
        usage.is_boot_medium(name) || partitions.iter().any(|part| usage.is_boot_medium(&part.name));
    let mut disk = Disk {
        name: name.to_owned(),
        path: node(name),
        size: length(path, "size"),
        logical_sector: sector("logical_block_size"),
        physical_sector: sector("physical_block_size"),
        rotational: flag("queue/rotational"),
        removable: flag("removable"),
        read_only: flag("ro"),
        optical: name.starts_with("sr"),
        transport: transport(path, name),
        model: text(&["device/model"]),
        serial: text(&["serial", "device/serial", "device/vpd_pg80"]).map(printable),
        wwn: text(&["wwid", "device/wwid"]),
        links: links.get(name).cloned().unwrap_or_default(),
        boot_medium,
        in_use,
        // Under a partition table there may be the rest of an old superblock.
        filesystem_label: partitions.is_empty().then(|| ext_label(&device(roots, name), 0)).flatten(),
        partitions,
    };
    table::complete(&mut disk, &device(roots, name));
    disk
}

/// The unit serial number page of SCSI begins with a binary header of four bytes; what prints is the number.
fn printable(text: String) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect::<String>().trim().to_owned()
}

fn partition(
    roots: &Roots,
    path: &Path,
    name: String,
    links: &BTreeMap<String, Vec<PathBuf>>,
) -> FoundPartition {
    let label = attribute(&path.join("uevent"))
        .and_then(|event| event.lines().find_map(|line| line.strip_prefix("PARTNAME=")).map(str::to_owned));
    FoundPartition {
        path: node(&name),
        start: length(path, "start"),
        size: length(path, "size"),
        entry: None,
        label,
        filesystem_label: ext_label(&device(roots, &name), 0),
        links: links.get(&name).cloned().unwrap_or_default(),
        name,
    }
}

/// The label of the ext file system that begins at byte `start` of a disk or partition; `None` where there is none, or
/// where the node cannot be read, as without root. The superblock begins at byte 1024 of it
/// (Documentation/filesystems/ext4/super.rst).
pub(super) fn ext_label(node: &Path, start: u64) -> Option<String> {
    let mut superblock = [0; 1024];
    File::open(node).and_then(|file| file.read_exact_at(&mut superblock, start + 1024)).ok()?;
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return None;
    }
    let label = superblock[0x78..0x88].split(|byte| *byte == 0).next().unwrap_or_default();
    let label = printable(String::from_utf8_lossy(label).into_owned());
    (!label.is_empty()).then_some(label)
}

fn length(path: &Path, file: &str) -> ByteSize {
    ByteSize::bytes(number(&path.join(file)).unwrap_or(0).saturating_mul(UNIT))
}

/// The kernel writes `/` in names as `!` (`cciss!c0d0`).
pub(super) fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

/// The node below the roots of this scan.
fn device(roots: &Roots, name: &str) -> PathBuf {
    roots.dev.join(name.replace('!', "/"))
}

fn transport(path: &Path, name: &str) -> Transport {
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let place = place.to_string_lossy();
    let has = |part: &str| place.contains(part);
    match name {
        _ if name.starts_with("nvme") => Transport::Nvme,
        _ if name.starts_with("mmcblk") => Transport::Mmc,
        _ if has("/usb") => Transport::Usb,
        _ if has("/ata") => Transport::Ata,
        _ if has("/session") => Transport::Iscsi,
        _ if has("/end_device-") => Transport::Sas,
        _ if name.starts_with("vd") || has("/virtio") => Transport::Virtio,
        _ if name.starts_with("sd") => Transport::Scsi,
        _ => Transport::Other,
    }
}

/// Links below `/dev/disk/by-id` and `by-path`, by the kernel name they lead to.
fn links(disk: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for kind in ["by-id", "by-path"] {
        for name in names(&disk.join(kind)) {
            let target = std::fs::read_link(disk.join(kind).join(&name)).ok();
            let target = target.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
            if let Some(target) = target {
                let link = Path::new("/dev/disk").join(kind).join(&name);
                found.entry(target.to_owned()).or_default().push(link);
            }
        }
    }
    found
}
