//! Customizing an ISO of 5 GiB in place, beside adding the same file with xorriso.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use base::size::ByteSize;
use medium::customization::{FILE, GRUB_FILE, area, argument};
use model::release::{MANIFEST, Payload, Purpose, Release};
use nix::sys::resource::{UsageWho, getrusage};
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::programs;

use crate::figure::{Figure, RatioLimit};
use crate::scale::Scale;

const LARGE_PAYLOAD: ByteSize = ByteSize::gib(5);
const SHORT_PAYLOAD: ByteSize = ByteSize::mib(64);
/// The limits of time and of bytes written.
const LIMIT_S: f64 = 0.3;
const LIMIT_MIB: f64 = 20.0;
/// How often it is measured; the quickest round counts, which other work on the host disturbs least.
const ROUNDS: usize = 5;
const PROGRAM_TIME_LIMIT: Duration = Duration::from_secs(1800);

/// Two configurations in turn, so that every round has something to change.
const CONFIGURATIONS: [&str; 2] = [
    "os: {hostname: node-1}\ninstall: {automatic: false}\n",
    "os: {hostname: node-2}\ninstall: {automatic: false}\n",
];

/// Measures customizing in place, and adding a file with xorriso.
pub(crate) fn measure(artifacts: &Artifacts, scale: Scale) -> Result<Vec<Figure>> {
    let payload = scale.pick(LARGE_PAYLOAD, SHORT_PAYLOAD);
    let name = format!("customize an ISO of {payload} in place");
    let directory = artifacts.disk("customize");
    fs::create_dir_all(&directory)?;
    let iso = sparse_iso(&directory, payload)?;
    let usual = replayed(&iso, &directory)?;
    let (mut quickest, mut most) = (f64::INFINITY, 0.0_f64);
    for round in 0..ROUNDS {
        let document = directory.join("node.yaml");
        fs::write(&document, CONFIGURATIONS[round % CONFIGURATIONS.len()])?;
        let mut command = programs::iso_builder()?;
        command.args(["customize", "--progress", "plain"]).arg(&iso).arg("--config").arg(&document);
        let (before, began) = (written()?, Instant::now());
        let said = programs::run(&mut command, PROGRAM_TIME_LIMIT)?.success("iso-builder customize")?;
        quickest = quickest.min(began.elapsed().as_secs_f64());
        most = most.max(written()? - before);
        ensure!(said.contains("customized with 1 configuration"), "{said}");
    }
    fs::remove_dir_all(&directory)?;
    Ok(vec![
        Figure::new(&name, quickest, "s", ("limit", LIMIT_S)).limit(RatioLimit::AtMost(1.0)),
        Figure::new("written by that", most, "MiB", ("limit", LIMIT_MIB)).limit(RatioLimit::AtMost(1.0)),
        Figure::new(&name, quickest, "s", ("xorriso -map, a new ISO", usual)).limit(RatioLimit::AtMost(1.0)),
    ])
}

/// MiB that this program's children have written to disks so far (getrusage(2), in blocks of 512 bytes).
fn written() -> Result<f64> {
    let blocks = getrusage(UsageWho::RUSAGE_CHILDREN)?.block_writes();
    Ok(f64::from(u32::try_from(blocks)?) / 2048.0)
}

/// An ISO with the files that customizing needs, and a sparse payload of zeros.
fn sparse_iso(directory: &Path, payload: ByteSize) -> Result<PathBuf> {
    let (tree, iso) = (directory.join("tree"), directory.join("large.iso"));
    fs::create_dir_all(tree.join("boot/grub"))?;
    let blank = |name: &str, length| File::create(tree.join(name)).and_then(|file| file.set_len(length));
    blank("rootfs.squashfs", payload.get())?;
    blank(FILE, area::LENGTH)?;
    fs::write(tree.join(GRUB_FILE), argument::grub(&[], None)?)?;
    fs::write(tree.join(MANIFEST), release(payload).to_bytes())?;
    let script =
        r#"xorriso -as mkisofs -quiet -r -iso-level 3 "$1" | dd of="$2" bs=1M iflag=fullblock conv=sparse"#;
    let mut make = Command::new("sh");
    make.args(["-c", script, "sh"]).arg(&tree).arg(&iso);
    programs::run(&mut make, PROGRAM_TIME_LIMIT)?.success("xorriso")?;
    File::open(&iso)?.sync_all().context("flushing the ISO")?;
    Ok(iso)
}

/// Seconds that xorriso takes to make an ISO with one more file.
fn replayed(iso: &Path, directory: &Path) -> Result<f64> {
    let (document, output) = (directory.join("replayed.yaml"), directory.join("replayed.iso"));
    fs::write(&document, CONFIGURATIONS[0])?;
    let began = Instant::now();
    let mut command = Command::new("xorriso");
    command.args(["-report_about", "WARNING", "-indev"]).arg(iso).arg("-outdev").arg(&output);
    command.args(["-boot_image", "any", "replay", "-map"]).arg(&document).arg("/config/install.yaml");
    programs::run(&mut command, PROGRAM_TIME_LIMIT)?.success("xorriso")?;
    File::open(&output)?.sync_all()?;
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_file(&output)?;
    Ok(seconds)
}

/// A manifest whose digests are not checked here.
fn release(payload: ByteSize) -> Release {
    let rootfs = Payload {
        path: "rootfs.squashfs".into(),
        purpose: Purpose::Rootfs,
        size: payload.get(),
        sha256: Digest::of(b"zeros"),
    };
    testing::release::minimal("bench", vec![rootfs])
}
