//! Another disk in the place of one that a mirrored system has lost: which disk that is, and what it gets.
//!
//! The disk that is left says everything: its partition table is repeated, and the arrays of its partitions are joined. A disk that was
//! only away for a while keeps its content, as long as it was not started alone meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use uuid::Uuid;

use super::choose::barred;
use super::layout::{self, Partition, PartitionName};
use super::mirror::is_mirrored;
use super::raid_set::RaidSet;
use super::target::{Target, target};
use base::failure::{Class, Failure};
use base::size::ByteSize;
use machine::arrays::{ArrayState, ArrayStatus};
use machine::inventory::{Disk, FoundPartition, Holder, HolderKind, Inventory, SignatureKind};

/// The second half of a mirror, to be made on a disk.
#[derive(Clone, Debug, Serialize)]
pub struct DiskReplacement {
    pub kind: ReplacementKind,
    /// The disk with the whole system.
    pub source: Target,
    pub source_partitions: Vec<Partition>,
    pub disk: Target,
    /// The partitions on it now, which are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub erased: Vec<FoundPartition>,
    pub disk_guid: Uuid,
    /// The partitions of the disk, in the order of the table.
    pub partitions: Vec<Partition>,
    /// Their device nodes, unless the table is still to be written.
    #[serde(skip)]
    pub nodes: BTreeMap<PartitionName, PathBuf>,
    /// The arrays that it joins, in this order.
    pub arrays: Vec<JoinedArray>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplacementKind {
    /// It gets a partition table.
    New,
    /// It was in the mirror before and was away: what has changed since then is copied.
    Returned,
    /// It is in arrays of the mirror already, as a replacement that was cut off leaves it.
    Begun,
}

/// An array that lacks a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JoinedArray {
    pub partition: PartitionName,
    /// The kernel's name, such as `md127`.
    pub device: String,
}

/// The arrays of a mirrored system with the disks of their members.
struct FoundMirror<'a> {
    inventory: &'a Inventory,
    arrays: Vec<(PartitionName, &'a ArrayStatus)>,
}

/// Where people find what state the mirror is in.
const STATUS: &str = "`installer status` shows the arrays.";

/// The replacement of the disk that the mirror of `arrays` lacks, by the disk at `path`, or by the only one that fits. `started_from` is
/// the PARTUUID of the EFI system partition that GRUB was loaded from.
///
/// # Errors
/// [`Class::Invalid`] without a mirror, and if `path` names another disk than the one that was begun with; [`Class::Hardware`] if no disk
/// has the whole system, or the disk does not fit.
pub fn disk_replacement(
    inventory: &Inventory,
    arrays: &[ArrayStatus],
    started_from: Option<Uuid>,
    path: Option<&Path>,
) -> Result<DiskReplacement, Failure> {
    let mirror = FoundMirror::new(inventory, arrays)?;
    let source = mirror.source(started_from)?;
    let source_partitions = partitions_of(source)?;
    let missing = mirror.lacking(source);
    let begun = inventory.disks.iter().find(|disk| disk.name != source.name && mirror.has_member(disk));
    let (kind, disk) = match begun {
        Some(begun) => {
            if let Some(path) = path.filter(|path| !begun.is_at(path)) {
                let what = format!("{} cannot take part: the mirror has its second disk", path.display());
                return Err(Failure::new(Class::Invalid, what)
                    .because(format!("{} is in its arrays already", begun.identify()))
                    .hint(format!(
                        "Complete that disk: installer disk replace {}. To use another one, detach it first.",
                        begun.path.display()
                    )));
            }
            (ReplacementKind::Begun, begun)
        }
        None => {
            let disk = match path {
                Some(path) => named(&mirror, source, path)?,
                None => only(&mirror, source)?,
            };
            let returned = mirror.knows(source, disk);
            (if returned { ReplacementKind::Returned } else { ReplacementKind::New }, disk)
        }
    };
    let (disk_guid, partitions, erased) = match kind {
        ReplacementKind::New => {
            let guid = Uuid::new_v4();
            (guid, renamed(&source_partitions, guid), disk.partitions.clone())
        }
        ReplacementKind::Returned | ReplacementKind::Begun => {
            let partitions = partitions_of(disk)?;
            if !same_places(&partitions, &source_partitions) {
                let what =
                    format!("{} has other partitions than {}", disk.path.display(), source.path.display());
                return Err(
                    Failure::new(Class::Hardware, what).hint("Detach it, and replace it by another disk.")
                );
            }
            (Uuid::nil(), partitions, Vec::new())
        }
    };
    let lacks = |(partition, array): (PartitionName, &ArrayStatus)| JoinedArray {
        partition,
        device: array.device.clone(),
    };
    Ok(DiskReplacement {
        kind,
        source: target(source)?,
        source_partitions,
        disk: target(disk)?,
        erased,
        disk_guid,
        partitions,
        nodes: if kind == ReplacementKind::New { BTreeMap::new() } else { nodes_of(disk) },
        arrays: missing.into_iter().map(lacks).collect(),
    })
}

impl DiskReplacement {
    /// The same with nothing kept of the disk, which has the partitions `erased`: for one that was started alone.
    #[must_use]
    pub fn anew(self, erased: Vec<FoundPartition>) -> Self {
        let disk_guid = Uuid::new_v4();
        let partitions = renamed(&self.source_partitions, disk_guid);
        let kind = ReplacementKind::New;
        Self { kind, disk_guid, partitions, erased, nodes: BTreeMap::new(), ..self }
    }

    /// Whether something is lost with the content of the disk.
    #[must_use]
    pub fn erases_content(&self) -> bool {
        let content = self.disk.signatures.iter().any(|found| found.kind.holds_content());
        self.kind == ReplacementKind::New && (content || !self.erased.is_empty())
    }
}

impl<'a> FoundMirror<'a> {
    fn new(inventory: &'a Inventory, arrays: &'a [ArrayStatus]) -> Result<Self, Failure> {
        let named = |array: &'a ArrayStatus| {
            let name = PartitionName::named(&array.name).filter(|name| is_mirrored(*name))?;
            Some((name, array))
        };
        let mut arrays: Vec<_> = arrays.iter().filter_map(named).collect();
        arrays.sort_by_key(|(name, _)| *name);
        if arrays.is_empty() {
            return Err(Failure::new(
                Class::Invalid,
                "the system of this node is on one disk, without a mirror",
            )
            .hint("A mirror is chosen at an install: install.mirror names its second disk."));
        }
        Ok(Self { inventory, arrays })
    }

    /// The disk that has every array whole and up to date: the one that GRUB was loaded from, if both have.
    fn source(&self, started_from: Option<Uuid>) -> Result<&'a Disk, Failure> {
        let complete = |disk: &&Disk| self.arrays.iter().all(|(_, array)| has(disk, &array.members));
        let complete: Vec<_> = self.inventory.disks.iter().filter(complete).collect();
        let started = |disk: &&Disk| {
            disk.partitions
                .iter()
                .any(|part| part.entry.is_some_and(|entry| Some(entry.uuid) == started_from))
        };
        let first = complete.iter().copied().find(started).or(complete.first().copied());
        first.ok_or_else(|| {
            let told: Vec<_> = self.arrays.iter().map(|(_, array)| array.to_string()).collect();
            Failure::new(Class::Hardware, "no disk of this mirror has the whole system")
                .because(told.join("; "))
                .hint(format!(
                    "Wait until arrays that are being rebuilt are whole; add to each other one the partition of its name: \
                     mdadm /dev/mdN --re-add PARTITION. {STATUS}"
                ))
        })
    }

    /// The arrays of which only `source` has a member.
    fn lacking(&self, source: &Disk) -> Vec<(PartitionName, &'a ArrayStatus)> {
        let lacks = |(_, array): &&(PartitionName, &ArrayStatus)| {
            array.state != ArrayState::Whole
                && !array.members.iter().chain(&array.filled).any(|member| !is_part(source, member))
        };
        self.arrays.iter().filter(lacks).copied().collect()
    }

    fn has_member(&self, disk: &Disk) -> bool {
        self.arrays.iter().any(|(_, array)| has(disk, &array.members) || has(disk, &array.filled))
    }

    /// Whether nothing but arrays of this mirror holds the disk, and each has given it up after errors.
    fn gave_up(&self, disk: &Disk) -> bool {
        let own = |on: &Path| on == disk.path || disk.partitions.iter().any(|part| part.path == on);
        let array = |holder: &Holder| {
            let device = holder.device.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
            let named = self.arrays.iter().any(|(_, array)| Some(array.device.as_str()) == device);
            holder.kind == HolderKind::Md && named
        };
        !self.has_member(disk) && disk.holders.iter().filter(|holder| own(&holder.on)).all(array)
    }

    /// Whether `disk` was in this mirror: it has the same partitions, of the same arrays.
    fn knows(&self, source: &Disk, disk: &Disk) -> bool {
        let (Ok(own), Ok(theirs)) = (partitions_of(source), partitions_of(disk)) else { return false };
        same_places(&own, &theirs)
            && self.arrays.iter().all(|(name, _)| {
                let [own, theirs] = [source, disk].map(|disk| array_id(disk, *name));
                own.is_some() && own == theirs
            })
    }
}

/// The same partitions with the identities that they have on another disk.
fn renamed(partitions: &[Partition], disk_guid: Uuid) -> Vec<Partition> {
    let named = |part: &Partition| Partition { uuid: part.name.uuid_in(disk_guid), ..part.clone() };
    partitions.iter().map(named).collect()
}

fn has(disk: &Disk, members: &[String]) -> bool {
    members.iter().any(|member| is_part(disk, member))
}

fn is_part(disk: &Disk, name: &str) -> bool {
    disk.partitions.iter().any(|part| part.name == name)
}

/// The identity of the array that the partition of that name belongs to, by its superblock.
fn array_id(disk: &Disk, name: PartitionName) -> Option<&str> {
    let part = disk.partitions.iter().find(|part| part.label.as_deref() == Some(name.as_str()))?;
    part.signatures.iter().find(|found| found.kind == SignatureKind::MdMember)?.uuid.as_deref()
}

fn same_places(one: &[Partition], other: &[Partition]) -> bool {
    let place = |part: &Partition| (part.number, part.name, part.start, part.size);
    one.iter().map(place).eq(other.iter().map(place))
}

/// The partitions of a disk of the system, by its table.
fn partitions_of(disk: &Disk) -> Result<Vec<Partition>, Failure> {
    let partitions: Option<Vec<_>> = disk.partitions.iter().map(Partition::of).collect();
    let has = |name| partitions.iter().flatten().any(|part| part.name == name);
    if !has(PartitionName::Esp) || !has(PartitionName::Bios) {
        let what = format!("the partition table of {} is not that of a node", disk.path.display());
        return Err(Failure::new(Class::Hardware, what).hint(STATUS));
    }
    let mut partitions = partitions.unwrap_or_default();
    partitions.sort_by_key(|part| part.number);
    Ok(partitions)
}

fn nodes_of(disk: &Disk) -> BTreeMap<PartitionName, PathBuf> {
    let named = |part: &FoundPartition| {
        let name = PartitionName::named(part.label.as_deref()?)?;
        Some((name, part.path.clone()))
    };
    disk.partitions.iter().filter_map(named).collect()
}

fn end_of_partitions(disk: &Disk) -> ByteSize {
    disk.partitions.iter().map(|part| part.start + part.size).max().unwrap_or_default()
}

/// Why `disk` cannot take the partitions of `source`; `None` if it can.
fn unsuitable(mirror: &FoundMirror<'_>, source: &Disk, disk: &Disk) -> Option<String> {
    if let Some(why) = barred(disk) {
        return Some(format!("it {why}"));
    }
    if let Some(holder) = disk.holders.first().filter(|_| !mirror.gave_up(disk)) {
        return Some(format!("it is in use: {holder}"));
    }
    if disk.logical_sector != source.logical_sector {
        let (theirs, own) = (disk.logical_sector, source.logical_sector);
        return Some(format!("it has sectors of {theirs} bytes, and the other disk of {own}"));
    }
    if let Some(other) = mirror.inventory.other_paths(disk).first() {
        return Some(format!(
            "{} is another path to it, and no multipath map holds them",
            other.path.display()
        ));
    }
    if RaidSet::of(mirror.inventory, disk).is_some_and(|set| set.members.len() > 1) {
        return Some("other disks are in one RAID set of the firmware with it".into());
    }
    let target = target(disk).ok()?;
    let needed = layout::disk_of(end_of_partitions(source), target.sector);
    (disk.size < needed).then(|| {
        let missing = needed - disk.size;
        format!(
            "it is {} bytes ({missing}) too small: the partitions of the other disk need {} bytes",
            missing.get(),
            needed.get()
        )
    })
}

/// The disk at `path`, if it fits.
fn named<'a>(mirror: &FoundMirror<'a>, source: &Disk, path: &Path) -> Result<&'a Disk, Failure> {
    let (inventory, shown) = (mirror.inventory, path.display());
    let disk = match inventory.find(path) {
        Some(disk) if inventory.also_at(path, disk).is_empty() => disk,
        Some(_) => {
            let what = format!("{shown} is ambiguous: several disks could have this link");
            return Err(Failure::new(Class::Invalid, what).hint(listing(mirror, source)));
        }
        None => {
            let at = |part: &FoundPartition| part.path == path || part.links.iter().any(|link| link == path);
            let what = match inventory.disks.iter().find(|disk| disk.partitions.iter().any(at)) {
                Some(disk) => format!("{shown} is a partition of {}, not a disk", disk.path.display()),
                None => format!("there is no disk {shown}"),
            };
            return Err(Failure::new(Class::Invalid, what).hint(listing(mirror, source)));
        }
    };
    if disk.name == source.name {
        let what = format!("{shown} is the disk that this node runs from");
        return Err(Failure::new(Class::Invalid, what).hint(listing(mirror, source)));
    }
    match unsuitable(mirror, source, disk) {
        None => Ok(disk),
        Some(why) => {
            Err(Failure::new(Class::Hardware, format!("{} cannot join the mirror", disk.identify()))
                .because(why)
                .hint(listing(mirror, source)))
        }
    }
}

/// The only disk that fits. A removable one has to be named.
fn only<'a>(mirror: &FoundMirror<'a>, source: &Disk) -> Result<&'a Disk, Failure> {
    let fitting = fitting(mirror, source);
    match fitting[..] {
        [disk] => Ok(disk),
        [] => {
            let others =
                mirror.inventory.disks.iter().filter(|disk| disk.name != source.name && !disk.optical);
            let why = |disk: &Disk| {
                let removable = || "it is removable, and has to be named".to_owned();
                format!("{}: {}", disk.identify(), unsuitable(mirror, source, disk).unwrap_or_else(removable))
            };
            let reasons: Vec<_> = others.map(why).collect();
            let reasons =
                if reasons.is_empty() { "there is no other disk".into() } else { reasons.join("; ") };
            let end = end_of_partitions(source);
            let hint =
                format!("Attach a disk with sectors of {} bytes and more than {end}.", source.logical_sector);
            Err(Failure::new(Class::Hardware, "this machine has no disk that can join the mirror")
                .because(reasons)
                .hint(hint))
        }
        _ => Err(Failure::new(Class::Invalid, format!("{} disks can join the mirror", fitting.len()))
            .hint(format!("Name one of them: installer disk replace DISK. {}", listing(mirror, source)))),
    }
}

fn fitting<'a>(mirror: &FoundMirror<'a>, source: &Disk) -> Vec<&'a Disk> {
    let fits = |disk: &&Disk| {
        disk.name != source.name && !disk.removable && unsuitable(mirror, source, disk).is_none()
    };
    mirror.inventory.disks.iter().filter(fits).collect()
}

fn listing(mirror: &FoundMirror<'_>, source: &Disk) -> String {
    let fitting: Vec<_> = fitting(mirror, source).iter().map(|disk| disk.identify()).collect();
    match fitting.is_empty() {
        true => "No other disk fits.".into(),
        false => format!("Disks that fit: {}.", fitting.join("; ")),
    }
}

impl fmt::Display for DiskReplacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = match self.kind {
            ReplacementKind::New => "gets the system anew",
            ReplacementKind::Returned => "was in this mirror: what has changed is copied",
            ReplacementKind::Begun => "has a part of the system: the rest is completed",
        };
        writeln!(f, "  from    {}", self.source.description)?;
        writeln!(f, "  to      {}", self.disk.description)?;
        writeln!(f, "          {does}")?;
        for part in &self.erased {
            writeln!(f, "  erases  {}", part.describe())?;
        }
        let names: Vec<_> = self.arrays.iter().map(|array| array.partition.as_str()).collect();
        match names.is_empty() {
            true => writeln!(f, "  fills   nothing, its arrays are there"),
            false => writeln!(f, "  fills   {}", names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
