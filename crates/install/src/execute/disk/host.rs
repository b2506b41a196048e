//! What an install needs of the machine beside the disk itself: the devices of partitions, and mounts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

use super::device::BlockDevice;
use super::filesystems::{self, NewFilesystem};
use super::mirror::{MadeArray, kernel_name};
use super::multipath;
use crate::execute::kernel_calls;
use crate::plan::{Partition, PartitionName, Target};
use base::command::{Runner, SystemRunner};
use base::failure::{Class, Classify, Failure};
use base::files::{make_directory, read_text};
use machine::write_latency::WriteLatency;

/// Whether a mount may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountAccess {
    Write,
    /// Read-only, and reads come from the disk: the kernel has nothing of it cached.
    Read,
    /// Read-only, without replaying the file system's journal: the disk is not changed at all.
    Look,
}

/// The machine, as far as an install needs it.
pub trait Host {
    /// Makes the kernel read the new table of a disk and finds the device of each partition.
    fn partition_nodes(
        &self,
        disk: &Target,
        partitions: &[Partition],
    ) -> Result<BTreeMap<PartitionName, PathBuf>>;

    /// The directory with the firmware's variables; `None` if the machine was not started by UEFI.
    fn firmware_variables(&self) -> Option<PathBuf>;

    fn mount(&self, node: &Path, access: MountAccess) -> Result<Box<dyn MountedFilesystem>>;

    /// An unused device name for an array of the partitions `name`.
    fn array_node(&self, name: PartitionName) -> Result<PathBuf>;

    /// Makes an array read from one member only, the first or the second, or with `None` from both.
    fn read_from(&self, array: &MadeArray, which: Option<usize>) -> Result<()>;

    /// Makes a file system on the device of a partition or of an array.
    fn make_filesystem(&self, runner: &dyn Runner, new: &NewFilesystem<'_>) -> Result<()> {
        filesystems::make(runner, new)
    }

    /// Measures the file system mounted at `root`; `None` where it is not on a disk of the node.
    fn write_latency(&self, _root: &Path) -> Option<Result<WriteLatency>> {
        None
    }

    /// Writes to `device` what has not been written yet, once all file systems are complete. Mounts leave nothing to do.
    fn complete(&self, _runner: &dyn Runner, _device: &dyn BlockDevice) -> Result<()> {
        Ok(())
    }
}

/// A mounted file system. When dropped without [`MountedFilesystem::unmount`], it is unmounted and errors are lost.
pub trait MountedFilesystem {
    fn path(&self) -> &Path;
    /// Unmounts it after everything is written to the disk.
    fn unmount(self: Box<Self>) -> Result<()>;
}

/// Runs `work` on a mounted file system and unmounts it in any case. An error of the work has precedence.
pub fn with_mount<T>(
    host: &dyn Host,
    node: &Path,
    access: MountAccess,
    work: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let mounted = host.mount(node, access)?;
    let result = work(mounted.path());
    let unmounted = mounted.unmount();
    let value = result?;
    unmounted?;
    Ok(value)
}

/// How long the kernel may take to show new partitions.
const NODES_TIMEOUT: Duration = Duration::from_secs(20);

const MD_NUMBERS: u32 = 1 << 20;

#[derive(Debug)]
pub struct SystemHost {
    sys: PathBuf,
    mounts: PathBuf,
}

/// Gives this thread a mount namespace of its own: however it ends, none of its mounts is left behind.
pub(crate) fn own_mount_namespace() -> Result<()> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(None::<&str>, "/", None::<&str>, private, None::<&str>))
        .class(Class::Hardware, || "taking a mount namespace; this needs root".into())
}

impl SystemHost {
    /// Enters a mount namespace of its own.
    pub fn new() -> Result<Self> {
        own_mount_namespace()?;
        Ok(Self { sys: "/sys".into(), mounts: "/run/nqrust-install".into() })
    }
}

impl Host for SystemHost {
    fn partition_nodes(
        &self,
        disk: &Target,
        partitions: &[Partition],
    ) -> Result<BTreeMap<PartitionName, PathBuf>> {
        if multipath::is_map(disk) {
            return multipath::partition_nodes(&SystemRunner, disk, partitions);
        }
        let path = &disk.path;
        let file = File::open(path).class(Class::DiskIo, || format!("opening {}", path.display()))?;
        let deadline = Instant::now() + NODES_TIMEOUT;
        loop {
            // The kernel refuses while another program reads an old partition.
            let reread = kernel_calls::reread_partitions(&file).context("the kernel refused the new table");
            let found = reread.and_then(|()| find_nodes(&self.sys, &disk.name, partitions));
            match found {
                Ok(nodes) => return Ok(nodes),
                Err(error) if Instant::now() >= deadline => {
                    let what = format!("the new partitions of {} do not appear", path.display());
                    return Err(Failure::new(Class::DiskIo, what)
                        .because(anyhow::anyhow!("{error:#}"))
                        .hint("Restart the machine and start the install again.")
                        .into());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    fn firmware_variables(&self) -> Option<PathBuf> {
        let efi = self.sys.join("firmware/efi");
        efi.exists().then(|| efi.join("efivars"))
    }

    fn mount(&self, node: &Path, access: MountAccess) -> Result<Box<dyn MountedFilesystem>> {
        if access != MountAccess::Write {
            // The last unmount dropped the cached content of files (evict_inodes in the kernel); this drops the file system's own
            // blocks, which are cached for the device.
            File::open(node)
                .and_then(|file| Ok(kernel_calls::drop_buffers(&file)?))
                .class(Class::DiskIo, || format!("dropping the cached blocks of {}", node.display()))?;
        }
        let name = node.file_name().context("a partition's node has no name")?;
        let point = self.mounts.join(name);
        make_directory(&point, 0o700)?;
        let mut flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
        flags.set(MsFlags::MS_RDONLY, access != MountAccess::Write);
        // Otherwise the kernel replays the file system's own journal, read-only or not.
        let options = (access == MountAccess::Look).then_some("noload");
        mount(Some(node), &point, Some("ext4"), flags, options)
            .class(Class::DiskIo, || format!("mounting {}", node.display()))?;
        Ok(Box::new(Mount { point, open: true }))
    }

    fn write_latency(&self, root: &Path) -> Option<Result<WriteLatency>> {
        Some(WriteLatency::measure(root))
    }

    fn array_node(&self, _: PartitionName) -> Result<PathBuf> {
        let free = |number: &u32| !self.sys.join(format!("block/md{number}")).exists();
        let number = (0..MD_NUMBERS).find(free).context("every device number for arrays is in use")?;
        Ok(Path::new("/dev").join(format!("md{number}")))
    }

    fn read_from(&self, array: &MadeArray, which: Option<usize>) -> Result<()> {
        // The driver reads from a member that is marked write-mostly only if there is no other
        // (Documentation/admin-guide/md.rst).
        let md = self.sys.join("block").join(kernel_name(&array.node)?).join("md");
        for (index, member) in array.members.iter().enumerate() {
            let spared = which.is_some_and(|which| which != index);
            let file = md.join(format!("dev-{}", kernel_name(member)?)).join("state");
            let word = if spared { "writemostly" } else { "-writemostly" };
            fs::write(&file, word)
                .class(Class::DiskIo, || format!("writing {word} to {}", file.display()))?;
        }
        Ok(())
    }
}

/// Partitions are recognised by their position, not by the kernel's naming scheme.
fn find_nodes(sys: &Path, disk: &str, partitions: &[Partition]) -> Result<BTreeMap<PartitionName, PathBuf>> {
    let block = sys.join("block").join(disk);
    let mut by_place = BTreeMap::new();
    for entry in fs::read_dir(&block).with_context(|| format!("listing {}", block.display()))? {
        let entry = entry?;
        if entry.path().join("partition").exists() {
            // Both in units of 512 bytes, whatever the sector size.
            let number = |file: &str| -> Result<u64> {
                Ok(read_text(&entry.path().join(file))?.trim().parse::<u64>()? * 512)
            };
            by_place.insert((number("start")?, number("size")?), entry.file_name());
        }
    }
    let node = |partition: &Partition| {
        let name = by_place.get(&(partition.start.get(), partition.size.get()));
        let name = name.with_context(|| format!("partition {} does not exist", partition.name.as_str()))?;
        let node = Path::new("/dev").join(name);
        ensure!(node.exists(), "{} does not exist", node.display());
        Ok((partition.name, node))
    };
    partitions.iter().map(node).collect()
}

struct Mount {
    point: PathBuf,
    open: bool,
}

impl MountedFilesystem for Mount {
    fn path(&self) -> &Path {
        &self.point
    }

    fn unmount(mut self: Box<Self>) -> Result<()> {
        // Unmounting writes everything too, but only this reports errors.
        let written = File::open(&self.point).and_then(|root| Ok(nix::unistd::syncfs(root)?));
        written.class(Class::DiskIo, || format!("flushing {}", self.point.display()))?;
        umount2(&self.point, MntFlags::empty())
            .class(Class::DiskIo, || format!("unmounting {}", self.point.display()))?;
        self.open = false;
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.open {
            let _ = umount2(&self.point, MntFlags::MNT_DETACH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{GUID, disk, release, trial};
    use base::size::ByteSize;
    use machine::inventory::Inventory;

    #[test]
    fn partitions_are_found_by_place_and_a_missing_one_is_named() {
        let inventory = Inventory { disks: vec![disk("vda", ByteSize::gib(16))], ..Inventory::default() };
        let plan = crate::plan::plan(&trial(), &inventory, &release().into(), GUID).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let block = directory.path().join("block/vda");
        for (index, partition) in plan.partitions.iter().enumerate().skip(1) {
            let place = block.join(format!("vdap{index}"));
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("partition"), "1\n").unwrap();
            fs::write(place.join("start"), format!("{}\n", partition.start.get() / 512)).unwrap();
            fs::write(place.join("size"), format!("{}\n", partition.size.get() / 512)).unwrap();
        }
        let error = find_nodes(directory.path(), "vda", &plan.partitions).unwrap_err();
        assert!(format!("{error:#}").contains("partition bios does not exist"), "{error:#}");
    }

    #[test]
    #[ignore = "needs root and loop devices"]
    fn what_is_written_to_a_mount_is_there_in_the_next_and_not_in_a_read_only_one() {
        use base::command::{Invocation, Runner, SystemRunner};
        let volume = tempfile::NamedTempFile::new().unwrap();
        volume.as_file().set_len(64 << 20).unwrap();
        SystemRunner.run(&Invocation::new("mkfs.ext4").args(["-q", "-F"]).arg(volume.path())).unwrap();
        let attach = Invocation::new("losetup").args(["--find", "--show"]).arg(volume.path());
        let node = String::from_utf8(SystemRunner.run(&attach).unwrap()).unwrap().trim().to_owned();
        let host = SystemHost::new().unwrap();
        let file = |root: &Path| root.join("file");
        let wrote =
            with_mount(&host, node.as_ref(), MountAccess::Write, |root| Ok(fs::write(file(root), b"kept")?));
        let read = with_mount(&host, node.as_ref(), MountAccess::Read, |root| {
            Ok((fs::read(file(root))?, fs::write(root.join("other"), b"").is_err()))
        });
        SystemRunner.run(&Invocation::new("losetup").args(["--detach", &node])).unwrap();
        wrote.unwrap();
        assert_eq!(read.unwrap(), (b"kept".to_vec(), true));
    }
}
