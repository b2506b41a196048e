//! The arrays over both disks of a mirrored system, made by `mdadm`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::device::{self, AlignedBuffer, BlockDevice};
use crate::plan::{Array, Partition};
use base::command::{Invocation, Runner};
use base::failure::{Class, Classify, Failure, class_of};

const MDADM_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub struct MadeArray {
    pub node: PathBuf,
    pub members: [PathBuf; 2],
}

/// The arrays of a run. They hold both disks, so they are stopped however the run ends.
pub(crate) struct Arrays<'a> {
    runner: &'a dyn Runner,
    made: Vec<MadeArray>,
}

impl<'a> Arrays<'a> {
    pub(crate) fn new(runner: &'a dyn Runner) -> Self {
        Self { runner, made: Vec::new() }
    }

    /// Fails if `mdadm` is missing: before a disk is erased for nothing.
    pub(crate) fn check(&self) -> Result<()> {
        let asked = self.runner.run(&Invocation::new("mdadm").arg("--version").limit(MDADM_TIMEOUT));
        asked.map(drop).context("looking for what install.mirror needs")
    }

    /// Makes an array of `members` at `node`. The content of the members stays, and is assumed to be equal: everything that will
    /// be read of an array has been written to both, by the previous install or by the array itself.
    pub(crate) fn make(&mut self, array: &Array, node: PathBuf, members: [PathBuf; 2]) -> Result<()> {
        let kib = (array.size.get() >> 10).to_string();
        let make = Invocation::new("mdadm")
            .arg("--create")
            .arg(&node)
            .args(["--run", "--assume-clean", "--level=1", "--raid-devices=2", "--metadata=1.0"])
            .args(["--bitmap=internal", "--homehost=any"])
            .arg(format!("--name={}", array.partition.as_str()))
            .arg(format!("--uuid={}", array.id()))
            .arg(format!("--size={kib}"))
            .args(&members)
            .limit(MDADM_TIMEOUT);
        let [first, second] = members.each_ref().map(|member| member.display());
        let what = format!("joining {first} and {second} into an array ({})", array.partition.as_str());
        run(self.runner, &make, what)?;
        self.made.push(MadeArray { node, members });
        Ok(())
    }

    pub(crate) fn made(&self) -> &[MadeArray] {
        &self.made
    }

    /// Stops them, the last one first, which writes their state to the members.
    pub(crate) fn stop(&mut self) -> Result<()> {
        while let Some(MadeArray { node, .. }) = self.made.pop() {
            let stop = Invocation::new("mdadm").arg("--stop").arg(&node).limit(MDADM_TIMEOUT);
            run(self.runner, &stop, format!("stopping the array {}", node.display()))?;
        }
        Ok(())
    }
}

fn run(runner: &dyn Runner, invocation: &Invocation, what: String) -> Result<()> {
    match runner.run(invocation) {
        // Only the caller of a program knows what its exit status means.
        Err(error) if class_of(&error) == Class::Unexpected => {
            Err(Failure::new(Class::DiskIo, what).because(anyhow::anyhow!("{error:#}")).into())
        }
        other => other.map(drop).context(what),
    }
}

impl Drop for Arrays<'_> {
    fn drop(&mut self) {
        while !self.made.is_empty() {
            // An array that cannot be stopped is left; the next run says what holds the disk.
            let _ = self.stop();
        }
    }
}

/// Makes `member` a member of the running array at `node`, which lacks one. With `again` the array copies only what has changed since
/// the member was away; without, what the member knows of the array is forgotten, and all of it is copied.
pub(crate) fn add(runner: &dyn Runner, node: &Path, member: &Path, again: bool) -> Result<()> {
    let change = |action: &str, what: &OsStr| {
        Invocation::new("mdadm").arg(node).arg(action).arg(what).limit(MDADM_TIMEOUT)
    };
    // What the kernel has given up, or what was pulled out, takes the place in the array.
    for gone in ["failed", "detached"] {
        run(
            runner,
            &change("--remove", OsStr::new(gone)),
            format!("removing lost members of {}", node.display()),
        )?;
    }
    let joining = || format!("joining {} to the array {}", member.display(), node.display());
    if again && run(runner, &change("--re-add", member.as_os_str()), joining()).is_ok() {
        return Ok(());
    }
    let forget =
        Invocation::new("mdadm").args(["--zero-superblock", "--force"]).arg(member).limit(MDADM_TIMEOUT);
    // A partition that never was a member has nothing to forget.
    let _ = runner.run(&forget);
    run(runner, &change("--add", member.as_os_str()), joining())
}

/// Whether the array of `partition` was written while only this member of its two was there, by its superblock. Its content and that of
/// the other one have then nothing in common any longer.
///
/// # Errors
/// The disk cannot be read.
pub(crate) fn ran_alone(device: &dyn BlockDevice, partition: &Partition) -> Result<bool> {
    /// Roles from this on are no places in the array: spare, faulty, journal (linux/raid/md_p.h, `MD_DISK_ROLE_MAX`).
    const NO_PLACE: u16 = 0xff00;
    let bytes = superblock(device, partition)?;
    let count = usize::from(u16::from_le_bytes([bytes[220], bytes[221]])).min((SUPERBLOCK_BYTES - 256) / 2);
    let roles = bytes[256..256 + 2 * count].chunks_exact(2);
    let places = roles.filter(|role| u16::from_le_bytes([role[0], role[1]]) < NO_PLACE).count();
    Ok(places < 2)
}

/// The bytes of a superblock that are read.
const SUPERBLOCK_BYTES: usize = 4096;

/// Where a superblock of version 1.0 is in its partition, in bytes.
fn superblock_place(partition: &Partition) -> u64 {
    (partition.size.get() - (8 << 10)) & !(SUPERBLOCK_BYTES as u64 - 1)
}

fn superblock(device: &dyn BlockDevice, partition: &Partition) -> Result<AlignedBuffer> {
    let mut bytes = AlignedBuffer::new(SUPERBLOCK_BYTES);
    device::read(device, partition.start.get() + superblock_place(partition), &mut bytes)?;
    Ok(bytes)
}

/// Checks that `partition` is a member of `array`, by its superblock (linux/raid/md_p.h, `mdp_superblock_1`): version 1.0 has it
/// 8 KiB before the end, at a multiple of 4 KiB.
pub(crate) fn verify(device: &dyn BlockDevice, partition: &Partition, array: &Array) -> Result<()> {
    let (place, bytes) = (superblock_place(partition), superblock(device, partition)?);
    let number = |at: usize| -> u64 {
        bytes[at..at + 8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    let short = |at: usize| number(at) & u64::from(u32::MAX);
    let checked = (|| {
        ensure!(short(0) == 0xa92b_4efc && short(4) == 1, "its version is not 1");
        ensure!(bytes[16..32] == *array.uuid.as_bytes(), "it belongs to another array");
        ensure!(short(72) == 1 && short(92) == 2, "it does not belong to a mirror of two");
        ensure!(number(128) == 0, "the content does not begin at the first byte");
        ensure!(number(80) * 512 == array.size.get(), "the array has {} bytes", number(80) * 512);
        Ok(())
    })();
    checked.class(Class::DiskIo, || {
        format!("checking the superblock of {} at byte {place} of the partition", partition.name.as_str())
    })
}

/// The kernel's name for a device, such as `md127`.
pub(crate) fn kernel_name(node: &Path) -> Result<String> {
    let name = node.strip_prefix("/dev").ok().and_then(Path::to_str);
    Ok(name.with_context(|| format!("{} is no device", node.display()))?.replace('/', "!"))
}
