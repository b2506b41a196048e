//! Leftovers of earlier systems that this one has started by itself: swap, arrays, volumes. They are taken down before their
//! disks are erased. What a person did, such as a mount, is a reason to refuse.

use super::keep::KeptPartition;
use base::failure::{Class, Failure};
use machine::inventory::{Disk, Holder, Inventory};
use model::config::{Install, Wipe};

/// What holds the disks that are erased, each before what it is made of. Refuses a holder that is also on a disk that is not
/// erased, and one that holds something that is kept.
pub(super) fn order(
    install: &Install,
    inventory: &Inventory,
    erased: &[&Disk],
    kept: Option<&KeptPartition>,
) -> Result<Vec<Holder>, Failure> {
    let mut order: Vec<Holder> = Vec::new();
    for disk in erased {
        for holder in disk.holders.iter().rev() {
            if let Some(why) = obstacle(install, inventory, erased, kept, holder) {
                return Err(refuse(disk, holder, &why));
            }
            let known = |known: &Holder| match &holder.device {
                Some(device) => known.device.as_ref() == Some(device),
                None => known == holder,
            };
            if !order.iter().any(known) {
                order.push(holder.clone());
            }
        }
    }
    // A separate disk whose data is kept is not touched, and so is what uses it.
    let apart = kept.and_then(|kept| inventory.find(&kept.disk.path));
    match apart.filter(|disk| erased.iter().all(|other| other.name != disk.name)) {
        Some(Disk { holders, .. }) if holders.is_empty() => Ok(order),
        Some(disk) => Err(refuse(disk, &disk.holders[0], "the disk must not be changed")),
        None => Ok(order),
    }
}

fn obstacle(
    install: &Install,
    inventory: &Inventory,
    erased: &[&Disk],
    kept: Option<&KeptPartition>,
    holder: &Holder,
) -> Option<String> {
    if install.wipe == Wipe::None {
        return Some("install.wipe is none".into());
    }
    if kept.is_some_and(|kept| kept.partition.path == holder.on) {
        return Some("its data is to be kept".into());
    }
    let device = holder.device.as_deref()?;
    let stays = |disk: &&Disk| erased.iter().all(|other| other.name != disk.name);
    let rests = |disk: &&Disk| disk.holders.iter().any(|other| other.device.as_deref() == Some(device));
    let others: Vec<_> = inventory.disks.iter().filter(stays).filter(rests).collect();
    let others: Vec<_> = others.iter().map(|disk| disk.path.display().to_string()).collect();
    (!others.is_empty())
        .then(|| format!("it is also on {}, which the install does not erase", others.join(", ")))
}

fn refuse(disk: &Disk, holder: &Holder, why: &str) -> Failure {
    let what = format!("{} is in use: {holder}, and {why}", disk.path.display());
    Failure::new(Class::Hardware, what)
        .hint("Take it down by hand, choose another disk, or have the other disks wiped with install.wipe_disks_list.")
}
