//! Builds by an ordinary user in a directory of their own, whoever runs the tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result};
use nix::unistd::{Gid, Uid, User};
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::medium::copy_tree;
use crate::programs::KEYS;
use crate::{paths, programs, steps};

/// The user who builds if this process is root.
const BUILDER: &str = "nqrust-e2e";

/// A directory with both programs in `bin`, and `home`, `tmp` and `out`.
#[derive(Debug)]
pub struct BuilderDirectory(TempDir);

impl BuilderDirectory {
    /// Makes the directory. It is not below the target directory, because another user may not be able to enter that.
    pub fn new() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("nqrust-elsewhere-").tempdir_in("/var/tmp")?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let place = Self(directory);
        for name in ["bin", "home", "tmp", "out"] {
            fs::create_dir(place.path(name))?;
        }
        copy_tree(&paths::keys(), &place.path("keys"))?;
        fs::copy(paths::iso_builder()?, place.path("bin/iso-builder"))?;
        fs::copy(paths::installer()?, place.path("bin/installer"))?;
        Ok(place)
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command that builds a definition as an ordinary user, with only the files of this directory.
    pub fn build(&self, definition: &Path) -> Result<Command> {
        let mut command = self.iso_builder("build")?;
        command.arg(definition).arg("-o").arg(self.path("out"));
        self.with_inputs(&mut command);
        command.args(["--sign-with", "development"]);
        Ok(command)
    }

    /// The command that builds a release again, likewise.
    pub fn reproduce(&self, release: &Path, definition: &Path) -> Result<Command> {
        let mut command = self.iso_builder("reproduce")?;
        command.arg(release).arg("--definition").arg(definition);
        self.with_inputs(&mut command);
        Ok(command)
    }

    /// A command of the `iso-builder` here, run by an ordinary user whose files nobody else can read.
    pub fn iso_builder(&self, name: &str) -> Result<Command> {
        // The shell only sets the umask, which std cannot.
        let mut command = self.command("sh")?;
        command.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(self.path("bin/iso-builder"));
        command.args([name, "--progress", "plain"]).env(KEYS, self.path("keys"));
        Ok(command)
    }

    fn with_inputs(&self, command: &mut Command) {
        command.arg("--cache-dir").arg(self.path("cache")).arg("--installer").arg(self.path("bin/installer"));
    }

    /// A program in this directory, run as an ordinary user, who becomes the owner of the files here.
    pub fn command(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        if Uid::effective().is_root() {
            let (uid, gid) = ordinary_user()?;
            give(self.0.path(), uid, gid)?;
            command.uid(uid.as_raw()).gid(gid.as_raw()).env("USER", BUILDER).env("LOGNAME", BUILDER);
        }
        Ok(command)
    }
}

/// The user [`BUILDER`], created if necessary. It stays: its subordinate ids may own files of caches.
fn ordinary_user() -> Result<(Uid, Gid)> {
    // Tests run in parallel, and two runs of useradd would fail.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock();
    if User::from_name(BUILDER)?.is_none() {
        let mut useradd = Command::new("useradd");
        useradd.args(["--no-create-home", "--user-group", "--shell", "/usr/sbin/nologin"]);
        // User namespaces need a range of subordinate ids; useradd assigns one if the file exists.
        useradd.args(["-K", "SUB_UID_COUNT=65536", "-K", "SUB_GID_COUNT=65536", BUILDER]);
        programs::run(&mut useradd, steps::COMMAND_LIMIT)?.success("useradd")?;
    }
    let user = User::from_name(BUILDER)?.with_context(|| format!("useradd made no user {BUILDER}"))?;
    for file in ["/etc/subuid", "/etc/subgid"] {
        let ranges = fs::read_to_string(file).unwrap_or_default();
        if !ranges.lines().any(|line| line.starts_with(&format!("{BUILDER}:"))) {
            let mut usermod = Command::new("usermod");
            usermod.args(["--add-subuids", "1000000-1065535", "--add-subgids", "1000000-1065535", BUILDER]);
            programs::run(&mut usermod, steps::COMMAND_LIMIT)?.success("usermod")?;
        }
    }
    Ok((user.uid, user.gid))
}

/// Changes the owner of root's files; files that the user made in a namespace keep their owners.
fn give(root: &Path, uid: Uid, gid: Gid) -> Result<()> {
    for entry in WalkDir::new(root) {
        let entry = entry?;
        if !entry.file_type().is_symlink() && std::os::unix::fs::MetadataExt::uid(&entry.metadata()?) == 0 {
            chown(entry.path(), Some(uid.as_raw()), Some(gid.as_raw()))?;
        }
    }
    Ok(())
}
