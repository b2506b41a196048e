//! Two builds of one definition give the same bytes, wherever, whoever and however they are made.
//!
//! The second build shares only the downloads with the first: had it the whole cache, it would take over
//! finished steps and prove nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use installer::digest::Digest;
use nix::unistd::{Gid, Uid, User};
use nqrust_tests::artifacts::scenario;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{Checks, Document};
use nqrust_tests::paths;
use nqrust_tests::programs;
use nqrust_tests::steps;
use walkdir::WalkDir;

/// The part of a build cache that holds what came over the network, each file named by its digest.
const DOWNLOADS: &str = "downloads";

/// Who makes the second build when this process is root.
const BUILDER: &str = "nqrust-e2e";

#[test]
fn two_builds_by_different_users_in_different_places_and_ways_give_identical_isos() {
    scenario("reproducible", |artifacts| {
        let identity = Identity::load()?;
        let first = steps::medium(&identity)?;
        let media = paths::e2e().join("media");

        // Not below the target directory: another user may not be able to enter that.
        let elsewhere = tempfile::Builder::new().prefix("nqrust-elsewhere-").tempdir_in("/var/tmp")?;
        let root = elsewhere.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        let definition = medium::stage(&root.join("src"), &Document::new("node-a").to_json(&identity))?;
        let locks = lock_files(&media.join("node-a/source"))?;
        for lock in &locks {
            fs::copy(lock, root.join("src").join(lock.strip_prefix(media.join("node-a/source"))?))?;
        }
        medium::copy_tree(&media.join("cache").join(DOWNLOADS), &root.join(DOWNLOADS))?;

        let mut build = second_build(root, &definition)?;
        let ended = programs::run(&mut build, medium::BUILD)?;
        artifacts.append("build.log", &ended.said())?;
        ended.success("the second build")?;
        let second = Medium::in_directory(&root.join("out"))?;

        let mut checks = Checks::default();
        checks.that("the first build left a lock file", !locks.is_empty());
        let pairs = [
            ("full", Some(&first.full), Some(&second.full)),
            ("net-install", first.net_install.as_ref(), second.net_install.as_ref()),
        ];
        for (name, first, second) in pairs {
            let (first, second) = (first.context(name)?, second.context(name)?);
            checks.equal(&format!("the digest of the {name} ISO"), digest(second)?, digest(first)?);
        }
        if let Err(error) = checks.finish("two builds") {
            fs::copy(&second.full, artifacts.path("second.iso"))?;
            return Err(error.context(format!("{} and second.iso differ", first.full.display())));
        }
        Ok(())
    });
}

fn digest(path: &Path) -> Result<Digest> {
    let file = fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    Ok(Digest::of_reader(file)?.0)
}

fn lock_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in WalkDir::new(directory) {
        let path = entry?.into_path();
        if path.extension().is_some_and(|extension| extension == "lock") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The build of `definition` in `root` with everything different that must not matter.
fn second_build(root: &Path, definition: &Path) -> Result<Command> {
    let programs = root.join("bin");
    fs::create_dir(&programs)?;
    let (builder, installer) = (programs.join("iso-builder"), programs.join("installer"));
    fs::copy(paths::iso_builder()?, &builder)?;
    fs::copy(paths::installer()?, &installer)?;
    for directory in ["home", "tmp", "out"] {
        fs::create_dir(root.join(directory))?;
    }
    // The shell only sets the umask, which std cannot.
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(builder);
    command.args(["build", "--locked", "--offline", "--progress", "plain"]).arg(definition);
    command.arg("-o").arg(root.join("out")).arg("--cache-dir").arg(root.join("cache"));
    command.arg("--downloads").arg(root.join(DOWNLOADS)).arg("--installer").arg(installer);
    command.current_dir(root).env("TZ", "Pacific/Kiritimati").env("LC_ALL", "C").env("LANG", "C");
    command.env("HOME", root.join("home")).env("TMPDIR", root.join("tmp"));
    command.env_remove("SOURCE_DATE_EPOCH").env_remove("CARGO_TARGET_DIR");
    if Uid::effective().is_root() {
        let (uid, gid) = ordinary_user()?;
        give(root, uid, gid)?;
        command.uid(uid.as_raw()).gid(gid.as_raw()).env("USER", BUILDER).env("LOGNAME", BUILDER);
    }
    Ok(command)
}

/// The user [`BUILDER`], made now if it is not there. It stays: its subordinate ids may own files of caches.
fn ordinary_user() -> Result<(Uid, Gid)> {
    if User::from_name(BUILDER)?.is_none() {
        let mut useradd = Command::new("useradd");
        useradd.args(["--no-create-home", "--user-group", "--shell", "/usr/sbin/nologin"]);
        // User namespaces need a range of subordinate ids; useradd gives one where the file is there.
        useradd.args(["-K", "SUB_UID_COUNT=65536", "-K", "SUB_GID_COUNT=65536", BUILDER]);
        programs::run(&mut useradd, steps::COMMAND)?.success("useradd")?;
    }
    let user = User::from_name(BUILDER)?.with_context(|| format!("useradd made no user {BUILDER}"))?;
    for file in ["/etc/subuid", "/etc/subgid"] {
        let ranges = fs::read_to_string(file).unwrap_or_default();
        if !ranges.lines().any(|line| line.starts_with(&format!("{BUILDER}:"))) {
            let mut usermod = Command::new("usermod");
            usermod.args(["--add-subuids", "1000000-1065535", "--add-subgids", "1000000-1065535", BUILDER]);
            programs::run(&mut usermod, steps::COMMAND)?.success("usermod")?;
        }
    }
    Ok((user.uid, user.gid))
}

fn give(root: &Path, uid: Uid, gid: Gid) -> Result<()> {
    for entry in WalkDir::new(root) {
        let entry = entry?;
        if !entry.file_type().is_symlink() {
            chown(entry.path(), Some(uid.as_raw()), Some(gid.as_raw()))?;
        }
    }
    Ok(())
}
