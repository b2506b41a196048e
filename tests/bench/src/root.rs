//! The cost of an OS image that is checked at every read, on an emulated machine, which has no instructions for SHA-256: how fast it reads,
//! and how long the node takes to start.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use base::size::ByteSize;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::node::MAC;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{CURRENT, changed_release};

use crate::figure::{Figure, median};

/// How often each node is started, in turns.
const STARTS: usize = 3;
/// How often each device is read, in turns.
const READS: usize = 3;
const READ_MIB: u64 = 256;
/// The file by which the initrd lets an installed node read its image through dm-verity.
const GENERATOR: &str = "usr/lib/dracut/modules.d/95nqrust/root-generator.sh";

pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let identity = Identity::load()?;
    let checked = steps::medium(&identity)?;
    let plain = without_checks(&identity, artifacts)?;
    let install = |name: &str, medium: &Medium| -> Result<Disk> {
        let disk = Disk::empty(artifacts.disk(&format!("{name}.qcow2")), ByteSize::gib(32))?;
        steps::install(
            &Machine::new(name, Firmware::Uefi).cdrom(&medium.full).network(MAC).disk(&disk),
            artifacts,
        )
        .with_context(|| format!("installing the node {name}"))?;
        Ok(disk)
    };
    let disks = [
        ("root-checked", install("root-checked", &checked)?),
        ("root-plain", install("root-plain", &plain)?),
    ];
    let mut starts = [Vec::new(), Vec::new()];
    let mut reads = [Vec::new(), Vec::new()];
    // The first start of a node also fills its /var.
    for turn in 0..=STARTS {
        for (number, (name, disk)) in disks.iter().enumerate() {
            let began = Instant::now();
            let machine = Machine::new(name, Firmware::Uefi).network(MAC).disk(disk);
            let (vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
            if turn > 0 {
                starts[number].push(began.elapsed().as_secs_f64());
            }
            let mounted = ssh.run("findmnt --noheadings --output SOURCE /")?;
            ensure!(mounted.contains("nqrust-root") == (number == 0), "{name} has {mounted} at /");
            if turn == STARTS && number == 0 {
                for _ in 0..READS {
                    reads[0].push(rate(&ssh, "/dev/mapper/nqrust-root")?);
                    reads[1].push(rate(&ssh, "/dev/disk/by-partlabel/root-a")?);
                }
            }
            drop(ssh);
            vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
    }
    let [checked_start, plain_start] = starts.map(median);
    let [checked_rate, plain_rate] = reads.map(median);
    Ok(vec![
        Figure::new(
            "emulated: power on to login, image checked",
            checked_start,
            "s",
            ("not checked", plain_start),
        ),
        Figure::new(
            "emulated: reading the checked image",
            checked_rate,
            "MiB/s",
            ("the partition", plain_rate),
        ),
    ])
}

/// The medium of the same release whose nodes mount the partition itself.
fn without_checks(identity: &Identity, artifacts: &Artifacts) -> Result<Medium> {
    let overlay = artifacts.disk("plain-root");
    let generator = overlay.join(GENERATOR);
    fs::create_dir_all(generator.parent().context("a path with a directory")?)?;
    fs::write(generator, "#!/bin/sh\nexit 0\n")?;
    changed_release(identity, "plain-root", CURRENT, |definition| {
        let text = overlay.to_str().context("a path of text")?;
        definition["overlays"]["initrd"] = vec![text].into();
        Ok(())
    })
}

/// MiB per second of a read past all caches.
fn rate(ssh: &Ssh, device: &str) -> Result<f64> {
    let read = format!("sudo -n dd if={device} of=/dev/null bs=1M count={READ_MIB} iflag=direct status=none");
    let timed = ssh.run(&format!("s=$(date +%s%N); {read}; e=$(date +%s%N); echo $((e - s))"))?;
    let nanoseconds: f64 = timed.trim().parse().with_context(|| format!("{timed:?} is no time"))?;
    #[allow(clippy::cast_precision_loss)]
    Ok(READ_MIB as f64 * 1e9 / nanoseconds)
}
