//! The control groups of a node: one directory of its own in every hierarchy, which the node sees as the root.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::deadline::Deadline;

/// How long the kernel may take to see that the last process of a group is gone.
const REMOVE_LIMIT: Duration = Duration::from_secs(20);

/// Tells nodes of the same name in several clusters of this process apart.
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// Before the number of the process whose node it is.
const PREFIX: &str = "nqrust-e2e-";
/// The group of the services of a node where control groups are version 2; `start_node.sh` makes it.
const SERVICES: &str = "services";

/// A hierarchy that the host has mounted.
#[derive(Clone, Debug)]
struct Hierarchy {
    mounted: PathBuf,
    /// The mount's type and options, which a node repeats.
    kind: &'static str,
    options: String,
}

/// The groups of one node; they are removed when dropped, after the node's processes.
#[derive(Debug)]
pub(super) struct ControlGroups {
    hierarchies: Vec<Hierarchy>,
    name: String,
}

impl ControlGroups {
    /// Makes groups for the node `node` of this process. Those of processes that were killed are removed.
    pub(super) fn make(node: &str) -> Result<Self> {
        let hierarchies = mounted(&fs::read_to_string("/proc/self/mountinfo")?);
        ensure!(!hierarchies.is_empty(), "this machine has no control groups mounted");
        for hierarchy in &hierarchies {
            remove_left(&hierarchy.mounted)?;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let groups = Self { hierarchies, name: format!("{PREFIX}{}-{number}-{node}", std::process::id()) };
        for directory in groups.directories() {
            fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
            for file in ["cpuset.cpus", "cpuset.mems"] {
                // Version 1 gives a new group none, and no process can be in it then.
                let above = directory.parent().map(|parent| parent.join(file)).filter(|above| above.exists());
                if let (Some(above), true) = (above, directory.join(file).exists()) {
                    fs::write(directory.join(file), fs::read(above)?)?;
                }
            }
        }
        Ok(groups)
    }

    /// The groups that processes of the node are in when it has started. In version 2 a group with groups below it has none itself.
    pub(super) fn processes(&self) -> impl Iterator<Item = PathBuf> {
        let below = |hierarchy: &Hierarchy| if hierarchy.kind == "cgroup2" { SERVICES } else { "" };
        self.hierarchies
            .iter()
            .map(move |hierarchy| hierarchy.mounted.join(&self.name).join(below(hierarchy)))
    }

    pub(super) fn directories(&self) -> impl Iterator<Item = PathBuf> {
        self.hierarchies.iter().map(|hierarchy| hierarchy.mounted.join(&self.name))
    }

    /// The mounts of a node below `/sys/fs/cgroup`: directory, type and options, a line each.
    pub(super) fn mounts(&self) -> String {
        let line = |hierarchy: &Hierarchy| {
            let directory = hierarchy.mounted.file_name().unwrap_or_default().to_string_lossy();
            format!("{directory} {} {}\n", hierarchy.kind, hierarchy.options)
        };
        match self.hierarchies.as_slice() {
            [only] if only.kind == "cgroup2" => format!(". {} {}\n", only.kind, only.options),
            many => format!(". tmpfs mode=755\n{}", many.iter().map(line).collect::<String>()),
        }
    }
}

impl Drop for ControlGroups {
    // Errors go to standard error: a destructor cannot return them.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        for directory in self.directories() {
            let removed = Deadline::after(REMOVE_LIMIT)
                .poll("the end of its processes", || Ok(remove(&directory).is_ok().then_some(())));
            if let Err(error) = removed {
                eprintln!("{} is left: {error:#}", directory.display());
            }
        }
    }
}

/// Removes groups of runs that are over. One that another run removes at the same time is gone as well.
fn remove_left(mounted: &Path) -> Result<()> {
    for entry in fs::read_dir(mounted).with_context(|| format!("reading {}", mounted.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            drop(remove(&mounted.join(&name)));
        }
    }
    Ok(())
}

/// Removes a group and those below it; all of them are empty.
fn remove(directory: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

/// The hierarchies in a `mountinfo` (proc_pid_mountinfo(5)): those of version 1, or else that of version 2.
fn mounted(mountinfo: &str) -> Vec<Hierarchy> {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for line in mountinfo.lines() {
        let Some((mount, system)) = line.split_once(" - ") else { continue };
        let (Some(mounted), mut system) = (mount.split(' ').nth(4), system.split(' ')) else { continue };
        let (kind, options) = (system.next().unwrap_or_default(), system.nth(1).unwrap_or_default());
        let mounted = PathBuf::from(mounted);
        match kind {
            "cgroup" => {
                let controllers =
                    options.split(',').filter(|option| !matches!(*option, "rw" | "ro" | "xattr"));
                let controllers: Vec<_> =
                    controllers.filter(|option| !option.starts_with("release_agent=")).collect();
                let named = controllers.iter().any(|option| option.starts_with("name="));
                let none = if named { "none," } else { "" };
                let options = format!("{none}{}", controllers.join(","));
                first.push(Hierarchy { mounted, kind: "cgroup", options });
            }
            "cgroup2" => second.push(Hierarchy { mounted, kind: "cgroup2", options: "rw".to_owned() }),
            _ => {}
        }
    }
    if first.is_empty() { second } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(mountinfo: &str) -> Vec<String> {
        let line = |hierarchy: Hierarchy| {
            format!("{} {} {}", hierarchy.mounted.display(), hierarchy.kind, hierarchy.options)
        };
        mounted(mountinfo).into_iter().map(line).collect()
    }

    #[test]
    fn hierarchies_of_version_1_count_before_that_of_version_2() {
        let mixed = "24 23 0:22 / /sys rw - sysfs sysfs rw\n\
            25 24 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:1 - cgroup cgroup rw,cpu,cpuacct\n\
            26 24 0:24 / /sys/fs/cgroup/systemd rw shared:2 - cgroup cgroup rw,xattr,release_agent=/x,name=systemd\n\
            27 24 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            told(mixed),
            [
                "/sys/fs/cgroup/cpu,cpuacct cgroup cpu,cpuacct",
                "/sys/fs/cgroup/systemd cgroup none,name=systemd"
            ]
        );
        assert_eq!(
            told("27 24 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"),
            ["/sys/fs/cgroup cgroup2 rw"]
        );
    }
}
