//! The product's own files, which go over every base: the units, the initrd modules and the settings in `overlays/rootfs` and
//! `overlays/initrd`, which are compiled into the builder. A build lays them over the base before the definition's own overlays.
//!
//! [`requirements`] is what a base has to bring for them.

pub mod requirements;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use tempfile::TempDir;

use crate::files::TreeHasher;

include!(concat!(env!("OUT_DIR"), "/overlays.rs"));

/// The unit of the initrd that mounts an installed node's partitions. Without it no medium and no node starts.
pub const INITRD_UNIT: &str = "usr/lib/systemd/system/nqrust-boot.service";

/// The files of the initrd without which no node can be on a disk with several paths. dracut takes the first from the base, and our module
/// the rule.
pub const INITRD_MULTIPATH: [&str; 2] =
    ["usr/sbin/multipathd", "usr/lib/nqrust/multipath/60-multipath.rules"];

/// The files of the initrd without which no node can be on a disk that is reached over the network. All but our unit are the base's.
pub const INITRD_NETWORK_DISKS: [&str; 2] =
    ["usr/lib/systemd/systemd-networkd", "usr/lib/systemd/system/nqrust-connect-disks.service"];

/// What a disk that is reached by iSCSI needs beside them.
pub const INITRD_ISCSI: [&str; 2] = ["usr/sbin/iscsiadm", "usr/sbin/iscsid"];

/// The module that a disk needs beside them that is reached by NVMe over TCP.
pub const INITRD_NVME_TCP: &str = "nvme_tcp";

/// One file of the product, by its path below the root.
#[derive(Clone, Copy, Debug)]
struct ProductFile {
    path: &'static str,
    content: ProductContent,
}

#[derive(Clone, Copy, Debug)]
enum ProductContent {
    File { bytes: &'static [u8], executable: bool },
    Link(&'static str),
}

/// The trees of an image over which files of the product go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductTree {
    Rootfs,
    /// What the initrd is made from.
    Initrd,
}

impl ProductTree {
    fn files(self) -> &'static [ProductFile] {
        match self {
            Self::Rootfs => ROOTFS,
            Self::Initrd => INITRD,
        }
    }

    /// The digest of the directory with its files, as [`digest_of_path`](crate::files::digest_of_path) has it.
    #[must_use]
    pub fn digest(self) -> Digest {
        let mut entries = BTreeMap::new();
        for file in self.files() {
            let path = Path::new(file.path);
            for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                entries.insert(above, (TreeHasher::DIRECTORY, Digest::of(b"")));
            }
            let entry = match file.content {
                ProductContent::File { bytes, executable } => {
                    (TreeHasher::file(executable), Digest::of(bytes))
                }
                ProductContent::Link(target) => (TreeHasher::LINK, Digest::of(target.as_bytes())),
            };
            entries.insert(path, entry);
        }
        let mut hasher = TreeHasher::default();
        for (path, (kind, content)) in entries {
            hasher.add(kind, path, content);
        }
        hasher.finish()
    }
}

/// The files of the product in directories of their own, which are removed with this value. A build of which all steps are made
/// needs none of them, so they are written for the first that asks.
#[derive(Debug)]
pub struct ProductOverlays {
    scratch: PathBuf,
    rootfs: Mutex<Option<TempDir>>,
    initrd: Mutex<Option<TempDir>>,
}

impl ProductOverlays {
    /// Directories below `scratch`.
    #[must_use]
    pub fn below(scratch: PathBuf) -> Self {
        Self { scratch, rootfs: Mutex::default(), initrd: Mutex::default() }
    }

    /// The directory with the files for a tree.
    pub fn directory(&self, tree: ProductTree) -> Result<PathBuf> {
        let place = match tree {
            ProductTree::Rootfs => &self.rootfs,
            ProductTree::Initrd => &self.initrd,
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = &*place {
            return Ok(there.path().to_owned());
        }
        let directory = tempfile::tempdir_in(&self.scratch).context("making a scratch directory")?;
        // The top has the mode of a root.
        let root = directory.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("writing {}", root.display()))?;
        for file in tree.files() {
            file.place(root)?;
        }
        Ok(place.insert(directory).path().to_owned())
    }
}

impl ProductFile {
    fn place(&self, root: &Path) -> Result<()> {
        let path = root.join(self.path);
        let writing = || format!("writing {}", path.display());
        files::make_directory(path.parent().unwrap_or(root), 0o755)?;
        match self.content {
            ProductContent::Link(target) => symlink(target, &path).with_context(writing),
            ProductContent::File { bytes, executable } => {
                fs::write(&path, bytes).with_context(writing)?;
                let mode = if executable { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(writing)
            }
        }
    }
}

/// The units that every node and every medium starts, by their paths in the OS image. Those that only others start can be
/// replaced or masked by a definition's overlay.
pub fn started_units() -> impl Iterator<Item = PathBuf> {
    let wanted = ROOTFS
        .iter()
        .map(|file| Path::new(file.path))
        .filter(|path| path.parent().and_then(Path::extension) == Some(OsStr::new("wants")));
    wanted.filter_map(|path| Some(Path::new("usr/lib/systemd/system").join(path.file_name()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::digest_of_path;

    #[test]
    fn the_compiled_in_files_are_those_of_the_repository_with_their_modes_and_links() {
        let scratch = tempfile::tempdir().unwrap();
        let overlays = ProductOverlays::below(scratch.path().to_owned());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlays");
        for (tree, name) in [(ProductTree::Rootfs, "rootfs"), (ProductTree::Initrd, "initrd")] {
            let expected = digest_of_path(&source.join(name)).unwrap();
            assert_eq!(tree.digest(), expected, "{name}");
            let directory = overlays.directory(tree).unwrap();
            assert_eq!(digest_of_path(&directory).unwrap(), expected, "{name}");
            assert_eq!(overlays.directory(tree).unwrap(), directory, "they are written once");
        }
        drop(overlays);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_unit_that_installs_is_among_those_that_every_medium_starts() {
        let units: Vec<_> = started_units().collect();
        for name in ["nqrust-install.service", "nqrust-check.service", "nqrust-trial.timer"] {
            assert!(units.contains(&Path::new("usr/lib/systemd/system").join(name)), "{name}: {units:?}");
        }
    }
}
