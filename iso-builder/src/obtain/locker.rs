//! Makes a lock: resolves every input of a definition to a digest.

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::progress::Progress;
use formats::oci::ImageReference;

use super::packages;
use crate::cache::Cache;
use crate::definition::{Base, LoadedDefinition};
use crate::images::PreloadSource;
use crate::images::preload::NeededImage;
use crate::images::pull::{self, BlobCache, ImageRegistry, PinnedImage};
use crate::lock::{LOCK_FORMAT, Lock, LockPolicy, LockRequest, LockedFile, LockedRelease, unfit};

/// Checks the packages of a lock before it is used or written; an error refuses them.
pub type PackageApproval<'a> = &'a dyn Fn(&Lock) -> Result<()>;

/// The inputs of a lock.
#[allow(missing_debug_implementations)]
pub struct Locker<'a> {
    pub loaded: &'a LoadedDefinition,
    /// The images that it takes from registries.
    pub pulled: &'a [NeededImage],
    pub kubernetes: Option<&'a LockedRelease>,
    /// Resolves their tags.
    pub registry: &'a dyn ImageRegistry,
    pub blobs: &'a BlobCache,
    /// How many registries are asked at the same time.
    pub transfers: usize,
    pub cache: &'a Cache,
    pub progress: &'a Progress,
}

/// The inputs that a definition asks for now, with the digests of its local files.
struct WantedInputs {
    request: LockRequest,
    base: Option<Digest>,
    /// The time of the newest file of a base that is a directory, whose digest does not tell it.
    newest: Option<u64>,
    kubernetes: Option<LockedRelease>,
    files: Vec<LockedFile>,
}

impl Locker<'_> {
    /// The lock to build with: the existing one if it fits. Otherwise the inputs that changed are resolved, and the
    /// lock file is written.
    pub fn lock(&self, policy: LockPolicy, approve: PackageApproval<'_>) -> Result<Lock> {
        let path = Lock::path_of(self.loaded);
        let wanted = self.wanted()?;
        let known = Lock::read(&path)?;
        if let Some(lock) = &known
            && (&lock.request, &lock.base, &lock.kubernetes, &lock.files)
                == (&wanted.request, &wanted.base, &wanted.kubernetes, &wanted.files)
        {
            approve(lock)?;
            return Ok(lock.clone());
        }
        if policy.locked || policy.offline {
            return Err(unfit(&path, policy, &difference(known.as_ref(), &wanted)));
        }
        self.make(wanted, known, approve)
    }

    /// Resolves every input anew and writes the lock file. A lock whose inputs are the same keeps its bytes, with the time that
    /// `SOURCE_DATE_EPOCH` gave it, and what was built from it is not built again.
    pub fn relock(&self) -> Result<Lock> {
        let path = Lock::path_of(self.loaded);
        let resolved = self.resolve(self.wanted()?, None)?;
        // A lock file that cannot be read is made anew.
        let lock = match Lock::read(&path).ok().flatten() {
            Some(known) if resolved.has_the_inputs_of(&known) => known,
            _ => resolved,
        };
        lock.write(&path)?;
        Ok(lock)
    }

    fn wanted(&self) -> Result<WantedInputs> {
        let request = LockRequest::of(self.loaded, self.pulled);
        let kubernetes = self.kubernetes.cloned();
        let (base, newest) = self.base()?;
        Ok(WantedInputs { request, base, newest, kubernetes, files: self.files()? })
    }

    /// Writes a lock of the inputs `wanted`, unless its packages are refused.
    fn make(&self, wanted: WantedInputs, known: Option<Lock>, approve: PackageApproval<'_>) -> Result<Lock> {
        let lock = self.resolve(wanted, known)?;
        approve(&lock)?;
        lock.write(&Lock::path_of(self.loaded))?;
        Ok(lock)
    }

    /// A lock of the inputs `wanted`; entries of `known` are used for those that have not changed.
    fn resolve(&self, wanted: WantedInputs, known: Option<Lock>) -> Result<Lock> {
        let WantedInputs { request, base, newest, kubernetes, files } = wanted;
        let same_packages = known.as_ref().filter(|lock| {
            let LockRequest { architecture, source, wanted, firmware, .. } = &lock.request;
            (architecture, source, wanted, firmware, &lock.base)
                == (&request.architecture, &request.source, &request.wanted, &request.firmware, &base)
                && request.source.files.iter().all(|path| {
                    let is_same = |file: &LockedFile| file.path == *path && files.contains(file);
                    lock.files.iter().any(is_same)
                })
        });
        let (epoch, packages) = match same_packages {
            Some(lock) => (lock.epoch, lock.packages.clone()),
            None => {
                let epoch = source_date()?.or(newest);
                let packages = match request.wanted.is_empty() {
                    true => Vec::new(),
                    false => packages::resolve(&request, self.loaded, self.cache, self.progress)?,
                };
                (epoch, packages)
            }
        };
        let images = self.pin(&request.images, known.map(|lock| lock.images).unwrap_or_default())?;
        Ok(Lock { format: LOCK_FORMAT, epoch, request, packages, base, images, kubernetes, files })
    }

    /// Digests for `references`: known ones are kept, the others are resolved.
    fn pin(&self, references: &[ImageReference], known: Vec<PinnedImage>) -> Result<Vec<PinnedImage>> {
        let mut pinned: Vec<_> =
            known.into_iter().filter(|pinned| references.contains(&pinned.reference)).collect();
        let is_known =
            |reference: &&ImageReference| pinned.iter().any(|known| known.reference == **reference);
        let new: Vec<_> = references.iter().filter(|reference| !is_known(reference)).cloned().collect();
        pinned.extend(pull::resolve(&new, self.registry, self.blobs, self.transfers, self.progress)?);
        pinned.sort();
        Ok(pinned)
    }

    /// The digest of a base that is a file or a directory, and of a directory the time of its newest file.
    fn base(&self) -> Result<(Option<Digest>, Option<u64>)> {
        let path = match &self.loaded.definition.base {
            Base::Debian(_) => return Ok((None, None)),
            Base::Oci(base) => &base.path,
            Base::Archive(base) => &base.path,
            Base::Directory(base) => {
                let directory = self.loaded.resolve(&base.path);
                let architecture = self.loaded.definition.architecture;
                let found = packages::survey(&directory, architecture, self.cache, self.progress)?;
                return Ok((Some(found.digest), Some(found.newest)));
            }
        };
        Ok((Some(self.cache.known_files().digest_of_path(&self.loaded.resolve(path))?), None))
    }

    fn files(&self) -> Result<Vec<LockedFile>> {
        let mut files = LockedFile::extended_by(self.loaded);
        for entry in &self.loaded.definition.images.preload {
            if let PreloadSource::Local(local) = &entry.source {
                let sha256 = self.cache.known_files().digest_of_path(&self.loaded.resolve(&local.path))?;
                files.push(LockedFile { path: local.path.clone(), sha256 });
            }
        }
        for path in self.loaded.definition.local_paths() {
            let sha256 = self.cache.known_files().digest_of_path(&self.loaded.resolve(path))?;
            files.push(LockedFile { path: path.clone(), sha256 });
        }
        files.sort();
        files.dedup();
        Ok(files)
    }
}

/// `SOURCE_DATE_EPOCH`, in seconds since 1970, if it is set (<https://reproducible-builds.org/specs/source-date-epoch/>).
fn source_date() -> Result<Option<u64>> {
    let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let what = || format!("SOURCE_DATE_EPOCH={text} is not a number of seconds");
    Ok(Some(text.parse().map_err(|_| Failure::new(Class::Invalid, what()))?))
}

/// The inputs that the lock does not fit, in words.
fn difference(known: Option<&Lock>, wanted: &WantedInputs) -> String {
    let Some(lock) = known else { return "there is no lock file".into() };
    let (old, new) = (&lock.request, &wanted.request);
    let mut parts = Vec::new();
    if old.architecture != new.architecture {
        parts.push(format!("it is for {}, and the definition for {}", old.architecture, new.architecture));
    }
    if (&old.source, &old.wanted) != (&new.source, &new.wanted) {
        parts.push("the packages have changed".to_owned());
    }
    if (&old.base, &lock.base) != (&new.base, &wanted.base) {
        parts.push("the base has changed".to_owned());
    }
    for image in new.images.iter().filter(|image| !old.images.contains(image)) {
        parts.push(format!("the image {image} is not locked"));
    }
    for image in old.images.iter().filter(|image| !new.images.contains(image)) {
        parts.push(format!("the image {image} is locked but no longer needed"));
    }
    parts.extend(released(lock.kubernetes.as_ref(), wanted.kubernetes.as_ref()));
    for file in wanted.files.iter().filter(|file| !lock.files.contains(file)) {
        parts.push(format!("{} is not locked, or has changed", file.path.display()));
    }
    if parts.is_empty() { "it locks an input that is no longer needed".into() } else { parts.join("; ") }
}

/// The difference between the Kubernetes distribution and the lock, in words.
fn released(known: Option<&LockedRelease>, wanted: Option<&LockedRelease>) -> Vec<String> {
    let Some(wanted) = wanted else { return Vec::new() };
    let named = |release: &LockedRelease| format!("{} {}", release.distribution.name(), release.version);
    match known {
        None => vec![format!("{} is not locked", named(wanted))],
        Some(known) if named(known) != named(wanted) => {
            vec![format!("{} is locked and not {}", named(known), named(wanted))]
        }
        Some(known) if known.artifacts != wanted.artifacts => {
            vec![format!("kubernetes.artifacts was {}", known.artifacts)]
        }
        Some(known) => {
            let new = wanted.files.iter().filter(|file| !known.files.contains(file));
            new.map(|file| format!("{} is not locked, or has changed", file.name)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::PackageSource;

    fn wanted(images: &[&str], file: Option<&str>) -> WantedInputs {
        let request = LockRequest {
            architecture: Default::default(),
            source: PackageSource::default(),
            wanted: vec![],
            firmware: vec![],
            base: None,
            images: images.iter().map(|image| image.parse().unwrap()).collect(),
        };
        let sha256 = Digest::of(file.unwrap_or_default().as_bytes());
        let files = file.map(|_| LockedFile { path: "archive.tar".into(), sha256 }).into_iter().collect();
        WantedInputs { request, base: None, newest: None, kubernetes: None, files }
    }

    fn locked(wanted: WantedInputs) -> Lock {
        let WantedInputs { request, base, kubernetes, files, .. } = wanted;
        Lock { format: 1, epoch: None, request, packages: vec![], base, images: vec![], kubernetes, files }
    }

    #[test]
    fn a_refusal_says_what_has_changed() {
        let lock = locked(wanted(&["a.b/c:1"], Some("x")));
        for (now, told) in [
            (wanted(&["a.b/c:1", "a.b/d:1"], Some("x")), "a.b/d:1 is not locked"),
            (wanted(&[], Some("x")), "a.b/c:1 is locked but no longer needed"),
            (wanted(&["a.b/c:1"], Some("y")), "archive.tar is not locked, or has changed"),
            (wanted(&["a.b/c:1"], None), "it locks an input"),
        ] {
            let difference = difference(Some(&lock), &now);
            assert!(difference.contains(told), "{difference}");
        }
    }
}
