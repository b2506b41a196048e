//! The state of the arrays of a mirrored system, from sysfs (Documentation/admin-guide/md.rst).

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::inventory::directory_names;
use base::files::read_text;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArrayStatus {
    /// The name of the partitions that it is made of, or the kernel's if they have none.
    pub name: String,
    pub device: String,
    /// Whether every member is there and up to date.
    pub state: ArrayState,
    /// The number of members that it should have.
    pub disks: u32,
    /// The kernel's names of the members that are there and up to date.
    pub members: Vec<String>,
    /// Those of the members that are being filled, or wait for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filled: Vec<String>,
    /// What is written of the member that is being filled, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

impl ArrayStatus {
    /// Its directory of attributes below `root` (Documentation/admin-guide/md.rst).
    #[must_use]
    pub fn attributes(&self, root: &Path) -> PathBuf {
        root.join("sys/block").join(&self.device).join("md")
    }
}

/// Whether an array would survive the loss of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrayState {
    Whole,
    /// It would not, and a member is being filled.
    Rebuilding,
    Degraded,
}

/// The arrays of the system at `root`, by name.
#[must_use]
pub fn arrays(root: &Path) -> Vec<ArrayStatus> {
    let block = root.join("sys/block");
    let mut found: Vec<_> = directory_names(&block)
        .into_iter()
        .filter_map(|device| array(root, &block.join(&device), device))
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// `None` for anything but an array, and for arrays without redundancy, which have no file `degraded`.
fn array(root: &Path, path: &Path, device: String) -> Option<ArrayStatus> {
    let md = path.join("md");
    let text = |file: &str| Some(read_text(&md.join(file)).ok()?.trim().to_owned());
    let missing: u32 = text("degraded")?.parse().ok()?;
    let disks = text("raid_disks")?.parse().ok()?;
    let entries =
        directory_names(&md).into_iter().filter_map(|name| name.strip_prefix("dev-").map(str::to_owned));
    let is = |member: &String, word: &str| {
        let state = text(&format!("dev-{member}/state")).unwrap_or_default();
        state.split(',').any(|one| one == word)
    };
    let (members, others): (Vec<_>, Vec<_>) = entries.partition(|member| is(member, "in_sync"));
    let action = text("sync_action");
    let state = match (missing, action.as_deref()) {
        (0, _) => ArrayState::Whole,
        (_, Some("recover")) => ArrayState::Rebuilding,
        _ => ArrayState::Degraded,
    };
    let name = members.iter().chain(&others).find_map(|member| partition_name(root, member));
    let percent = match state {
        ArrayState::Rebuilding => text("sync_completed").as_deref().and_then(percent),
        ArrayState::Whole | ArrayState::Degraded => None,
    };
    let filled = others.into_iter().filter(|member| is(member, "spare")).collect();
    let name = name.unwrap_or_else(|| device.clone());
    Some(ArrayStatus { name, device, state, disks, members, filled, percent })
}

/// The share of `sync_completed`, which is `DONE / ALL` in sectors, or a word.
fn percent(completed: &str) -> Option<u8> {
    let (done, all) = completed.split_once('/')?;
    let (done, all): (u64, u64) = (done.trim().parse().ok()?, all.trim().parse().ok()?);
    u8::try_from(done.checked_mul(100)?.checked_div(all)?).ok().filter(|percent| *percent <= 100)
}

fn partition_name(root: &Path, partition: &str) -> Option<String> {
    let event = read_text(&root.join("sys/class/block").join(partition).join("uevent")).ok()?;
    event.lines().find_map(|line| line.strip_prefix("PARTNAME=")).map(str::to_owned)
}

impl fmt::Display for ArrayStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, device, disks, members, .. } = self;
        let state = match self.state {
            ArrayState::Whole => "whole",
            ArrayState::Rebuilding => "REBUILDING",
            ArrayState::Degraded => "DEGRADED",
        };
        let percent = self.percent.map(|percent| format!(" {percent} %")).unwrap_or_default();
        let count = members.len();
        write!(f, "{name} {state}{percent}: {count} of {disks} disks ({}), {device}", members.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use testing::machine::put_array as put;

    #[test]
    fn an_array_is_whole_degraded_or_being_rebuilt() {
        let root = tempfile::tempdir().unwrap();
        let both = [("vda7", "in_sync"), ("vdb7", "in_sync,write_mostly")];
        put(root.path(), "md127", "persistent", 0, "idle", &both);
        put(root.path(), "md126", "config", 1, "idle", &[("vdb3", "in_sync")]);
        put(root.path(), "md125", "data", 1, "recover", &[("vda8", "spare"), ("vdb8", "in_sync")]);
        put(root.path(), "md124", "root-a", 1, "idle", &[("vda4", "faulty"), ("vdb4", "in_sync")]);
        fs::write(root.path().join("sys/block/md125/md/sync_completed"), "2000 / 8000\n").unwrap();
        // A stripe, a disk, and an array that is being assembled.
        fs::create_dir_all(root.path().join("sys/block/md1/md")).unwrap();
        fs::write(root.path().join("sys/block/md1/md/raid_disks"), "2\n").unwrap();
        fs::create_dir_all(root.path().join("sys/block/vda")).unwrap();
        let told: Vec<_> = arrays(root.path()).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "config DEGRADED: 1 of 2 disks (vdb3), md126",
                "data REBUILDING 25 %: 1 of 2 disks (vdb8), md125",
                "persistent whole: 2 of 2 disks (vda7, vdb7), md127",
                "root-a DEGRADED: 1 of 2 disks (vdb4), md124",
            ]
        );
    }

    #[test]
    fn what_is_being_filled_is_no_member_yet() {
        let root = tempfile::tempdir().unwrap();
        put(
            root.path(),
            "md1",
            "data",
            1,
            "recover",
            &[("vda8", "spare"), ("vdb8", "in_sync"), ("vdc8", "faulty")],
        );
        let [data] = &arrays(root.path())[..] else { panic!("one array") };
        assert_eq!(
            (&data.members[..], &data.filled[..]),
            (&["vdb8".to_owned()][..], &["vda8".to_owned()][..])
        );
        assert_eq!(data.percent, None);
        assert_eq!(
            ["none", "delayed", "1 / 0", "5 / 4", "1 / 3"].map(percent),
            [None, None, None, None, Some(33)]
        );
    }

    #[test]
    fn a_system_without_arrays_has_none() {
        assert!(arrays(tempfile::tempdir().unwrap().path()).is_empty());
    }
}
