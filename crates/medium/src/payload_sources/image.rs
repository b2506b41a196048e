//! The ISO behind a mounted medium: the parts that firmware, boot loaders and the kernel read are compared with those that
//! the builder writes ([`crate::iso`]).
//!
//! Directories, servers and media of another recipe have no image to compare; their payloads are still checked when they are
//! read.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use nix::sys::stat::{major, minor};
use nix::sys::statfs::{FsType, statfs};

use super::payload_source::PayloadSource;
use crate::iso::{self, CheckScope, IsoMap, RegionDifference};
use base::failure::{Class, Classify, Failure};
use base::progress::Progress;
use formats::iso9660::address::Source;
use formats::iso9660::write::PARTITION;
use model::release::{MANIFEST, Release};

/// `ISOFS_SUPER_MAGIC` of the kernel (include/uapi/linux/magic.h).
const ISO9660: FsType = FsType(0x9660);
/// The unit of `start` in `/sys/class/block`, in bytes.
const SECTOR: u64 = 512;

#[derive(Debug, PartialEq, Eq)]
pub enum MediumComparison {
    /// Not an image: a directory or a server.
    NoImage,
    /// An image of a recipe that this program does not know.
    OtherRecipe,
    Image(Vec<RegionDifference>),
}

/// Compares the image of `source`, whose manifest is `release`. Progress is shown on the step `shown`, if given; an error of
/// `cancel` ends the check.
pub fn compare(
    source: &dyn PayloadSource,
    release: &Release,
    scope: CheckScope,
    shown: Option<(&Progress, &str)>,
    cancel: &dyn Fn() -> Result<()>,
) -> Result<MediumComparison> {
    let Some(image) = source.image()? else { return Ok(MediumComparison::NoImage) };
    let manifest = source.manifest()?;
    let map = IsoMap::of(release, &manifest)
        .class(Class::Verification, || format!("reading {MANIFEST} of {}", source.describe()))?;
    let Some(map) = map else { return Ok(MediumComparison::OtherRecipe) };
    let begin = |(progress, id): (&Progress, &str)| {
        progress.step(id, format!("Checking {}", source.describe()), Some(map.size))
    };
    let mut step = shown.map(begin);
    let differences = iso::check(image.as_ref(), &map, scope, &mut |bytes| {
        step.iter_mut().for_each(|step| step.advance(bytes));
        cancel()
    })?;
    if let Some(step) = step.filter(|_| differences.is_empty()) {
        step.done();
    }
    Ok(MediumComparison::Image(differences))
}

#[must_use]
pub fn changed(source: &dyn PayloadSource, differences: &[RegionDifference]) -> Failure {
    let told: Vec<_> = differences.iter().map(ToString::to_string).collect();
    Failure::new(Class::Verification, format!("{} is not as it was built", source.describe()))
        .because(anyhow!("{}", told.join("\n           ")))
        .hint("Write the medium again from a file that `iso-builder verify` finds good, or use another one.")
}

/// The device that holds the ISO which is mounted at `root`; none where `root` is another file system, or a directory
/// within one. `sys` is where sysfs is.
pub(super) fn beneath(root: &Path, sys: &Path) -> Result<Option<PathBuf>> {
    let what = || format!("looking for the device of {}", root.display());
    let Ok(metadata) = fs::metadata(root) else { return Ok(None) };
    let above = fs::metadata(root.join("..")).class(Class::DiskIo, what)?;
    let is_iso = statfs(root).is_ok_and(|stat| stat.filesystem_type() == ISO9660);
    if !is_iso || above.dev() == metadata.dev() {
        return Ok(None);
    }
    let number = format!("{}:{}", major(metadata.dev()), minor(metadata.dev()));
    whole_device(&sys.join("dev/block").join(number)).class(Class::DiskIo, what).map(Some)
}

/// The device node of the sysfs entry `entry`; for the first partition that of the whole device, where the image begins.
fn whole_device(entry: &Path) -> std::io::Result<PathBuf> {
    let entry = fs::canonicalize(entry)?;
    let start = fs::read_to_string(entry.join("start")).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let first = start.and_then(|start| start.checked_mul(SECTOR)) == Some(PARTITION.offset().0);
    let device = match entry.parent() {
        Some(whole) if first && entry.join("partition").exists() => whole,
        _ => entry.as_path(),
    };
    let name = device.file_name().ok_or(std::io::ErrorKind::NotFound)?;
    Ok(Path::new("/dev").join(name))
}

pub(super) fn open(path: &Path) -> Result<Box<dyn Source>> {
    let file = File::open(path).class(Class::DiskIo, || format!("opening {}", path.display()))?;
    Ok(Box::new(file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_image_on_a_stick_begins_with_the_stick_and_not_with_its_partition() {
        let sys = tempfile::tempdir().unwrap();
        for (device, files) in [
            ("sda/sda1", &[("partition", "1\n"), ("start", "64\n")][..]),
            ("sdb/sdb1", &[("partition", "1\n"), ("start", "2048\n")]),
            ("sr0", &[]),
        ] {
            let entry = sys.path().join("devices").join(device);
            fs::create_dir_all(&entry).unwrap();
            for (name, text) in files {
                fs::write(entry.join(name), text).unwrap();
            }
        }
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        for (number, device, node) in
            [("8:1", "sda/sda1", "/dev/sda"), ("8:17", "sdb/sdb1", "/dev/sdb1"), ("11:0", "sr0", "/dev/sr0")]
        {
            let link = sys.path().join("dev/block").join(number);
            symlink(sys.path().join("devices").join(device), &link).unwrap();
            assert_eq!(whole_device(&link).unwrap(), Path::new(node));
        }
        assert!(whole_device(&sys.path().join("dev/block/9:9")).is_err());
    }

    #[test]
    fn a_directory_is_no_image() {
        let directory = tempfile::tempdir().unwrap();
        for root in [directory.path(), Path::new("/nowhere")] {
            assert_eq!(beneath(root, Path::new("/sys")).unwrap(), None);
        }
    }
}
