//! Mounts, behind a trait that tests replace.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::mount::MsFlags;

use base::failure::{Class, Failure};

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
        wait(device, DEVICE_TIMEOUT)
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

fn wait(device: &Path, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !device.exists() {
        if Instant::now() >= deadline {
            let seconds = limit.as_secs();
            let text = format!("waiting for {}: it did not appear in {seconds} seconds", device.display());
            return Err(Failure::new(Class::Hardware, text)
                .hint("Check that the disk of the installation is connected, or boot the recovery system.")
                .into());
        }
        thread::sleep(DEVICE_POLL_INTERVAL);
    }
    Ok(())
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

    #[test]
    fn a_device_that_does_not_come_is_named() {
        let error = wait(Path::new("/nonexistent/device"), Duration::from_millis(1)).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(error.to_string().contains("/nonexistent/device"));
        assert!(wait(Path::new("/dev/null"), Duration::ZERO).is_ok());
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
