//! The device through which a system reads its OS image: dm-verity over the slot that runs, or over the image of a live system. The
//! initrd makes it, by the hashes of the release manifest; each block is checked whenever it is read from the disk.
//!
//! Source: the kernel's `Documentation/admin-guide/device-mapper/verity.rst`; dmsetup(8).

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use base::command::{Invocation, Runner};
use base::digest::Digest;
use formats::verity::BLOCK_BYTES;

/// Its name for the device mapper.
const NAME: &str = "nqrust-root";
/// What is mounted at `/` of an installed node, and below the overlay of a live system.
pub const ROOT_DEVICE: &str = "/dev/mapper/nqrust-root";
/// For a command of the device mapper, which waits for udev.
const LIMIT: Duration = Duration::from_secs(60);

/// What the kernel does at a block that is not what its hash says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtDamage {
    /// It tells it, and whoever reads the block gets an error.
    Fail,
    /// It restarts the machine at once.
    Restart,
    /// It tells it, and gives what it has read.
    Tell,
}

/// An OS image and its hash tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerityDevice {
    /// A block device with the image at its start.
    pub device: PathBuf,
    /// The length of the image, in whole blocks of [`BLOCK_BYTES`].
    pub length: u64,
    /// The block device with the tree: the same one for a slot.
    pub tree_device: PathBuf,
    /// Where the superblock of the tree is, in bytes from the start of that device. The levels of the tree follow; nothing in the
    /// superblock counts.
    pub tree: u64,
    pub salt: Digest,
    pub root_hash: Digest,
    pub at_damage: AtDamage,
}

impl VerityDevice {
    /// Puts it in the place of that which is mounted at `/`, in one call of the kernel.
    pub fn replace(&self, runner: &dyn Runner) -> Result<()> {
        let what = || format!("changing what {ROOT_DEVICE} does at damage");
        let load = dmsetup().args(["load", NAME, "--readonly", "--table", &self.to_string()]);
        runner.run(&load).with_context(what)?;
        runner.run(&dmsetup().args(["resume", NAME])).map(drop).with_context(what)
    }

    /// Makes [`ROOT_DEVICE`]. Reads nothing yet: a wrong root hash shows when the file system is mounted.
    pub fn make(&self, runner: &dyn Runner) -> Result<()> {
        let create = dmsetup().args(["create", NAME, "--readonly", "--table", &self.to_string()]);
        runner
            .run(&create)
            .map(drop)
            .with_context(|| format!("opening the OS image on {}", self.device.display()))
    }
}

/// The line of the device mapper's table.
impl fmt::Display for VerityDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, length, tree_device, tree, salt, root_hash, at_damage } = self;
        let (device, tree_device, block) = (device.display(), tree_device.display(), BLOCK_BYTES as u64);
        let (sectors, blocks, levels) = (length / 512, length / block, tree / block + 1);
        let options = match at_damage {
            AtDamage::Fail => "",
            AtDamage::Restart => " 1 restart_on_corruption",
            AtDamage::Tell => " 1 ignore_corruption",
        };
        write!(
            f,
            "0 {sectors} verity 1 {device} {tree_device} {block} {block} {blocks} {levels} sha256 {root_hash} {salt}{options}"
        )
    }
}

/// Makes a block device, which cannot be written, of a file (losetup(8)).
pub fn loop_device(file: &Path, runner: &dyn Runner) -> Result<PathBuf> {
    let request = Invocation::new("losetup").args(["--read-only", "--find", "--show"]).arg(file).limit(LIMIT);
    let made = runner.run(&request).with_context(|| format!("making a device of {}", file.display()))?;
    Ok(String::from_utf8_lossy(&made).trim().into())
}

/// Whether the kernel has found damage since the device was made; none if there is no such device.
#[must_use]
pub fn damage_was_found(runner: &dyn Runner) -> Option<bool> {
    let status = runner.run(&dmsetup().args(["status", NAME])).ok()?;
    // `0 SECTORS verity V`, or `C` for corruption.
    String::from_utf8_lossy(&status).split_whitespace().nth(3).map(|state| state == "C")
}

fn dmsetup() -> Invocation {
    Invocation::new("dmsetup").limit(LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    fn device(at_damage: AtDamage) -> VerityDevice {
        VerityDevice {
            device: "/dev/vda4".into(),
            length: 8 << 20,
            tree_device: "/dev/vda4".into(),
            tree: 8 << 20,
            salt: Digest::of(b"the image"),
            root_hash: Digest::of(b"the root"),
            at_damage,
        }
    }

    #[test]
    fn the_table_has_the_hashes_of_the_manifest_and_nothing_of_the_disk() {
        let (salt, root) = (Digest::of(b"the image"), Digest::of(b"the root"));
        let runner = ScriptedRunner::silent();
        device(AtDamage::Fail).make(&runner).unwrap();
        let table = format!("0 16384 verity 1 /dev/vda4 /dev/vda4 4096 4096 2048 2049 sha256 {root} {salt}");
        assert_eq!(runner.commands(), [format!("dmsetup create nqrust-root --readonly --table {table}")]);
        let changed = ScriptedRunner::silent();
        device(AtDamage::Fail).replace(&changed).unwrap();
        let load = format!("dmsetup load nqrust-root --readonly --table {table}");
        assert_eq!(changed.commands(), [load, "dmsetup resume nqrust-root".to_owned()]);
        assert!(device(AtDamage::Restart).to_string().ends_with(" 1 restart_on_corruption"));
        assert!(device(AtDamage::Tell).to_string().ends_with(" 1 ignore_corruption"));
        let apart = VerityDevice { tree_device: "/dev/loop1".into(), tree: 0, ..device(AtDamage::Fail) };
        let table = format!("0 16384 verity 1 /dev/vda4 /dev/loop1 4096 4096 2048 1 sha256 {root} {salt}");
        assert_eq!(apart.to_string(), table);
    }

    #[test]
    fn a_file_becomes_a_device_that_cannot_be_written() {
        let runner = ScriptedRunner::silent().answer("losetup", "/dev/loop3\n");
        assert_eq!(loop_device(Path::new("/run/a"), &runner).unwrap(), Path::new("/dev/loop3"));
        assert_eq!(runner.commands(), ["losetup --read-only --find --show /run/a"]);
    }

    #[test]
    fn the_kernel_tells_whether_it_has_found_damage() {
        for (status, found) in
            [("0 16384 verity V\n", Some(false)), ("0 16384 verity C\n", Some(true)), ("", None)]
        {
            assert_eq!(damage_was_found(&ScriptedRunner::silent().answer("dmsetup status", status)), found);
        }
        assert_eq!(damage_was_found(&ScriptedRunner::silent().fail("dmsetup", "no such device")), None);
    }
}
