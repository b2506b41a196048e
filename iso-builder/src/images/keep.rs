//! Which files of an unpacked package go into a layer.
//!
//! Containers need neither the package manager's state, nor documentation, nor what `mmdebstrap` copies from the build
//! host (host name, resolver). Licences stay: `usr/share/doc/*/copyright` must be shipped with the program.

use super::status::STATUS_DIRECTORY;

/// Left out, with everything below.
const DROPPED: [&str; 16] = [
    "etc/apt",
    "etc/dpkg",
    "etc/fstab",
    "etc/hostname",
    "etc/resolv.conf",
    "usr/share/bug",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
];

/// Directories that stay, but empty: a runtime mounts over them, or their content is temporary.
const EMPTIED: [&str; 7] = ["dev", "proc", "run", "sys", "tmp", "var/log", "var/tmp"];

/// Whether the entry at `path` (relative, without trailing slash) goes into a layer.
pub(super) fn keeps(path: &[u8], is_file: bool) -> bool {
    let below =
        |directory: &str| path.strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"));
    if let Some(rest) = path.strip_prefix(b"usr/share/doc/") {
        return keeps_documentation(rest, is_file);
    }
    if path == b"var/lib/dpkg" || path == STATUS_DIRECTORY.as_bytes() || below(STATUS_DIRECTORY) {
        return true;
    }
    !DROPPED.iter().any(|dropped| path == dropped.as_bytes() || below(dropped))
        && !EMPTIED.iter().any(|emptied| below(emptied))
}

/// Whether it is a package's own directory (or the link to another package's) or its copyright file.
fn keeps_documentation(rest: &[u8], is_file: bool) -> bool {
    let mut parts = rest.split(|byte| *byte == b'/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), None, _) => !is_file,
        (Some(_), Some(b"copyright"), None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_documentation_and_traces_of_the_host_stay_out() {
        for path in [
            "etc/resolv.conf",
            "var/lib/dpkg/status",
            "usr/share/man/man1/ls.1.gz",
            "usr/share/doc/dash/changelog.gz",
            "usr/share/doc/dash/examples/copyright",
            "dev/fd",
            "tmp/x",
        ] {
            assert!(!keeps(path.as_bytes(), true), "{path}");
        }
    }

    #[test]
    fn programs_licences_and_mount_points_go_in() {
        for path in [
            "bin/dash",
            "var/lib/dpkg/status.d/dash",
            "etc/hostname.d",
            "usr/share/doc/dash/copyright",
            "usr/share/manual",
            "dev",
            "tmp",
        ] {
            assert!(keeps(path.as_bytes(), true), "{path}");
        }
        assert!(keeps(b"usr/share/doc/dash", false));
    }
}
