//! Checks of the machine itself: file systems, arrays, units, the clock, the watchdog.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use serde::Deserialize;

use super::check::{
    ARRAYS, CLOCK, CheckResult, Finding, IMAGE, MOUNTS, PATHS, ROOT, SPARE_PATHS, SYSTEM_UNITS, UNITS,
    WATCHDOG,
};
use base::command::{Invocation, Runner};
use base::files::read_text;
use machine::arrays::{self, ArrayState};
use machine::disk_paths::DiskPaths;
use machine::image_health::ImageHealth;
use machine::mounted::mounted;
use machine::node_release as release;
use machine::paths::{CONFIG, DATA};
use model::boot::BootParameters;

/// For one program.
const PROGRAM_LIMIT: Duration = Duration::from_secs(10);
/// The prefix of the product's own units.
const OWN_UNITS: &str = "nqrust-";
/// Units that come and go with what people run, and say nothing of the system.
const PASSING: [&str; 3] = ["run-", "user@", "session-"];

/// Every local check of the system at `root`.
pub(super) fn results(root: &Path, runner: &dyn Runner) -> Vec<CheckResult> {
    let cmdline = read_text(&root.join("proc/cmdline")).unwrap_or_default();
    let mountinfo = read_text(&root.join("proc/self/mountinfo")).unwrap_or_default();
    let installed = BootParameters::parse(&cmdline).map_err(|error| error.to_string());
    let node = match &installed {
        Ok(Some(installed)) => Ok(installed),
        Ok(None) => Err(Finding::cannot_say("the kernel command line is not that of an installed node")),
        Err(why) => Err(Finding::failing(why)),
    };
    let of_node = |check: &dyn Fn(&BootParameters) -> Result<(), String>| match &node {
        Ok(installed) => Finding::from(check(installed)),
        Err(finding) => finding.clone(),
    };
    let mut results = vec![
        ROOT.found(of_node(&|_| root_image(root, &cmdline, &mountinfo))),
        IMAGE.found(image(root)),
        MOUNTS.found(of_node(&|installed| mounts(root, installed, &mountinfo))),
    ];
    results.extend(mirror(root));
    let disks =
        node.as_ref().map(|installed| DiskPaths::of_node(root, installed, runner)).unwrap_or_default();
    results.extend(paths(&disks));
    results.extend(units(runner));
    results.push(CLOCK.found(clock(root, SystemTime::now())));
    results.push(WATCHDOG.found(Finding::from(watchdog(root))));
    results
}

/// The root file system is what the command line names, and nothing is laid over it.
fn root_image(root: &Path, cmdline: &str, mountinfo: &str) -> Result<(), String> {
    let mount = mounted(mountinfo, "/").ok_or("nothing is mounted at /")?;
    if mount.kind != "squashfs" || !mount.read_only {
        let how = if mount.read_only { "read-only" } else { "writable" };
        return Err(format!("it is {how} {}, not read-only squashfs", mount.kind));
    }
    let mut named = cmdline.split_whitespace().rev().filter_map(|word| word.strip_prefix("root="));
    let device = named.next().and_then(device).ok_or("the command line names no device for it")?;
    mount.is_on(root, &device)
}

/// What was found when the image was last read as a whole.
fn image(root: &Path) -> Finding {
    let health = ImageHealth::read(root);
    match &health.read {
        None => Finding::NotApplicable,
        Some(read) if read.whole => Finding::Healthy,
        Some(_) => Finding::failing(health.warnings().join("; ")),
    }
}

fn device(value: &str) -> Option<PathBuf> {
    match value.strip_prefix("PARTUUID=") {
        Some(id) => Some(Path::new("/dev/disk/by-partuuid").join(id.to_ascii_lowercase())),
        None => value.starts_with("/dev/").then(|| value.into()),
    }
}

fn mounts(root: &Path, installed: &BootParameters, mountinfo: &str) -> Result<(), String> {
    let data = installed.data.iter().map(|volume| (DATA, volume));
    for (point, volume) in
        [("/var", &installed.persistent), (CONFIG, &installed.config)].into_iter().chain(data)
    {
        let mount = mounted(mountinfo, point).ok_or_else(|| format!("nothing is mounted at {point}"))?;
        mount.is_on(root, &volume.device()).map_err(|why| format!("{point}: {why}"))?;
        if mount.read_only {
            return Err(format!("{point} is read-only: its file system may have met an error"));
        }
    }
    Ok(())
}

/// One result for each array. One that is being rebuilt is on its way.
fn mirror(root: &Path) -> Vec<CheckResult> {
    let found = arrays::arrays(root);
    if found.is_empty() {
        return vec![ARRAYS.found(Finding::NotApplicable)];
    }
    let finding = |array: &arrays::ArrayStatus| match array.state {
        ArrayState::Degraded => {
            Finding::failing(format!("{array}; on a new disk it becomes whole by: installer disk replace"))
        }
        ArrayState::Whole | ArrayState::Rebuilding => Finding::Healthy,
    };
    found.iter().map(|array| ARRAYS.found_at(array.name.clone(), finding(array))).collect()
}

/// Whether the disks with several paths are used through their maps, and whether a path could fail.
fn paths(disks: &[DiskPaths]) -> [CheckResult; 2] {
    let finding = |holds: &dyn Fn(&DiskPaths) -> bool| match disks.iter().find(|disk| !holds(disk)) {
        _ if disks.is_empty() => Finding::NotApplicable,
        Some(disk) => Finding::failing(disk.to_string()),
        None => Finding::Healthy,
    };
    [PATHS.found(finding(&|disk| disk.map)), SPARE_PATHS.found(finding(&DiskPaths::is_redundant))]
}

/// One unit in the output of `systemctl list-units --output=json`.
#[derive(Deserialize)]
struct FailedUnit {
    unit: String,
}

/// One result for each failed unit.
fn units(runner: &dyn Runner) -> Vec<CheckResult> {
    let list = Invocation::new("systemctl").limit(PROGRAM_LIMIT);
    let json = runner.run(&list.args(["list-units", "--failed", "--all", "--no-pager", "--output=json"]));
    let failed: Vec<FailedUnit> = match json.map(|json| serde_json::from_slice(&json)) {
        Ok(Ok(failed)) => failed,
        Ok(Err(_)) => return unknown_units("systemctl answers something other than a list of units"),
        Err(_) => return unknown_units("systemd does not answer"),
    };
    let (own, others): (Vec<_>, Vec<_>) =
        failed.into_iter().map(|failed| failed.unit).partition(|unit| unit.starts_with(OWN_UNITS));
    let passing = |unit: &String| PASSING.iter().any(|start| unit.starts_with(start));
    let others: Vec<_> = others.into_iter().filter(|unit| !passing(unit)).collect();
    let mut results = Vec::new();
    for (check, units) in [(&UNITS, own), (&SYSTEM_UNITS, others)] {
        if units.is_empty() {
            results.push(check.found(Finding::Healthy));
        }
        results.extend(units.into_iter().map(|unit| check.found_at(unit, Finding::failing("it has failed"))));
    }
    results
}

fn unknown_units(why: &str) -> Vec<CheckResult> {
    [&UNITS, &SYSTEM_UNITS].map(|check| check.found(Finding::cannot_say(why))).into()
}

/// The clock is not before the moment that the release was made at.
fn clock(root: &Path, now: SystemTime) -> Finding {
    let Ok(release) = release::read(root) else {
        return Finding::cannot_say("there is no release manifest of an installed node to compare it with");
    };
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if now >= release.epoch {
        return Finding::Healthy;
    }
    let day = |seconds: u64| {
        let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.map_or_else(|| "?".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
    };
    Finding::failing(format!(
        "the clock says {}, which is before the release was made: {}",
        day(now),
        day(release.epoch)
    ))
}

/// A watchdog of the hardware is there and runs (Documentation/ABI/testing/sysfs-class-watchdog).
fn watchdog(root: &Path) -> Result<(), String> {
    let devices = fs::read_dir(root.join("sys/class/watchdog"));
    let mut devices: Vec<_> = devices.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    devices.sort();
    let state = |device: &PathBuf| read_text(&device.join("state")).unwrap_or_default().trim().to_owned();
    match devices.as_slice() {
        [] => Err("this machine has no watchdog that Linux knows".into()),
        devices if devices.iter().any(|device| state(device) != "inactive") => Ok(()),
        _ => Err("the watchdog of this machine is not running: systemd has not opened it".into()),
    }
}

#[cfg(test)]
mod tests;
