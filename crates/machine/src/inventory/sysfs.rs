//! Where a scan reads, and reading one small file or one directory of sysfs.

use std::path::{Path, PathBuf};

/// The roots of a scan. Device nodes are read only where formats have their signatures.
#[derive(Clone, Debug)]
pub struct Roots {
    /// sysfs, `/sys`.
    pub sys: PathBuf,
    /// Device nodes and their links, `/dev`. Paths in the inventory always begin with `/dev` itself.
    pub dev: PathBuf,
    /// procfs, `/proc`.
    pub proc: PathBuf,
    /// udev's records of devices, `/run/udev/data`.
    pub udev: PathBuf,
    /// Modules of kernels and firmware, `/usr/lib`.
    pub lib: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            sys: "/sys".into(),
            dev: "/dev".into(),
            proc: "/proc".into(),
            udev: "/run/udev/data".into(),
            lib: "/usr/lib".into(),
        }
    }
}

impl Roots {
    /// The roots below a directory: `sys`, `dev`, `proc`, `udev` and `lib`.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        let [sys, dev, proc, udev, lib] = ["sys", "dev", "proc", "udev", "lib"].map(|name| root.join(name));
        Self { sys, dev, proc, udev, lib }
    }
}

/// The trimmed text of a small sysfs file; `None` if absent, unreadable or empty. Many attributes exist only for some drivers,
/// and some cannot be read while a device is down.
pub(crate) fn attribute(path: &Path) -> Option<String> {
    let text = base::files::read_at_most(path, 64 << 10).ok()?;
    let text = String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n', '\t']).to_owned();
    (!text.is_empty()).then_some(text)
}

/// The number in a small sysfs file; `None` if [`attribute`] has none or it is no number.
pub(crate) fn number(path: &Path) -> Option<u64> {
    attribute(path)?.parse().ok()
}

/// The names in a directory, sorted; empty if it is absent.
pub fn names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The name of the driver that has the device at `path`, where one has.
pub(crate) fn driver(path: &Path) -> Option<String> {
    let link = std::fs::read_link(path.join("driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// The node of a device. The kernel writes `/` in names as `!` (`cciss!c0d0`).
pub(super) fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}
