//! The versions of Kubernetes that a node keeps, each a directory with the files of an OS image that belong to it and a list of them
//! with digests; and the link to the one that is to run.
//!
//! A directory gets its name when all of it is on the disk, and the link is changed after that. A power cut leaves whole versions
//! only, and a link to one of them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use base::digest::{Digest, HashingReader};
use base::encode;
use base::failure::{Class, Classify, Failure};
use base::files::{self, Root, free_space};
use base::size::ByteSize;
use machine::paths::below;
use machine::seed;
use model::kubernetes::{KubernetesRelease, KubernetesVersion};

pub(crate) const VERSIONS: &str = "/var/lib/nqrust/kubernetes/versions";
const CURRENT: &str = "/var/lib/nqrust/kubernetes/versions/current";
/// In the directory of a version.
const LIST: &str = "files.json";
/// In bytes; a release of RKE2 has some hundred files.
const LIST_BYTES_MAX: u64 = 4 << 20;
/// Stays free on the file system of the versions.
pub(crate) const SPARE_ROOM: ByteSize = ByteSize::mib(64);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileList {
    release: KubernetesRelease,
    /// In the order of their paths.
    entries: Vec<ListedFile>,
}

/// A file or link. Directories follow from their paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ListedFile {
    /// From the root.
    path: String,
    #[serde(flatten)]
    content: FileContent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum FileContent {
    Link { target: PathBuf },
    File { mode: u32, size: u64, sha256: Digest },
}

#[derive(Clone, Copy, Debug)]
pub struct KeptVersions<'a> {
    root: &'a Path,
}

impl<'a> KeptVersions<'a> {
    #[must_use]
    pub fn of(root: &'a Path) -> Self {
        Self { root }
    }

    /// The chosen version; none while that of the image runs.
    #[must_use]
    pub fn current(&self) -> Option<KubernetesVersion> {
        fs::read_link(below(self.root, CURRENT)).ok()?.to_str()?.parse().ok()
    }

    /// Makes this version the one that runs from the next start on.
    pub fn choose(&self, version: &KubernetesVersion) -> Result<()> {
        let what = || format!("choosing Kubernetes {version}");
        let linked = Root::open(self.root).and_then(|root| root.link(CURRENT, Path::new(version.as_str())));
        linked.map(drop).class(Class::DiskIo, what)
    }

    /// The directory of a version. Its files have the paths there that they have below the root.
    #[must_use]
    pub fn directory(&self, version: &KubernetesVersion) -> PathBuf {
        below(self.root, VERSIONS).join(version.as_str())
    }

    /// Reads every byte of a kept version, and returns its release if all is right.
    ///
    /// # Errors
    /// [`Class::Verification`] with what is missing or wrong.
    pub fn verify(&self, version: &KubernetesVersion) -> Result<KubernetesRelease> {
        let directory = self.directory(version);
        let what = || format!("the kept Kubernetes {version} is damaged or missing");
        let checked = (|| {
            let bytes = files::read_at_most(&directory.join(LIST), LIST_BYTES_MAX)?;
            let list: FileList = serde_json::from_slice(&bytes).context("reading the list of its files")?;
            anyhow::ensure!(list.release.version == *version, "it is {}", list.release.version);
            for entry in &list.entries {
                let found = content(&directory.join(&entry.path))?;
                anyhow::ensure!(found == entry.content, "{} is not as it was kept", entry.path);
            }
            Ok(list.release)
        })();
        checked.class(Class::Verification, what)
    }

    /// Keeps the version that the OS image at `image` has, unless it is kept whole already. Says whether it copied anything.
    ///
    /// # Errors
    /// [`Class::DiskIo`], also for too little room; nothing is left then.
    pub fn keep(&self, image: &Path, release: &KubernetesRelease) -> Result<bool> {
        let version = &release.version;
        if self.verify(version).is_ok() {
            return Ok(false);
        }
        let what = || format!("keeping Kubernetes {version}");
        let list = list(image, release).class(Class::DiskIo, what)?;
        let directory = self.directory(version);
        let above = files::parent(&directory);
        files::make_directory(above, 0o700).class(Class::DiskIo, what)?;
        remove(&directory).class(Class::DiskIo, what)?;
        self.check_room(&list)?;
        let text = encode::json_text(&list);
        seed::copy_selection(image, &directory, &release.files, (LIST, text.as_bytes()))
            .class(Class::DiskIo, what)?;
        self.verify(version).class(Class::DiskIo, what)?;
        Ok(true)
    }

    /// The bytes that [`Self::keep`] would store of the version that the OS image at `image` has; none if that seems to be kept.
    #[must_use]
    pub fn missing(&self, image: &Path, release: &KubernetesRelease) -> ByteSize {
        if self.directory(&release.version).join(LIST).exists() {
            return ByteSize::bytes(0);
        }
        let files = release.files.iter().flat_map(|file| WalkDir::new(image.join(file))).flatten();
        let sizes = files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file);
        ByteSize::bytes(sizes.fold(0, |sum, file| sum.saturating_add(file.len())))
    }

    /// Removes every version but this one. What remains of one that cannot be removed is told, and does no harm.
    pub fn forget_others(&self, kept: &KubernetesVersion) -> Result<()> {
        for entry in fs::read_dir(below(self.root, VERSIONS))? {
            let entry = entry?;
            let version = entry.file_name().to_str().and_then(|name| name.parse::<KubernetesVersion>().ok());
            if version.is_some_and(|version| version != *kept) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    fn check_room(&self, list: &FileList) -> Result<()> {
        let size = |entry: &ListedFile| match entry.content {
            FileContent::File { size, .. } => size,
            FileContent::Link { .. } => 0,
        };
        let bytes: u64 = list.entries.iter().map(size).sum();
        let place = below(self.root, VERSIONS);
        let free = free_space(&place)?;
        let needed = ByteSize::bytes(bytes.saturating_add(SPARE_ROOM.get()));
        if free >= needed {
            return Ok(());
        }
        let version = &list.release.version;
        let what = format!(
            "the programs of Kubernetes {version} need {needed} in {}, and {free} are free",
            place.display()
        );
        Err(Failure::new(Class::DiskIo, what).hint("Free space on /var, then start again.").into())
    }
}

/// Renames a directory before it is removed, so that no name leads to half a version.
fn remove(directory: &Path) -> Result<()> {
    let gone = directory.with_file_name(".removed");
    let absent = |result: io::Result<()>| match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    absent(fs::remove_dir_all(&gone))
        .and_then(|()| absent(fs::rename(directory, &gone)))
        .and_then(|()| absent(fs::remove_dir_all(&gone)))
        .with_context(|| format!("removing {}", directory.display()))
}

/// The files of `release` in the image at `image`.
fn list(image: &Path, release: &KubernetesRelease) -> Result<FileList> {
    let mut entries = Vec::new();
    for file in &release.files {
        for entry in WalkDir::new(image.join(file)).sort_by_file_name() {
            let entry = entry.context("looking for the programs of the OS image")?;
            if entry.file_type().is_dir() {
                continue;
            }
            let path =
                entry.path().strip_prefix(image)?.to_str().context("a file has a name that is no text")?;
            entries.push(ListedFile { path: path.to_owned(), content: content(entry.path())? });
        }
    }
    Ok(FileList { release: release.clone(), entries })
}

fn content(path: &Path) -> Result<FileContent> {
    let what = || format!("reading {}", path.display());
    let metadata = fs::symlink_metadata(path).with_context(what)?;
    if metadata.is_symlink() {
        return Ok(FileContent::Link { target: fs::read_link(path).with_context(what)? });
    }
    let mut reader = HashingReader::new(fs::File::open(path).with_context(what)?);
    let size = io::copy(&mut reader, &mut io::sink()).with_context(what)?;
    Ok(FileContent::File { mode: metadata.permissions().mode() & 0o7777, size, sha256: reader.digest() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use base::failure::class_of;
    use std::os::unix::fs::symlink;

    /// An OS image at `root` that brings this version of RKE2.
    pub(crate) fn image(root: &Path, version: &str) -> KubernetesRelease {
        let put = |path: &str, text: &str, mode: u32| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        put("usr/local/bin/rke2", &format!("program of {version}"), 0o755);
        put("usr/lib/rke2/bin/kubelet", &format!("kubelet of {version}"), 0o755);
        put("usr/lib/rke2/charts/a.yaml", "kind: HelmChart\n", 0o644);
        let _ = symlink("kubelet", root.join("usr/lib/rke2/bin/kubectl"));
        let files = ["usr/local/bin/rke2", "usr/lib/rke2", "usr/lib/nqrust/kubernetes.json"];
        let release = KubernetesRelease {
            version: version.parse().unwrap(),
            files: files.map(str::to_owned).to_vec(),
            images: None,
        };
        put("usr/lib/nqrust/kubernetes.json", &serde_json::to_string(&release).unwrap(), 0o644);
        release
    }

    #[test]
    fn a_version_is_kept_whole_with_modes_and_links_and_found_again() {
        let (image_root, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let release = image(image_root.path(), "v1.33.1+rke2r1");
        let kept = KeptVersions::of(node.path());
        assert_eq!(class_of(&kept.verify(&release.version).unwrap_err()), Class::Verification);
        let bytes = |text: &str| text.len() as u64;
        let list = fs::metadata(image_root.path().join("usr/lib/nqrust/kubernetes.json")).unwrap().len();
        let programs = bytes("program of v1.33.1+rke2r1") + bytes("kubelet of v1.33.1+rke2r1");
        let all = ByteSize::bytes(programs + bytes("kind: HelmChart\n") + list);
        assert_eq!(kept.missing(image_root.path(), &release), all);
        assert!(kept.keep(image_root.path(), &release).unwrap());
        assert_eq!(kept.missing(image_root.path(), &release), ByteSize::bytes(0));
        assert_eq!(kept.verify(&release.version).unwrap(), release);
        assert!(!kept.keep(image_root.path(), &release).unwrap(), "it is there");
        let directory = kept.directory(&release.version);
        let mode = |path: &str| fs::metadata(directory.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("usr/local/bin/rke2"), mode("usr/lib/rke2/charts/a.yaml")), (0o755, 0o644));
        assert_eq!(fs::read_link(directory.join("usr/lib/rke2/bin/kubectl")).unwrap(), Path::new("kubelet"));
    }

    #[test]
    fn every_damage_is_found_and_mended_by_keeping_again() {
        let (image_root, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let release = image(image_root.path(), "v1.33.1+rke2r1");
        let kept = KeptVersions::of(node.path());
        let directory = kept.directory(&release.version);
        type Damage = fn(&Path);
        let damages: [(&str, Damage); 6] = [
            ("a byte", |at| fs::write(at.join("usr/local/bin/rke2"), "program of v1.33.1+rke2rX").unwrap()),
            ("the end", |at| fs::write(at.join("usr/local/bin/rke2"), "").unwrap()),
            ("a file", |at| fs::remove_file(at.join("usr/lib/rke2/charts/a.yaml")).unwrap()),
            ("the mode", |at| {
                let plain = fs::Permissions::from_mode(0o644);
                fs::set_permissions(at.join("usr/local/bin/rke2"), plain).unwrap();
            }),
            ("the list", |at| fs::write(at.join(LIST), "{").unwrap()),
            ("a link", |at| fs::remove_file(at.join("usr/lib/rke2/bin/kubectl")).unwrap()),
        ];
        for (what, damage) in damages {
            kept.keep(image_root.path(), &release).unwrap();
            damage(&directory);
            assert!(kept.verify(&release.version).is_err(), "{what}");
            assert!(kept.keep(image_root.path(), &release).unwrap(), "{what}");
            kept.verify(&release.version).unwrap();
        }
    }

    #[test]
    fn what_an_image_lacks_is_told_and_nothing_of_it_is_kept() {
        let (image_root, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let release = image(image_root.path(), "v1.33.1+rke2r1");
        fs::remove_file(image_root.path().join("usr/local/bin/rke2")).unwrap();
        let kept = KeptVersions::of(node.path());
        assert_eq!(class_of(&kept.keep(image_root.path(), &release).unwrap_err()), Class::DiskIo);
        assert!(!kept.directory(&release.version).exists());
    }

    #[test]
    fn the_version_that_is_to_run_is_a_link_and_the_others_can_be_forgotten() {
        let (image_root, node) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let kept = KeptVersions::of(node.path());
        assert_eq!(kept.current(), None);
        for version in ["v1.33.1+rke2r1", "v1.33.2+rke2r1"] {
            let release = image(image_root.path(), version);
            kept.keep(image_root.path(), &release).unwrap();
            kept.choose(&release.version).unwrap();
            assert_eq!(kept.current(), Some(release.version));
        }
        kept.forget_others(&kept.current().unwrap()).unwrap();
        assert!(kept.verify(&"v1.33.1+rke2r1".parse().unwrap()).is_err());
        kept.verify(&kept.current().unwrap()).unwrap();
    }
}
