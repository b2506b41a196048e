//! The programs of the host that a build needs: their presence, which is checked before the build begins, and their versions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use base::failure::{Class, Failure};
use base::files::read_at_most;
use model::architecture::Architecture;

use crate::definition::OutputKind;
use crate::files::KnownFiles;
use crate::{emulation, namespaces};

/// A program, and the Debian package that has it.
pub(super) const HOST_PROGRAMS: &[(&str, &str)] = &[
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("tar", "tar"),
    ("chroot", "coreutils"),
    ("mmdebstrap", "mmdebstrap"),
    ("dpkg-deb", "dpkg"),
    ("xz", "xz-utils"),
    ("mount", "mount"),
];
/// Those that make the disk of a node.
const DISK_PROGRAMS: [(&str, &str); 3] =
    [("mkfs.ext4", "e2fsprogs"), ("debugfs", "e2fsprogs"), ("e2fsck", "e2fsprogs")];
const QCOW2_PROGRAM: (&str, &str) = ("qemu-img", "qemu-utils");
/// Those that map the ids of a user namespace.
pub(super) const MAPPING_PROGRAMS: [(&str, &str); 2] = [("newuidmap", "uidmap"), ("newgidmap", "uidmap")];
/// Programs whose versions can change the outputs, with the option that prints the version.
const TOOLS: [(&str, &str); 4] =
    [("mmdebstrap", "--version"), ("dpkg-deb", "--version"), ("tar", "--version"), ("unshare", "--version")];

/// The most bytes of a script that is read for its version.
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Fails with the programs that are missing and the packages that contain them, or with the reason why this host does not let them
/// make namespaces or does not run programs for images of `architecture`.
pub(super) fn check(architecture: Architecture) -> Result<()> {
    let mut tools = HOST_PROGRAMS.to_vec();
    if namespaces::needs_user_namespace() {
        tools.extend(MAPPING_PROGRAMS);
    }
    present(tools)?;
    namespaces::check()?;
    emulation::check(architecture)
}

/// Fails with the programs that disks need and that are missing.
pub(super) fn check_disks(kinds: &BTreeSet<OutputKind>) -> Result<()> {
    let mut tools = Vec::new();
    if kinds.iter().any(|kind| kind.is_disk()) {
        tools.extend(DISK_PROGRAMS);
    }
    tools.extend(kinds.contains(&OutputKind::DiskQcow2).then_some(QCOW2_PROGRAM));
    present(tools)
}

fn present(tools: Vec<(&'static str, &'static str)>) -> Result<()> {
    let missing: Vec<_> = tools.into_iter().filter(|(program, _)| in_path(program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    Err(Failure::new(Class::Hardware, format!("this host lacks: {}", programs.join(", ")))
        .hint(format!("Install them: apt-get install {}", packages.join(" ")))
        .into())
}

/// Where a program is.
fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).to_owned());
    std::env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// The versions of the programs of this host, as they tell them.
pub(super) fn versions(known: &KnownFiles) -> BTreeMap<String, String> {
    let told = |(tool, option): (&str, &str)| {
        let path = in_path(tool)?;
        let version =
            known.version(&path, || version_of_script(tool, &path).or_else(|| version(tool, option)))?;
        Some((tool.to_owned(), version))
    };
    TOOLS.into_iter().filter_map(told).collect()
}

/// The version of a program that is a script of Perl, as it would tell it: by the line of its text that has it, which is how Perl's own tools
/// find it (perlmod, "$VERSION"; `ExtUtils::MakeMaker`). mmdebstrap takes a third of a second to tell its own, since it asks apt first.
fn version_of_script(program: &str, path: &Path) -> Option<String> {
    let text = read_at_most(path, SCRIPT_BYTES_MAX).ok()?;
    let text = std::str::from_utf8(&text).ok()?;
    text.lines().next().filter(|line| line.starts_with("#!") && line.contains("perl"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("our $VERSION = "))?;
    let version = line.strip_prefix('\'')?.strip_suffix("';")?;
    Some(format!("{program} {version}"))
}

/// The first line of a program's version output.
fn version(program: &str, option: &str) -> Option<String> {
    let said = Command::new(program).arg(option).output().ok()?;
    let first = String::from_utf8_lossy(&said.stdout).lines().next()?.trim().to_owned();
    (!first.is_empty()).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debian_package_depends_on_the_programs_that_a_build_starts() {
        let manifest = include_str!("../../Cargo.toml");
        let depends = manifest.lines().find_map(|line| line.strip_prefix("depends = ")).unwrap();
        let depends: Vec<_> = depends.trim_matches('"').split(", ").collect();
        // Essential packages are in every system.
        let essential = ["coreutils", "dpkg", "tar", "util-linux"];
        for (program, package) in HOST_PROGRAMS.iter().chain(&MAPPING_PROGRAMS) {
            assert!(depends.contains(package) || essential.contains(package), "{program} of {package}");
        }
    }

    #[test]
    fn the_text_of_a_script_has_the_version_that_it_tells() {
        let path = in_path("mmdebstrap").unwrap();
        assert_eq!(version_of_script("mmdebstrap", &path), version("mmdebstrap", "--version"));
        assert_eq!(version_of_script("tar", &in_path("tar").unwrap()), None);
        let directory = tempfile::tempdir().unwrap();
        let told = |text: &str| {
            let path = directory.path().join("script");
            std::fs::write(&path, text).unwrap();
            version_of_script("script", &path)
        };
        assert_eq!(told("#!/usr/bin/perl\nour $VERSION = '1.2~rc1';\n").as_deref(), Some("script 1.2~rc1"));
        for text in ["#!/bin/sh\n", "#!/usr/bin/perl\nour $VERSION = version();\n", "our $VERSION = '1';\n"] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn a_program_tells_its_version_and_one_that_is_not_there_none() {
        assert!(version("tar", "--version").unwrap().contains("tar"));
        assert_eq!(version("nqrust-no-such-program", "--version"), None);
    }
}
