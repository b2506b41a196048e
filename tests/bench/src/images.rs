//! Container images: pulling and seeding beside the tools that others use, with an incompressible image of 5 GiB and
//! thirty images that share most of their content.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ::medium::payload_sources::{RetryPolicy, source};
use anyhow::{Context, Result, bail};
use base::digest::{Digest, Hasher};
use base::progress::Progress;
use install::execute::seed_store;
use model::config::Role;
use model::release::{MANIFEST, Purpose, Release};
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::medium;
use nqrust_tests::programs;
use nqrust_tests::registry::{Layout, Registry, RegistryAccess};
use serde_json::json;

use crate::builds::BuildBench;
use crate::figure::{Figure, RatioLimit, median};
use crate::scale::Scale;

/// The images that are pulled and seeded.
#[derive(Clone, Copy)]
struct ImageSet {
    /// The length of the large image's layer.
    large_layer: u64,
    /// How many images share a layer.
    sharing: u64,
    /// The length of the shared layer, and of the layer that each image has for itself.
    shared_layer: u64,
    own_layer: u64,
    /// How often seeding and its baselines are measured; odd, for the median.
    seed_rounds: u32,
}

const FULL_SET: ImageSet = ImageSet {
    large_layer: 5 << 30,
    sharing: 30,
    shared_layer: 64 << 20,
    own_layer: 4 << 20,
    seed_rounds: 3,
};
const SHORT_SET: ImageSet =
    ImageSet { large_layer: 8 << 20, sharing: 2, shared_layer: 1 << 20, own_layer: 1 << 20, seed_rounds: 1 };
/// The memory limit of a pull or a seed.
const PEAK_LIMIT_MIB: f64 = 200.0;
const PROGRAM_TIME_LIMIT: Duration = Duration::from_secs(1800);
/// The host of the registry in definitions; a mirror leads to its address.
const REGISTRY_HOST: &str = "registry.nqrust.test";

/// As the first argument, makes this program only seed a store, so that the memory of seeding alone can be measured.
pub(crate) const SEED_ARGUMENT: &str = "seed";

/// Seeds the store `to` from the medium `from`, a directory or a URL.
pub(crate) fn seed(from: &str, to: &str) -> Result<()> {
    let medium = source(Some(from), &[], RetryPolicy::default())?;
    let release = Release::parse(&medium.manifest()?)?;
    seed_store(medium.as_ref(), &release, Role::Management, Path::new(to), &Progress::silent())
}

/// Measures pulling and seeding; `bench` has a cache in which the rest of a build is done.
pub(crate) fn measure(bench: &BuildBench, artifacts: &Artifacts, scale: Scale) -> Result<Vec<Figure>> {
    let set = scale.pick(FULL_SET, SHORT_SET);
    let registry = Registry::start(&artifacts.disk("registry"), RegistryAccess::default())?;
    let names = fill(artifacts, &registry, set)?;
    let definition = definition(bench, &names, &registry)?;
    let mut figures = Vec::new();

    let copied = skopeo(&names, &registry, &artifacts.disk("skopeo"))?;
    let pull = pull(bench, &definition, artifacts)?;
    drop(registry);
    fs::remove_dir_all(artifacts.disk("registry"))?;
    let medium = content(bench, artifacts)?;
    let release = Release::parse(&fs::read(medium.join(MANIFEST))?)?;
    let bytes = stored(&release);
    figures.push(
        Figure::new(
            &format!("pull, check and store {:.1} GiB of images", mebibytes(bytes) / 1024.0),
            pull.seconds,
            "s",
            ("skopeo copy", copied),
        )
        .limit(RatioLimit::AtMost(2.0)),
    );
    figures.push(memory("peak memory of a pull", pull.peak));
    figures.push(
        Figure::new(
            &format!("store of {} images", release.images.len()),
            mebibytes(bytes),
            "MiB",
            ("one archive each", mebibytes(unshared(&release))),
        )
        .limit(RatioLimit::AtMost(1.0)),
    );

    figures.extend(seeding(&medium, &release, set.seed_rounds, artifacts)?);
    Ok(figures)
}

/// Measures seeding beside a copy of the same blobs, several times in turn. Each begins with the medium in the
/// kernel's cache, as far as that has room for it, and with no writes pending.
fn seeding(medium: &Path, release: &Release, turns: u32, artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let (mut rounds, mut peak) = ([const { Vec::new() }; 2], 0);
    for _ in 0..turns {
        let [to, copy] = ["seeded", "copied"].map(|name| artifacts.disk(name));
        read(medium, release)?;
        let seeded = run_seed(medium.as_os_str(), &to)?;
        peak = peak.max(seeded.peak);
        remove(&to)?;
        read(medium, release)?;
        let copied = copy_and_hash(medium, release, &copy)?;
        remove(&copy)?;
        rounds.iter_mut().zip([seeded.seconds, copied]).for_each(|(round, seconds)| round.push(seconds));
    }
    let bytes = mebibytes(stored(release));
    let [seeded, copied] = rounds.map(|seconds| bytes / median(seconds));
    Ok(vec![
        Figure::new("seeding a node's store", seeded, "MiB/s", ("cp, sync and sha256", copied))
            .limit(RatioLimit::AtLeast(0.9)),
        memory("peak memory of seeding", peak),
    ])
}

/// Reads every blob once.
fn read(medium: &Path, release: &Release) -> Result<()> {
    for payload in release.payloads(Purpose::ImageBlob) {
        std::io::copy(&mut File::open(medium.join(&payload.path))?, &mut std::io::sink())?;
    }
    Ok(())
}

/// Removes a directory and waits until the disk knows it.
fn remove(directory: &Path) -> Result<()> {
    fs::remove_dir_all(directory)?;
    sync(directory.parent().context("a directory of the benchmark")?)
}

fn memory(name: &str, kibibytes: u64) -> Figure {
    Figure::new(name, mebibytes(kibibytes << 10), "MiB", ("limit", PEAK_LIMIT_MIB))
        .limit(RatioLimit::AtMost(1.0))
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Bytes of all blobs, each counted once.
fn stored(release: &Release) -> u64 {
    release.payloads(Purpose::ImageBlob).map(|payload| payload.size).sum()
}

/// Bytes of the blobs of every image, shared blobs counted for each image.
fn unshared(release: &Release) -> u64 {
    let size = |digest: &Digest| {
        release
            .payloads(Purpose::ImageBlob)
            .find(|payload| payload.sha256 == *digest)
            .map_or(0, |payload| payload.size)
    };
    let of_image =
        |blobs: &[Digest]| blobs.iter().collect::<BTreeSet<_>>().into_iter().map(size).sum::<u64>();
    release.images.iter().map(|image| of_image(&image.blobs)).sum()
}

/// Writes incompressible bytes (xorshift64) to `out`.
pub(crate) fn noise(mut state: u64, length: u64, out: &mut impl Write) -> Result<()> {
    let mut block = vec![0_u8; 1 << 20];
    let mut left = length;
    while left > 0 {
        for eight in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            eight.copy_from_slice(&state.to_le_bytes());
        }
        let count = usize::try_from(left.min(block.len() as u64))?;
        out.write_all(&block[..count])?;
        left -= count as u64;
    }
    Ok(())
}

/// Pushes the images to the registry; returns their names.
fn fill(artifacts: &Artifacts, registry: &Registry, set: ImageSet) -> Result<Vec<String>> {
    let directory = artifacts.disk("layout");
    large_image(&directory.join("large"), set.large_layer)?;
    registry.push(&format!("oci:{}:large", directory.join("large").display()), "bench/large:1", &[])?;
    let layout = Layout::new(&directory.join("small"))?;
    let mut shared = Vec::new();
    noise(1, set.shared_layer, &mut shared)?;
    layout.image("base", None, &[("data", &shared)])?;
    let mut names = vec![format!("{REGISTRY_HOST}/bench/large:1")];
    for number in 0..set.sharing {
        let mut own = Vec::new();
        noise(100 + number, set.own_layer, &mut own)?;
        let name = format!("app-{number}");
        layout.image(&name, Some("base"), &[("own", &own)])?;
        registry.push(&layout.source(&name), &format!("bench/{name}:1"), &[])?;
        names.push(format!("{REGISTRY_HOST}/bench/{name}:1"));
    }
    fs::remove_dir_all(&directory)?;
    Ok(names)
}

/// Makes an OCI layout with one image, whose only layer is a tar archive of one large file. Tools would take too long,
/// because all of them compress.
fn large_image(directory: &Path, length: u64) -> Result<()> {
    let blobs = directory.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let layer = blobs.join("layer");
    let mut out = HashingWriter {
        inner: BufWriter::with_capacity(1 << 20, File::create(&layer)?),
        hasher: Hasher::default(),
    };
    let mut header = [0_u8; 512];
    header[..4].copy_from_slice(b"data");
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{length:011o}\0").as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.write_all(&header)?;
    noise(2, length, &mut out)?;
    out.write_all(&[0; 1024])?;
    out.flush()?;
    let digest = out.hasher.finish();
    fs::rename(&layer, blobs.join(digest.to_string()))?;
    let document = |value: serde_json::Value| -> Result<(Digest, usize)> {
        let bytes = value.to_string().into_bytes();
        fs::write(blobs.join(Digest::of(&bytes).to_string()), &bytes)?;
        Ok((Digest::of(&bytes), bytes.len()))
    };
    let diff = digest.oci();
    let config = document(json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": [diff] },
    }))?;
    let described = |kind: &str, (digest, size): (Digest, usize)| json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest.oci(), "size": size });
    let manifest = document(json!({
        "schemaVersion": 2,
        "config": described("config.v1+json", config),
        "layers": [described("layer.v1.tar", (digest, usize::try_from(length)? + 1536))],
    }))?;
    let mut named = described("manifest.v1+json", manifest);
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": "large" });
    fs::write(directory.join("index.json"), json!({ "schemaVersion": 2, "manifests": [named] }).to_string())?;
    Ok(fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?)
}

/// Hashes the bytes that it passes on.
pub(crate) struct HashingWriter<W> {
    pub(crate) inner: W,
    pub(crate) hasher: Hasher,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// The benchmark's definition with these images beside those that it builds. Its packages are the same, so the lock
/// fits and only the images are new.
fn definition(bench: &BuildBench, names: &[String], registry: &Registry) -> Result<PathBuf> {
    let definition = bench.definition().with_file_name("images.yaml");
    let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(bench.definition())?)?;
    let preload = value["images"]["preload"].as_sequence_mut().context("images of the definition")?;
    preload.retain(|entry| entry.get("layers").is_some());
    for name in names {
        preload.push(serde_yaml::to_value(json!({ "image": name }))?);
    }
    let mirrors =
        json!({ "mirrors": { REGISTRY_HOST: { "endpoint": [format!("http://{}", registry.host())] } } });
    value["registries"] = serde_yaml::to_value(mirrors)?;
    fs::write(&definition, serde_yaml::to_string(&value)?)?;
    Ok(definition)
}

/// Seconds that skopeo takes to copy all images into one layout, with the flush.
fn skopeo(names: &[String], registry: &Registry, to: &Path) -> Result<f64> {
    fs::create_dir_all(to)?;
    let began = Instant::now();
    for name in names {
        let path = name.trim_start_matches(REGISTRY_HOST).trim_start_matches('/');
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["copy", "--quiet", "--src-tls-verify=false"]);
        skopeo.arg(format!("docker://{}/{path}", registry.host()));
        skopeo.arg(format!("oci:{}:{}", to.display(), path.replace(['/', ':'], "-")));
        programs::run(&mut skopeo, PROGRAM_TIME_LIMIT)?.success("skopeo copy")?;
    }
    sync(to)?;
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_dir_all(to)?;
    Ok(seconds)
}

fn sync(path: &Path) -> Result<()> {
    let mut sync = Command::new("sync");
    sync.arg("--file-system").arg(path);
    programs::run(&mut sync, PROGRAM_TIME_LIMIT)?.success("sync").map(drop)
}

pub(crate) struct ProgramCost {
    pub(crate) seconds: f64,
    /// Peak memory in KiB.
    pub(crate) peak: u64,
}

/// Builds up to the image store: the netboot set has no images, but its manifest lists them.
fn pull(bench: &BuildBench, definition: &Path, artifacts: &Artifacts) -> Result<ProgramCost> {
    let mut command = bench.command(definition, &artifacts.disk("pulled"))?;
    command.args(["--only", "netboot"]);
    // Locking asks apt if packages have changed; here only images have.
    fs::copy(medium::lock_file(bench.definition()), medium::lock_file(definition))?;
    let taken = timed(command)?;
    sync(&artifacts.disk("pulled"))?;
    Ok(taken)
}

/// Makes a directory with the image files of a full medium.
fn content(bench: &BuildBench, artifacts: &Artifacts) -> Result<PathBuf> {
    let medium = artifacts.disk("medium");
    fs::create_dir_all(&medium)?;
    fs::copy(artifacts.disk("pulled").join(MANIFEST), medium.join(MANIFEST))?;
    let release = Release::parse(&fs::read(medium.join(MANIFEST))?)?;
    let stores = steps_of(bench, "image-store-")?.into_iter().map(|step| step.join("store"));
    let stores: Vec<_> = stores.chain(steps_of(bench, "image-metadata-")?).collect();
    for payload in &release.payloads {
        let inside = match payload.purpose {
            Purpose::ImageBlob | Purpose::ImageIndex => payload.path.trim_start_matches("images/"),
            Purpose::ImageMetadata => payload.path.trim_start_matches("images/metadata/"),
            _ => continue,
        };
        // The cache keeps what other builds made, too: a blob is named by its digest, the other files have to be read.
        let is_it = |path: &PathBuf| match (payload.purpose, File::open(path)) {
            (_, Err(_)) => false,
            (Purpose::ImageBlob, Ok(_)) => true,
            (_, Ok(file)) => Digest::of_reader(file).is_ok_and(|(digest, _)| digest == payload.sha256),
        };
        let from = stores.iter().map(|store| store.join(inside)).find(is_it);
        let from = from.with_context(|| format!("the cache has no {}", payload.path))?;
        let to = medium.join(&payload.path);
        fs::create_dir_all(to.parent().context("a payload's directory")?)?;
        fs::hard_link(&from, &to).with_context(|| format!("linking {}", from.display()))?;
    }
    Ok(medium)
}

/// The results of the step with this prefix in the cache.
fn steps_of(bench: &BuildBench, prefix: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(bench.steps())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Runs this program so that it only seeds.
pub(crate) fn run_seed(medium: &OsStr, to: &Path) -> Result<ProgramCost> {
    fs::create_dir_all(to)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SEED_ARGUMENT).arg(medium).arg(to);
    timed(command)
}

/// Runs a program to its end and samples its memory.
pub(crate) fn timed(mut command: Command) -> Result<ProgramCost> {
    let name = command.get_program().to_string_lossy().into_owned();
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let mut peak = 0;
    loop {
        peak = peak.max(high_water(&child).unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("{name} ended with {status}");
            }
            return Ok(ProgramCost { seconds: began.elapsed().as_secs_f64(), peak });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `VmHWM` of proc(5), KiB.
pub(crate) fn high_water(child: &Child) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}

/// Seconds to copy the blobs with `cp`, flush them, and hash the copies.
fn copy_and_hash(medium: &Path, release: &Release, to: &Path) -> Result<f64> {
    fs::create_dir_all(to)?;
    let began = Instant::now();
    let mut cp = Command::new("cp");
    cp.arg("--recursive").arg(medium.join("images/blobs/sha256")).arg(to);
    programs::run(&mut cp, PROGRAM_TIME_LIMIT)?.success("cp")?;
    sync(to)?;
    for payload in release.payloads(Purpose::ImageBlob) {
        let (digest, _) = Digest::of_reader(File::open(to.join("sha256").join(payload.sha256.to_string()))?)?;
        if digest != payload.sha256 {
            bail!("cp damaged {digest}");
        }
    }
    Ok(began.elapsed().as_secs_f64())
}
