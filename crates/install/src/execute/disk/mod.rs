//! The disks: the seam to the device, tables and file systems on it, arrays over two of them, and nodes and mounts.

pub(super) mod boot_code;
pub(super) mod cache;
pub(super) mod device;
pub(super) mod filesystems;
pub(super) mod held_sector;
pub(super) mod host;
pub(super) mod mirror;
pub(super) mod multipath;
pub(super) mod open_disk;
pub(super) mod overlay;
pub(super) mod system_disks;
pub(super) mod table;
pub(super) mod takedown;
pub(super) mod wipe;
