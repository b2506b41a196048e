//! The lock file: every input of a build by digest. Written beside the definition as `DEFINITION.lock`; of several variants each has
//! `DEFINITION.VARIANT.lock`, and of several architectures each `DEFINITION.ARCHITECTURE.lock` or `DEFINITION.VARIANT.ARCHITECTURE.lock`.
//!
//! It has each Debian package with its URL, size and SHA-256; each image of a registry with its digest; the files of
//! the Kubernetes distribution; the base if it is a file or directory; archives and layouts of images; the definitions that
//! it extends. A lock fits a definition if the definition still asks for the same inputs; otherwise those that changed are resolved again
//! or, with `--locked`, the build fails. It has nothing of the moment at which it was made: who locks the same inputs gets the same bytes.

mod policy;
mod release;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files::{self, named};
use formats::oci::ImageReference;
use model::architecture::Architecture;
use serde::{Deserialize, Serialize};

use crate::definition::{Base, LoadedDefinition, PackageSource};
use crate::firmware::is_free;
use crate::images::preload::NeededImage;
use crate::images::pull::PinnedImage;
use crate::images::spec::LayerSpec;
use crate::packages::{PackageList, ResolvedPackage};

pub use self::policy::LockPolicy;
pub(crate) use self::policy::unfit;
pub use self::release::{LockedRelease, ReleaseFile};

pub(crate) const LOCK_FORMAT: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    pub format: u32,
    /// The time of all files of the media, in seconds since 1970, where the digests do not tell it: `SOURCE_DATE_EPOCH`, or that of the
    /// newest file of a base that is a directory. Lock files of earlier versions have the moment at which they were made. Without
    /// it the time is that of the newest package, or of the newest file of the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The inputs that the definition asked for.
    pub request: LockRequest,
    /// Sorted by file name.
    pub packages: Vec<ResolvedPackage>,
    /// Of the base, if it is a file or a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
    /// The images of registries, sorted by reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<PinnedImage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<LockedRelease>,
    /// Archives and layouts of images, files of packages, sources and modules of extensions with the certificate of their key, and the
    /// definitions that the definition extends, sorted by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<LockedFile>,
}

/// A file or directory that the definition names, or `minimal`, the definition that the builder has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedFile {
    /// As the definition writes it.
    pub path: PathBuf,
    pub sha256: Digest,
}

impl LockedFile {
    #[must_use]
    pub fn extended_by(loaded: &LoadedDefinition) -> Vec<Self> {
        let others = loaded.extended.iter();
        others.map(|other| Self { path: other.path.clone(), sha256: other.digest }).collect()
    }
}

/// The external inputs that a definition asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockRequest {
    #[serde(default, skip_serializing_if = "Architecture::is_default")]
    pub architecture: Architecture,
    pub source: PackageSource,
    /// The lists of packages, sorted, each once.
    pub wanted: Vec<PackageList>,
    /// The packages among them that come from the component of firmware, which the mirrors of the suite gain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firmware: Vec<String>,
    /// The base's path as the definition writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<PathBuf>,
    /// The images to pull, sorted, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageReference>,
}

impl LockRequest {
    /// The request of `loaded`; `pulled` are the images that it takes from registries, including those of its lists and
    /// manifests.
    #[must_use]
    pub fn of(loaded: &LoadedDefinition, pulled: &[NeededImage]) -> Self {
        let definition = &loaded.definition;
        let base = match &definition.base {
            Base::Debian(_) => None,
            Base::Oci(base) => Some(base.path.clone()),
            Base::Archive(base) | Base::Directory(base) => Some(base.path.clone()),
        };
        let layers = definition.images.built().flat_map(|image| &image.layers);
        let mut wanted: Vec<_> = layers.map(LayerSpec::package_list).collect();
        wanted.extend(definition.base_list());
        wanted.extend(definition.module_tools());
        wanted.sort();
        wanted.dedup();
        let mut firmware = definition.firmware_packages();
        firmware.retain(|package| !is_free(package));
        let mut images: Vec<_> = pulled.iter().map(|needed| needed.reference.clone()).collect();
        images.sort();
        images.dedup();
        Self {
            architecture: definition.architecture,
            source: definition.packages.clone(),
            wanted,
            firmware,
            base,
            images,
        }
    }
}

/// The lock file of a definition without a file.
const STANDARD_INPUT: &str = "standard-input";

impl Lock {
    /// The path of a definition's lock file; `own` are the [names](LoadedDefinition::own_names) of one of its images. A definition that
    /// comes by standard input has its lock file in the current directory.
    #[must_use]
    pub fn path(definition: &Path, own: &[&str]) -> PathBuf {
        let mut name = match named::is_standard(definition) {
            true => STANDARD_INPUT.into(),
            false => definition.as_os_str().to_owned(),
        };
        for own in own {
            name.push(format!(".{own}"));
        }
        name.push(".lock");
        name.into()
    }

    /// The path of the lock file of an image of a definition.
    #[must_use]
    pub fn path_of(loaded: &LoadedDefinition) -> PathBuf {
        Self::path(&loaded.file, &loaded.own_names())
    }

    /// The lock file of a definition, which is not read, or of one of its variants, for one architecture: that of this architecture alone if
    /// there is one.
    #[must_use]
    pub fn found(definition: &Path, variant: Option<&str>, architecture: Architecture) -> PathBuf {
        let names: Vec<_> = variant.into_iter().chain([architecture.debian()]).collect();
        let own = Self::path(definition, &names);
        if own.is_file() { own } else { Self::path(definition, &names[..names.len() - 1]) }
    }

    /// Reads the lock file; none if there is none.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let bytes = files::read_at_most(path, 64 << 20)?;
        let lock: Self = serde_json::from_slice(&bytes).map_err(|error| broken(path).because(error))?;
        if lock.format != LOCK_FORMAT {
            return Err(broken(path).because(anyhow::anyhow!("its format is {}", lock.format)).into());
        }
        Ok(Some(lock))
    }

    /// True if both lock the same inputs, and both or neither give the time of the files themselves.
    #[must_use]
    pub fn has_the_inputs_of(&self, other: &Self) -> bool {
        let epoch = if self.epoch.is_some() == other.epoch.is_some() { other.epoch } else { self.epoch };
        Self { epoch, ..self.clone() } == *other
    }

    /// The packages that were chosen for the lists that `wants` names, each once; in a lock file that does not tell, all packages.
    pub fn packages_for(&self, wants: impl Fn(&PackageList) -> bool) -> Vec<&ResolvedPackage> {
        let is_wanted = |list: &usize| self.request.wanted.get(*list).is_some_and(&wants);
        let chosen =
            |package: &&ResolvedPackage| package.lists.is_empty() || package.lists.iter().any(is_wanted);
        self.packages.iter().filter(chosen).collect()
    }

    /// Writes the lock file. One that has these bytes already is not touched.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        if std::fs::read(path).is_ok_and(|known| known == bytes) {
            return Ok(());
        }
        files::write_atomically(path, &bytes, 0o644).context("writing the lock file")
    }
}

fn broken(path: &Path) -> Failure {
    Failure::new(Class::Invalid, format!("{} is not a lock file of this program", path.display()))
        .hint("Make it anew with `iso-builder lock DEFINITION`.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock() -> Lock {
        let wanted = vec![PackageList { essential: true, include: vec!["systemd".into()] }];
        Lock {
            format: LOCK_FORMAT,
            epoch: None,
            request: LockRequest {
                architecture: Architecture::default(),
                source: PackageSource::default(),
                wanted,
                firmware: vec![],
                base: None,
                images: vec![],
            },
            packages: vec![],
            base: None,
            images: vec![],
            kubernetes: None,
            files: vec![],
        }
    }

    #[test]
    fn what_was_written_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.yaml.lock");
        lock().write(&path).unwrap();
        assert_eq!(Lock::read(&path).unwrap(), Some(lock()));
    }

    #[test]
    fn a_definition_of_standard_input_has_a_lock_that_is_no_option_and_no_hidden_file() {
        let path = |definition: &str, own: &[&str]| Lock::path(Path::new(definition), own);
        assert_eq!(path("-", &[]), Path::new("standard-input.lock"));
        assert_eq!(path("a/image.yaml", &[]), Path::new("a/image.yaml.lock"));
        assert_eq!(path("-", &["arm64"]), Path::new("standard-input.arm64.lock"));
        assert_eq!(path("a/image.yaml", &["edge", "arm64"]), Path::new("a/image.yaml.edge.arm64.lock"));
    }

    #[test]
    fn packages_are_told_by_their_lists_and_in_locks_of_earlier_versions_they_are_all_for_each() {
        let list = |name: &str| PackageList { essential: false, include: vec![name.to_owned()] };
        let package = |name: &str, lists: &[usize]| ResolvedPackage {
            file: format!("{name}_1_all.deb"),
            url: String::new(),
            size: 0,
            sha256: Digest::of(name.as_bytes()),
            lists: lists.iter().copied().collect(),
        };
        let mut lock = lock();
        lock.request.wanted = vec![list("a"), list("b")];
        lock.packages = vec![package("a", &[0]), package("libc6", &[0, 1]), package("b", &[1])];
        let chosen = |lock: &Lock, name: &str| -> Vec<String> {
            let wanted = list(name);
            lock.packages_for(|list| *list == wanted).iter().map(|package| package.file.clone()).collect()
        };
        assert_eq!(chosen(&lock, "a"), ["a_1_all.deb", "libc6_1_all.deb"]);
        assert_eq!(chosen(&lock, "b"), ["libc6_1_all.deb", "b_1_all.deb"]);
        assert!(chosen(&lock, "c").is_empty());
        lock.packages.iter_mut().for_each(|package| package.lists.clear());
        assert_eq!(chosen(&lock, "c").len(), 3);
    }

    #[test]
    fn a_lock_of_an_earlier_version_keeps_its_time_and_a_new_one_of_the_same_inputs_has_none() {
        let mut old = serde_json::to_value(lock()).unwrap();
        old["epoch"] = 1_700_000_000_u64.into();
        let old: Lock = serde_json::from_value(old).unwrap();
        assert_eq!(old.epoch, Some(1_700_000_000));
        assert!(!lock().has_the_inputs_of(&old) && !old.has_the_inputs_of(&lock()));
        assert!(Lock { epoch: Some(1), ..lock() }.has_the_inputs_of(&old));
    }

    #[test]
    fn a_damaged_lock_is_an_error_and_not_taken_for_an_absent_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.yaml.lock");
        std::fs::write(&path, "{").unwrap();
        assert!(Lock::read(&path).is_err());
        assert_eq!(Lock::read(&directory.path().join("absent")).unwrap(), None);
    }
}
