//! Records in a layer which packages it holds.
//!
//! A layer made of unpacked packages has no dpkg database, so its packages could not be found out later. So each
//! package gets a file in `var/lib/dpkg/status.d`, the form in which images without a package manager list their
//! packages, and which scanners and our own bill of materials read.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};

use crate::packages::ResolvedPackage;

/// The directory of the files, relative to the root of a layer.
pub(super) const STATUS_DIRECTORY: &str = "var/lib/dpkg/status.d";

/// The directory of every package's licence (Debian policy 12.5), in a directory with its name.
const DOCUMENTATION: &str = "usr/share/doc/";

/// Adds a file for each package whose files are in the tar file `layer`; `packages` are the candidates.
pub fn add(layer: &Path, packages: &[&ResolvedPackage]) -> Result<()> {
    let names = documented(layer)?;
    let scratch = tempfile::tempdir().context("making a scratch directory")?;
    let directory = scratch.path().join(STATUS_DIRECTORY);
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let known = packages.iter().filter_map(|package| stanza(&package.file));
    for (name, text) in known.filter(|(name, _)| names.contains(name.as_str())) {
        fs::write(directory.join(&name), text).with_context(|| format!("describing the package {name}"))?;
    }
    let parent = Path::new(STATUS_DIRECTORY).parent().unwrap_or(Path::new(""));
    let tar = Invocation::new("tar")
        .args(["--append", "--owner=0", "--group=0", "--numeric-owner", "--sort=name", "--mode=u=rwX,go=rX"])
        .arg("--file")
        .arg(layer)
        .arg("--directory")
        .arg(scratch.path())
        .arg(parent)
        .limit(Duration::from_secs(600));
    SystemRunner.run(&tar).context("describing the packages of a layer").map(drop)
}

/// The names of the packages whose documentation a tar file has.
fn documented(layer: &Path) -> Result<BTreeSet<String>> {
    let reading = || format!("reading {}", layer.display());
    let mut archive = tar::Archive::new(File::open(layer).with_context(reading)?);
    let mut names = BTreeSet::new();
    for entry in archive.entries_with_seek().with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let path = entry.path_bytes();
        let path = String::from_utf8_lossy(&path);
        let name =
            path.trim_start_matches("./").strip_prefix(DOCUMENTATION).and_then(|rest| rest.split('/').next());
        names.extend(name.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    Ok(names)
}

/// Name and description of a package, from the name of its file, `NAME_VERSION_ARCHITECTURE.deb`; a colon in the
/// version is `%3a` there.
fn stanza(file: &str) -> Option<(String, String)> {
    let mut parts = file.strip_suffix(".deb")?.split('_');
    let (name, version, architecture) = (parts.next()?, parts.next()?, parts.next()?);
    let version = version.replace("%3a", ":").replace("%3A", ":");
    let text = format!(
        "Package: {name}\nStatus: install ok installed\nArchitecture: {architecture}\nVersion: {version}\n"
    );
    Some((name.to_owned(), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;

    #[test]
    fn a_layer_says_which_of_the_packages_it_holds() {
        let directory = tempfile::tempdir().unwrap();
        let layer = directory.path().join("layer.tar");
        let mut builder = tar::Builder::new(File::create(&layer).unwrap());
        for name in ["./usr/share/doc/dash/copyright", "./bin/dash"] {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(1);
            builder.append_data(&mut header, name, &b"x"[..]).unwrap();
        }
        builder.finish().unwrap();
        let package = |file: &str| ResolvedPackage {
            file: file.into(),
            url: String::new(),
            size: 0,
            sha256: Digest::of(b""),
            lists: Default::default(),
        };
        add(&layer, &[&package("dash_1%3a0.5-2_amd64.deb"), &package("sed_4.9-1_amd64.deb")]).unwrap();
        let contents = super::super::contents::LayerContents::scan(&layer).unwrap();
        let paths: Vec<_> =
            contents.entries.keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        assert!(paths.contains(&"var/lib/dpkg/status.d/dash".to_owned()), "{paths:?}");
        assert!(paths.contains(&"bin/dash".to_owned()) && !paths.iter().any(|path| path.ends_with("sed")));
        assert_eq!(stanza("dash_1%3a0.5-2_amd64.deb").unwrap().1.lines().last(), Some("Version: 1:0.5-2"));
    }
}
