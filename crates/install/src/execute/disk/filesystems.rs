//! The file systems of a node: made by `mkfs.ext4`, and those of an unfinished install checked by `e2fsck`.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use uuid::Uuid;

use super::device::{self, AlignedBuffer, BlockDevice};
use crate::plan::{Filesystem, Partition};
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure, class_of};

/// Making or checking a file system on a slow, large disk.
const E2FSPROGS_TIMEOUT: Duration = Duration::from_secs(900);

/// Where the superblock is (Documentation/filesystems/ext4/super.rst).
const SUPERBLOCK: Range<usize> = 1024..2048;

#[derive(Debug)]
pub struct NewFilesystem<'a> {
    pub filesystem: &'a Filesystem,
    pub uuid: Uuid,
    pub node: &'a Path,
    pub disk: &'a str,
}

pub(crate) fn make(runner: &dyn Runner, new: &NewFilesystem<'_>) -> Result<()> {
    let NewFilesystem { filesystem, uuid, node, disk } = new;
    // The running node's kernel zeroes the inode tables: it takes minutes on a large disk.
    let make = Invocation::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "4096", "-L", filesystem.label, "-U", &uuid.to_string()])
        .args(["-E", "lazy_itable_init=1,lazy_journal_init=1"])
        .arg(node)
        .limit(E2FSPROGS_TIMEOUT);
    let what = || {
        let name = filesystem.partition.as_str();
        format!("making a file system on {} ({name}) of {disk}", node.display())
    };
    match runner.run(&make) {
        // Only the caller of a program knows what its exit status means.
        Err(error) if class_of(&error) == Class::Unexpected => Err(Failure::new(Class::DiskIo, what())
            .because(anyhow::anyhow!("{error:#}"))
            .hint(device::WORN)
            .into()),
        other => other.map(drop).with_context(what),
    }
}

/// The result of checking a file system that is not mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilesystemCheck {
    Whole,
    Repaired,
    Damaged(String),
}

/// Checks the file system on a device, and repairs with `repair` what can be repaired without losing anything, by `e2fsck`.
pub fn check_filesystem(runner: &dyn Runner, device: &Path, repair: bool) -> FilesystemCheck {
    let how = if repair { "-p" } else { "-n" };
    let check = Invocation::new("e2fsck").args(["-f", how]).arg(device).limit(E2FSPROGS_TIMEOUT);
    match runner.run(&check) {
        Ok(_) => FilesystemCheck::Whole,
        // The exit status is 0 only if nothing had to be repaired: after a repair, the second run succeeds.
        Err(_) if repair && runner.run(&check).is_ok() => FilesystemCheck::Repaired,
        Err(error) => FilesystemCheck::Damaged(format!("{error:#}")),
    }
}

/// Checks that the file system on `partition` of `device`, whose node is `node`, is the one that [`make`] made there, and intact:
/// the superblock by direct reads, everything else by `e2fsck`, which completes interrupted writes.
pub(crate) fn check(
    runner: &dyn Runner,
    filesystem: &Filesystem,
    (device, partition): (&dyn BlockDevice, &Partition),
    node: &Path,
) -> Result<()> {
    let mut start = AlignedBuffer::new(SUPERBLOCK.end.next_multiple_of(4096));
    device::read(device, partition.start.get(), &mut start)?;
    let superblock = &start[SUPERBLOCK];
    let mut label = [0; 16];
    label[..filesystem.label.len()].copy_from_slice(filesystem.label.as_bytes());
    ensure!(superblock[0x38..0x3a] == [0x53, 0xef], "it has no ext4 file system");
    ensure!(superblock[0x68..0x78] == *partition.uuid.as_bytes(), "it is another file system");
    ensure!(superblock[0x78..0x88] == label, "it has another label");
    let check = Invocation::new("e2fsck").args(["-f", "-p"]).arg(node).limit(E2FSPROGS_TIMEOUT);
    // The exit status is 0 only if nothing had to be repaired: after a repair, the second run succeeds.
    runner.run(&check).or_else(|_| runner.run(&check)).map(drop)
}
