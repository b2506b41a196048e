//! The properties of the machine that the files of a node depend on.

use std::path::Path;

use anyhow::{Context, Result};

use base::files;
use base::meminfo;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineSize {
    pub cpus: u32,
    /// In MiB.
    pub memory: u64,
}

impl MachineSize {
    /// Reads the size from proc(5), which is at `proc`.
    pub fn read(proc: &Path) -> Result<Self> {
        let text = |name: &str| files::read_text(&proc.join(name));
        Self::parse(&text("stat")?, &text("meminfo")?)
            .with_context(|| format!("reading CPUs and memory from {}", proc.display()))
    }

    /// Parses proc_stat(5) and proc_meminfo(5).
    fn parse(stat: &str, meminfo: &str) -> Result<Self> {
        // `cpu` is the sum, `cpu0` and so on are the CPUs.
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let cpus = u32::try_from(stat.lines().filter(is_cpu).count()).unwrap_or(u32::MAX);
        let memory = meminfo::amount(meminfo, "MemTotal").context("meminfo has no MemTotal in kB")?;
        anyhow::ensure!(cpus > 0, "stat names no CPU");
        Ok(Self { cpus, memory: memory.get() >> 20 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  1 2 3\ncpu0 1 2 3\ncpu1 1 2 3\nintr 5\nctxt 1\n";

    #[test]
    fn cpus_and_memory_are_found_in_the_texts_of_the_kernel() {
        let meminfo = "MemTotal:       65843212 kB\nMemFree:         1 kB\n";
        assert_eq!(MachineSize::parse(STAT, meminfo).unwrap(), MachineSize { cpus: 2, memory: 64_300 });
        assert!(MachineSize::read(Path::new("/proc")).unwrap().memory > 0);
    }

    #[test]
    fn texts_without_them_are_errors() {
        for (stat, meminfo) in
            [("cpu 1\n", "MemTotal: 4 kB\n"), (STAT, "MemFree: 4 kB\n"), (STAT, "MemTotal: x kB\n")]
        {
            assert!(MachineSize::parse(stat, meminfo).is_err(), "{stat:?} {meminfo:?}");
        }
    }
}
