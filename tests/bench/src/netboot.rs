//! The memory of a machine that is installed over the network, with a small and with a large image set, which go from
//! `iso-builder serve` to its disk.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::digest::{Digest, Hasher};
use base::files::write_atomically;
use base::size::ByteSize;
use model::release::{Image, MANIFEST, Payload, Purpose, Release};
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::deadline::Deadline;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::serve::Server;
use nqrust_tests::steps;

use crate::figure::{Figure, RatioLimit};
use crate::images::{HashingWriter, noise};

const LAYER_BYTES: u64 = 128 << 20;
/// The image sets, in layers besides the images of the medium: 1 GiB and 8 GiB.
const IMAGE_SETS_LAYERS: [u64; 2] = [8, 64];
/// The size of the disk, which is sparse.
const DISK_SIZE: ByteSize = ByteSize::gib(512);
/// From power on to the end of the install.
const INSTALL_LIMIT: Duration = Duration::from_secs(2400);

/// Measures both image sets.
pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let identity = Identity::load()?;
    let medium = artifacts.disk("netboot");
    fs::create_dir_all(&medium)?;
    steps::medium_without_configuration(&identity)?.unpack(&medium)?;
    let release = Release::parse(&fs::read(medium.join(MANIFEST))?)?;
    let mut peaks = [0.0; 2];
    for (peak, layers) in peaks.iter_mut().zip(IMAGE_SETS_LAYERS) {
        fill(&medium, release.clone(), layers)?;
        *peak = install(&medium, &identity, artifacts).with_context(|| format!("{layers} layers"))?;
    }
    fs::remove_dir_all(medium)?;
    let figure =
        Figure::new("a machine that gets 8 GiB of images", peaks[1], "MiB", ("1 GiB of images", peaks[0]));
    Ok(vec![figure.limit(RatioLimit::AtMost(1.05))])
}

/// Installs from a server; returns the peak of memory in use (not available to other programs), in MiB.
#[allow(clippy::cast_precision_loss)]
fn install(medium: &Path, identity: &Identity, artifacts: &Artifacts) -> Result<f64> {
    let private = tempfile::tempdir()?;
    let nodes = private.path().join("nodes");
    let mut document = Document::new("node-m").to_json(identity);
    document["install"]["profile"] = "production".into();
    document["install"]["vip"] = "10.0.2.77".into();
    // The production profile requires more processors and memory than this machine has.
    document["install"]["skipchecks"] = true.into();
    let file = nodes.join(format!("mac-{}.yaml", MAC.replace(':', "-")));
    write_atomically(&file, document.to_string().as_bytes(), 0o600)?;
    let state = private.path().join("state");
    let server = Server::start(medium, &nodes, &state, &artifacts.path("netboot-server.log"))?;
    let disk = Disk::empty(artifacts.disk("netboot.qcow2"), DISK_SIZE)?;
    let machine = Machine::new("netboot", Firmware::Bios).balloon().network_boot(MAC, &server.script());
    let mut vm = machine.disk(&disk).start(artifacts)?;
    vm.watch_memory()?;
    let mut peak = 0;
    Deadline::after(INSTALL_LIMIT).every(Duration::from_secs(1)).poll(
        "the end of an install from the network",
        || {
            let said = vm.serial.text();
            ensure!(!said.contains("\n  because: "), "the console says:\n{said}");
            peak = peak.max(vm.memory_in_use()?.unwrap_or(0));
            Ok(said.contains(steps::INSTALL_COMPLETE).then_some(()))
        },
    )?;
    vm.kill()?;
    fs::remove_file(&disk.path)?;
    ensure!(peak > 0, "the machine does not tell how much memory it uses");
    Ok(peak as f64 / f64::from(1 << 20))
}

fn fill(medium: &Path, mut release: Release, layers: u64) -> Result<()> {
    for number in 0..layers {
        let (path, sha256) = layer(medium, number)?;
        let image = Image {
            name: format!("bench/{number}:1"),
            digest: sha256,
            roles: Vec::new(),
            blobs: vec![sha256],
            documents: 0,
        };
        release.images.push(image);
        release.payloads.push(Payload { path, purpose: Purpose::ImageBlob, size: LAYER_BYTES, sha256 });
    }
    Ok(fs::write(medium.join(MANIFEST), release.to_bytes())?)
}

/// Makes an incompressible layer; returns its path on the medium.
fn layer(medium: &Path, number: u64) -> Result<(String, Digest)> {
    let name = medium.join(format!("layer-{number}"));
    let out = BufWriter::with_capacity(1 << 20, File::create(&name)?);
    let mut out = HashingWriter { inner: out, hasher: Hasher::default() };
    noise(number + 1, LAYER_BYTES, &mut out)?;
    out.flush()?;
    let sha256 = out.hasher.finish();
    let path = format!("images/blobs/sha256/{sha256}");
    fs::rename(&name, medium.join(&path)).context("naming a layer")?;
    Ok((path, sha256))
}
