//! The disks and partitions with data: those beside the system's own, and the one that is kept through a reinstall.

pub(super) mod keep;
pub(super) mod other_disks;
