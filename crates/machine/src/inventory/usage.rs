//! The devices in use: mounts, swap, loop devices, targets, pools, and the device behind the boot medium.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;

use medium::payload_sources::BOOT_MEDIUM;

use super::sysfs::{Roots, attribute, names, node};
use base::files::read_at_most;

/// One line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
struct Mount {
    device: String,
    point: PathBuf,
    source: String,
}

pub(super) struct DeviceUsage {
    mounts: Vec<Mount>,
    swaps: Vec<String>,
    /// Loop devices and their backing files or devices.
    loops: Vec<(String, PathBuf)>,
    /// Exported devices, by the name of the export.
    exports: Vec<(String, PathBuf)>,
    pools: Vec<String>,
    boot_medium: BTreeSet<String>,
}

impl DeviceUsage {
    pub(super) fn read(roots: &Roots) -> Result<Self> {
        let mountinfo = read_at_most(&roots.proc.join("self/mountinfo"), 4 << 20)?;
        let mounts: Vec<_> = String::from_utf8_lossy(&mountinfo).lines().filter_map(mount).collect();
        // A kernel without swap has no such file.
        let swaps = read_at_most(&roots.proc.join("swaps"), 1 << 20).unwrap_or_default();
        let swaps = String::from_utf8_lossy(&swaps);
        let swaps = swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        let mut usage = Self {
            mounts,
            swaps: swaps.map(str::to_owned).collect(),
            loops: loops(&roots.sys),
            exports: exports(roots),
            pools: names(&roots.proc.join("spl/kstat/zfs")),
            boot_medium: BTreeSet::new(),
        };
        usage.boot_medium = usage.behind_boot_medium(&roots.sys);
        Ok(usage)
    }

    /// Where the device with this number, or with one of these names, is mounted. File systems with anonymous numbers have only
    /// the name.
    pub(super) fn mounts_of<'a>(
        &'a self,
        number: Option<&'a str>,
        nodes: &'a [Option<&'a str>],
    ) -> impl Iterator<Item = &'a Path> {
        let of = move |mount: &&Mount| {
            Some(mount.device.as_str()) == number || nodes.contains(&Some(mount.source.as_str()))
        };
        self.mounts.iter().filter(of).map(|mount| mount.point.as_path())
    }

    pub(super) fn is_swap(&self, node: &Path) -> bool {
        self.swaps.iter().any(|swap| Path::new(swap) == node)
    }

    /// The loop devices over the device `name` itself; those over files are in its file systems.
    pub(super) fn loops_over(&self, name: &str) -> impl Iterator<Item = String> {
        let device = node(name);
        self.loops.iter().filter(move |(_, file)| *file == device).map(|(name, _)| name.clone())
    }

    /// The names under which the device is exported.
    pub(super) fn exports_of(&self, node: &Path) -> impl Iterator<Item = &str> {
        self.exports.iter().filter(move |(_, device)| device == node).map(|(name, _)| name.as_str())
    }

    pub(super) fn is_imported(&self, pool: &str) -> bool {
        self.pools.iter().any(|known| known == pool)
    }

    pub(super) fn is_boot_medium(&self, name: &str) -> bool {
        self.boot_medium.contains(name)
    }

    /// The kernel names of all devices below the mount of the boot medium: the device itself, and through a loop device the
    /// file's file system, through device mapper the devices below.
    fn behind_boot_medium(&self, sys: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        // Later mounts at one point cover earlier ones, but the earlier device is still in use.
        let on = |point: &&Mount| point.point == Path::new(BOOT_MEDIUM);
        let mut open: Vec<String> = self.mounts.iter().filter(on).filter_map(|m| name_of(sys, m)).collect();
        while let Some(name) = open.pop() {
            if !found.insert(name.clone()) {
                continue;
            }
            let block = sys.join("class/block").join(&name);
            open.extend(names(&block.join("slaves")));
            if let Some(file) = attribute(&block.join("loop/backing_file")) {
                let file = PathBuf::from(file);
                match file.strip_prefix("/dev") {
                    Ok(device) => open.push(device.to_string_lossy().into_owned()),
                    Err(_) => open.extend(self.mount_of(&file).and_then(|mount| name_of(sys, mount))),
                }
            }
        }
        found
    }

    fn mount_of(&self, file: &Path) -> Option<&Mount> {
        let holding = self.mounts.iter().filter(|mount| file.starts_with(&mount.point));
        holding.max_by_key(|mount| mount.point.components().count())
    }
}

fn loops(sys: &Path) -> Vec<(String, PathBuf)> {
    let block = sys.join("block");
    let names = names(&block).into_iter().filter(|name| name.starts_with("loop"));
    names
        .filter_map(|name| {
            let file = attribute(&block.join(&name).join("loop/backing_file"))?;
            Some((name, file.into()))
        })
        .collect()
}

/// The block devices behind SCSI targets (Documentation/target/tcm_mod_builder.rst): each backstore names its device.
fn exports(roots: &Roots) -> Vec<(String, PathBuf)> {
    let core = roots.sys.join("kernel/config/target/core");
    let mut exports = Vec::new();
    for adapter in names(&core) {
        for name in names(&core.join(&adapter)) {
            if let Some(path) = attribute(&core.join(&adapter).join(&name).join("udev_path")) {
                exports.push((name, resolved(roots, PathBuf::from(path))));
            }
        }
    }
    exports
}

fn resolved(roots: &Roots, path: PathBuf) -> PathBuf {
    let link = path.strip_prefix("/dev").ok().and_then(|path| std::fs::read_link(roots.dev.join(path)).ok());
    let name = link.as_deref().and_then(Path::file_name).map(|name| Path::new("/dev").join(name));
    name.unwrap_or(path)
}

/// The kernel name of a mounted device. `/sys/dev/block` holds a link for each number; for file systems with anonymous numbers,
/// the source.
fn name_of(sys: &Path, mount: &Mount) -> Option<String> {
    let link = std::fs::read_link(sys.join("dev/block").join(&mount.device)).ok();
    let name = link.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.or_else(|| mount.source.strip_prefix("/dev/").map(str::to_owned))
}

fn mount(line: &str) -> Option<Mount> {
    let (head, tail) = line.split_once(" - ")?;
    let mut head = head.split(' ');
    let device = head.nth(2)?.to_owned();
    let point = PathBuf::from(unescape(head.nth(1)?));
    let source = unescape(tail.split(' ').nth(1)?);
    Some(Mount { device, point, source })
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut pieces = text.split('\\');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        match piece.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[3..]);
            }
            None => {
                bytes.push(b'\\');
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_a_space_is_read_as_it_is() {
        let line =
            r"36 35 98:0 /mnt1 /my\040mnt\134x rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = mount(line).unwrap();
        assert_eq!(mount.device, "98:0");
        assert_eq!(mount.point, Path::new(r"/my mnt\x"));
        assert_eq!(mount.source, "/dev/root");
    }
}
