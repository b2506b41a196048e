//! The disks beside the system's own: one for data, and those that are wiped.

use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;
use uuid::Uuid;

use super::choose::{chosen, deliberate, named, usable};
use super::disk_search::{DATA, DiskSearch};
use super::labels;
use super::layout::{self, Partition};
use super::target::{Target, refuse, target};
use base::failure::{Class, Failure};
use base::size::ByteSize;
use machine::inventory::{Disk, FoundPartition, Inventory, Signature, SignatureKind};
use model::boot::MultipathId;
use model::config::sizes::PartitionSizes;
use model::config::{Install, Role, Wipe, WipeFailure};

const LIST: &str = "install.wipe_disks_list";
const ALL: &str = "install.wipe_all_disks";

#[derive(Clone, Debug, Serialize)]
pub struct DataDisk {
    pub disk: Target,
    /// The partitions on it now, which are lost.
    pub erased: Vec<FoundPartition>,
    pub disk_guid: Uuid,
    pub partitions: Vec<Partition>,
}

/// A disk that is wiped and has no part in the node.
#[derive(Clone, Debug, Serialize)]
pub struct WipedDisk {
    pub disk: Target,
    /// The partitions on it now, which are lost.
    pub erased: Vec<FoundPartition>,
    /// The key of the configuration that asks for it.
    pub key: &'static str,
}

/// The disk of `install.data_disk`, unless that is the system's.
pub(super) fn data_disk<'a>(
    install: &Install,
    role: Role,
    inventory: &'a Inventory,
    system: &Disk,
) -> Result<Option<&'a Disk>, Failure> {
    let Some(selector) = &install.data_disk else { return Ok(None) };
    if role == Role::Witness {
        return Err(Failure::new(Class::Invalid, "a witness keeps no data of virtual machines")
            .hint(format!("Leave out {DATA}, or change install.role.")));
    }
    let disk = chosen(DiskSearch { inventory, key: DATA, least: least(install, DATA) }, selector)?;
    Ok((disk.name != system.name).then_some(disk))
}

/// A warning if a key has no effect because of which disk holds the data.
pub(super) fn without_effect(install: &Install, system: &Disk, data: Option<&Disk>) -> Option<String> {
    match data {
        Some(_) => install.persistent_partition_size.map(|_| {
            format!(
                "install.persistent_partition_size has no effect with {DATA}: \
                 the persistent partition takes the rest of the disk."
            )
        }),
        None => install.data_disk.as_ref().map(|_| {
            let path = system.path.display();
            format!("{DATA} is {path}, the system's disk: data gets a partition on it.")
        }),
    }
}

/// The least size of the disk for `key`.
pub(super) fn least(install: &Install, key: &str) -> ByteSize {
    let sizes = PartitionSizes::of(install.profile);
    let with_data = install.own_role() != Role::Witness && install.data_disk.is_none();
    if key == DATA { sizes.data_minimum } else { layout::least(sizes, with_data) }
}

/// The new layout of the data disk. The identity of its table follows from that of the system disk's.
pub(super) fn arrange(
    disk: &Disk,
    inventory: &Inventory,
    sizes: PartitionSizes,
    system_guid: Uuid,
) -> Result<DataDisk, Failure> {
    let disk_guid = Uuid::new_v5(&system_guid, b"data-disk");
    let target = target(disk)?;
    let partitions = layout::arrange_data(disk.size, target.sector, sizes, disk_guid)
        .map_err(|error| refuse(disk, inventory, error, DATA))?;
    Ok(DataDisk { disk: target, erased: disk.partitions.clone(), disk_guid, partitions })
}

/// Refuses what `install.wipe: none` protects.
pub(super) fn refuse_protected(install: &Install, chosen: &[&Disk]) -> Result<(), Failure> {
    if install.wipe != Wipe::None {
        return Ok(());
    }
    let asked = [(LIST, !install.wipe_disks_list.is_empty()), (ALL, install.wipe_all_disks)];
    if let Some((key, _)) = asked.iter().find(|(_, asked)| *asked) {
        let what = format!("install.wipe is none, and {key} asks for disks to be wiped");
        return Err(Failure::new(Class::Invalid, what)
            .hint(format!("Leave out {key}, or set install.wipe to all-listed.")));
    }
    chosen.iter().try_for_each(|disk| empty(disk))
}

/// Refuses a disk with anything on it, by name, or with areas that could not be read.
fn empty(disk: &Disk) -> Result<(), Failure> {
    let content = disk.signatures.iter().filter(|found| found.kind.holds_content());
    let content = content.map(|found| format!("{}  {found}", disk.path.display()));
    let described: Vec<_> = content.chain(disk.partitions.iter().map(FoundPartition::describe)).collect();
    let path = disk.path.display();
    let (what, why) = match &disk.unread {
        _ if !described.is_empty() => {
            (format!("{path} is not empty, and install.wipe is none"), described.join("; "))
        }
        Some(why) => (format!("what is on {path} is not known, and install.wipe is none"), why.clone()),
        None => return Ok(()),
    };
    Err(Failure::new(Class::Hardware, what).because(anyhow!("{why}")).hint(EMPTY))
}

/// The disks of the install that are written, and those that are wiped.
pub(super) fn written_or_wiped<'a>(
    inventory: &'a Inventory,
    changed: &[&'a Disk],
    wiped: &[WipedDisk],
) -> Vec<&'a Disk> {
    let wiped =
        wiped.iter().filter_map(|wiped| inventory.disks.iter().find(|disk| disk.name == wiped.disk.name));
    changed.iter().copied().chain(wiped).collect()
}

/// By which the initrd of the node knows those of its disks that are maps of several paths.
pub(super) fn multipath(disks: &[&Disk]) -> Result<Vec<MultipathId>, Failure> {
    let maps = disks.iter().filter(|disk| disk.is_map());
    let named = |disk: &&&Disk| {
        disk.multipath_id().and_then(MultipathId::new).ok_or_else(|| {
            let what =
                format!("{} is a disk with several paths, and its WWID is not usable", disk.path.display());
            Failure::new(Class::Hardware, what)
                .because(anyhow!(
                    "a kernel argument can have letters, digits and _-.:+, not {:?}",
                    disk.multipath_id().unwrap_or_default()
                ))
                .hint("Let the storage offer it on a single path.")
        })
    };
    maps.map(|disk| named(&disk)).collect()
}

/// Warnings about disks that may lose more than could be read.
pub(super) fn unread<'a>(disks: impl Iterator<Item = &'a Disk>) -> Vec<String> {
    let unread = disks.filter_map(|disk| Some((disk.path.display(), disk.unread.as_ref()?)));
    unread.map(|(path, why)| format!("{path} may hold more than is listed here: {why}.")).collect()
}

const EMPTY: &str = "Choose an empty disk, or set install.wipe to selected to erase this one.";

/// The other disks to wipe, and warnings about those that are not.
pub(super) fn wiped(
    install: &Install,
    inventory: &Inventory,
    chosen: &[&Disk],
) -> Result<(Vec<WipedDisk>, Vec<String>), Failure> {
    let mut wiped: Vec<WipedDisk> = Vec::new();
    let mut warnings = Vec::new();
    let search = DiskSearch { inventory, key: LIST, least: ByteSize::default() };
    for path in &install.wipe_disks_list {
        match named(search, Path::new(&**path))? {
            None => {
                warnings.push(format!("{LIST}: there is no disk {path}; the install goes on without it."))
            }
            Some(disk) => {
                refuse_install_disk(disk, chosen)?;
                deliberate(search, disk, Path::new(&**path))?;
                match usable(search, disk).and_then(|disk| add(disk, LIST, &mut wiped)) {
                    // If the machine runs from the disk, this is not a failure to wipe: the list is wrong.
                    Err(failure) if install.wipe_failure == WipeFailure::Warn && !disk.boot_medium => {
                        let path = disk.path.display();
                        warnings.push(format!("{LIST}: {path} stays as it is: {failure}."));
                    }
                    done => done?,
                }
            }
        }
    }
    if install.wipe_all_disks {
        for disk in inventory.disks.iter().filter(|disk| holds_a_system(disk)) {
            if disk.boot_medium || chosen.iter().any(|chosen| chosen.name == disk.name) {
                continue;
            }
            match why_not_wiped(inventory, disk) {
                Some(reason) => {
                    warnings.push(format!("{ALL}: {} stays, it is {reason}.", disk.path.display()))
                }
                None => add(disk, ALL, &mut wiped)?,
            }
        }
    }
    Ok((wiped, warnings))
}

/// Why a disk that is not named is not wiped, whatever is on it.
fn why_not_wiped(inventory: &Inventory, disk: &Disk) -> Option<String> {
    let reason = disk.in_use().map(|reason| format!("in use: {reason}"));
    let reason = reason.or_else(|| disk.read_only.then(|| "read-only".into()));
    let reason = reason.or_else(|| disk.removable.then(|| "removable".into()));
    reason.or_else(|| {
        (!inventory.other_paths(disk).is_empty()).then(|| "one of several paths to one disk".into())
    })
}

/// Refuses a listed disk that the install is for.
fn refuse_install_disk(disk: &Disk, chosen: &[&Disk]) -> Result<(), Failure> {
    if chosen.iter().any(|chosen| chosen.name == disk.name) {
        let what = format!("{LIST} names {}, a disk of the install", disk.path.display());
        return Err(Failure::new(Class::Invalid, what)
            .hint(format!("Remove it from {LIST}; it is erased anyway, unless install.wipe is none.")));
    }
    Ok(())
}

fn add(disk: &Disk, key: &'static str, wiped: &mut Vec<WipedDisk>) -> Result<(), Failure> {
    // Two links may lead to one disk.
    if wiped.iter().all(|known| known.disk.name != disk.name) {
        wiped.push(WipedDisk { disk: target(disk)?, erased: disk.partitions.clone(), key });
    }
    Ok(())
}

/// Whether the disk holds a system of this product or of its predecessor, or their data. Names such as `data` are common; labels
/// of file systems, and a table with all names of a node, are not.
fn holds_a_system(disk: &Disk) -> bool {
    const LABELS: [&str; 3] = [labels::CONFIG, labels::PERSISTENT, labels::DATA];
    const NAMES: [layout::PartitionName; 4] = [
        layout::PartitionName::Config,
        layout::PartitionName::RootA,
        layout::PartitionName::RootB,
        layout::PartitionName::Persistent,
    ];
    let ours = |label: &Option<String>| {
        label.as_deref().is_some_and(|label| LABELS.contains(&label) || label.starts_with("COS_"))
    };
    // The predecessor's medium has such a label too.
    let image = |found: &&Signature| found.kind != SignatureKind::Iso9660;
    let holds = |signatures: &[Signature]| signatures.iter().filter(image).any(|found| ours(&found.label));
    let named = |name: &str| disk.partitions.iter().any(|part| part.label.as_deref() == Some(name));
    // The predecessor's data disk has no partition table; if there is one, the rest is older.
    disk.partitions.is_empty() && holds(&disk.signatures)
        || disk.partitions.iter().any(|part| holds(&part.signatures) || ours(&part.label))
        || NAMES.iter().all(|name| named(name.as_str()))
}
