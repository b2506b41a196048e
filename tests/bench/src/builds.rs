//! How long builds take.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::Document;
use nqrust_tests::{paths, programs};
use testing::registry::DockerRegistry;
use walkdir::WalkDir;

use crate::figure::{Figure, RatioLimit, median};
use crate::images::timed;
use crate::scale::Scale;

/// The limit of a build with nothing to do.
pub(crate) const NOTHING_TO_DO_LIMIT: Duration = Duration::from_millis(50);

/// The limit of a build whose steps another host has shared, beside reading them and an ISO.
const SHARED_LIMIT: f64 = 1.3;

/// The builder's step that makes the full ISO out of finished parts.
const ASSEMBLY_STEP: &str = "iso-full";

/// The step that hashes it for `SHA256SUMS` and flushes it to the disk.
const CHECKSUM_STEP: &str = "checksum-iso-full";

/// The zstd level of the profile of the definition under test.
pub(crate) const PROFILE_LEVEL: u32 = 3;

/// The limit of a build with one overlay file changed, beside its OS image alone.
const OVERLAY_LIMIT: f64 = 1.3;

/// An overlay directory beside those of the definition.
const OVERLAY: &str = "overlays/bench";

/// Builds in a directory of their own. The cache is empty at first; the short form takes that of the end-to-end tests.
#[derive(Debug)]
pub(crate) struct BuildBench {
    root: PathBuf,
    cache: PathBuf,
    definition: PathBuf,
    /// How often assembly and copy are measured; odd, for the median.
    rounds: u32,
    runs: u32,
}

struct BuildRun {
    seconds: f64,
    events: Vec<ProgressEvent>,
}

/// The fields of a progress event that are used.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct ProgressEvent {
    pub(crate) step: String,
    pub(crate) state: String,
    /// RFC 3339.
    pub(crate) time: String,
    pub(crate) bytes: Option<u64>,
}

impl BuildBench {
    /// Copies the definition of the tests, adds the overlay of the install benchmark, and builds the media once.
    pub(crate) fn new(artifacts: &Artifacts, scale: Scale) -> Result<Self> {
        let root = artifacts.disk("build");
        let identity = Identity::load()?;
        let config = Document::new("bench").to_json(&identity);
        let definition = medium::stage(&root.join("source"), &config)?;
        let fixture = paths::workspace().join("tests/bench/overlay");
        medium::copy_tree(&fixture, &root.join("source").join(OVERLAY))?;
        let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
        value["overlays"]["rootfs"] = serde_yaml::Value::Sequence(vec![format!("../../{OVERLAY}").into()]);
        fs::write(&definition, serde_yaml::to_string(&value)?)?;
        let cache = match scale {
            Scale::Full => root.join("cache"),
            Scale::Short => medium::cache(),
        };
        let mut bench = Self { root, cache, definition, rounds: scale.pick(5, 1), runs: 0 };
        bench.build(&[])?;
        Ok(bench)
    }

    pub(crate) fn medium(&self) -> Result<Medium> {
        Medium::in_directory(&self.out())
    }

    pub(crate) fn definition(&self) -> &Path {
        &self.definition
    }

    /// The directory of finished steps in the cache.
    pub(crate) fn steps(&self) -> PathBuf {
        self.cache.join("steps")
    }

    /// The command that builds `definition` into `out` with the cache of these builds.
    pub(crate) fn command(&self, definition: &Path, out: &Path) -> Result<Command> {
        medium::build_command(definition, out, &self.cache)
    }

    /// Measures a build with nothing changed, one with an empty cache and shared steps, one with one overlay file changed, and the
    /// assembly beside a copy.
    pub(crate) fn measure(&mut self) -> Result<Vec<Figure>> {
        let mut again = Vec::new();
        for _ in 0..5 {
            again.push(self.build(&["--locked"])?.seconds);
        }
        let limit = NOTHING_TO_DO_LIMIT.as_secs_f64();
        let mut figures = vec![
            Figure::new("build with nothing changed", median(again), "s", ("limit", limit))
                .limit(RatioLimit::AtMost(1.0)),
            self.shared()?,
        ];
        figures.extend(self.overlay()?);
        let assembly = self.assembly()?;
        figures.extend([
            Figure::new(
                "assembly of the full ISO",
                assembly.made,
                "s",
                ("copy of the same bytes", assembly.copied),
            )
            .limit(RatioLimit::AtMost(1.5)),
            Figure::new(
                "the same, hashed and flushed",
                assembly.made_durable,
                "s",
                ("copy, hashed and flushed", assembly.copied_durable),
            )
            .limit(RatioLimit::AtMost(1.5)),
        ]);
        Ok(figures)
    }

    /// Measures a build with one overlay file changed beside making its OS image alone, from the tree that the image has, and
    /// beside that with a copy of each ISO, hashed and flushed: several times in turn.
    fn overlay(&mut self) -> Result<[Figure; 2]> {
        let file = self.root.join("source").join(OVERLAY).join("usr/share/nqrust-bench/changed");
        fs::create_dir_all(file.parent().unwrap_or(&self.root))?;
        let (tree, image) = (self.root.join("tree"), self.root.join("tree.squashfs"));
        let mut rounds = [const { Vec::new() }; 3];
        for round in 0..self.rounds {
            fs::write(&file, format!("changed {round}\n"))?;
            // Without a network, a download or a new bootstrap would be an error.
            let built = self.build(&["--locked", "--offline"])?.seconds;
            if round == 0 {
                unpack(&self.os_image()?, &tree)?;
            }
            let alone = squashfs_seconds(&tree, &image, PROFILE_LEVEL)?;
            let media = self.medium()?;
            let mut copies = 0.0;
            for iso in [Some(media.full), media.net_install].into_iter().flatten() {
                copies += copy_seconds(&iso, &self.root.join("copy"))?.1;
            }
            rounds
                .iter_mut()
                .zip([built, alone, alone + copies])
                .for_each(|(round, seconds)| round.push(seconds));
        }
        fs::remove_dir_all(tree)?;
        let [built, alone, with_copies] = rounds.map(median);
        Ok([
            Figure::new("build with one overlay file changed", built, "s", ("mksquashfs of its tree", alone))
                .limit(RatioLimit::AtMost(OVERLAY_LIMIT)),
            Figure::new(
                "the same",
                built,
                "s",
                ("that, and copies of both ISOs, hashed and flushed", with_copies),
            )
            .limit(RatioLimit::AtMost(1.3)),
        ])
    }

    /// Measures a build with an empty cache whose steps are in a registry beside reading the same blobs and an ISO with common tools: several
    /// times in turn.
    fn shared(&mut self) -> Result<Figure> {
        let registry = DockerRegistry::start(|_, _| ());
        let repository = format!("{}/builds/steps", registry.address);
        self.build(&["--locked", "--cache-to", &repository])?;
        let empty = self.root.join("empty-cache");
        let own = std::mem::replace(&mut self.cache, empty.clone());
        let mut rounds = [const { Vec::new() }; 2];
        for _ in 0..self.rounds {
            let built = self.build(&["--locked", "--only", "full", "--cache-from", &repository])?.seconds;
            let read = blobs_seconds(&self.steps(), &registry, &self.root.join("blobs"))?
                + copy_seconds(&self.medium()?.full, &self.root.join("copy"))?.1;
            fs::remove_dir_all(&empty)?;
            rounds.iter_mut().zip([built, read]).for_each(|(round, seconds)| round.push(seconds));
        }
        self.cache = own;
        let [built, read] = rounds.map(median);
        let baseline = ("curl and sha256 of these blobs, and a copy of the ISO, hashed and flushed", read);
        Ok(Figure::new("build with an empty cache and shared steps", built, "s", baseline)
            .limit(RatioLimit::AtMost(SHARED_LIMIT)))
    }

    fn os_image(&self) -> Result<PathBuf> {
        for entry in fs::read_dir(self.out())? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with("-rootfs.squashfs") {
                return Ok(path);
            }
        }
        anyhow::bail!("the build left no OS image in {}", self.out().display())
    }

    /// Measures the assembly of the ISO from finished parts beside a copy of it, several times in turn, so that pending
    /// writes to the disk affect both.
    fn assembly(&mut self) -> Result<AssemblySeconds> {
        let mut rounds = [const { Vec::new() }; 4];
        for _ in 0..self.rounds {
            fs::remove_file(self.medium()?.full)?;
            let run = self.build(&["--locked", "--offline", "--only", "full"])?;
            let made = seconds(&run.events, ASSEMBLY_STEP)?;
            let (copied, copied_durable) = copy_seconds(&self.medium()?.full, &self.root.join("copy"))?;
            let all = [made, made + seconds(&run.events, CHECKSUM_STEP)?, copied, copied_durable];
            rounds.iter_mut().zip(all).for_each(|(round, seconds)| round.push(seconds));
        }
        let [made, made_durable, copied, copied_durable] = rounds.map(median);
        Ok(AssemblySeconds { made, made_durable, copied, copied_durable })
    }

    fn out(&self) -> PathBuf {
        self.root.join("out")
    }

    fn build(&mut self, extra: &[&str]) -> Result<BuildRun> {
        self.runs += 1;
        let log = self.root.join(format!("../../build-{}.jsonl", self.runs));
        let mut command = self.command(&self.definition, &self.out())?;
        command.args(extra).arg("--progress-file").arg(&log);
        let began = Instant::now();
        let ended = programs::run(&mut command, medium::BUILD_LIMIT)?;
        let seconds = began.elapsed().as_secs_f64();
        ended.success("iso-builder build")?;
        let events = events(&fs::read_to_string(&log).context("reading the progress of the build")?);
        Ok(BuildRun { seconds, events })
    }
}

/// Medians of seconds.
struct AssemblySeconds {
    made: f64,
    made_durable: f64,
    copied: f64,
    copied_durable: f64,
}

/// The progress events among the lines of `text`.
pub(crate) fn events(text: &str) -> Vec<ProgressEvent> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// How long `step` took.
pub(crate) fn seconds(events: &[ProgressEvent], step: &str) -> Result<f64> {
    let at = |state: &str| -> Result<jiff::Timestamp> {
        let found = events.iter().find(|event| event.step == step && event.state == state);
        let event = found.with_context(|| {
            let mut steps: Vec<_> = events.iter().map(|event| event.step.as_str()).collect();
            steps.dedup();
            format!("no event says that {step} is {state}; there are {}", steps.join(", "))
        })?;
        event.time.parse().with_context(|| format!("reading the time {:?}", event.time))
    };
    Ok(at("done")?.duration_since(at("started")?).as_secs_f64())
}

/// Unpacks an OS image to `tree`, which does not exist. Only root can give the files their owners.
fn unpack(image: &Path, tree: &Path) -> Result<()> {
    let mut unsquash = Command::new("unsquashfs");
    unsquash.args(["-no-progress", "-quiet"]);
    if !nix::unistd::geteuid().is_root() {
        unsquash.args(["-ignore-errors", "-no-exit-code", "-no-xattrs"]);
    }
    unsquash.arg("-dest").arg(tree).arg(image);
    programs::run(&mut unsquash, medium::BUILD_LIMIT)?.success("unsquashfs").map(drop)
}

/// Seconds to make an OS image of `tree` as the build's step does, and nothing else.
fn squashfs_seconds(tree: &Path, image: &Path, level: u32) -> Result<f64> {
    let mut squash = Command::new("mksquashfs");
    squash.arg(tree).arg(image).args(["-noappend", "-no-progress", "-quiet", "-comp", "zstd", "-b", "128K"]);
    squash.arg("-Xcompression-level").arg(level.to_string());
    let made = timed(squash)?;
    fs::remove_file(image)?;
    Ok(made.seconds)
}

/// Seconds to fetch the files of `steps` that are blobs of the repository, one after the other, and to hash them.
fn blobs_seconds(steps: &Path, registry: &DockerRegistry, into: &Path) -> Result<f64> {
    let kept = registry.directory.path().join("data/docker/registry/v2/blobs/sha256");
    let mut blobs = BTreeSet::new();
    for entry in WalkDir::new(steps) {
        let entry = entry?;
        if entry.file_type().is_file() {
            let digest = Digest::of_reader(fs::File::open(entry.path())?)?.0.to_string();
            let is_blob = kept.join(&digest[..2]).join(&digest).exists();
            blobs.extend(is_blob.then_some(digest));
        }
    }
    fs::create_dir_all(into)?;
    let began = Instant::now();
    for digest in &blobs {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--output"]).arg(into.join(digest));
        curl.arg(format!("http://{}/v2/builds/steps/blobs/sha256:{digest}", registry.address));
        programs::run(&mut curl, medium::BUILD_LIMIT)?.success("curl")?;
        let found = Digest::of_reader(fs::File::open(into.join(digest))?)?.0;
        ensure!(found.to_string() == *digest, "the registry gave another blob than {digest}");
    }
    let seconds = began.elapsed().as_secs_f64();
    fs::remove_dir_all(into)?;
    Ok(seconds)
}

/// Copies a file through a buffer, since the kernel's own copy may share blocks instead; then hashes and flushes the
/// copy. Returns the seconds of the copy alone, and of all three.
fn copy_seconds(from: &Path, to: &Path) -> Result<(f64, f64)> {
    let began = Instant::now();
    let (mut source, mut target) = (fs::File::open(from)?, fs::File::create(to)?);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = source.read(&mut buffer).context("reading the ISO")?;
        if count == 0 {
            break;
        }
        target.write_all(&buffer[..count]).context("copying the ISO")?;
    }
    let copied = began.elapsed().as_secs_f64();
    Digest::of_reader(fs::File::open(to)?).context("hashing the copy")?;
    target.sync_all().context("flushing the copy")?;
    let durable = began.elapsed().as_secs_f64();
    fs::remove_file(to)?;
    Ok((copied, durable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_step_is_from_its_begin_to_its_end() {
        let text = "noise\n{\"v\":1,\"seq\":1,\"time\":\"2030-01-01T00:00:01.500Z\",\"step\":\"a\",\"state\":\"started\",\"message\":\"\"}\n{\"v\":1,\"seq\":2,\"time\":\"2030-01-01T00:00:03.000Z\",\"step\":\"a\",\"state\":\"done\",\"bytes\":7,\"message\":\"\"}\n";
        let events = events(text);
        assert!((seconds(&events, "a").unwrap() - 1.5).abs() < 1e-9);
        assert!(seconds(&events, "b").unwrap_err().to_string().contains("there are a"));
    }
}
