//! Mounts, behind a trait that tests replace.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::mount::MsFlags;

use super::inventory::partition_disk;
use super::paths::below;
use base::failure::{Class, Failure};
use base::files::read_text;

/// How long a device may take to appear.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(60);
const DEVICE_POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// An ext4 file system; `plain` if programs and devices on it must have no effect.
    Ext4 {
        device: PathBuf,
        plain: bool,
    },
    /// A directory that appears at a second place.
    Bind(PathBuf),
    Memory,
    /// An overlay: changes to `lower` go to `upper`; `work` is on the file system of `upper`.
    Overlay {
        lower: PathBuf,
        upper: PathBuf,
        work: PathBuf,
    },
}

pub trait Mounter {
    /// Waits until the device exists; an error if it does not appear.
    fn wait_for(&mut self, device: &Path) -> Result<()>;
    fn mount(&mut self, source: &MountSource, target: &Path) -> Result<()>;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemMounter;

impl Mounter for SystemMounter {
    fn wait_for(&mut self, device: &Path) -> Result<()> {
        wait(Path::new("/"), device, DEVICE_TIMEOUT)
    }

    fn mount(&mut self, source: &MountSource, target: &Path) -> Result<()> {
        let (what, kind, flags, options) = arguments(source);
        // The kernel shows the source as it was given, and the name of the device says more than that of a link.
        let device = what.canonicalize().ok().filter(|_| kind == Some("ext4"));
        let device = device.as_ref().unwrap_or(&what);
        let result = nix::mount::mount(Some(device), target, kind, flags, options.as_deref());
        result.map_err(|error| {
            let text = format!("mounting {} at {}", what.display(), target.display());
            Failure::new(Class::DiskIo, text).because(error).hint(hint(source)).into()
        })
    }
}

fn wait(root: &Path, device: &Path, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    loop {
        let lacks = match below(root, &device.to_string_lossy()).canonicalize() {
            Err(_) => "it did not appear",
            Ok(found) if is_on_path(root, &found) => "multipathd did not make the map of its disk",
            Ok(_) => return Ok(()),
        };
        if Instant::now() >= deadline {
            let text = format!("waiting for {}: {lacks} in {} seconds", device.display(), limit.as_secs());
            return Err(Failure::new(Class::Hardware, text)
                .hint("Check that the disk of the installation is connected, or boot the recovery system.")
                .into());
        }
        thread::sleep(DEVICE_POLL_INTERVAL);
    }
}

/// Whether the device is a partition of a single path to a disk that multipathd takes: udev has noted that of the path before it shows
/// its partitions (multipath-tools, 60-multipath.rules). It is not to be used, even where the map is still to come.
fn is_on_path(root: &Path, device: &Path) -> bool {
    let disk = device.file_name().and_then(|name| partition_disk(root, name.to_str()?));
    let Some(disk) = disk else { return false };
    let number = read_text(&root.join("sys/class/block").join(disk).join("dev")).unwrap_or_default();
    let record = read_text(&root.join("run/udev/data").join(format!("b{}", number.trim())));
    record.is_ok_and(|record| record.lines().any(|line| line == "E:DM_MULTIPATH_DEVICE_PATH=1"))
}

type Arguments = (PathBuf, Option<&'static str>, MsFlags, Option<String>);

fn arguments(source: &MountSource) -> Arguments {
    match source {
        MountSource::Ext4 { device, plain } => {
            let mut flags = MsFlags::MS_NOATIME;
            if *plain {
                flags |= MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            }
            (device.clone(), Some("ext4"), flags, None)
        }
        MountSource::Bind(directory) => (directory.clone(), None, MsFlags::MS_BIND, None),
        MountSource::Memory => {
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            (PathBuf::from("tmpfs"), Some("tmpfs"), flags, Some("mode=0755".to_owned()))
        }
        MountSource::Overlay { lower, upper, work } => {
            let options = format!(
                "lowerdir={},upperdir={},workdir={}",
                lower.display(),
                upper.display(),
                work.display()
            );
            (PathBuf::from("overlay"), Some("overlay"), MsFlags::MS_NOATIME, Some(options))
        }
    }
}

fn hint(source: &MountSource) -> &'static str {
    match source {
        MountSource::Ext4 { .. } => {
            "The file system may be damaged. Start the recovery system, and there: sudo installer update repair"
        }
        MountSource::Bind(_) | MountSource::Memory | MountSource::Overlay { .. } => {
            "The OS image may lack the directory or the kernel module."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_device_that_does_not_come_is_named() {
        let root = Path::new("/");
        let error = wait(root, Path::new("/nonexistent/device"), Duration::from_millis(1)).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(error.to_string().contains("/nonexistent/device"));
        assert!(wait(root, Path::new("/dev/null"), Duration::ZERO).is_ok());
    }

    #[test]
    fn a_partition_of_a_path_is_waited_for_until_the_map_has_it() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/devices/sda/dev", "8:0\n");
        put("sys/devices/sda/sda7/partition", "7\n");
        put("sys/devices/virtual/dm-7/dev", "253:7\n");
        fs::create_dir_all(root.path().join("sys/class/block")).unwrap();
        for (name, place) in [("sda", "sda"), ("sda7", "sda/sda7"), ("dm-7", "virtual/dm-7")] {
            symlink(format!("../../devices/{place}"), root.path().join("sys/class/block").join(name))
                .unwrap();
            put(&format!("dev/{name}"), "");
        }
        let link = root.path().join("dev/disk/by-partuuid/a");
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let wait = || wait(root.path(), Path::new("/dev/disk/by-partuuid/a"), Duration::ZERO);
        symlink("../../sda7", &link).unwrap();
        put("run/udev/data/b8:0", "E:ID_SERIAL=a\n");
        wait().unwrap();
        put("run/udev/data/b8:0", "E:ID_SERIAL=a\nE:DM_MULTIPATH_DEVICE_PATH=1\n");
        let error = wait().unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(error.to_string().contains("multipathd did not make the map"), "{error}");
        fs::remove_file(&link).unwrap();
        symlink("../../dm-7", &link).unwrap();
        wait().unwrap();
    }

    #[test]
    fn a_mount_that_fails_names_both_ends() {
        let source = MountSource::Ext4 { device: "/nonexistent/device".into(), plain: true };
        let error = SystemMounter.mount(&source, Path::new("/nonexistent/target")).unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        assert!(error.to_string().contains("/nonexistent/device at /nonexistent/target"));
    }

    #[test]
    fn nothing_on_the_configuration_partition_can_run() {
        let (_, _, plain, _) = arguments(&MountSource::Ext4 { device: "d".into(), plain: true });
        assert!(plain.contains(MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC));
        let (_, _, full, _) = arguments(&MountSource::Ext4 { device: "d".into(), plain: false });
        assert_eq!(full, MsFlags::MS_NOATIME);
    }
}
