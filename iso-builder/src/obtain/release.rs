//! Obtains the files of a release and checks them.
//!
//! A release publishes a list of checksums with its files, that of upstream Kubernetes one beside each. The digests go into
//! the lock, and from then on the lock counts, whatever the server has. Files of a directory stay there; others are downloaded into the cache, below the
//! name of the release, and read each time: a file that is damaged there is downloaded again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use base::progress::Progress;
use base::url::shown;
use transfer::download::{Downloader, RetryPolicy};

use super::download::{self, Download, DownloadKind};
use crate::cache::Cache;
use crate::definition::LoadedDefinition;
use crate::images::import::checksum_of;
use crate::kubernetes::Kubernetes;
use crate::kubernetes::spec::{Checksums, checksums};
use crate::kubernetes::texts::Artifacts;
use crate::lock::{self, Lock, LockPolicy, LockedRelease, ReleaseFile};

/// In bytes; lists of checksums are smaller.
const MAX_CHECKSUMS_BYTES: u64 = 1 << 20;
/// The hint if the server lacks a file or has another one.
const RELEASE_HINT: &str = "Check kubernetes.version, kubernetes.artifacts and kubernetes.images; `iso-builder lock DEFINITION` reads the release's \
                    checksums anew.";

const RELEASE_FILES: DownloadKind = DownloadKind { noun: "release's files", hint: RELEASE_HINT };

/// A release with local files, each checked by the digest in the lock.
#[derive(Clone, Debug)]
pub struct ObtainedRelease {
    pub locked: LockedRelease,
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug)]
pub struct ReleaseQuery<'a> {
    pub loaded: &'a LoadedDefinition,
    pub cache: &'a Cache,
    pub policy: LockPolicy,
    /// True if the digests of a lock that fits are used; otherwise the release's list is read anew.
    pub keep: bool,
    pub progress: &'a Progress,
}

impl ObtainedRelease {
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn digest(&self, name: &str) -> Result<Digest> {
        let file = self.locked.files.iter().find(|file| file.name == name);
        Ok(file.with_context(|| format!("finding {name} among the files of the release"))?.sha256)
    }
}

impl ReleaseQuery<'_> {
    /// The release that the definition names, if it names one.
    pub fn release(&self) -> Result<Option<ObtainedRelease>> {
        let Some(spec) = &self.loaded.definition.kubernetes else { return Ok(None) };
        let architecture = self.loaded.definition.architecture;
        let names = spec.files(architecture);
        let message = format!("Checking the files of {} {}", spec.distribution.name(), spec.version);
        match spec.artifacts(self.loaded.definition.architecture) {
            Artifacts::Directory(path) => {
                let directory = self.loaded.resolve(&path);
                self.progress.within("kubernetes", message, || self.in_place(spec, &names, directory))
            }
            Artifacts::Url(url) => {
                let locked = self.pinned(spec, &names, &url)?;
                self.downloaded(locked, &url, message)
            }
        }
        .map(Some)
    }

    /// The files of a directory, which are checked and not copied.
    fn in_place(&self, spec: &Kubernetes, names: &[String], directory: PathBuf) -> Result<ObtainedRelease> {
        let digests = listed(self.loaded, spec, names, &directory)?;
        for (name, expected) in &digests {
            let path = directory.join(name);
            let digest = self.cache.known_files().digest_of_file(&path)?;
            if digest != *expected {
                let what = format!("{} is not the file of its release", path.display());
                let list = checksums(self.loaded.definition.architecture);
                let why = format!("its SHA-256 is {digest}; {list} says {expected}");
                return Err(Failure::new(Class::Verification, what)
                    .because(anyhow::anyhow!("{why}"))
                    .hint("Download it again, and the checksums of the same release.")
                    .into());
            }
        }
        Ok(ObtainedRelease {
            locked: LockedRelease::new(spec, self.loaded.definition.architecture, digests),
            directory,
        })
    }

    /// The release with the digests of the lock, or else of the release's list.
    fn pinned(&self, spec: &Kubernetes, names: &[String], url: &str) -> Result<LockedRelease> {
        let path = Lock::path_of(self.loaded);
        let known = Lock::read(&path)?;
        let absent = known.is_none();
        let release = known.and_then(|lock| lock.kubernetes);
        if let Some(release) = release
            .as_ref()
            .filter(|release| self.keep && release.fits(spec, self.loaded.definition.architecture, names))
        {
            return Ok(release.clone());
        }
        if self.policy.locked || self.policy.offline {
            let why = match release {
                _ if absent => "there is no lock file".to_owned(),
                None => format!("{} {} is not locked", spec.distribution.name(), spec.version),
                Some(_) => "the Kubernetes distribution has changed".to_owned(),
            };
            return Err(lock::unfit(&path, self.policy, &why));
        }
        let digests = match spec.checksums() {
            Checksums::List => {
                let list = format!("{url}/{}", checksums(self.loaded.definition.architecture));
                read_list(&document(&list)?, names, &shown(&list))?
            }
            Checksums::Beside => beside(url, names)?,
        };
        Ok(LockedRelease::new(spec, self.loaded.definition.architecture, digests))
    }

    /// Downloads the files of a server into the cache.
    fn downloaded(&self, locked: LockedRelease, url: &str, message: String) -> Result<ObtainedRelease> {
        let directory = self.cache.downloads().join(locked.distribution.name()).join(locked.version.as_str());
        files::make_directory(&directory, 0o755)?;
        let download = |ReleaseFile { name, sha256 }: &ReleaseFile| {
            let (url, path) = (format!("{url}/{name}"), directory.join(name));
            Download { url, size: None, sha256: *sha256, path }
        };
        let wanted = locked.files.iter().map(download).collect();
        self.progress.within("kubernetes", message, || {
            let figures = self.cache.figures();
            download::obtain(wanted, RELEASE_FILES, self.policy.offline, self.progress, figures)
        })?;
        Ok(ObtainedRelease { locked, directory })
    }
}

/// The digests that a directory's list of checksums has for the files `names`, which are all there.
pub(crate) fn listed(
    loaded: &LoadedDefinition,
    spec: &Kubernetes,
    names: &[String],
    directory: &Path,
) -> Result<BTreeMap<String, Digest>> {
    let list = directory.join(checksums(loaded.definition.architecture));
    let text = files::read_at_most(&list, MAX_CHECKSUMS_BYTES).map_err(|error| {
        let what = format!("reading the checksums of {} {}", spec.distribution.name(), spec.version);
        let failure = Failure::new(Class::Invalid, what).because(anyhow::anyhow!("{error:#}"));
        failure.hint("Put the list of checksums that the release publishes beside its files.")
    })?;
    let digests = read_list(&String::from_utf8_lossy(&text), names, &list.display().to_string())?;
    for name in digests.keys() {
        let path = directory.join(name);
        if !path.is_file() {
            return Err(Failure::new(Class::Invalid, format!("there is no file {}", path.display()))
                .hint("Download it from the release, or correct kubernetes.artifacts or kubernetes.images.")
                .into());
        }
    }
    Ok(digests)
}

/// A small text of a server.
fn document(url: &str) -> Result<String> {
    let bytes =
        Downloader::new(url, RetryPolicy::default(), RELEASE_HINT)?.document(url, MAX_CHECKSUMS_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The digests of `names` from the files beside them, below `url`.
fn beside(url: &str, names: &[String]) -> Result<BTreeMap<String, Digest>> {
    let one = |name: &String| {
        let url = format!("{url}/{name}.sha256");
        let digest = document(&url)?.trim().parse().map_err(|error| {
            Failure::new(Class::Invalid, format!("{} is not a SHA-256", shown(&url)))
                .because(error)
                .hint(RELEASE_HINT)
        })?;
        Ok((name.clone(), digest))
    };
    names.iter().map(one).collect()
}

/// The digests of `names` in the release's list.
fn read_list(text: &str, names: &[String], list: &str) -> Result<BTreeMap<String, Digest>> {
    let mut digests = BTreeMap::new();
    let mut wrong = Vec::new();
    for name in names {
        match checksum_of(text, name) {
            Ok(digest) => drop(digests.insert(name.clone(), digest)),
            Err(why) => wrong.push(why),
        }
    }
    if wrong.is_empty() {
        return Ok(digests);
    }
    Err(Failure::new(Class::Invalid, format!("{list} does not have the checksums of all files that are needed"))
        .because(anyhow::anyhow!("{}", wrong.join("\n  because: ")))
        .hint("Check kubernetes.version, kubernetes.artifacts and kubernetes.images: not every release has every archive.")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::http::{Answer, Fake};

    #[test]
    fn digests_beside_the_files_are_read_and_other_pages_are_refused() {
        let digest = Digest::of(b"kubeadm");
        let server = Fake::start(move |request| match request.path.as_str() {
            "/release/v1.37.2/bin/linux/amd64/kubeadm.sha256" => Answer::ok(digest.to_string().as_bytes()),
            "/release/v1.37.2/bin/linux/amd64/kubectl.sha256" => Answer::ok(b"<html>"),
            _ => Answer::new(404, b""),
        });
        let url = format!("{}/release/v1.37.2/bin/linux/amd64", server.url());
        let read = |name: &str| beside(&url, &[name.to_owned()]);
        assert_eq!(read("kubeadm").unwrap(), [("kubeadm".to_owned(), digest)].into());
        let told = base::failure::render(&read("kubectl").unwrap_err());
        assert!(told.contains("kubectl.sha256 is not a SHA-256"), "{told}");
        assert_eq!(base::failure::class_of(&read("kubelet").unwrap_err()), Class::Network);
    }
}
