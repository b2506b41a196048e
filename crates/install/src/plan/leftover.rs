//! Holders of a disk that this system started by itself because of leftovers of an earlier system.

use std::path::Path;

use machine::inventory::{Holder, HolderKind};

/// Whether a system starts such a holder by itself, and it can be taken down without a loss.
pub(super) fn is_leftover(holder: &Holder) -> bool {
    match holder.kind {
        HolderKind::Swap => true,
        HolderKind::Md => holder.device.is_some(),
        // The device mapper knows its devices by name.
        HolderKind::Lvm | HolderKind::Crypt | HolderKind::Partition => holder.name.is_some(),
        _ => false,
    }
}

/// The holder as a plan names it, such as `vg0-root (LVM) on /dev/sda2`.
pub(crate) fn describe_holder(holder: &Holder) -> String {
    let on = holder.on.display();
    let device = holder.device.as_deref().map(Path::display).map(|device| device.to_string());
    let name = holder.name.clone().or(device).unwrap_or_default();
    match holder.kind {
        HolderKind::Swap => format!("swap on {on}"),
        HolderKind::Md => format!("{name} (RAID) on {on}"),
        HolderKind::Lvm => format!("{name} (LVM) on {on}"),
        HolderKind::Crypt => format!("{name} (encrypted) on {on}"),
        _ => format!("{name} on {on}"),
    }
}
