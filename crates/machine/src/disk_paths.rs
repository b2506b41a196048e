//! The paths to the disks that a node is on: which of them work, from sysfs and from the device mapper.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::inventory::{directory_names, partition_disk};
use super::paths::below;
use base::command::{Invocation, Runner};
use base::files::read_text;
use model::boot::{BootParameters, BootVolume, MultipathId};

/// For a question to the device mapper.
const LIMIT: Duration = Duration::from_secs(10);

/// The paths to one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskPaths {
    /// The map of the disk, or one of its paths if it has no map.
    pub disk: String,
    /// Whether multipathd holds the paths as one map.
    pub map: bool,
    pub paths: Vec<PathStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathStatus {
    /// The kernel's name, such as `sda`.
    pub name: String,
    /// Host, channel, target and logical unit, such as `2:0:0:0`; none if it is no SCSI disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub state: PathState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PathState {
    Up,
    /// The device mapper does not use it, because requests on it have failed.
    Down,
}

impl DiskPaths {
    /// The disks of the node at `root` that have several paths, or should have. `installed` is its command line.
    #[must_use]
    pub fn of_node(root: &Path, installed: &BootParameters, runner: &dyn Runner) -> Vec<Self> {
        let named = installed.multipath.iter().map(|id| Self::of_map(root, id, runner));
        let volumes = [Some(&installed.persistent), installed.data.as_ref()].into_iter().flatten();
        named.chain(volumes.filter_map(|volume| Self::without_map(root, volume))).collect()
    }

    fn of_map(root: &Path, id: &MultipathId, runner: &dyn Runner) -> Self {
        let block = root.join("sys/block");
        let identity = format!("mpath-{id}");
        let map = directory_names(&block)
            .into_iter()
            .find(|name| text(&block.join(name).join("dm/uuid")).as_deref() == Some(&*identity));
        let disk = id.map().display().to_string();
        let Some(map) = map else { return Self { disk, map: false, paths: Vec::new() } };
        let status = Invocation::new("dmsetup").args(["status", "--target", "multipath"]);
        let name = text(&block.join(&map).join("dm/name")).unwrap_or_default();
        let status = runner.run(&status.arg(name).limit(LIMIT)).unwrap_or_default();
        let status = String::from_utf8_lossy(&status);
        let paths = directory_names(&block.join(&map).join("slaves")).into_iter().map(|name| {
            let number = text(&block.join(&name).join("dev")).unwrap_or_default();
            let state = state_of(&status, &number).unwrap_or_else(|| device_state(&block, &name));
            PathStatus::of(&block, name, state)
        });
        Self { disk, map: true, paths: paths.collect() }
    }

    /// The disk of a partition that is used on one path although several lead to it; `None` for any other.
    fn without_map(root: &Path, volume: &BootVolume) -> Option<Self> {
        let block = root.join("sys/block");
        let device = below(root, &volume.device().to_string_lossy()).canonicalize().ok()?;
        let disk = partition_disk(root, device.file_name()?.to_str()?)?;
        let wwid = |name: &str| text(&block.join(name).join("device/wwid"));
        let own = wwid(&disk)?;
        let size = |name: &str| text(&block.join(name).join("size"));
        let same = |name: &String| wwid(name).as_ref() == Some(&own) && size(name) == size(&disk);
        let names: Vec<_> = directory_names(&block).into_iter().filter(same).collect();
        let paths = names.into_iter().map(|name| {
            let state = device_state(&block, &name);
            PathStatus::of(&block, name, state)
        });
        let paths: Vec<_> = paths.collect();
        (paths.len() > 1).then(|| Self { disk: format!("/dev/{disk}"), map: false, paths })
    }

    /// Whether the node goes on if a path fails.
    #[must_use]
    pub fn is_redundant(&self) -> bool {
        self.map && self.working() > 1
    }

    fn working(&self) -> usize {
        self.paths.iter().filter(|path| path.state == PathState::Up).count()
    }
}

impl PathStatus {
    fn of(block: &Path, name: String, state: PathState) -> Self {
        let device = block.join(&name).join("device").canonicalize().ok();
        let address = device.and_then(|device| Some(device.file_name()?.to_str()?.to_owned()));
        Self { address: address.filter(|address| address.matches(':').count() == 3), name, state }
    }
}

/// The state of the path with this device number in the status line of the device mapper: for each path its number, `A` or `F`, and more
/// (`multipath_status` in the kernel's drivers/md/dm-mpath.c).
fn state_of(status: &str, number: &str) -> Option<PathState> {
    let mut words = status.split_whitespace();
    words.find(|word| *word == number)?;
    match words.next()? {
        "A" => Some(PathState::Up),
        "F" => Some(PathState::Down),
        _ => None,
    }
}

/// As the SCSI layer has it (`sdev_states` in the kernel's drivers/scsi/scsi_sysfs.c).
fn device_state(block: &Path, name: &str) -> PathState {
    match text(&block.join(name).join("device/state")).as_deref() {
        None | Some("running" | "live") => PathState::Up,
        Some(_) => PathState::Down,
    }
}

fn text(file: &Path) -> Option<String> {
    Some(read_text(file).ok()?.trim().to_owned())
}

impl fmt::Display for PathStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if let Some(address) = &self.address {
            write!(f, " ({address})")?;
        }
        f.write_str(match self.state {
            PathState::Up => " up",
            PathState::Down => " DOWN",
        })
    }
}

impl fmt::Display for DiskPaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths.iter().map(ToString::to_string).collect();
        let paths = paths.join(", ");
        write!(f, "{}: ", self.disk)?;
        match (self.map, self.working()) {
            (true, 1) => write!(f, "ONLY ONE PATH WORKS: {paths}"),
            (true, _) => f.write_str(&paths),
            (false, 0) => f.write_str("NO MAP: multipathd did not make it"),
            (false, _) => write!(f, "USED ON ONE PATH, without multipathd: {paths}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::size::ByteSize;
    use testing::machine::MachineTree;
    use testing::runner::ScriptedRunner;

    const PERSISTENT: &str = "0a0b0c0d-0000-4000-8000-000000000007";

    fn installed(multipath: &str) -> BootParameters {
        let line = format!(
            "nqrust.slot=a nqrust.config=PARTUUID={PERSISTENT} nqrust.persistent=PARTUUID={PERSISTENT} {multipath}"
        );
        BootParameters::parse(&line).unwrap().unwrap()
    }

    /// The disks `sda` and `sdb` with the same WWID, and `sdc` with another one.
    fn machine() -> MachineTree {
        let machine = MachineTree::new("");
        for (name, number, wwid) in
            [("sda", "8:0", "naa.1"), ("sdb", "8:16", "naa.1"), ("sdc", "8:32", "naa.2")]
        {
            machine.disk(name, number, ByteSize::gib(8));
            let device = format!("sys/devices/host/{name}/2:0:0:{}", name.len());
            machine.file(&format!("{device}/wwid"), &format!("{wwid}\n"));
            machine.file(&format!("{device}/state"), "running\n");
            machine.link(&format!("sys/block/{name}/device"), &format!("../../../{device}"));
        }
        machine
    }

    fn map(machine: &MachineTree, paths: &[&str]) {
        machine.disk("dm-0", "253:0", ByteSize::gib(8));
        machine.file("sys/block/dm-0/dm/uuid", "mpath-3600c0ff0\n");
        machine.file("sys/block/dm-0/dm/name", "3600c0ff0\n");
        for path in paths {
            machine.file(&format!("sys/block/dm-0/slaves/{path}/x"), "");
        }
    }

    fn told(machine: &MachineTree, multipath: &str, status: &'static str) -> Vec<String> {
        let runner = ScriptedRunner::silent().answer("dmsetup status --target multipath", status);
        let found = DiskPaths::of_node(machine.path(), &installed(multipath), &runner);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_paths_of_a_map_are_told_with_what_the_device_mapper_says_of_them() {
        let machine = machine();
        map(&machine, &["sda", "sdb"]);
        let named = "nqrust.multipath=3600c0ff0";
        let both = "0 16777216 multipath 2 0 0 0 2 1 A 0 1 2 8:0 A 0 0 1 E 0 1 2 8:16 A 0 0 1";
        assert_eq!(
            told(&machine, named, both),
            ["/dev/mapper/3600c0ff0: sda (2:0:0:3) up, sdb (2:0:0:3) up"]
        );
        let one = "0 16777216 multipath 2 0 0 0 2 1 A 0 1 2 8:0 F 1 0 1 E 0 1 2 8:16 A 0 0 1";
        assert_eq!(
            told(&machine, named, one),
            ["/dev/mapper/3600c0ff0: ONLY ONE PATH WORKS: sda (2:0:0:3) DOWN, sdb (2:0:0:3) up"]
        );
        // The number of one path is the beginning of that of another.
        assert_eq!(state_of("8:16 F 1 8:1 A 0", "8:1"), Some(PathState::Up));
        machine.file("sys/devices/host/sdb/2:0:0:3/state", "transport-offline\n");
        assert!(told(&machine, named, "")[0].contains("sdb (2:0:0:3) DOWN"));
    }

    #[test]
    fn a_map_of_which_one_path_is_left_or_that_is_missing_is_told() {
        let machine = machine();
        let named = "nqrust.multipath=3600c0ff0";
        assert_eq!(told(&machine, named, ""), ["/dev/mapper/3600c0ff0: NO MAP: multipathd did not make it"]);
        map(&machine, &["sdb"]);
        assert_eq!(
            told(&machine, named, ""),
            ["/dev/mapper/3600c0ff0: ONLY ONE PATH WORKS: sdb (2:0:0:3) up"]
        );
    }

    #[test]
    fn a_disk_that_got_a_second_path_after_the_install_is_told() {
        for (disk, expected) in [
            (
                "sdb",
                vec!["/dev/sdb: USED ON ONE PATH, without multipathd: sda (2:0:0:3) up, sdb (2:0:0:3) up"],
            ),
            ("sdc", vec![]),
        ] {
            let machine = machine();
            machine.partition(disk, &format!("{disk}7"), "8:23");
            machine.file(&format!("dev/{disk}7"), "");
            machine.link(&format!("dev/disk/by-partuuid/{PERSISTENT}"), &format!("../../{disk}7"));
            assert_eq!(told(&machine, "", ""), expected);
        }
    }
}
