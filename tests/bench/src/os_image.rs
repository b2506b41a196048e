//! The format of the OS image: squashfs, as builds make it, beside EROFS of the same tree with the same compression.
//!
//! Since its version 6.10 the kernel reads EROFS that is compressed by zstd. Size, seconds and memory are those of the
//! programs that make images; reads are made by the kernel of this host, from an image that is not in its cache. Only root
//! can do that.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::digest::Digest;
use model::release::Purpose;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::identity::Identity;
use nqrust_tests::{medium, paths, programs, steps};
use walkdir::WalkDir;

use crate::figure::{Figure, median};
use crate::images::{mebibytes, timed};

/// The compression levels of the build's profiles.
const LEVELS: [u32; 2] = [3, 15];
/// The most that is compressed as one piece, with both.
const BLOCK_BYTES: u32 = 128 << 10;
/// How often each image is read; odd, for the median.
const ROUNDS: usize = 3;
/// The length of a page of memory.
const PAGE_BYTES: usize = 4096;
const LIMIT: Duration = Duration::from_secs(900);

/// A way to make an image.
struct ImageFormat {
    name: &'static str,
    /// The kernel's name of the file system.
    kind: &'static str,
    /// Further options of `mkfs.erofs`.
    options: &'static [&'static str],
}

const SQUASHFS: ImageFormat = ImageFormat { name: "squashfs", kind: "squashfs", options: &[] };
const EROFS: [ImageFormat; 2] = [
    ImageFormat { name: "EROFS", kind: "erofs", options: &[] },
    ImageFormat {
        name: "EROFS, ends of files packed and equal pieces once",
        kind: "erofs",
        options: &["-Efragments,dedupe,ztailpacking"],
    },
];

/// What an image costs.
struct ImageCost {
    mebibytes: f64,
    seconds: f64,
    peak: f64,
    /// MB a second of reading every file.
    rate: f64,
    /// Seconds until the first page of every file is there, in no order.
    pages: f64,
}

pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let tree = artifacts.disk("tree");
    let image = of_medium(artifacts)?;
    unpack(&image, &tree)?;
    fs::remove_file(image)?;
    let mkfs = ErofsProgram::unpack(&artifacts.disk("erofs-utils"))?;
    let mut figures = Vec::new();
    for level in LEVELS {
        let formats: Vec<&ImageFormat> = [&SQUASHFS].into_iter().chain(&EROFS).collect();
        let mut images = Vec::new();
        for format in &formats {
            let image = artifacts.disk(&format!("{level}.image-{}", images.len()));
            let made = timed(make(format, &mkfs, level, &tree, &image)).context(format.name)?;
            images.push((image, made));
        }
        let mut reads = vec![Vec::new(); images.len()];
        for _ in 0..ROUNDS {
            for ((image, _), (format, reads)) in images.iter().zip(formats.iter().zip(&mut reads)) {
                reads.push(read_cold(image, format.kind, artifacts).context(format.name)?);
            }
        }
        let mut costs = Vec::new();
        for ((image, made), reads) in images.iter().zip(&reads) {
            costs.push(ImageCost {
                mebibytes: mebibytes(fs::metadata(image)?.len()),
                seconds: made.seconds,
                peak: mebibytes(made.peak << 10),
                rate: median(reads.iter().map(|(rate, _)| *rate).collect()),
                pages: median(reads.iter().map(|(_, pages)| *pages).collect()),
            });
            fs::remove_file(image)?;
        }
        let [squashfs, erofs @ ..] = &costs[..] else { bail!("no image was made") };
        for (format, cost) in EROFS.iter().zip(erofs) {
            figures.extend(beside(format.name, level, cost, squashfs));
        }
    }
    fs::remove_dir_all(tree)?;
    Ok(figures)
}

fn beside(name: &str, level: u32, cost: &ImageCost, squashfs: &ImageCost) -> [Figure; 5] {
    let figure = |what: &str, value: f64, unit: &'static str, baseline: f64| {
        Figure::new(&format!("{name}, zstd {level}: {what}"), value, unit, (SQUASHFS.name, baseline))
    };
    [
        figure("size", cost.mebibytes, "MiB", squashfs.mebibytes),
        figure("making it", cost.seconds, "s", squashfs.seconds),
        figure("memory to make it", cost.peak, "MiB", squashfs.peak),
        figure("reading all files, cold", cost.rate, "MB/s", squashfs.rate),
        figure("the first page of each file, cold", cost.pages, "s", squashfs.pages),
    ]
}

/// The OS image of the media under test.
fn of_medium(artifacts: &Artifacts) -> Result<PathBuf> {
    let medium = steps::medium_without_configuration(&Identity::load()?)?;
    let release = medium.release()?;
    let payload = release.payload(Purpose::Rootfs).context("a medium has an OS image")?;
    let image = artifacts.disk("rootfs.squashfs");
    let (from, to) = (format!("/{}", payload.path), image.display().to_string());
    programs::xorriso(&medium.full, &["-extract", &from, &to])?;
    Ok(image)
}

/// Unpacks an OS image to `tree`, which does not exist. Only root can give the files their owners.
pub(crate) fn unpack(image: &Path, tree: &Path) -> Result<()> {
    let mut unsquash = Command::new("unsquashfs");
    unsquash.args(["-no-progress", "-quiet"]);
    if !nix::unistd::geteuid().is_root() {
        unsquash.args(["-ignore-errors", "-no-exit-code", "-no-xattrs"]);
    }
    unsquash.arg("-dest").arg(tree).arg(image);
    programs::run(&mut unsquash, LIMIT)?.success("unsquashfs").map(drop)
}

/// Seconds to make an OS image of `tree` as the build's step does, and nothing else.
pub(crate) fn squashfs_seconds(tree: &Path, image: &Path, level: u32) -> Result<f64> {
    let made = timed(squashfs(level, tree, image))?;
    fs::remove_file(image)?;
    Ok(made.seconds)
}

/// `mkfs.erofs` of the release of Debian that the image has: that of the one before knows no zstd. It runs on this host with
/// the libraries of its own release.
struct ErofsProgram {
    root: PathBuf,
}

impl ErofsProgram {
    fn unpack(root: &Path) -> Result<Self> {
        let definition = fs::read(paths::workspace().join(medium::DEFINITION))?;
        let definition: serde_yaml::Value = serde_yaml::from_slice(&definition)?;
        let suite = definition["packages"]["suite"].as_str().context("the definition names no suite")?;
        let mut extract = Command::new("mmdebstrap");
        extract.args(["--quiet", "--variant=extract", "--include=erofs-utils", suite]).arg(root);
        programs::run(&mut extract, LIMIT)?.success("unpacking erofs-utils with mmdebstrap")?;
        Ok(Self { root: root.to_owned() })
    }

    fn command(&self) -> Command {
        let libraries = self.root.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(self.root.join("usr/bin/mkfs.erofs"));
        command
    }
}

/// The command that makes a squashfs as the build's step of the OS image does.
fn squashfs(level: u32, tree: &Path, image: &Path) -> Command {
    let mut command = Command::new("mksquashfs");
    command.arg(tree).arg(image).args(["-noappend", "-no-progress", "-quiet", "-comp", "zstd"]);
    command.arg("-b").arg(BLOCK_BYTES.to_string()).arg("-Xcompression-level").arg(level.to_string());
    command
}

/// The command that makes `image`.
fn make(format: &ImageFormat, mkfs: &ErofsProgram, level: u32, tree: &Path, image: &Path) -> Command {
    if format.kind == SQUASHFS.kind {
        return squashfs(level, tree, image);
    }
    let mut command = mkfs.command();
    command.arg("-d0").arg(format!("-zzstd,level={level}")).arg(format!("-C{BLOCK_BYTES}"));
    command.args(format.options).arg(image).arg(tree);
    command
}

/// MB a second of reading all files, and seconds until the first page of each is there; each time from an empty cache.
fn read_cold(image: &Path, kind: &str, artifacts: &Artifacts) -> Result<(f64, f64)> {
    let mounted = MountedImage::mount(image, kind, &artifacts.disk("mounted"))?;
    let mut files = Vec::new();
    for entry in WalkDir::new(&mounted.place).sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_file() {
            files.push(entry.into_path());
        }
    }
    empty_cache()?;
    let began = Instant::now();
    let bytes = read(&files, usize::MAX)?;
    let whole = began.elapsed().as_secs_f64();
    // An order that is that of neither image, and the same for both.
    files.sort_by_key(|path| Digest::of(path.as_os_str().as_encoded_bytes()).to_string());
    empty_cache()?;
    let began = Instant::now();
    read(&files, PAGE_BYTES)?;
    let pages = began.elapsed().as_secs_f64();
    mounted.unmount()?;
    #[allow(clippy::cast_precision_loss)]
    Ok((bytes as f64 / 1e6 / whole, pages))
}

/// Reads `most` bytes of each file; returns how many there were.
fn read(files: &[PathBuf], most: usize) -> Result<usize> {
    let mut buffer = vec![0; (1 << 20).min(most)];
    let mut total = 0;
    for path in files {
        let reading = || format!("reading {}", path.display());
        let mut file = File::open(path).with_context(reading)?;
        let mut left = most;
        while left > 0 {
            let count = file.read(&mut buffer).with_context(reading)?;
            if count == 0 {
                break;
            }
            total += count;
            left = left.saturating_sub(count);
        }
    }
    Ok(total)
}

/// Empties the kernel's cache of files (`drop_caches` of proc_sys_vm(5)).
fn empty_cache() -> Result<()> {
    nix::unistd::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("emptying the kernel's cache")
}

/// An image that is mounted; unmounted when it is dropped.
struct MountedImage {
    place: PathBuf,
    mounted: bool,
}

impl MountedImage {
    fn mount(image: &Path, kind: &str, place: &Path) -> Result<Self> {
        fs::create_dir_all(place)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", "ro,loop"]).arg(image).arg(place);
        programs::run(&mut mount, LIMIT)?
            .success(&format!("mounting {}; the kernel needs {kind} with zstd", image.display()))?;
        Ok(Self { place: place.to_owned(), mounted: true })
    }

    fn unmount(mut self) -> Result<()> {
        self.mounted = false;
        self.run_umount()
    }

    fn run_umount(&self) -> Result<()> {
        programs::run(Command::new("umount").arg(&self.place), LIMIT)?.success("umount").map(drop)
    }
}

impl Drop for MountedImage {
    fn drop(&mut self) {
        if self.mounted {
            // The error that led here is the one to tell.
            let _ = self.run_umount();
        }
    }
}
