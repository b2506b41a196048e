//! The Debian packages of a definition: resolving and downloading them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;
use base::progress::Progress;
use model::architecture::Architecture;

use super::download::{self, Download, DownloadKind};
use crate::cache::Cache;
use crate::lock::{Lock, LockPolicy, LockRequest};
use crate::packages::ResolvedPackage;
use crate::sandbox;
use crate::steps::{self, PackageRepository, RepositoryFile, StepRequest, StepWork};

const PACKAGES: DownloadKind = DownloadKind {
    noun: "packages",
    hint: "Mirrors replace packages: make the lock file anew with `iso-builder lock DEFINITION`.",
};

/// The digest of a root file system in a directory, including owners, modes and attributes.
pub(crate) fn survey(
    directory: &Path,
    architecture: Architecture,
    cache: &Cache,
    progress: &Progress,
) -> Result<Digest> {
    let directory = directory.canonicalize().with_context(|| format!("resolving {}", directory.display()))?;
    let message = format!("Reading {}", directory.display());
    let answer = progress.within("survey", message, || {
        ask(cache, StepWork::Survey(directory.clone()), architecture, steps::SURVEY_OUTPUT)
    })?;
    Ok(String::from_utf8_lossy(&answer).parse()?)
}

/// The packages that apt chooses for the lists of `request`.
pub(crate) fn resolve(
    request: &LockRequest,
    cache: &Cache,
    progress: &Progress,
) -> Result<Vec<ResolvedPackage>> {
    let message = format!("Resolving the packages of Debian {}", request.source.suite);
    let work = StepWork::Resolve {
        suite: request.source.suite.clone(),
        mirrors: request.source.mirrors.clone(),
        wanted: request.wanted.clone(),
        firmware: request.firmware.clone(),
    };
    let answer =
        progress.within("resolve", message, || ask(cache, work, request.architecture, "resolved.json"))?;
    serde_json::from_slice(&answer).context("reading what apt resolved")
}

/// Does `work` in the sandbox, and returns the content of its output `name`.
fn ask(cache: &Cache, work: StepWork, architecture: Architecture, name: &str) -> Result<Vec<u8>> {
    let scratch = tempfile::tempdir_in(cache.scratch()).context("making a scratch directory")?;
    let out = scratch.path().join("out");
    files::make_directory(&out, 0o755)?;
    let request =
        StepRequest { work, architecture, out: out.clone(), scratch: scratch.path().to_owned(), epoch: 0 };
    sandbox::run(&request, scratch.path())?;
    files::read_at_most(&out.join(name), 64 << 20)
}

/// Downloads what the cache lacks or has damaged, and returns where every file is.
pub fn fetch(
    lock: &Lock,
    cache: &Cache,
    policy: LockPolicy,
    progress: &Progress,
) -> Result<PackageRepository> {
    let mut files = BTreeMap::new();
    let mut wanted = Vec::new();
    for ResolvedPackage { file, url, size, sha256 } in &lock.packages {
        let path = cache.downloads().join(sha256.to_string());
        wanted.push(Download { url: url.clone(), size: Some(*size), sha256: *sha256, path: path.clone() });
        files.insert(file.clone(), RepositoryFile { path, size: *size, sha256: *sha256 });
    }
    download::obtain(wanted, PACKAGES, policy.offline, progress)?;
    Ok(PackageRepository(files))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base::failure::{Class, class_of};
    use testing::http::{Answer, Fake};

    use super::*;
    use crate::lock::LOCK_FORMAT;

    #[test]
    fn a_cached_package_with_other_content_of_the_same_length_is_downloaded_again_and_refused_offline() {
        let server = Fake::start(|_| Answer::ok(b"the package"));
        let package = ResolvedPackage {
            file: "busybox-static_1_amd64.deb".into(),
            url: format!("{}/busybox.deb", server.url()),
            size: 11,
            sha256: Digest::of(b"the package"),
        };
        let request = LockRequest {
            architecture: Default::default(),
            source: Default::default(),
            wanted: vec![],
            firmware: vec![],
            base: None,
            images: vec![],
        };
        let packages = vec![package];
        let lock = Lock {
            format: LOCK_FORMAT,
            epoch: 1,
            request,
            packages,
            base: None,
            images: vec![],
            kubernetes: None,
            files: vec![],
        };
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), None, || ()).unwrap();
        let fetched = |offline| {
            fetch(&lock, &cache, LockPolicy { locked: true, offline }, &Progress::silent())
                .map(|repository| repository.0["busybox-static_1_amd64.deb"].path.clone())
        };
        assert_eq!(class_of(&fetched(true).unwrap_err()), Class::Network);
        let path = fetched(false).unwrap();
        assert_eq!(fetched(true).unwrap(), path);
        fs::write(&path, "tHe package").unwrap();
        let refused = fetched(true).unwrap_err();
        assert_eq!(class_of(&refused), Class::Verification);
        assert!(base::failure::render(&refused).contains("1 of the packages are damaged"), "{refused:#}");
        assert_eq!(fs::read(fetched(false).unwrap()).unwrap(), b"the package");
    }
}
