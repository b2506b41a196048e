//! The programs of the host that a build needs; their presence is checked before the build begins.

use std::path::Path;

use anyhow::Result;
use base::failure::{Class, Failure};

/// A program, and the Debian package that has it.
const HOST_PROGRAMS: &[(&str, &str)] = &[
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("tar", "tar"),
    ("chroot", "coreutils"),
    ("mmdebstrap", "mmdebstrap"),
    ("dpkg-deb", "dpkg"),
    ("mksquashfs", "squashfs-tools"),
];

/// Fails with the programs that are missing and the packages that contain them.
pub(super) fn check() -> Result<()> {
    let mut tools = HOST_PROGRAMS.to_vec();
    if !nix::unistd::geteuid().is_root() {
        tools.push(("newuidmap", "uidmap"));
    }
    let missing: Vec<_> = tools.into_iter().filter(|(program, _)| !is_in_path(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let programs: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    Err(Failure::new(Class::Hardware, format!("this host lacks: {}", programs.join(", ")))
        .hint(format!("Install them: apt-get install {}", packages.join(" ")))
        .into())
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(|directory| Path::new(directory).to_owned());
    std::env::split_paths(&path).chain(system).any(|directory| directory.join(program).is_file())
}
