//! The files of a release that an install needs and no slot holds: loaders, containerd's metadata, defaults. Each node keeps them,
//! so that it can serve its release to machines that have no system.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Result;

use base::digest::Digest;
use base::failure::{Class, Classify, class_of};
use base::files::{removed, write_atomically};
use medium::payload_sources::{PayloadSource, VerifyingReader};
use model::release::{Payload, Purpose, Release};

/// On the persistent partition, which is `/var` of a node. Each release has a directory there, named by the digest of its manifest.
const DIRECTORY: &str = "lib/nqrust/release";

/// The install files of a release. Configurations that a medium was built with are none: they hold secrets.
pub fn install_files(release: &Release) -> impl Iterator<Item = &Payload> {
    release.all_payloads().filter(|payload| match payload.purpose {
        Purpose::Shim
        | Purpose::MokManager
        | Purpose::GrubEfi
        | Purpose::GrubBoot
        | Purpose::GrubCore
        | Purpose::ImageIndex
        | Purpose::ImageMetadata
        | Purpose::InstallDefaults
        | Purpose::Hardware => true,
        Purpose::Kernel
        | Purpose::Initrd
        | Purpose::Rootfs
        | Purpose::Patch
        | Purpose::ImageBlob
        | Purpose::InstallConfig
        | Purpose::BootPassword => false,
    })
}

/// Where the node whose `/var` this is keeps the install files of the release with this digest.
#[must_use]
pub fn install_files_directory(var: &Path, release: Digest) -> PathBuf {
    var.join(DIRECTORY).join(release.to_string())
}

/// Copies the install files of `release`, whose manifest has this digest, from `source` to the node whose `/var` this is. Returns why
/// some could not be had: the node works without them.
///
/// # Errors
/// [`Class::DiskIo`] if they cannot be written; [`Class::Cancelled`].
pub fn keep_install_files(
    var: &Path,
    (release, digest): (&Release, Digest),
    source: &dyn PayloadSource,
) -> Result<Vec<String>> {
    let directory = install_files_directory(var, digest);
    let mut lacking = Vec::new();
    for payload in install_files(release) {
        // The largest are databases of some MiB.
        let read = source.open(payload).and_then(|reader| {
            let mut bytes = Vec::new();
            VerifyingReader::new(reader, payload, source.describe_of(payload)).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        match read {
            Ok(bytes) => {
                let path = directory.join(&payload.path);
                write_atomically(&path, &bytes, 0o600)
                    .class(Class::DiskIo, || format!("keeping {}", path.display()))?;
            }
            Err(error) if class_of(&error) == Class::Cancelled => return Err(error),
            Err(error) => lacking.push(format!("{}: {error:#}", payload.path)),
        }
    }
    Ok(lacking)
}

/// Removes the install files of every release but these.
pub fn forget_install_files(var: &Path, kept: &[Digest]) -> Result<()> {
    let directory = var.join(DIRECTORY);
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        let known = entry.file_name().to_str().and_then(|name| name.parse::<Digest>().ok());
        if !known.is_some_and(|digest| kept.contains(&digest)) {
            let path = entry.path();
            removed(fs::remove_dir_all(&path))
                .class(Class::DiskIo, || format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use medium::payload_sources::LocalMedium;
    use model::release_manifest::ReleaseManifest;
    use testing::release::{contents, release};

    /// A directory with the content of a medium.
    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (payload, bytes) in contents() {
            let path = tree.path().join(&payload.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        tree
    }

    #[test]
    fn a_node_keeps_what_no_slot_holds_and_nothing_that_it_could_not_check() {
        let (tree, var) = (tree(), tempfile::tempdir().unwrap());
        let release = ReleaseManifest::from(release());
        let kept = install_files_directory(var.path(), release.digest());
        let keep = || {
            let source = LocalMedium::new(tree.path());
            keep_install_files(var.path(), (&*release, release.digest()), &source).unwrap()
        };
        assert_eq!(keep(), Vec::<String>::new());
        for (payload, bytes) in contents() {
            let here = [Purpose::Kernel, Purpose::Initrd, Purpose::Rootfs, Purpose::ImageBlob];
            let found = fs::read(kept.join(&payload.path)).ok();
            let expected = (!here.contains(&payload.purpose)).then(|| bytes.clone());
            assert!(found == expected, "{}", payload.path);
        }
        let core = release.payload(Purpose::GrubCore).unwrap().path.clone();
        fs::remove_dir_all(&kept).unwrap();
        fs::write(tree.path().join(&core), "other bytes").unwrap();
        let lacking = keep();
        assert!(lacking.len() == 1 && lacking[0].starts_with(&format!("{core}: ")), "{lacking:?}");
        assert!(!kept.join(&core).exists());
    }

    #[test]
    fn the_files_of_other_releases_go() {
        let var = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|text| Digest::of(text.as_bytes()));
        for digest in [one, other] {
            fs::create_dir_all(install_files_directory(var.path(), digest).join("boot")).unwrap();
        }
        fs::create_dir_all(var.path().join(DIRECTORY).join("leftover")).unwrap();
        forget_install_files(var.path(), &[one]).unwrap();
        let left: Vec<_> =
            fs::read_dir(var.path().join(DIRECTORY)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [install_files_directory(var.path(), one)]);
        forget_install_files(&var.path().join("none"), &[]).unwrap();
    }
}
