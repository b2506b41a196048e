//! A file system of an installed node, made anew as its install made it.

use std::path::Path;

use anyhow::{Context, Result};

use crate::execute::disk::filesystems::NewFilesystem;
use crate::execute::disk::host::{Host, MountAccess, with_mount};
use crate::plan::{Filesystem, PartitionName};
use base::command::Runner;
use model::boot::BootVolume;

/// Erases what is on the volume of a partition and makes an empty file system there. Whoever asks has made sure that it is not in use;
/// the kernel refuses a volume that is mounted.
///
/// # Errors
/// The file system is incomplete after one.
pub fn renew_filesystem(
    host: &dyn Host,
    runner: &dyn Runner,
    partition: PartitionName,
    volume: &BootVolume,
) -> Result<()> {
    let name = partition.as_str();
    let filesystem = Filesystem::of(partition).with_context(|| format!("{name} has no file system"))?;
    let (BootVolume::Partition(uuid) | BootVolume::Array(uuid)) = *volume;
    let node = volume.device();
    let new = NewFilesystem { filesystem: &filesystem, uuid, node: &node, disk: "this node" };
    host.make_filesystem(runner, &new)?;
    // It is what the next start mounts, and on the disk.
    with_mount(host, Path::new(&node), MountAccess::Write, |_| Ok(()))
}
