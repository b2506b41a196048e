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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::tests::doubles::TestHost;
    use base::failure::{Class, class_of};
    use std::sync::atomic::Ordering;
    use testing::runner::ScriptedRunner;

    const ID: &str = "0a0b0c0d-0000-4000-8000-000000000007";

    #[test]
    fn a_file_system_is_made_anew_as_an_install_makes_it_and_is_mounted_once() {
        for (volume, device) in [
            (BootVolume::Partition(ID.parse().unwrap()), format!("/dev/disk/by-partuuid/{ID}")),
            (
                BootVolume::Array(ID.parse().unwrap()),
                "/dev/disk/by-id/md-uuid-0a0b0c0d:00004000:80000000:00000007".to_owned(),
            ),
        ] {
            let (host, runner) = (TestHost::new(), ScriptedRunner::silent());
            renew_filesystem(&host, &runner, PartitionName::Persistent, &volume).unwrap();
            let made = format!(
                "mkfs.ext4 -q -F -b 4096 -L NQ_PERSISTENT -U {ID} -E lazy_itable_init=1,lazy_journal_init=1 {device}"
            );
            assert_eq!(runner.commands(), [made]);
            assert_eq!(host.mounted.load(Ordering::Relaxed), 0, "it is unmounted again");
        }
    }

    #[test]
    fn a_disk_that_cannot_be_written_is_an_error_of_the_disk_and_nothing_else_is_made_anew() {
        let (host, runner) =
            (TestHost::new(), ScriptedRunner::failing("mkfs.ext4 ended with exit status: 1"));
        let volume = BootVolume::Partition(ID.parse().unwrap());
        let error = renew_filesystem(&host, &runner, PartitionName::Data, &volume).unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        for name in [PartitionName::Esp, PartitionName::RootA] {
            let runner = ScriptedRunner::silent();
            assert!(renew_filesystem(&host, &runner, name, &volume).is_err());
            assert!(runner.commands().is_empty());
        }
    }
}
