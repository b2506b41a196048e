//! Which files of an unpacked package go into a layer.
//!
//! Containers need neither the package manager's state, nor documentation, nor what `mmdebstrap` copies from the build
//! host (host name, resolver). Licences stay: `usr/share/doc/*/copyright` must be shipped with the program.

use super::status::STATUS_DIRECTORY;

/// Of an installed system these stay, with everything below: its package manager works.
const STATE_OF_PACKAGES: [&str; 3] = ["etc/apt", "etc/dpkg", "var/lib/dpkg"];

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

/// True if the entry at `path` (relative, without trailing slash) goes into a layer.
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

/// The same for an installed system. What only tells of the build of the system stays out: where its packages were fetched from, earlier
/// states of the package manager's records, and bytecode, which Python makes again.
pub(super) fn keeps_installed(path: &[u8], is_file: bool) -> bool {
    let below = |directory: &&str| {
        path.strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let of_build = path.starts_with(b"etc/apt/sources.list")
        || path.split(|byte| *byte == b'/').any(|part| part == b"__pycache__");
    let of_state = !name.ends_with(b"-old") && !name.starts_with(b"lock");
    !of_build && (keeps(path, is_file) || STATE_OF_PACKAGES.iter().any(below) && of_state)
}

/// True if it is a package's own directory (or the link to another package's) or its copyright file.
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
    fn an_installed_system_keeps_its_package_manager_and_nothing_of_its_own_build() {
        for (path, kept) in [
            ("var/lib/dpkg/status", true),
            ("var/lib/dpkg/info/dash.list", true),
            ("etc/apt/apt.conf.d/01autoremove", true),
            ("etc/apt/sources.list", false),
            ("etc/apt/sources.list.d/x.sources", false),
            ("var/lib/dpkg/status-old", false),
            ("var/lib/dpkg/lock-frontend", false),
            ("usr/lib/python3/dist-packages/__pycache__/x.pyc", false),
            ("usr/share/man/man1/ls.1.gz", false),
            ("var/log/dpkg.log", false),
            ("usr/bin/dash", true),
        ] {
            assert_eq!(keeps_installed(path.as_bytes(), true), kept, "{path}");
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
