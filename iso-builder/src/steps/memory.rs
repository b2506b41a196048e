//! File systems in memory, for trees that are gone with the step that unpacks them. On a disk, unpacking and removing tens of
//! thousands of small files takes longer than making an OS image of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::meminfo::amount;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A file system in memory at a directory of the sandbox. It ends with the sandbox.
#[derive(Debug)]
pub(super) struct MemoryMount(PathBuf);

impl MemoryMount {
    /// Mounts an empty file system of at most `bytes` at `directory`, if this process can take twice as much memory and the
    /// kernel lets it.
    pub(super) fn at(directory: &Path, bytes: u64) -> Option<Self> {
        if available_memory()? < bytes.checked_mul(2)? {
            return None;
        }
        let options = format!("size={bytes},mode=755");
        let mounted =
            mount(Some("tmpfs"), directory, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()));
        mounted.is_ok().then(|| Self(directory.to_owned()))
    }

    /// Gives the directory back as it was.
    pub(super) fn remove(self) -> Result<()> {
        umount2(&self.0, MntFlags::empty()).with_context(|| format!("unmounting {}", self.0.display()))
    }
}

/// The bytes of memory that are available to this process; `None` if the machine does not tell.
pub(crate) fn available_memory() -> Option<u64> {
    available(Path::new("/"))
}

/// The bytes of memory that are available to this process: what the machine has, and what each of its control groups leaves.
/// `None` if the machine does not tell. The files are those below `root`.
fn available(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let machine = amount(&meminfo, "MemAvailable")?;
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let left = groups.lines().flat_map(|line| left_by(root, line));
    left.chain([machine.get()]).min()
}

/// The memory left in the control group of a line of proc_pid_cgroup(5), and in each group above it. In a container the group
/// can have another path there than here, but the topmost group that is seen is the container's own.
fn left_by(root: &Path, line: &str) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return Vec::new() };
    // Of the second generation, and of the first.
    let (tops, limit, used): (&[&str], _, _) = match controllers {
        "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], "memory.max", "memory.current"),
        "memory" => (&["sys/fs/cgroup/memory"], "memory.limit_in_bytes", "memory.usage_in_bytes"),
        _ => return Vec::new(),
    };
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |group: PathBuf| Some(number(group.join(limit))?.saturating_sub(number(group.join(used))?));
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    groups.flat_map(|group| tops.iter().filter_map(move |top| left(root.join(top).join(group)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths below the directory of control groups, and what the files say.
    type FileTexts<'a> = &'a [(&'a str, &'a str)];

    #[test]
    fn the_narrowest_limit_of_machine_and_control_groups_counts() {
        let meminfo = "MemTotal:       2000 kB\nMemAvailable:   1000 kB\n";
        let cases: [(&str, FileTexts<'_>, Option<u64>); 6] = [
            ("0::/\n", &[], Some(1_024_000)),
            (
                "0::/a/b\n",
                &[
                    ("a/memory.max", "900000\n"),
                    ("a/memory.current", "100000\n"),
                    ("a/b/memory.max", "max\n"),
                    ("a/b/memory.current", "5\n"),
                ],
                Some(800_000),
            ),
            // The path of another namespace: the group at the top is the container's.
            ("0::/../x\n", &[("memory.max", "7\n"), ("memory.current", "9\n")], Some(0)),
            (
                "4:memory:/one\n",
                &[
                    ("memory/one/memory.limit_in_bytes", "500\n"),
                    ("memory/one/memory.usage_in_bytes", "100\n"),
                ],
                Some(400),
            ),
            ("3:cpu:/one\n", &[("memory.max", "7\n"), ("memory.current", "1\n")], Some(1_024_000)),
            ("", &[], Some(1_024_000)),
        ];
        for (groups, files, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            let put = |path: &str, text: &str| {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            assert_eq!(available(root.path()), None, "a machine that tells nothing");
            put("proc/meminfo", meminfo);
            put("proc/self/cgroup", groups);
            files.iter().for_each(|(path, text)| put(&format!("sys/fs/cgroup/{path}"), text));
            assert_eq!(available(root.path()), expected, "{groups:?}");
        }
    }
}
