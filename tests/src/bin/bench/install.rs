//! The rate and the memory of an install, in a virtual machine with 2 GiB.
//!
//! A unit in the medium's bench overlay lets `dd` write the OS image to the same disk first; see
//! `tests/fixtures/bench-overlay`.

use anyhow::{Context, Result};
use installer::size::ByteSize;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::node::INSTALL_LOGS;
use nqrust_tests::qemu::Firmware;
use nqrust_tests::steps;

use crate::builds::{Event, events, seconds};
use crate::figure::{Figure, Limit};

/// The installer's step that writes the OS image to its slot.
const WRITE: &str = "image";

/// The step that reads it from the disk again and hashes it.
const READ_BACK: &str = "read-back";

/// The memory of the machine that installs.
const MEMORY: ByteSize = ByteSize::gib(2);

/// The most memory that the installer may take.
const PEAK: ByteSize = ByteSize::mib(256);

/// Installs once and reads the figures off the console and the node's logs.
pub(crate) fn measure(medium: &Medium, artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let identity = Identity::load()?;
    let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
    let live = steps::node("install", Firmware::Bios, "").memory(MEMORY).disk(&disk).cdrom(&medium.full);
    let console = steps::install(&live, artifacts)?;
    let direct = dd_rate(&console).context("the console does not tell of dd")?;
    let peak = peak_memory(&console).context("the console does not tell the installer's peak memory")?;

    let node = steps::node("node", Firmware::Bios, "").disk(&disk);
    let (vm, ssh) = steps::boot(&node, &identity, artifacts)?;
    let logs = ssh.run(&format!("sudo -n sh -c 'cat {INSTALL_LOGS}/*'"))?;
    artifacts.append("install-logs.txt", &logs)?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN)?;

    let events = events(&logs);
    let (rate, written, read_back) =
        (write_rate(&events)?, seconds(&events, WRITE)?, seconds(&events, READ_BACK)?);
    let install =
        Figure::new("install, writing the OS image", rate / 1e6, "MB/s", ("dd oflag=direct", direct / 1e6));
    let memory =
        Figure::new("peak memory of the installer", peak / 1_048_576.0, "MiB", ("limit", mebibytes(PEAK)));
    let proven = Figure::new(
        "install, OS image written and read back",
        written + read_back,
        "s",
        ("written only", written),
    );
    Ok(vec![
        install.limit(Limit::AtLeast(0.85)),
        proven.limit(Limit::AtMost(2.2)),
        memory.limit(Limit::AtMost(1.0)),
    ])
}

#[allow(clippy::cast_precision_loss)]
fn mebibytes(size: ByteSize) -> f64 {
    size.get() as f64 / f64::from(1 << 20)
}

/// Bytes a second of the step [`WRITE`].
#[allow(clippy::cast_precision_loss)]
fn write_rate(events: &[Event]) -> Result<f64> {
    let done = events.iter().find(|event| event.step == WRITE && event.state == "done");
    let bytes = done.and_then(|event| event.bytes).context("the step that writes has no bytes")?;
    Ok(bytes as f64 / seconds(events, WRITE)?)
}

/// Bytes a second in dd's own words: `N bytes (…) copied, S s, …`.
fn dd_rate(console: &str) -> Option<f64> {
    let line = console.lines().find_map(|line| line.split_once("nqrust-bench dd: ").map(|(_, rest)| rest))?;
    let bytes: f64 = line.split(' ').next()?.parse().ok()?;
    let seconds: f64 = line.split_once("copied, ")?.1.split(' ').next()?.parse().ok()?;
    Some(bytes / seconds)
}

/// The installer's own words, in bytes: `Peak memory 22.1 MiB`.
fn peak_memory(console: &str) -> Option<f64> {
    let told = |line: &'_ str| line.split_once("Peak memory ").map(|(_, size)| size.trim().to_owned());
    let size = console.lines().rev().find_map(told)?;
    let (number, unit) = size.split_once(' ')?;
    let shift = ["B", "KiB", "MiB", "GiB"].iter().position(|known| *known == unit)?;
    Some(number.parse::<f64>().ok()? * 1024_f64.powi(i32::try_from(shift).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_dd_is_read_off_the_console() {
        let console = "boot\nnqrust-bench dd: 419430400 bytes (419 MB, 400 MiB) copied, 4 s, 105 MB/s\n";
        assert_eq!(dd_rate(console), Some(104_857_600.0));
        assert_eq!(dd_rate("boot\n"), None);
    }

    #[test]
    fn the_peak_memory_is_read_off_the_console() {
        assert_eq!(peak_memory("[ ok ] Done\n       Peak memory 4.5 MiB\r\n"), Some(4.5 * 1_048_576.0));
        assert_eq!(peak_memory("nothing"), None);
    }
}
