//! The figures of this process that every client library of Prometheus has, under their names
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>), from proc(5).

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::unistd::{SysconfVar, sysconf};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

type Seconds = Gauge<f64, AtomicU64>;

#[derive(Debug, Default)]
pub(super) struct ProcessFigures {
    start: Seconds,
    processor: Counter<f64, AtomicU64>,
    resident: Gauge,
    open_files: Gauge,
    most_files: Gauge,
}

/// The fields of `/proc/self/stat` that are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    /// Time of the processors, in ticks.
    processor: u64,
    /// When the process was started, in ticks after the start of the system.
    start: u64,
    /// Memory, in pages.
    resident: u64,
}

impl ProcessFigures {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Start of the process, in seconds since 1970";
        registry.register_with_unit("process_start_time", help, Unit::Seconds, self.start.clone());
        let help = "Time of the processors that the process has used";
        registry.register_with_unit("process_cpu", help, Unit::Seconds, self.processor.clone());
        registry.register_with_unit(
            "process_resident_memory",
            "Resident memory",
            Unit::Bytes,
            self.resident.clone(),
        );
        registry.register("process_open_fds", "Open file descriptors", self.open_files.clone());
        registry.register("process_max_fds", "The limit of open file descriptors", self.most_files.clone());
    }

    /// Reads the figures. What cannot be read stays as it was.
    pub(super) fn look(&self) {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let variable =
            |variable| sysconf(variable).ok().flatten().and_then(|value| u64::try_from(value).ok());
        let ticks = variable(SysconfVar::CLK_TCK).unwrap_or(100);
        if let Some(stat) = ProcessStat::of(&text("/proc/self/stat")) {
            let seconds = |count: u64| count as f64 / ticks as f64;
            // A counter of this crate only grows; this one is read, not counted.
            self.processor.inner().store(seconds(stat.processor).to_bits(), Ordering::Relaxed);
            if let Some(boot) = boot_time(&text("/proc/stat")) {
                self.start.set(boot as f64 + seconds(stat.start));
            }
            let page = variable(SysconfVar::PAGE_SIZE).unwrap_or(4096);
            self.resident.set(i64::try_from(stat.resident.saturating_mul(page)).unwrap_or(i64::MAX));
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // The directory itself is open, too.
            self.open_files.set(i64::try_from(open.count().saturating_sub(1)).unwrap_or(i64::MAX));
        }
        if let Ok((soft, _)) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE) {
            self.most_files.set(i64::try_from(soft).unwrap_or(i64::MAX));
        }
    }
}

impl ProcessStat {
    /// From the text of the file; the name of the program, in parentheses, can have anything in it.
    fn of(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        // The first of these is the third of the file (proc_pid_stat(5)).
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            processor: number(14)?.checked_add(number(15)?)?,
            start: number(22)?,
            resident: number(24)?,
        })
    }
}

/// The start of the system, in seconds since 1970.
fn boot_time(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let fields = "S 1 2 3 4 -1 5 6 7 8 9 110 22 0 0 20 0 64 0 7777 99 1234 18446744073709551615 1 1";
        for name in ["iso-builder", "a) S 9 (b", "((", ""] {
            let stat = ProcessStat::of(&format!("42 ({name}) {fields}\n"));
            assert_eq!(stat, Some(ProcessStat { processor: 132, start: 7777, resident: 1234 }), "{name}");
        }
        for text in
            ["", "42 (a)", "42 (a) S 1", "42 (a) S 1 2 3 4 -1 5 6 7 8 9 x 22 0 0 20 0 64 0 7777 99 1234"]
        {
            assert_eq!(ProcessStat::of(text), None, "{text}");
        }
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 1\n"), Some(1_700_000_000));
        assert_eq!(boot_time(""), None);
    }

    #[test]
    fn the_figures_are_those_of_this_process() {
        let figures = ProcessFigures::default();
        figures.look();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - figures.start.get();
        assert!((-2.0..86_400.0).contains(&age), "{age}");
        assert!(figures.resident.get() > 1 << 20 && figures.processor.get() >= 0.0);
        let (open, most) = (figures.open_files.get(), figures.most_files.get());
        assert!(0 < open && open < most, "{open} of {most}");
    }
}
