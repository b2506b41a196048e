//! Memory and processor time of a server's process, from `/proc` (proc(5)).

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ProcessUsage {
    pub pid: u32,
    /// The highest resident set (`VmHWM`), in KiB.
    pub peak_kib: u64,
    /// User and system, in seconds.
    pub cpu_seconds: f64,
}

impl ProcessUsage {
    pub fn of(pid: u32) -> Result<Self> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        let peak_kib = peak(&read("status")?).with_context(|| format!("the process {pid} names no VmHWM"))?;
        let ticks = ticks(&read("stat")?).with_context(|| format!("the times of the process {pid}"))?;
        let rate = sysconf(SysconfVar::CLK_TCK)?.and_then(|rate| u32::try_from(rate).ok()).unwrap_or(100);
        let cpu_seconds = (Duration::from_secs(ticks) / rate).as_secs_f64();
        Ok(Self { pid, peak_kib, cpu_seconds })
    }
}

fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// `utime` and `stime`. The name in parentheses before them may have any characters.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_and_times_are_read_from_the_texts_of_the_kernel() {
        assert_eq!(peak("VmPeak:\t  900 kB\nVmHWM:\t  512 kB\n"), Some(512));
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 25 17 0 0 20 0 1 0";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!((peak(""), ticks("7 (a")), (None, None));
        let own = ProcessUsage::of(std::process::id()).unwrap();
        assert!(own.peak_kib > 100 && own.cpu_seconds >= 0.0, "{own:?}");
    }
}
