//! Power cuts: a complete install whose writes are all logged, judged at random moments; and installs that are
//! interrupted and then complete by themselves.
//!
//! Both take many minutes and run only in `make soak`.

use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use base::size::ByteSize;
use model::config::Role;
use nqrust_checker::crash::{Log, State, prefixes};
use nqrust_checker::{Expected, Verdict, judge};
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::{installed, steps, write_log};
use testing::numbers::Numbers;

const SIZE: ByteSize = ByteSize::gib(32);

/// Printed when the installer begins to write: before that there is nothing to interrupt.
const BEGUN: &str = "Erasing the disk";

/// Printed when it continues an interrupted install.
const CONTINUED: &str = "Continuing the install on";

/// One of so many interrupted installs is also booted.
const BOOTED: usize = 4;

const JUDGED_MOMENTS: usize = 400;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
#[ignore = "takes minutes; make soak runs it"]
fn a_disk_that_loses_power_at_any_moment_of_an_install_is_old_or_not_bootable_or_complete() {
    scenario("power-cut-moments", |artifacts| {
        let (medium, seed) = (steps::medium(&Identity::load()?)?, artifacts.seed()?);
        let expected = installed::expected(&medium, Role::Management, SIZE)?;
        let log = artifacts.disk("writes.log");
        let disk = Disk::empty(artifacts.disk("node.qcow2"), SIZE)?.logged(log.clone())?;
        let live = steps::node("install", Firmware::Bios, "").disk(&disk).cdrom(&medium.full);
        steps::install(&live, artifacts)?;

        let (entries, data) = write_log::read(&log)?;
        let log = Log { entries, data: &data };
        let replayed = Disk::empty_raw(artifacts.disk("replayed.img"), SIZE)?;
        let mut replayed = File::options().read(true).write(true).open(&replayed.path)?;
        let (mut counts, mut holes) = ([0; 3], Vec::new());
        let mut visit = |state: &State<'_>| match state.verdict {
            Verdict::OldState => counts[0] += 1,
            Verdict::NotBootable => counts[1] += 1,
            Verdict::Complete => counts[2] += 1,
            Verdict::Half(_) => holes.push(state.to_string()),
        };
        prefixes(&mut replayed, &log, &expected, (JUDGED_MOMENTS, seed), &mut visit)?;
        artifacts
            .append("states.txt", &format!("{} entries; {counts:?}; {holes:#?}\n", log.entries.len()))?;
        ensure!(holes.is_empty(), "{} bad states of {JUDGED_MOMENTS}, such as: {}", holes.len(), holes[0]);
        ensure!(counts[1] > 0 && counts[2] > 0, "old, not bootable, complete: {counts:?}");
        complete(&replayed, &expected)
    });
}

#[test]
#[ignore = "takes minutes for each of its installs; make soak runs it"]
fn an_install_that_is_cut_off_at_a_random_moment_finishes_when_the_machine_starts_again() {
    scenario("power-cut-again", |artifacts| {
        let identity = Identity::load()?;
        let (medium, mut numbers) = (steps::medium(&identity)?, Numbers(artifacts.seed()?));
        let expected = installed::expected(&medium, Role::Management, SIZE)?;
        let length = measure(&medium, artifacts)?;
        let length = usize::try_from(length.as_millis())?;
        let moments: Vec<_> = (0..number("NQRUST_POWER_CUTS", 3))
            .map(|_| Duration::from_millis(numbers.below(length) as u64))
            .collect();
        let rounds = Mutex::new(moments.into_iter().enumerate());
        // As many at a time as there are processors for, at most two.
        let again = || -> Result<()> {
            loop {
                let next = rounds.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((round, moment)) = next else { return Ok(()) };
                let case =
                    InterruptedInstall { round, medium: &medium, identity: &identity, expected: &expected };
                case.run(moment, artifacts).with_context(|| format!("round {round}"))?;
            }
        };
        std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(again));
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
        })
    });
}

struct InterruptedInstall<'a> {
    round: usize,
    medium: &'a Medium,
    identity: &'a Identity,
    expected: &'a Expected,
}

impl InterruptedInstall<'_> {
    fn run(&self, moment: Duration, artifacts: &Artifacts) -> Result<()> {
        let Self { round, medium, identity, expected } = self;
        let disk = Disk::empty_raw(artifacts.disk(&format!("node-{round}.img")), SIZE)?;
        // The disk comes first, as on a machine in which the medium was left: what is on the disk must not keep the
        // medium from booting.
        let live = |purpose: &str| {
            steps::node(&format!("{purpose}-{round}"), Firmware::Bios, "").disk(&disk).cdrom(&medium.full)
        };
        let amid_images = cut(&live("cut"), moment, *round, artifacts)?;
        let left = judge(&File::open(&disk.path)?, expected)?;
        artifacts.append("cuts.txt", &format!("{round}: the disk is then {left:?}\n"))?;
        ensure!(!matches!(left, Verdict::Half(_)), "the disk after the cut: {left:?}");
        let (end, told) = finish(&live("again"), artifacts)?;
        ensure!(!amid_images || told.contains(CONTINUED), "the install begins anew:\n{told}");
        match end {
            RestartOutcome::Installed => complete(&File::open(&disk.path)?, expected)?,
            // A node that has run has written more.
            RestartOutcome::Ran => {
                ensure!(left == Verdict::Complete, "a node runs from a disk that was {left:?}")
            }
        }
        // Every disk was judged byte by byte; some of them are booted as well.
        if round.is_multiple_of(BOOTED) {
            let node = steps::node(&format!("node-{round}"), Firmware::Uefi, "").disk(&disk);
            let (vm, ssh) = steps::boot(&node, identity, artifacts)?;
            drop(ssh);
            vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
        std::fs::remove_file(&disk.path)?;
        Ok(())
    }
}

fn complete(disk: &File, expected: &Expected) -> Result<()> {
    let verdict = judge(disk, expected)?;
    ensure!(verdict == Verdict::Complete, "the disk in the end: {verdict:?}");
    Ok(())
}

/// How long an install writes, from its first step that does to its last, while another one runs, as in the rounds.
fn measure(medium: &Medium, artifacts: &Artifacts) -> Result<Duration> {
    std::thread::scope(|scope| {
        let both = [0, 1].map(|number| scope.spawn(move || measure_one(number, medium, artifacts)));
        let lengths = both.map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        let [one, other] = lengths;
        Ok(one?.max(other?))
    })
}

fn measure_one(number: usize, medium: &Medium, artifacts: &Artifacts) -> Result<Duration> {
    let name = format!("measure-{number}");
    let disk = Disk::empty(artifacts.disk(&format!("{name}.qcow2")), SIZE)?;
    let mut vm = steps::node(&name, Firmware::Bios, "").disk(&disk).cdrom(&medium.full).start(artifacts)?;
    steps::expect(&mut vm, BEGUN, steps::INSTALL_LIMIT)?;
    let begun = Instant::now();
    steps::expect(&mut vm, steps::INSTALL_COMPLETE, steps::INSTALL_LIMIT)?;
    let length = begun.elapsed();
    vm.kill()?;
    Ok(length)
}

/// Starts an install and cuts the power when it has been writing for `moment`; returns whether it was storing images
/// then.
fn cut(machine: &Machine, moment: Duration, round: usize, artifacts: &Artifacts) -> Result<bool> {
    let mut vm = machine.start(artifacts)?;
    steps::expect(&mut vm, BEGUN, steps::INSTALL_LIMIT)?;
    std::thread::sleep(moment);
    let console = vm.serial.rest(Duration::from_millis(10));
    let last = console.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
    vm.kill()?;
    artifacts.append("cuts.txt", &format!("{round}: after {:.1} s: {last}\n", moment.as_secs_f64()))?;
    // Reading them back takes long enough that the machine is not ahead of its console.
    Ok(console.contains("Storing the container images")
        && !console.contains("Reading the container images back"))
}

/// The result of starting a machine again.
#[derive(Clone, Copy, Debug)]
enum RestartOutcome {
    /// It completed the install.
    Installed,
    /// The install had been complete, and its node started.
    Ran,
}

/// Starts the machine again without any input. Returns what it did and the console output.
fn finish(machine: &Machine, artifacts: &Artifacts) -> Result<(RestartOutcome, String)> {
    let mut vm = machine.start(artifacts)?;
    let ends = [steps::INSTALL_COMPLETE, " login: ", "\n  because: ", "grub rescue>", "Kernel panic"];
    let (end, told) = vm.serial.wait_for_any(&ends, steps::INSTALL_LIMIT)?;
    match end {
        0 => vm.wait_for_exit(steps::SHUTDOWN_LIMIT).map(|_| (RestartOutcome::Installed, told)),
        1 => vm.power_off(steps::SHUTDOWN_LIMIT).map(|()| (RestartOutcome::Ran, told)),
        _ => bail!("the console says:\n{}", vm.serial.rest(Duration::from_secs(3))),
    }
}
