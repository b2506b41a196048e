//! The release manifest of the node: what runs, and what was installed.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::paths::below;
use base::failure::{Class, Failure};
use base::files;
use medium::signatures;
use model::release::{Release, SIGNATURES};
use model::release_manifest::ReleaseManifest;

/// The release manifest that an install leaves on the node.
pub const RELEASE: &str = "/oem/release.json";

/// The release manifest of the slot that runs. The initrd puts it there; after an update it is not that of the install.
pub const RUNNING: &str = "/run/nqrust/release.json";

/// The release of the node at `root`; [`Class::Hardware`] if it has no manifest, because then this is no installed node.
pub fn read(root: &Path) -> Result<Release> {
    let (path, bytes) = manifest(root)?;
    Release::parse(&bytes).with_context(|| format!("reading {}", path.display()))
}

/// The same with the signatures beside the manifest.
pub fn read_manifest(root: &Path) -> Result<ReleaseManifest> {
    let (path, bytes) = manifest(root)?;
    let signatures = signatures(&path.with_file_name(SIGNATURES))?;
    ReleaseManifest::parse(bytes, signatures).with_context(|| format!("reading {}", path.display()))
}

fn manifest(root: &Path) -> Result<(PathBuf, Vec<u8>)> {
    let running = below(root, RUNNING);
    let path = if running.exists() { running } else { below(root, RELEASE) };
    if !path.exists() {
        return Err(Failure::new(Class::Hardware, format!("{} does not exist", path.display()))
            .hint("Run this on an installed node, as root.")
            .into());
    }
    let bytes = files::read_at_most(&path, 64 << 20)?;
    Ok((path, bytes))
}

fn signatures(path: &Path) -> Result<Option<Vec<u8>>> {
    match File::open(path) {
        Ok(file) => signatures::read(file, || path.display().to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_release_has_the_signatures_that_are_beside_it() {
        let root = tempfile::tempdir().unwrap();
        let bytes = testing::release::release().to_bytes();
        for directory in ["oem", "run/nqrust"] {
            let directory = root.path().join(directory);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("release.json"), &bytes).unwrap();
            assert_eq!(read_manifest(root.path()).unwrap().signatures(), None, "{}", directory.display());
            fs::write(directory.join(SIGNATURES), "signed\n").unwrap();
            let read = read_manifest(root.path()).unwrap();
            assert_eq!((read.bytes(), read.signatures()), (&bytes[..], Some(&b"signed\n"[..])));
        }
        fs::write(root.path().join("run/nqrust").join(SIGNATURES), vec![b'a'; 8193]).unwrap();
        assert!(read_manifest(root.path()).is_err() && read(root.path()).is_ok());
    }
}
