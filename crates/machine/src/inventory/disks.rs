//! Disks from `/sys/block`.

use model::config::disk::Transport;
use model::network_disks::DiskProtocol;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::disk::{Disk, FoundPartition, RemoteTarget};
use super::holders::{self, Holder, HolderKind};
use super::iscsi::session;
use super::multipath::{self, MultipathMap};
use super::nvme;
use super::signatures::{ProbedContent, ProbedVolume, SignatureKind, Window};
use super::sysfs::{Roots, attribute, names, node, number};
use super::table;
use super::udev::UdevRecord;
use super::usage::DeviceUsage;
use base::files::read_at_most;
use base::size::ByteSize;

/// The kernel counts `size` and `start` in units of 512 bytes whatever the sector size
/// (Documentation/ABI/stable/sysfs-block).
const SYSFS_UNIT_BYTES: u64 = 512;

/// Devices that are made of others, or of memory, and so are never a machine's own disk. Multipath maps are the exception
/// ([`multipath`]).
const SYNTHETIC: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "nbd", "fd", "mtdblock"];

pub(super) fn scan(roots: &Roots) -> Result<Vec<Disk>> {
    let block = roots.sys.join("block");
    std::fs::read_dir(&block).with_context(|| format!("listing {}", block.display()))?;
    let usage = DeviceUsage::read(roots)?;
    let links = links(&roots.dev.join("disk"));
    let scan = DiskScan { roots, usage: &usage, links: &links };
    let maps = multipath::maps(&roots.sys);
    let own = names(&block).into_iter().filter(|name| {
        let synthetic = SYNTHETIC.iter().any(|prefix| name.starts_with(prefix));
        !synthetic && !hidden(&block.join(name)) && !maps.iter().any(|map| map.paths.contains(name))
    });
    let disks = own.map(|name| scan.disk(&name)).chain(maps.iter().map(|map| scan.mapped(map)));
    Ok(disks.filter(|disk| disk.size.get() > 0 && (!disk.optical || disk.boot_medium)).collect())
}

/// Paths of a multipath NVMe device are disks that cannot be opened; the kernel marks them hidden.
fn hidden(path: &Path) -> bool {
    number(&path.join("hidden")) == Some(1)
}

/// The data that all disks of one scan need.
struct DiskScan<'a> {
    roots: &'a Roots,
    usage: &'a DeviceUsage,
    links: &'a BTreeMap<String, Vec<PathBuf>>,
}

impl DiskScan<'_> {
    fn disk(&self, name: &str) -> Disk {
        let path = self.roots.sys.join("block").join(name);
        let children = names(&path).into_iter().filter(|child| path.join(child).join("partition").exists());
        let partitions = children.map(|child| self.partition(&path.join(&child), child)).collect();
        let mut disk = self.facts(name, partitions);
        table::complete(&mut disk, &self.device(name));
        disk.holders = self.holders(&disk);
        self.look(&mut disk);
        disk
    }

    /// The disk of a multipath map. Its identity is that of the first path.
    fn mapped(&self, map: &MultipathMap) -> Disk {
        let block = self.roots.sys.join("block");
        let mut disk = self.facts(&map.name, self.partitions_of(map));
        disk.path = map.node.clone();
        table::complete(&mut disk, &self.device(&map.name));
        if let Some(first) = map.paths.first().map(|name| self.facts(name, Vec::new())) {
            (disk.transport, disk.model) = (first.transport, first.model);
            (disk.serial, disk.wwn) = (first.serial, first.wwn);
        }
        disk.remote =
            remote_of_paths(map.paths.iter().map(|name| remote(&self.roots.sys, &block.join(name))));
        disk.paths = map.paths.iter().map(|name| multipath::disk_path(name, self.links(name))).collect();
        disk.boot_medium |= map.paths.iter().any(|name| self.usage.is_boot_medium(name));
        disk.holders = self.holders(&disk);
        // Its partitions are devices of their own, not users of it.
        let own = |holder: &Holder| {
            holder.kind == HolderKind::Partition
                && disk.partitions.iter().any(|part| holder.device.as_deref() == Some(&node(&part.name)))
        };
        disk.holders.retain(|holder| !own(holder));
        self.look(&mut disk);
        disk
    }

    /// A partition whose place is not known is only one of the map's holders.
    fn partitions_of(&self, map: &MultipathMap) -> Vec<FoundPartition> {
        let place = self.roots.sys.join("block").join(&map.name);
        let entries = table::entries(
            &self.device(&map.name),
            length(&place, "size"),
            sector(&place, "logical_block_size"),
        );
        let found = multipath::partitions(&self.roots.sys, map).into_iter().filter_map(|part| {
            let found = match (part.on_path, entries.iter().find(|entry| entry.number == part.number)) {
                (Some(on_path), _) => self.partition(&on_path, part.name),
                (None, Some(entry)) => FoundPartition {
                    links: self.links(&part.name),
                    ..table::found_partition(part.name, entry)
                },
                (None, None) => return None,
            };
            Some(FoundPartition { path: part.node, ..found })
        });
        found.collect()
    }

    fn facts(&self, name: &str, partitions: Vec<FoundPartition>) -> Disk {
        let path = &self.roots.sys.join("block").join(name);
        let flag = |file: &str| number(&path.join(file)) == Some(1);
        let text = |files: &[&str]| files.iter().find_map(|file| attribute(&path.join(file)));
        let record = UdevRecord::read(self.roots, attribute(&path.join("dev")).as_deref());
        let serial = text(&["serial", "device/serial"])
            .or_else(|| unit_serial_number(&path.join("device/vpd_pg80")))
            .map(|serial| printable(&serial));
        let boot_medium = self.usage.is_boot_medium(name)
            || partitions.iter().any(|part| self.usage.is_boot_medium(&part.name));
        let remote = remote(&self.roots.sys, path);
        let over_tcp = remote.as_ref().is_some_and(|remote| remote.protocol == DiskProtocol::NvmeTcp);
        Disk {
            name: name.to_owned(),
            path: node(name),
            size: length(path, "size"),
            logical_sector: sector(path, "logical_block_size"),
            physical_sector: sector(path, "physical_block_size"),
            rotational: flag("queue/rotational"),
            removable: flag("removable"),
            read_only: flag("ro"),
            optical: name.starts_with("sr"),
            transport: if over_tcp { Transport::NvmeTcp } else { transport(path, name) },
            model: text(&["device/model"]).or_else(|| record.model()),
            serial: serial
                .filter(|serial| !serial.is_empty())
                .or_else(|| record.first(&["ID_SERIAL_SHORT", "ID_SCSI_SERIAL"])),
            wwn: text(&["wwid", "device/wwid"])
                .or_else(|| record.first(&["ID_WWN_WITH_EXTENSION", "ID_WWN"])),
            namespace: number(&path.join("nsid")).and_then(|number| u32::try_from(number).ok()),
            links: self.links(name),
            boot_medium,
            remote,
            paths: Vec::new(),
            holders: Vec::new(),
            signatures: Vec::new(),
            unread: None,
            partitions,
        }
    }

    fn partition(&self, path: &Path, name: String) -> FoundPartition {
        let label = attribute(&path.join("uevent")).and_then(|event| {
            event.lines().find_map(|line| line.strip_prefix("PARTNAME=")).map(str::to_owned)
        });
        FoundPartition {
            path: node(&name),
            start: length(path, "start"),
            size: length(path, "size"),
            entry: None,
            label,
            signatures: Vec::new(),
            links: self.links(&name),
            name,
        }
    }

    fn links(&self, name: &str) -> Vec<PathBuf> {
        self.links.get(name).cloned().unwrap_or_default()
    }

    fn holders(&self, disk: &Disk) -> Vec<Holder> {
        let partitions = disk.partitions.iter().map(|part| part.name.clone());
        let names: Vec<_> = [disk.name.clone()].into_iter().chain(partitions).collect();
        holders::of(&self.roots.sys, self.usage, &names)
    }

    /// Reads the signatures on the disk and its partitions. ZFS pools do not show in sysfs: their members name them.
    fn look(&self, disk: &mut Disk) {
        if disk.optical {
            return;
        }
        let mut trouble = Vec::new();
        let mut take = |path: &Path, content: io::Result<ProbedContent>| {
            let content = content
                .unwrap_or_else(|error| ProbedContent { trouble: Some(error), ..ProbedContent::default() });
            trouble.extend(content.trouble.map(|error| format!("{}: {error}", path.display())));
            content.signatures
        };
        let ranges: Vec<Range<u64>> =
            disk.partitions.iter().map(|part| part.start.get()..(part.start + part.size).get()).collect();
        let (device, sector) = (self.device(&disk.name), disk.logical_sector);
        let whole = File::open(&device).and_then(|file| {
            Ok(ProbedContent::of_disk(&ProbedVolume::new(&Window::whole(file), disk.size, sector)?, &ranges))
        });
        disk.signatures = take(&disk.path, whole);
        for part in &mut disk.partitions {
            let window = match File::open(self.device(&part.name)) {
                // A partition that the kernel does not show is read at its place in the table.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    File::open(&device).map(|file| Window::at(file, part.start))
                }
                opened => opened.map(Window::whole),
            };
            let content = window.and_then(|window| {
                Ok(ProbedContent::of_partition(&ProbedVolume::new(&window, part.size, sector)?))
            });
            part.signatures = take(&part.path, content);
        }
        // One reason is enough to show that more may be there.
        disk.unread = trouble.into_iter().next();
        let places = disk.partitions.iter().map(|part| (&part.path, &part.signatures));
        for (node, signatures) in [(&disk.path, &disk.signatures)].into_iter().chain(places) {
            let pools = signatures.iter().filter(|found| found.kind == SignatureKind::ZfsMember);
            let imported =
                pools.filter_map(|found| found.label.clone()).filter(|pool| self.usage.is_imported(pool));
            disk.holders.extend(imported.map(|pool| Holder {
                on: node.clone(),
                kind: HolderKind::Zfs,
                name: Some(pool),
                device: None,
            }));
        }
    }

    /// The device node below the roots of this scan.
    fn device(&self, name: &str) -> PathBuf {
        self.roots.dev.join(name.replace('!', "/"))
    }
}

/// The number in the unit serial number page of a SCSI disk, behind its header of four bytes, whose last is the length and may be a
/// printable character (SPC-4, 7.8.19).
fn unit_serial_number(page: &Path) -> Option<String> {
    let bytes = read_at_most(page, 4096).ok()?;
    Some(String::from_utf8_lossy(bytes.get(4..)?).into_owned())
}

fn printable(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').collect::<String>().trim().to_owned()
}

fn length(path: &Path, file: &str) -> ByteSize {
    ByteSize::bytes(number(&path.join(file)).unwrap_or(0).saturating_mul(SYSFS_UNIT_BYTES))
}

/// A size of sectors that the queue of a disk has, in bytes.
fn sector(path: &Path, file: &str) -> u32 {
    number(&path.join("queue").join(file)).and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(512)
}

/// The target of a disk whose place in the device tree is below a login or an NVMe subsystem.
fn remote(sys: &Path, path: &Path) -> Option<RemoteTarget> {
    let place = std::fs::canonicalize(path).ok()?;
    if let Some(remote) = nvme::remote(&place) {
        return Some(remote);
    }
    let names = place.components().filter_map(|part| part.as_os_str().to_str());
    let name = names.into_iter().find(|name| {
        let number = name.strip_prefix("session");
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    })?;
    let session = session(sys, name)?;
    let protocol = DiskProtocol::Iscsi;
    Some(RemoteTarget { protocol, target: session.target, portals: session.portal.into_iter().collect() })
}

/// The target of a disk with several paths, whose addresses are those of all of them.
pub(super) fn remote_of_paths(paths: impl Iterator<Item = Option<RemoteTarget>>) -> Option<RemoteTarget> {
    paths.flatten().reduce(|mut all, further| {
        let new: Vec<_> =
            further.portals.into_iter().filter(|portal| !all.portals.contains(portal)).collect();
        all.portals.extend(new);
        all
    })
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

/// Links below `/dev/disk/by-id` and `by-path`, by the kernel name of their target.
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
