//! What stands in for the kernel: directories in place of mounts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use uuid::Uuid;

use super::ext4;
use crate::execute::disk::device::BlockDevice;
use crate::execute::disk::filesystems::NewFilesystem;
use crate::execute::disk::host::{Host, MountAccess, MountedFilesystem};
use crate::execute::disk::mirror::MadeArray;
use crate::plan::{Filesystem, Partition, PartitionName, Target};
use base::command::Runner;
use base::files::UnfinishedDirectory;
use base::parallel::locked;

/// A file system that is made when everything is in its directory.
#[derive(Debug)]
struct PendingFilesystem {
    filesystem: Filesystem,
    uuid: Uuid,
    directory: PathBuf,
}

#[derive(Debug)]
pub struct ImageHost {
    scratch: UnfinishedDirectory,
    /// The time of everything in the file systems, in seconds since 1970.
    epoch: u64,
    partitions: Mutex<BTreeMap<PartitionName, Partition>>,
    awaited: Mutex<Vec<PendingFilesystem>>,
}

impl ImageHost {
    /// A host that keeps the content of the file systems below `scratch` until they are made.
    #[must_use]
    pub fn new(scratch: UnfinishedDirectory, epoch: u64) -> Self {
        Self { scratch, epoch, partitions: Mutex::default(), awaited: Mutex::default() }
    }
}

impl Host for ImageHost {
    fn partition_nodes(
        &self,
        _: &Target,
        partitions: &[Partition],
    ) -> Result<BTreeMap<PartitionName, PathBuf>> {
        let place =
            |partition: &Partition| (partition.name, self.scratch.path().join(partition.name.as_str()));
        *locked(&self.partitions) =
            partitions.iter().map(|partition| (partition.name, partition.clone())).collect();
        Ok(partitions.iter().map(place).collect())
    }

    fn firmware_variables(&self) -> Option<PathBuf> {
        None
    }

    fn mount(&self, node: &Path, _: MountAccess) -> Result<Box<dyn MountedFilesystem>> {
        Ok(Box::new(PlainDirectory(node.to_owned())))
    }

    fn array_node(&self, _: PartitionName) -> Result<PathBuf> {
        bail!("there are no arrays in a disk image")
    }

    fn read_from(&self, _: &MadeArray, _: Option<usize>) -> Result<()> {
        bail!("there are no arrays in a disk image")
    }

    fn make_filesystem(&self, _: &dyn Runner, new: &NewFilesystem<'_>) -> Result<()> {
        let directory = new.node.to_owned();
        std::fs::create_dir(&directory).with_context(|| format!("making {}", directory.display()))?;
        locked(&self.awaited).push(PendingFilesystem {
            filesystem: new.filesystem.clone(),
            uuid: new.uuid,
            directory,
        });
        Ok(())
    }

    fn complete(&self, runner: &dyn Runner, device: &dyn BlockDevice) -> Result<()> {
        let partitions = locked(&self.partitions).clone();
        for PendingFilesystem { filesystem, uuid, directory } in locked(&self.awaited).drain(..) {
            let name = filesystem.partition;
            let partition =
                partitions.get(&name).with_context(|| format!("no partition {}", name.as_str()))?;
            let made =
                ext4::Ext4Request { filesystem: &filesystem, uuid, directory: &directory, epoch: self.epoch };
            made.write(runner, self.scratch.path(), (device, partition))
                .with_context(|| format!("making the file system {}", name.as_str()))?;
        }
        Ok(())
    }
}

struct PlainDirectory(PathBuf);

impl MountedFilesystem for PlainDirectory {
    fn path(&self) -> &Path {
        &self.0
    }

    fn unmount(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
