//! What is mounted, by the kernel's numbers of devices: proc_pid_mountinfo(5) and sysfs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::paths::below;
use base::files::read_text;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedFilesystem {
    /// `MAJOR:MINOR` of the device below the file system.
    device: String,
    pub kind: String,
    pub read_only: bool,
}

/// The mount at `point`, the topmost of several.
#[must_use]
pub fn mounted(mountinfo: &str, point: &str) -> Option<MountedFilesystem> {
    let line = mountinfo.lines().rev().find(|line| line.split(' ').nth(4) == Some(point))?;
    let (mount, system) = line.split_once(" - ")?;
    let options = mount.split(' ').nth(5)?;
    let mut system = system.split(' ');
    let kind = system.next()?.to_owned();
    // ext4 that has met an error makes the file system read-only, not the mount.
    let read_only =
        [options, system.nth(1)?].iter().any(|options| options.split(',').any(|word| word == "ro"));
    Some(MountedFilesystem { device: mount.split(' ').nth(2)?.to_owned(), kind, read_only })
}

/// Whether anything of the device at `path` is mounted, whatever makes other devices of it.
pub fn is_mounted(root: &Path, path: &Path) -> Result<bool> {
    let mounts = read_text(&below(root, "/proc/self/mountinfo"))?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.filter_map(|point| mounted(&mounts, point)).any(|mount| mount.is_on(root, path).is_ok()))
}

impl MountedFilesystem {
    /// Whether it is on the device at `path`, or on one that the device mapper makes of it.
    ///
    /// # Errors
    /// The device does not exist, or the file system is on another one, which the error names.
    pub fn is_on(&self, root: &Path, path: &Path) -> Result<(), String> {
        let absent = || format!("there is no device {}", path.display());
        let device = fs::canonicalize(below(root, &path.to_string_lossy())).map_err(|_| absent())?;
        let name = device.file_name().ok_or_else(absent)?;
        let number = read_text(&root.join("sys/class/block").join(name).join("dev")).map_err(|_| absent())?;
        let mut found = BTreeSet::new();
        below_device(root, &self.device, &mut found);
        if found.contains(number.trim()) {
            return Ok(());
        }
        let own = fs::canonicalize(root.join("sys/dev/block").join(&self.device)).ok();
        let own = own
            .as_deref()
            .and_then(Path::file_name)
            .map_or(self.device.clone(), |name| name.to_string_lossy().into());
        Err(format!("it is on {own}, not on {}", path.display()))
    }
}

/// Adds a device, and the devices that it is made of, to `found`.
fn below_device(root: &Path, number: &str, found: &mut BTreeSet<String>) {
    if !found.insert(number.to_owned()) {
        return;
    }
    let slaves = fs::read_dir(root.join("sys/dev/block").join(number).join("slaves"));
    for slave in slaves.into_iter().flatten().flatten() {
        if let Ok(number) = read_text(&slave.path().join("dev")) {
            below_device(root, number.trim(), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use testing::machine::block_device as device;

    const LINES: &str = "22 1 8:4 / / ro,relatime shared:1 - squashfs /dev/sda4 ro\n\
        23 22 8:7 / /var rw,noatime shared:2 - ext4 /dev/sda7 ro,errors=remount-ro\n\
        24 22 253:0 / /oem rw - ext4 /dev/dm-0 rw\n";

    #[test]
    fn a_mount_tells_its_device_and_whether_it_can_be_written() {
        let of = |point: &str| mounted(LINES, point);
        let root = of("/").unwrap();
        assert_eq!((root.kind.as_str(), root.read_only, root.device.as_str()), ("squashfs", true, "8:4"));
        assert!(of("/var").unwrap().read_only, "the file system was made read-only by an error");
        assert!(!of("/oem").unwrap().read_only);
        assert_eq!(of("/data"), None);
        assert_eq!(mounted("odd\n", "/"), None);
    }

    #[test]
    fn the_device_is_found_below_the_device_mapper_too() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        device(root, "sda4", "8:4", Some("/dev/disk/by-partuuid/a"));
        device(root, "sda5", "8:5", Some("/dev/disk/by-partuuid/b"));
        device(root, "dm-0", "253:0", None);
        fs::create_dir_all(root.join("sys/class/block/dm-0/slaves")).unwrap();
        symlink("../../sda4", root.join("sys/class/block/dm-0/slaves/sda4")).unwrap();
        let [a, b] = ["/dev/disk/by-partuuid/a", "/dev/disk/by-partuuid/b"].map(Path::new);
        let plain = mounted(LINES, "/").unwrap();
        assert_eq!(plain.is_on(root, a), Ok(()));
        assert_eq!(plain.is_on(root, b), Err("it is on sda4, not on /dev/disk/by-partuuid/b".into()));
        assert!(plain.is_on(root, Path::new("/dev/none")).unwrap_err().contains("no device /dev/none"));
        let mapped = mounted(LINES, "/oem").unwrap();
        assert_eq!(mapped.is_on(root, a), Ok(()));
        assert!(mapped.is_on(root, b).unwrap_err().contains("it is on dm-0"));
    }
}
