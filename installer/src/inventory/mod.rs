//! The disks and network cards of this machine, from sysfs.
