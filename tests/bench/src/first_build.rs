//! A first build beside those of live-build and mkosi with the same packages from the same mirror: from the mirror alone, and with
//! the packages that the build before has left.
//!
//! All compress with zstd at the level of the definition's profile. Beyond the packages each makes what it makes by itself: the
//! builder two ISOs, an initrd, files for network boot, container images and a bill of materials; live-build an ISO, without an initrd
//! of its own; mkosi the image of the root file system alone, because what makes it bootable needs file systems that not every kernel has.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::{medium, paths, programs};
use serde::Deserialize;

use crate::builds::PROFILE_LEVEL;
use crate::figure::{Figure, RatioLimit};
use crate::timing::seconds_of;

const DEFINITION: &str = "configs/images/minimal.yaml";
const LIMIT: Duration = Duration::from_secs(3600);
/// Beside the quicker of the two.
const FIRST_BUILD_LIMIT: f64 = 0.5;
/// The tools that are measured beside the builder, and their Debian packages.
const OTHERS: [&str; 2] = ["mkosi", "live-build"];

/// What the builds of the others are of.
struct PackageChoice {
    suite: String,
    mirror: String,
    names: Vec<String>,
}

pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    for (program, package) in [("mkosi", OTHERS[0]), ("lb", OTHERS[1])] {
        if testing::programs::find(program).is_none() {
            bail!("there is no {program}; Debian has it in {package}");
        }
    }
    let root = artifacts.disk("first-build");
    let mut figures = Vec::new();
    for what in ["from a mirror alone", "with packages that are here"] {
        let (own, choice) = own(&root.join("own"))?;
        let others = [mkosi(&root.join(OTHERS[0]), &choice)?, live_build(&root.join(OTHERS[1]), &choice)?];
        let quicker = others[0].min(others[1]);
        for (name, seconds) in OTHERS.into_iter().zip(others) {
            let figure = Figure::new(&format!("first build, {what}"), own, "s", (name, seconds));
            let limit = RatioLimit::AtMost(FIRST_BUILD_LIMIT);
            figures.push(if seconds > quicker { figure } else { figure.limit(limit) });
        }
    }
    fs::remove_dir_all(root)?;
    Ok(figures)
}

/// Seconds of a build without a lock file and with an empty cache, and what it took. `directory` keeps its downloads.
fn own(directory: &Path) -> Result<(f64, PackageChoice)> {
    let work = empty(&directory.join("work"))?;
    let definition = work.join("image.yaml");
    fs::copy(paths::workspace().join(DEFINITION), &definition)?;
    let mut build = medium::build_command(&definition, &work.join("out"), &work.join("cache"))?;
    let seconds = seconds_of(build.arg("--downloads").arg(directory.join("downloads")), LIMIT)?;
    let choice = PackageChoice::of(&fs::read(medium::lock_file(&definition))?)?;
    Ok((seconds, choice))
}

/// The same by mkosi.
fn mkosi(directory: &Path, choice: &PackageChoice) -> Result<f64> {
    let work = empty(&directory.join("work"))?;
    let squash = work.join("squash");
    fs::write(&squash, format!("#!/bin/sh\nexec mksquashfs \"$@\" -Xcompression-level {PROFILE_LEVEL}\n"))?;
    fs::set_permissions(&squash, fs::Permissions::from_mode(0o755))?;
    let mut build = Command::new("mkosi");
    build.current_dir(&work).args(["--distribution", "debian", "--release", &choice.suite]);
    build.args(["--mirror", &choice.mirror, "--package", &choice.names.join(",")]);
    build.args(["--format", "plain_squashfs", "--compress-fs", "zstd", "--mksquashfs"]).arg(squash);
    // Without it systemd-nspawn asks systemd for a scope.
    build.arg("--nspawn-keep-unit").arg("--cache").arg(directory.join("downloads"));
    seconds_of(build.args(["--output", "image.squashfs", "build"]), LIMIT)
}

/// The same by live-build.
fn live_build(directory: &Path, choice: &PackageChoice) -> Result<f64> {
    let work = empty(&directory.join("work"))?;
    let (kept, cache) = (directory.join("downloads"), work.join("cache"));
    if kept.exists() {
        fs::rename(&kept, &cache)?;
    }
    let mut config = Command::new("lb");
    config.current_dir(&work).args(["config", "--mode", "debian", "--distribution", &choice.suite]);
    for option in ["--mirror-bootstrap", "--mirror-chroot", "--mirror-binary"] {
        config.args([option, &choice.mirror]);
    }
    config.args(["--archive-areas", "main", "--security", "false", "--updates", "false"]);
    config.args(["--apt-recommends", "false", "--debian-installer", "none", "--memtest", "none"]);
    config.args(["--initramfs", "none", "--linux-packages", "none", "--firmware-chroot", "false"]);
    config.args(["--binary-image", "iso-hybrid", "--bootloaders", "grub-pc,grub-efi"]);
    config.args(["--chroot-squashfs-compression-type", "zstd", "--chroot-squashfs-compression-level"]);
    programs::run(config.arg(PROFILE_LEVEL.to_string()), LIMIT)?.success("lb config")?;
    fs::write(work.join("config/package-lists/bench.list.chroot"), choice.names.join("\n"))?;
    let seconds = seconds_of(Command::new("lb").current_dir(&work).arg("build"), LIMIT)?;
    fs::rename(cache, kept)?;
    Ok(seconds)
}

/// The directory, without what was in it.
fn empty(directory: &Path) -> Result<PathBuf> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    fs::create_dir_all(directory)?;
    Ok(directory.to_owned())
}

#[derive(Deserialize)]
struct LockFile {
    request: LockRequest,
    packages: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockRequest {
    source: LockSource,
    wanted: Vec<WantedPackages>,
}

#[derive(Deserialize)]
struct LockSource {
    suite: String,
}

#[derive(Deserialize)]
struct WantedPackages {
    /// Whether a root file system is meant, and not a layer of an image.
    essential: bool,
    include: Vec<String>,
}

#[derive(Deserialize)]
struct LockedPackage {
    url: String,
}

impl PackageChoice {
    /// What a lock file has of the OS.
    fn of(lock: &[u8]) -> Result<Self> {
        let lock: LockFile = serde_json::from_slice(lock)?;
        let wanted = lock.request.wanted.into_iter().find(|wanted| wanted.essential);
        let names = wanted.context("the lock file has no packages of an OS")?.include;
        let mirror = lock.packages.first().and_then(|package| package.url.split_once("/pool/"));
        let mirror = mirror.context("the lock file has no package of a mirror")?.0.to_owned();
        Ok(Self { suite: lock.request.source.suite, mirror, names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_get_the_packages_of_the_os_from_the_mirror_of_the_lock_file() {
        let lock = br#"{
            "format": 1,
            "request": {"source": {"suite": "trixie", "mirrors": []}, "wanted": [
                {"essential": false, "include": ["busybox-static"]}, {"essential": true, "include": ["curl", "dracut"]}]},
            "packages": [{"file": "a.deb", "url": "http://deb.example.org/debian/pool/main/a/a.deb"}]
        }"#;
        let choice = PackageChoice::of(lock).unwrap();
        assert_eq!(choice.mirror, "http://deb.example.org/debian");
        assert_eq!((&*choice.suite, choice.names.join(",")), ("trixie", "curl,dracut".to_owned()));
    }
}
