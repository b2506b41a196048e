//! Unpacks Debian packages into a tar file, with `mmdebstrap`.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use base::command::Invocation;

use super::spec::LayerSpec;

/// How `mmdebstrap` becomes root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootMode {
    Root,
    /// An ordinary user with subordinate ids, in a user namespace.
    Unshare,
}

/// The `mmdebstrap` command that unpacks the packages of `layer`, with their dependencies, into the tar file `out`.
/// `mirrors` are its last arguments, for instance one line `deb [trusted=yes] copy:/… ./`; without any it uses the
/// host's own.
///
/// The variant `extract` unpacks without running maintainer scripts; a layer is plain files.
#[must_use]
pub fn extract(
    layer: &LayerSpec,
    suite: &str,
    mirrors: &[OsString],
    mode: RootMode,
    out: &Path,
) -> Invocation {
    let names: Vec<&str> = layer.packages.iter().map(|name| name.as_str()).collect();
    let mode = match mode {
        RootMode::Root => "--mode=root",
        RootMode::Unshare => "--mode=unshare",
    };
    Invocation::new("mmdebstrap")
        .args([mode, "--variant=extract", "--format=tar", "--quiet"])
        .arg(format!("--include={}", names.join(",")))
        .arg(suite)
        .arg(out)
        .args(mirrors)
        .limit(Duration::from_secs(30 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_follow_the_tar_file() {
        let layer = LayerSpec { packages: vec!["dash".parse().unwrap(), "sed".parse().unwrap()] };
        let mirror = OsString::from("deb [trusted=yes] copy:/cache ./");
        let run = extract(&layer, "bookworm", &[mirror], RootMode::Unshare, Path::new("/out.tar"));
        assert_eq!(
            run.display(),
            "mmdebstrap --mode=unshare --variant=extract --format=tar --quiet --include=dash,sed bookworm \
             /out.tar deb [trusted=yes] copy:/cache ./"
        );
    }
}
