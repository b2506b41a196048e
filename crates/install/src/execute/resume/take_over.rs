//! Taking over a file system of an unfinished install: it is checked, and files that the continued install does not need are
//! removed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::journal::JOURNAL;
use crate::execute::disk::device::BlockDevice;
use crate::execute::disk::filesystems;
use crate::execute::disk::host::{MountAccess, with_mount};
use crate::execute::effects::RunEffects;
use crate::execute::payload::store::Store;
use crate::plan::{Filesystem, PartitionName, Plan, Step};
use base::failure::{Class, Classify, class_of};

/// The directory in which `e2fsck` puts files without a name. It belongs to the file system.
const FOUND: &str = "lost+found";

/// Whether the file system of an unfinished install on `node`, a partition of `device`, is taken over. If the plan would continue
/// with it and it cannot be taken over, that is a warning.
///
/// # Errors
/// The install was asked to stop.
pub(crate) fn take_over(
    plan: &Plan,
    effects: &RunEffects<'_>,
    filesystem: &Filesystem,
    device: &dyn BlockDevice,
    node: &Path,
) -> Result<bool> {
    let name = filesystem.partition;
    if !plan.stays(name) {
        return Ok(false);
    }
    effects.cancel.check()?;
    let partition = plan.partition(name).context("the plan has no such partition")?;
    let taken = filesystems::check(effects.runner, filesystem, (device, partition), node).and_then(|()| {
        with_mount(effects.host, node, MountAccess::Write, |root| sweep(root, &kept(plan, name)))
    });
    match taken {
        Err(error) if class_of(&error) == Class::Cancelled => Err(error),
        Err(error) => {
            let message = format!("The file system {} is made again: {error:#}", name.as_str());
            effects.progress.note("filesystems", message);
            Ok(false)
        }
        Ok(()) => Ok(true),
    }
}

/// The files that a continued install needs.
fn kept(plan: &Plan, name: PartitionName) -> BTreeSet<PathBuf> {
    let store = Store::at(Path::new(""), &plan.release.containerd);
    let blobs = plan.steps.iter().flat_map(|step| match step {
        Step::Images { blobs, .. } => blobs.as_slice(),
        _ => &[],
    });
    match name {
        PartitionName::Config => [PathBuf::from(JOURNAL)].into(),
        PartitionName::Persistent => blobs.map(|blob| store.blob(&blob.sha256)).collect(),
        _ => BTreeSet::new(),
    }
}

/// Removes everything from the file system mounted at `root` except the files `keep`, whose paths are relative to it, and the
/// directories that lead to them. Anything there that is no regular file, or no directory, as expected, is removed too.
fn sweep(root: &Path, keep: &BTreeSet<PathBuf>) -> Result<()> {
    let leads: BTreeSet<_> = keep.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    let leads = |path: &Path| path == Path::new(FOUND) || leads.contains(path);
    within(root, Path::new(""), keep, &leads)
}

fn within(
    root: &Path,
    directory: &Path,
    keep: &BTreeSet<PathBuf>,
    leads: &dyn Fn(&Path) -> bool,
) -> Result<()> {
    let place = root.join(directory);
    let entries = fs::read_dir(&place).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.class(Class::DiskIo, || format!("listing {}", place.display()))? {
        let (path, full) = (directory.join(entry.file_name()), entry.path());
        // Of the entry itself: links are not followed.
        let kind = entry.file_type().class(Class::DiskIo, || format!("looking at {}", full.display()))?;
        let removed = match (kind.is_dir(), kind.is_file()) {
            (true, _) if leads(&path) => {
                within(root, &path, keep, leads)?;
                continue;
            }
            (_, true) if keep.contains(&path) => continue,
            (true, _) => fs::remove_dir_all(&full),
            _ => fs::remove_file(&full),
        };
        removed.class(Class::DiskIo, || format!("removing {}", full.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_kept_stays_with_its_directories_and_all_else_goes_and_no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
        for path in
            ["root/store/blobs", "root/store/snapshots/1", "root/lost+found/dir", "root/log", "outside"]
        {
            fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        for path in
            ["store/blobs/one", "store/blobs/other", "store/meta.db", "store/snapshots/1/file", "log/a"]
        {
            fs::write(root.join(path), path).unwrap();
        }
        fs::write(root.join("lost+found/#12"), b"found").unwrap();
        fs::write(outside.join("file"), b"outside").unwrap();
        // A link in place of a kept file, one in place of a directory of kept files, and one elsewhere.
        symlink(outside.join("file"), root.join("store/blobs/two")).unwrap();
        symlink(&outside, root.join("linked")).unwrap();
        symlink(&outside, root.join("log/link")).unwrap();
        let keep = ["store/blobs/one", "store/blobs/two", "store/blobs/three", "linked/file"];
        sweep(&root, &keep.map(PathBuf::from).into()).unwrap();
        let left = walkdir::WalkDir::new(&root).min_depth(1).sort_by_file_name().into_iter();
        let left: Vec<_> =
            left.map(|entry| entry.unwrap().path().strip_prefix(&root).unwrap().to_owned()).collect();
        let expected = ["lost+found", "store", "store/blobs", "store/blobs/one"];
        assert_eq!(left, expected.map(PathBuf::from));
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"outside");
    }
}
