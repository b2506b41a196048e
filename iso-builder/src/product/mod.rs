//! The product's own files, which go over every base: the units, the initrd modules and the settings in `overlays/rootfs` and
//! `overlays/initrd`, which are compiled into the builder. A build lays them over the base before the definition's own overlays.
//!
//! [`requirements`] is what a base has to bring for them.

pub mod requirements;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::files;

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

/// The files of the product in a directory of their own, which is removed with this value.
#[derive(Debug)]
pub struct ProductOverlays(tempfile::TempDir);

impl ProductOverlays {
    /// Writes the files below a new directory in `scratch`.
    pub fn lay_out(scratch: &Path) -> Result<Self> {
        let directory = tempfile::tempdir_in(scratch).context("making a scratch directory")?;
        let overlays = Self(directory);
        for (root, files) in [(overlays.rootfs(), ROOTFS), (overlays.initrd(), INITRD)] {
            for file in files {
                file.place(&root)?;
            }
        }
        Ok(overlays)
    }

    #[must_use]
    pub fn rootfs(&self) -> PathBuf {
        self.0.path().join("rootfs")
    }

    /// The overlay of the tree that the initrd is made from.
    #[must_use]
    pub fn initrd(&self) -> PathBuf {
        self.0.path().join("initrd")
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
        let overlays = ProductOverlays::lay_out(scratch.path()).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../overlays");
        for (laid_out, name) in [(overlays.rootfs(), "rootfs"), (overlays.initrd(), "initrd")] {
            let expected = digest_of_path(&source.join(name)).unwrap();
            assert_eq!(digest_of_path(&laid_out).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn the_unit_that_installs_is_among_those_that_every_medium_starts() {
        let units: Vec<_> = started_units().collect();
        for name in ["nqrust-install.service", "nqrust-check.service", "nqrust-trial.timer"] {
            assert!(units.contains(&Path::new("usr/lib/systemd/system").join(name)), "{name}: {units:?}");
        }
    }
}
