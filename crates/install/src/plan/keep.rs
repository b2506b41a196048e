//! The data of virtual machines, which a reinstall can keep in place and unchanged.
//!
//! It is recognised by the label of its file system, which this product and its predecessor give it. On the system's disk the
//! other partitions are laid out before it; a disk of its own is not touched at all.

use anyhow::anyhow;
use serde::Serialize;
use uuid::Uuid;

use super::disk_search::DATA;
use super::labels::DATA as LABEL;
use super::layout::KeptPlace;
use super::target::{Target, target};
use base::failure::{Class, Failure};
use machine::inventory::{Disk, FoundPartition, Inventory, Signature, SignatureKind};
use model::config::{Install, Keep, Role};

const KEY: &str = "install.keep";

#[derive(Clone, Debug, Serialize)]
pub struct KeptPartition {
    /// The disk with the partition.
    pub disk: Target,
    pub partition: FoundPartition,
    pub uuid: Uuid,
}

impl KeptPartition {
    /// The place and identity of the partition.
    pub(super) fn stays(&self) -> KeptPlace {
        let FoundPartition { start, size, .. } = self.partition;
        KeptPlace { uuid: self.uuid, start, size }
    }
}

/// The partition that `install.keep` asks for: on the data disk if that is a separate one, else on that of the system.
pub(super) fn find(
    install: &Install,
    role: Role,
    inventory: &Inventory,
    system: &Disk,
    data: Option<&Disk>,
) -> Result<Option<KeptPartition>, Failure> {
    if !install.keep.contains(&Keep::Data) {
        return Ok(None);
    }
    if role == Role::Witness {
        return Err(Failure::new(Class::Invalid, "a witness keeps no data of virtual machines")
            .hint(format!("Leave out {KEY}, or change install.role.")));
    }
    let disk = data.unwrap_or(system);
    let mut found = disk.partitions.iter().filter(|part| holds_data(part));
    let (first, second) = (found.next(), found.next());
    match (first, second) {
        (Some(partition), None) => keep(disk, partition).map(Some),
        (Some(first), Some(second)) => {
            let path = disk.path.display();
            let what = format!("{path} has more than one partition with data of virtual machines");
            Err(Failure::new(Class::Hardware, what)
                .because(anyhow!("{}; {}", first.describe(), second.describe()))
                .hint(format!("Change the label {LABEL} of the one that is not meant, with e2label.")))
        }
        (None, _) => Err(nothing_to_keep(inventory, disk)),
    }
}

fn holds_data(partition: &FoundPartition) -> bool {
    is_data(&partition.signatures)
}

fn is_data(signatures: &[Signature]) -> bool {
    let ext = |found: &&Signature| {
        matches!(found.kind, SignatureKind::Ext2 | SignatureKind::Ext3 | SignatureKind::Ext4)
    };
    signatures.iter().filter(ext).any(|found| found.label.as_deref() == Some(LABEL))
}

fn keep(disk: &Disk, partition: &FoundPartition) -> Result<KeptPartition, Failure> {
    let refuse = |why: String, hint: &str| {
        let what = format!("{} cannot be kept", partition.describe());
        Err(Failure::new(Class::Hardware, what).because(anyhow!(why)).hint(hint))
    };
    let elsewhere = format!("Save the data, and install without {KEY}.");
    let Some(entry) = partition.entry else {
        return refuse(format!("{} has no GUID partition table", disk.path.display()), &elsewhere);
    };
    let end = |part: &FoundPartition| part.start + part.size;
    let overlaps = |other: &&FoundPartition| {
        other.name != partition.name && other.start < end(partition) && partition.start < end(other)
    };
    if let Some(other) = disk.partitions.iter().find(overlaps) {
        return refuse(format!("it overlaps with {}", other.describe()), &elsewhere);
    }
    Ok(KeptPartition { disk: target(disk)?, partition: partition.clone(), uuid: entry.uuid })
}

/// The error for a disk without data, which names what there is, and where else there is data.
fn nothing_to_keep(inventory: &Inventory, disk: &Disk) -> Failure {
    let path = disk.path.display();
    let what = format!("there is nothing on {path} that {KEY} could keep");
    if disk.partitions.is_empty() && is_data(&disk.signatures) {
        return Failure::new(Class::Hardware, what)
            .because(anyhow!(
                "{LABEL} is a file system on the whole disk there, and only a partition can be kept"
            ))
            .hint(format!("Save the data, and install without {KEY}."));
    }
    let there: Vec<_> = disk.partitions.iter().map(FoundPartition::describe).collect();
    let there = if there.is_empty() { "it has no partitions".into() } else { there.join("; ") };
    let why = anyhow!("no partition of it has an ext4 file system with the label {LABEL}: {there}");
    let others = inventory.disks.iter().flat_map(|disk| disk.partitions.iter().map(move |part| (disk, part)));
    let hint = match others.into_iter().find(|(_, part)| holds_data(part)) {
        Some((other, part)) => {
            format!("{} has it; to keep that, set {DATA} to {}.", part.describe(), other.path.display())
        }
        None => format!("Leave out {KEY} where a node is installed for the first time or on a new disk."),
    };
    Failure::new(Class::Hardware, what).because(why).hint(hint)
}
