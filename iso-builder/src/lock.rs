//! The lock file: every input of a build by digest. Written beside the definition as `DEFINITION.lock`.
//!
//! What is locked: each Debian package with its URL, size and SHA-256; the base where it is a file or directory;
//! and the moment that all timestamps carry. A lock fits a definition when the definition still asks for
//! the same things; otherwise it is made anew, or with `--locked` the build refuses.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use installer::digest::Digest;
use installer::failure::{Class, Failure};
use installer::files;
use serde::{Deserialize, Serialize};

use crate::definition::{Base, Loaded, PackageSource};
use crate::steps::{Resolved, Wanted};

/// The version of the format.
const FORMAT: u32 = 1;

/// The lock file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The version of this format.
    pub format: u32,
    /// The time stamp of everything in the media, in seconds since 1970: when the lock was made.
    pub epoch: u64,
    /// What was asked for.
    pub request: Request,
    /// The packages, by file name.
    pub packages: Vec<Resolved>,
    /// Digest of the base, where it is a file or a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
}

/// What a definition asks of the outside world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Where packages come from.
    pub source: PackageSource,
    /// The lists of packages, sorted, each once.
    pub wanted: Vec<Wanted>,
    /// The base's path as the definition writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<PathBuf>,
}

impl Request {
    /// What `loaded` asks for.
    #[must_use]
    pub fn of(loaded: &Loaded) -> Self {
        let definition = &loaded.definition;
        let mut wanted = Vec::new();
        let base = match &definition.base {
            Base::Debian(base) => {
                wanted.push(Wanted { essential: true, include: base.include.clone() });
                None
            }
            Base::Oci(base) => Some(base.path.clone()),
            Base::Archive(base) | Base::Directory(base) => Some(base.path.clone()),
        };
        for layer in definition.images.built().flat_map(|image| &image.layers) {
            let include = layer.packages.iter().map(|package| package.as_str().to_owned()).collect();
            wanted.push(Wanted { essential: false, include });
        }
        wanted.sort();
        wanted.dedup();
        Self { source: definition.packages.clone(), wanted, base }
    }
}

impl Lock {
    /// The lock file of a definition.
    #[must_use]
    pub fn path(definition: &Path) -> PathBuf {
        let mut name = definition.as_os_str().to_owned();
        name.push(".lock");
        name.into()
    }

    /// Reads the lock file if there is one.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let bytes = files::read_at_most(path, 64 << 20)?;
        let lock: Self = serde_json::from_slice(&bytes).map_err(|error| broken(path).because(error))?;
        if lock.format != FORMAT {
            return Err(broken(path).because(anyhow::anyhow!("its format is {}", lock.format)).into());
        }
        Ok(Some(lock))
    }

    /// A lock made now: `SOURCE_DATE_EPOCH` if that is set, else the present moment.
    pub fn new(request: Request, packages: Vec<Resolved>, base: Option<Digest>) -> Result<Self> {
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text.parse().map_err(|_| {
                Failure::new(Class::Invalid, format!("SOURCE_DATE_EPOCH={text} is not a number of seconds"))
            })?,
            Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        };
        Ok(Self { format: FORMAT, epoch, request, packages, base })
    }

    /// Writes the lock file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
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
        let wanted = vec![Wanted { essential: true, include: vec!["systemd".into()] }];
        Lock {
            format: FORMAT,
            epoch: 1,
            request: Request { source: PackageSource::default(), wanted, base: None },
            packages: vec![],
            base: None,
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
    fn a_damaged_lock_is_an_error_and_not_taken_for_an_absent_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.yaml.lock");
        std::fs::write(&path, "{").unwrap();
        assert!(Lock::read(&path).is_err());
        assert_eq!(Lock::read(&directory.path().join("absent")).unwrap(), None);
    }
}
