//! Programs that tests need and some machines lack. `make setup` installs all of them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What `make setup` unpacks: packages whose services would take over the network of the host, or watch it.
const UNPACKED: [&str; 4] = ["network-manager", "keepalived", "prometheus", "prometheus-node-exporter"];

/// The checker of accessibility that browsers run, which `make setup` unpacks; the Makefile has its version too.
const AXE: &str = "nqrust/tools/axe-core-4.14.1/axe.min.js";

/// The directories to look for programs in: those of the user and of administrators, and what `make setup` unpacks.
pub fn directories() -> Vec<PathBuf> {
    let mut found: Vec<_> =
        variable("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
    found.extend(["/usr/sbin".into(), "/sbin".into()]);
    if let Some(cache) = cache() {
        for package in UNPACKED {
            found.extend(
                ["usr/sbin", "usr/bin"]
                    .map(|programs| cache.join("nqrust/tools").join(package).join(programs)),
            );
        }
    }
    found
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The directory with what `make setup` makes for this user.
fn cache() -> Option<PathBuf> {
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from);
    cache.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".cache")))
}

/// The script of axe-core.
pub fn axe() -> Option<PathBuf> {
    Some(cache()?.join(AXE)).filter(|file| file.is_file())
}

/// Where a program is.
pub fn find(program: &str) -> Option<PathBuf> {
    directories().into_iter().map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Reports that `test` is skipped on this machine. Where `CI` is set that is a failure, because a skipped test would go
/// unnoticed there.
pub fn leave_out(test: &str, why: &str) {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
    assert!(!ci, "{test} cannot be made here: {why}; `make setup` brings what tests need");
    eprintln!("skipped: {test}: {why}; `make setup` brings what tests need");
}
