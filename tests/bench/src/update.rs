//! The download of a kernel update, and the time that an emulated node takes: to bring a release into its other slot, whole and by
//! patches, to restart into it, and to find that there is nothing to do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::MAC;
use nqrust_tests::programs;
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{
    self, LATER, NEXT, UPDATE_LIMIT, boot_id, changed_release, logged_in_where, release, serve, settled, slot,
};
use serde_json::Value;

use crate::delta::older_kernel;
use crate::figure::{Figure, RatioLimit, median};
use crate::images::mebibytes;

/// For a run of `iso-builder push` or `pull`.
const LIMIT: Duration = Duration::from_secs(900);
/// An update with nothing to do, of which the median counts.
const IDLE_RUNS: usize = 5;
/// In starts of the program. On a machine that is not emulated a start takes some hundredths of a second, and such an update has one
/// second.
const IDLE_STARTS: f64 = 20.0;
/// The kernel in the definition under test.
const KERNEL: &str = "linux-image-amd64";
/// Of the whole release, for another kernel.
const FETCHED: f64 = 0.10;

/// Seconds from the command that ends in a restart.
struct RestartSeconds {
    /// Until the system before answers no more.
    away: f64,
    /// Until the new release answers by SSH.
    answer: f64,
    /// Until the release is known to be good. A boot is watched for a minute at least.
    good: f64,
}

/// Updates a node whole to a release with the kernel before the newest, and by patches to one with the newest, which is all that they
/// differ in. How large patches of packages are is measured apart (`delta`).
pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let identity = Identity::load()?;
    let now = steps::medium(&identity)?;
    let older = older_kernel(&artifacts.disk("lists"))?;
    let next = changed_release(&identity, "update-kernel", NEXT, |definition| {
        let packages = definition["base"]["debian"]["include"].as_sequence_mut();
        let kernel = packages.and_then(|packages| packages.iter_mut().find(|package| *package == KERNEL));
        *kernel.with_context(|| format!("the definition does not name {KERNEL}"))? = older.into();
        Ok(())
    })?;
    let later = release(&identity, "update-later", LATER, &[])?;
    let served = artifacts.disk("www");
    serve(&next, &served, "next")?;
    serve(&later, &served, "later-whole")?;
    let layout = artifacts.disk("layout");
    let mut push = programs::iso_builder()?;
    push.arg("push").arg(&later.full).arg(format!("oci:{}", layout.display()));
    push.arg("--delta-from").arg(&next.full);
    programs::run(&mut push, LIMIT)?.success("publishing a release with patches")?;
    let mut pull = programs::iso_builder()?;
    pull.arg("pull").arg(format!("oci:{}", layout.display())).arg(served.join("later"));
    programs::run(&mut pull, LIMIT)?.success("fetching a release with its patches")?;
    let server = Server::start(&served, 0)?;
    let from = |name: &str| format!("--from http://10.0.2.2:{}/{name}", server.port());

    let disk = Disk::empty(artifacts.disk("update.qcow2"), ByteSize::gib(24))?;
    let began = Instant::now();
    let install = Machine::new("update-install", Firmware::Uefi).cdrom(&now.full).network(MAC).disk(&disk);
    steps::install(&install, artifacts)?;
    let installed = began.elapsed().as_secs_f64();
    let machine = Machine::new("update", Firmware::Uefi).network(MAC).disk(&disk).reboots();
    let (mut vm, mut ssh) = steps::boot(&machine, &identity, artifacts)?;
    settled(&ssh)?;

    let whole = seconds(&ssh, &format!("sudo -n installer update stage {}", from("next.iso")))?;
    let restart = restart(&mut vm, &mut ssh, &identity, artifacts)?;
    expect(&ssh, "b", NEXT)?;
    // After a good boot the node renews its recovery system, which an update waits for.
    let nothing = format!("sudo -n installer update stage --wait 600 {}", from("next.iso"));
    seconds(&ssh, &nothing)?;
    let idle: Result<Vec<_>> = (0..IDLE_RUNS).map(|_| seconds(&ssh, &nothing)).collect();
    let idle = median(idle?);
    let version: Result<Vec<_>> =
        (0..IDLE_RUNS).map(|_| seconds(&ssh, "sudo -n installer --version")).collect();
    let version = median(version?);
    // An ISO offers no patches.
    let (all, fetched) =
        (bytes_to_fetch(&ssh, &from("later-whole.iso"))?, bytes_to_fetch(&ssh, &from("later"))?);
    let patched = seconds(&ssh, &format!("sudo -n installer update stage {}", from("later")))?;
    let mut asked = server.requests();
    asked.retain(|request| request.starts_with("GET /later/"));
    if asked.iter().filter(|request| request.contains("/patches/")).count() != 2
        || asked.iter().any(|request| request.contains("initrd") || request.contains("rootfs"))
    {
        bail!("the node has not taken the patches alone: {asked:?}");
    }
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)?;
    Ok(vec![
        Figure::new("update: stage a release, whole", whole, "s", ("an install", installed)),
        Figure::new("update of the kernel: fetched", fetched, "MiB", ("whole", all))
            .limit(RatioLimit::AtMost(FETCHED)),
        Figure::new("update of the kernel: stage by patches", patched, "s", ("a release, whole", whole)),
        Figure::new(
            "update: command to an answer of the new release",
            restart.answer,
            "s",
            ("until the old one is away", restart.away),
        ),
        Figure::new(
            "update: command to a release known to be good",
            restart.good,
            "s",
            ("to its answer", restart.answer),
        ),
        Figure::new("update: with nothing to do", idle, "s", ("installer --version", version))
            .limit(RatioLimit::AtMost(IDLE_STARTS)),
    ])
}

/// The size of the OS download of an update, in MiB.
fn bytes_to_fetch(ssh: &Ssh, from: &str) -> Result<f64> {
    let told = ssh.run(&format!("sudo -n installer --format json update check {from}"))?;
    let told: Value = serde_json::from_str(&told).context("the plan of an update")?;
    told["fetched"].as_u64().map(mebibytes).context("a plan without the bytes to fetch")
}

/// How long a command takes on the node, with the few hundredths of a second of SSH.
fn seconds(ssh: &Ssh, command: &str) -> Result<f64> {
    let began = Instant::now();
    let told = ssh.attempt(command, UPDATE_LIMIT)?;
    if told.code != 0 {
        bail!("`{command}` ended with exit code {}: {}", told.code, told.stderr);
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Restarts into what is staged.
fn restart(vm: &mut Vm, ssh: &mut Ssh, identity: &Identity, artifacts: &Artifacts) -> Result<RestartSeconds> {
    let boot = boot_id(ssh)?;
    let began = Instant::now();
    // The connection breaks with the system that answers it: 255.
    let told = ssh.attempt("sudo -n installer update apply && sleep 600", UPDATE_LIMIT)?;
    if told.code != 255 {
        bail!("the update ended with exit code {}: {}", told.code, told.stderr);
    }
    let away = began.elapsed().as_secs_f64();
    let wanted = ("the system after the restart", UPDATE_LIMIT);
    *ssh = logged_in_where(vm, (identity, artifacts), wanted, |ssh| Ok(boot_id(ssh)? != boot))?;
    let answer = began.elapsed().as_secs_f64();
    settled(ssh)?;
    Ok(RestartSeconds { away, answer, good: began.elapsed().as_secs_f64() })
}

fn expect(ssh: &Ssh, name: &str, version: &str) -> Result<()> {
    let status = updates::status(ssh)?;
    let found = slot(&status, name);
    if found != (version.to_owned(), "good".to_owned()) {
        bail!("slot {name} is {found:?}, not {version} and good: {status}");
    }
    Ok(())
}
