//! The rate and the memory of an install, in a virtual machine with 2 GiB.
//!
//! A unit in the medium's bench overlay lets `dd` write the OS image to the same disk first; see
//! `tests/bench/overlay`.

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::node::INSTALL_LOGS;
use nqrust_tests::qemu::Firmware;
use nqrust_tests::steps;

use crate::builds::{ProgressEvent, events, seconds};
use crate::figure::{Figure, RatioLimit};
use crate::scale::Scale;

/// The installer's step that writes the OS image to its slot.
const WRITE_STEP: &str = "image";

/// The step that reads it from the disk again and hashes it.
const READ_BACK_STEP: &str = "read-back";

/// The memory of the machine that installs.
const MEMORY: ByteSize = ByteSize::gib(2);

const PEAK_LIMIT: ByteSize = ByteSize::mib(256);

struct InstallRound {
    /// Bytes a second of `dd` on the disk of this install.
    direct: f64,
    /// Bytes a second of the step [`WRITE_STEP`].
    rate: f64,
    /// Seconds of the step [`WRITE_STEP`].
    written: f64,
    /// Seconds of the step [`READ_BACK_STEP`].
    read_back: f64,
    /// Peak memory in bytes.
    peak: f64,
}

/// Installs a few times and takes the median of each figure: writing takes only a few seconds of each install, so one stall of the
/// host's disk weighs much.
pub(crate) fn measure(medium: &Medium, artifacts: &Artifacts, scale: Scale) -> Result<Vec<Figure>> {
    let identity = Identity::load()?;
    let rounds = (1..=scale.pick(3, 1))
        .map(|round| install(round, medium, &identity, artifacts).with_context(|| format!("install {round}")))
        .collect::<Result<Vec<_>>>()?;
    let rate = middle(&rounds, |round| round.rate / round.direct);
    let proven = middle(&rounds, |round| round.read_back / round.written);
    let memory = middle(&rounds, |round| round.peak);
    let ratios = rounds.iter().map(|round| format!("{:.2}", round.rate / round.direct)).collect::<Vec<_>>();
    artifacts.append("rates.txt", &format!("writing against dd in each install: {}\n", ratios.join(", ")))?;
    let rate = Figure::new(
        "install, writing the OS image",
        rate.rate / 1e6,
        "MB/s",
        ("dd oflag=direct", rate.direct / 1e6),
    );
    let memory = Figure::new(
        "peak memory of the installer",
        memory.peak / 1_048_576.0,
        "MiB",
        ("limit", mebibytes(PEAK_LIMIT)),
    );
    let proven = Figure::new(
        "install, OS image written and read back",
        proven.written + proven.read_back,
        "s",
        ("written only", proven.written),
    );
    Ok(vec![
        rate.limit(RatioLimit::AtLeast(0.85)),
        proven.limit(RatioLimit::AtMost(2.2)),
        memory.limit(RatioLimit::AtMost(1.0)),
    ])
}

/// Installs on a disk of its own, and reads the figures from the console and the node's logs.
fn install(
    round: usize,
    medium: &Medium,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<InstallRound> {
    let disk = Disk::empty(artifacts.disk(&format!("node-{round}.qcow2")), ByteSize::gib(32))?;
    let live = steps::node(&format!("install-{round}"), Firmware::Bios, "");
    let console = steps::install(&live.memory(MEMORY).disk(&disk).cdrom(&medium.full), artifacts)?;
    let direct = dd_rate(&console).context("the console does not tell of dd")?;
    let peak = peak_memory(&console).context("the console does not tell the installer's peak memory")?;

    let node = steps::node(&format!("node-{round}"), Firmware::Bios, "").disk(&disk);
    let (vm, ssh) = steps::boot(&node, identity, artifacts)?;
    let logs = ssh.run(&format!("sudo -n sh -c 'cat {INSTALL_LOGS}/*'"))?;
    artifacts.append(&format!("install-logs-{round}.txt"), &logs)?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)?;

    let events = events(&logs);
    let (written, read_back) = (seconds(&events, WRITE_STEP)?, seconds(&events, READ_BACK_STEP)?);
    Ok(InstallRound { direct, rate: write_rate(&events)?, written, read_back, peak })
}

/// The round with the median of a figure.
fn middle(rounds: &[InstallRound], figure: impl Fn(&InstallRound) -> f64) -> &InstallRound {
    let mut sorted = rounds.iter().collect::<Vec<_>>();
    sorted.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
    sorted[sorted.len() / 2]
}

#[allow(clippy::cast_precision_loss)]
fn mebibytes(size: ByteSize) -> f64 {
    size.get() as f64 / f64::from(1 << 20)
}

/// Bytes a second of the step [`WRITE_STEP`].
#[allow(clippy::cast_precision_loss)]
fn write_rate(events: &[ProgressEvent]) -> Result<f64> {
    let done = events.iter().find(|event| event.step == WRITE_STEP && event.state == "done");
    let bytes = done.and_then(|event| event.bytes).context("the step that writes has no bytes")?;
    Ok(bytes as f64 / seconds(events, WRITE_STEP)?)
}

/// Bytes a second from dd's output: `N bytes (…) copied, S s, …`.
fn dd_rate(console: &str) -> Option<f64> {
    let line = console.lines().find_map(|line| line.split_once("nqrust-bench dd: ").map(|(_, rest)| rest))?;
    let bytes: f64 = line.split(' ').next()?.parse().ok()?;
    let seconds: f64 = line.split_once("copied, ")?.1.split(' ').next()?.parse().ok()?;
    Some(bytes / seconds)
}

/// The installer's line `Peak memory 22.1 MiB`, in bytes.
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
    fn the_median_install_is_reported() {
        let round = |rate: f64| InstallRound { direct: 1.0, rate, written: 1.0, read_back: 1.0, peak: 1.0 };
        let rounds = [1.34, 0.75, 1.55].map(round);
        assert_eq!(middle(&rounds, |round| round.rate).rate.to_bits(), 1.34_f64.to_bits());
    }

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
