//! The disks and partitions with data: those beside the system's own, and the one that is kept through a reinstall; and
//! the file systems that a reset makes anew.

pub(super) mod etcd_disk;
pub(super) mod keep;
pub(super) mod other_disks;
pub(super) mod renew;
