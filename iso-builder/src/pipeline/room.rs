//! Checks that the disks have room for a build, before it begins. The figures are estimates of what Debian's packages come
//! to; a disk that becomes full later is reported where it happens.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::failure::{Class, Classify, Failure};
use base::files;
use base::size::ByteSize;

use crate::packages::ResolvedPackage;

/// The space for files besides the outputs: requests, outcomes, lists.
pub(super) const LEAST: ByteSize = ByteSize::bytes(32 << 20);
/// The space that apt needs to choose packages: the lists of a suite, twice.
pub(super) const FOR_LISTS: ByteSize = ByteSize::bytes(256 << 20);
/// How many bytes a tree and its archive have together for each byte of its packages: 4 each for the minimal image, whose kernel modules
/// are unpacked.
const UNPACKED_BYTES: u64 = 8;
/// The space for initrd and loaders, whatever the packages are.
const BOOT_BYTES: u64 = 256 << 20;

/// The space that a build needs in one directory.
#[derive(Clone, Debug)]
pub(super) struct NeededRoom<'a> {
    /// Such as `the cache`.
    pub(super) purpose: &'static str,
    pub(super) directory: &'a Path,
    pub(super) size: ByteSize,
    /// The option that names another directory.
    pub(super) option: &'static str,
}

/// Fails if a file system has less room than the directories on it need together.
///
/// # Errors
/// [`Class::DiskIo`], with the directory, what it needs and what there is.
pub(super) fn check(needed: &[NeededRoom<'_>]) -> Result<()> {
    let mut disks: BTreeMap<u64, (u64, Vec<&NeededRoom<'_>>)> = BTreeMap::new();
    for room in needed {
        let existing = existing(room.directory);
        let metadata = fs::metadata(&existing)
            .class(Class::DiskIo, || format!("looking for room in {}", existing.display()))?;
        let (sum, rooms) = disks.entry(metadata.dev()).or_default();
        *sum = sum.saturating_add(room.size.get());
        rooms.push(room);
    }
    for (sum, rooms) in disks.into_values() {
        let Some(largest) = rooms.iter().max_by_key(|room| room.size.get()) else { continue };
        let free = files::free_space(&existing(largest.directory))?;
        if free.get() < sum {
            let what = format!("no room for {} in {}", largest.purpose, largest.directory.display());
            let needed = ByteSize::bytes(sum);
            return Err(Failure::new(Class::DiskIo, what)
                .because(anyhow!("a build needs about {needed} on that disk, and {free} are free"))
                .hint(format!(
                    "Free space there, or name a directory on another disk with {}.",
                    largest.option
                ))
                .into());
        }
    }
    Ok(())
}

/// The nearest directory above a path that is there already.
fn existing(path: &Path) -> PathBuf {
    let above = path.ancestors().find(|path| path.exists());
    above.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// The space in the cache for a system of these packages, without the downloads.
pub(super) fn of_system(packages: &[ResolvedPackage]) -> ByteSize {
    let bytes: u64 = packages.iter().map(|package| package.size).sum();
    ByteSize::bytes(bytes.saturating_mul(UNPACKED_BYTES).saturating_add(BOOT_BYTES))
}

/// The size of a medium of these packages.
pub(super) fn of_medium(packages: &[ResolvedPackage]) -> ByteSize {
    let bytes: u64 = packages.iter().map(|package| package.size).sum();
    ByteSize::bytes(bytes.saturating_add(BOOT_BYTES))
}

/// The packages that are not in the directory of downloads yet.
pub(super) fn of_downloads(packages: &[ResolvedPackage], downloads: &Path) -> ByteSize {
    let is_absent = |package: &&ResolvedPackage| !downloads.join(package.sha256.to_string()).exists();
    ByteSize::bytes(packages.iter().filter(is_absent).map(|package| package.size).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(directory: &Path, size: u64) -> NeededRoom<'_> {
        NeededRoom { purpose: "the cache", directory, size: ByteSize::bytes(size), option: "--cache-dir" }
    }

    #[test]
    fn what_several_directories_need_of_one_disk_is_added_and_compared_with_what_is_free() {
        let place = tempfile::tempdir().unwrap();
        let (cache, output) = (place.path().join("not/yet/there"), place.path().join("dist"));
        check(&[room(&cache, 1), room(&output, 1)]).unwrap();
        let free = files::free_space(place.path()).unwrap().get();
        let error =
            check(&[room(&cache, free / 2 + (1 << 30)), room(&output, free / 2 + (1 << 30))]).unwrap_err();
        assert_eq!(base::failure::class_of(&error), Class::DiskIo);
        let told = base::failure::render(&error);
        assert!(told.contains("no room for the cache in ") && told.contains("with --cache-dir"), "{told}");
    }
}
