//! The search for a disk of one key of the configuration.

use base::failure::{Class, Failure};
use base::size::ByteSize;
use machine::inventory::Inventory;

/// The key of the configuration that names the disk to install on.
pub(super) const SYSTEM: &str = "install.device";
/// The key that names the disk for data.
pub(super) const DATA: &str = "install.data_disk";

/// The key that names the second disk of a mirrored system.
pub(super) const MIRROR: &str = "install.mirror";

/// Where a disk is looked for, and what it must have to be proposed.
#[derive(Clone, Copy)]
pub(super) struct DiskSearch<'a> {
    pub(super) inventory: &'a Inventory,
    /// The key that the disk is for.
    pub(super) key: &'static str,
    /// Smaller disks are not proposed.
    pub(super) least: ByteSize,
}

pub(super) fn refuse(what: String) -> Failure {
    Failure::new(Class::Hardware, what)
}
