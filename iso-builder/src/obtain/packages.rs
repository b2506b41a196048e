//! The Debian packages of a definition: resolving and downloading them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use base::progress::Progress;
use model::architecture::Architecture;

use super::download::{self, Download, DownloadKind};
use crate::cache::Cache;
use crate::definition::LoadedDefinition;
use crate::files::{CachedFile, digest_of_file};
use crate::lock::{LockPolicy, LockRequest};
use crate::packages::ResolvedPackage;
use crate::sandbox;
use crate::steps::{self, PackageRepository, RepositoryFile, StepRequest, StepWork, SurveyedDirectory};

const PACKAGES: DownloadKind = DownloadKind {
    noun: "packages",
    hint: "Mirrors replace packages: make the lock file anew with `iso-builder lock DEFINITION`.",
};

/// Digest and time of a root file system in a directory, including owners, modes and attributes.
pub(crate) fn survey(
    directory: &Path,
    architecture: Architecture,
    cache: &Cache,
    progress: &Progress,
) -> Result<SurveyedDirectory> {
    let directory = directory.canonicalize().with_context(|| format!("resolving {}", directory.display()))?;
    let message = format!("Reading {}", directory.display());
    let answer = progress.within("survey", message, || {
        ask(cache, StepWork::Survey(directory.clone()), architecture, steps::SURVEY_OUTPUT)
    })?;
    serde_json::from_slice(&answer).context("reading what the survey found")
}

/// The packages that apt chooses for the lists of `request` of a definition. Those of its files have the path as it is written there
/// in place of a URL.
pub(crate) fn resolve(
    request: &LockRequest,
    loaded: &LoadedDefinition,
    cache: &Cache,
    progress: &Progress,
) -> Result<Vec<ResolvedPackage>> {
    let message = format!("Resolving the packages of Debian {}", request.source.suite);
    let work = StepWork::Resolve {
        suite: request.source.suite.clone(),
        mirrors: request.source.mirrors.clone(),
        wanted: request.wanted.clone(),
        firmware: request.firmware.clone(),
        files: files(loaded)?,
    };
    // Definitions that ask for the same get the same, also where the mirror changes meanwhile.
    let question = format!("{} {}", request.architecture, serde_json::to_string(&work)?);
    let answer = cache.answer(&question, || {
        progress.within("resolve", message, || ask(cache, work, request.architecture, "resolved.json"))
    })?;
    let mut packages: Vec<ResolvedPackage> =
        serde_json::from_slice(&answer).context("reading what apt resolved")?;
    for path in &request.source.files {
        let (sha256, _) = digest_of_file(&loaded.resolve(path))?;
        match packages.iter_mut().find(|package| package.sha256 == sha256) {
            Some(package) => package.url = path.display().to_string(),
            None => {
                let text =
                    format!("{} is not used: no list of the definition names its package", path.display());
                progress.warn("resolve", &text);
            }
        }
    }
    Ok(packages)
}

/// The packages in files of a definition.
fn files(loaded: &LoadedDefinition) -> Result<PackageRepository> {
    let file = |path: &PathBuf| {
        let path = loaded.resolve(path);
        let path = path.canonicalize().with_context(|| format!("resolving {}", path.display()))?;
        let (sha256, size) = digest_of_file(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, RepositoryFile { path, size, sha256 }))
    };
    let files = loaded.definition.packages.files.iter();
    Ok(PackageRepository(files.map(file).collect::<Result<_>>()?))
}

/// True if a package of a lock file comes from a file that the definition names.
fn is_file(package: &ResolvedPackage) -> bool {
    !package.url.contains("://")
}

/// Copies a package from the file that the definition names to its place in the cache.
fn copy(package: &ResolvedPackage, from: &Path, to: &Path) -> Result<()> {
    if CachedFile::of(to, package.sha256, Some(package.size))? == CachedFile::Sound {
        return Ok(());
    }
    let bytes = std::fs::read(from).with_context(|| format!("reading {}", from.display()))?;
    let found = Digest::of(&bytes);
    if found != package.sha256 {
        let what = format!("{} is not the package of the lock file", from.display());
        let why = anyhow!("its SHA-256 is {found} instead of {}", package.sha256);
        return Err(Failure::new(Class::Verification, what).because(why).hint(PACKAGES.hint).into());
    }
    files::write_atomically(to, &bytes, 0o644)
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

/// Downloads what the cache lacks or has damaged of these packages, and returns where every file is.
pub fn fetch(
    packages: &[&ResolvedPackage],
    loaded: &LoadedDefinition,
    cache: &Cache,
    policy: LockPolicy,
    progress: &Progress,
) -> Result<PackageRepository> {
    let mut files = BTreeMap::new();
    let mut wanted = Vec::new();
    for package in packages {
        let ResolvedPackage { file, url, size, sha256, .. } = package;
        let path = cache.downloads().join(sha256.to_string());
        match is_file(package) {
            true => copy(package, &loaded.resolve(Path::new(url)), &path)?,
            false => wanted.push(Download {
                url: url.clone(),
                size: Some(*size),
                sha256: *sha256,
                path: path.clone(),
            }),
        }
        files.insert(file.clone(), RepositoryFile { path, size: *size, sha256: *sha256 });
    }
    download::obtain(wanted, PACKAGES, policy.offline, progress, cache.figures())?;
    Ok(PackageRepository(files))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use base::failure::{Class, class_of};
    use testing::http::{Answer, Fake};

    use super::*;

    /// A package of this URL, and a definition.
    fn locked(directory: &Path, url: String) -> (ResolvedPackage, LoadedDefinition) {
        let package = ResolvedPackage {
            file: "busybox-static_1_amd64.deb".into(),
            url,
            size: 11,
            sha256: Digest::of(b"the package"),
            lists: Default::default(),
        };
        let definition = directory.join("image.yaml");
        fs::write(&definition, "{id: a, name: A, version: '1', base: {debian: {include: [dash]}}}").unwrap();
        (package, LoadedDefinition::read(&definition).unwrap())
    }

    #[test]
    fn a_cached_package_with_other_content_of_the_same_length_is_downloaded_again_and_refused_offline() {
        let server = Fake::start(|_| Answer::ok(b"the package"));
        let directory = tempfile::tempdir().unwrap();
        let (package, loaded) = locked(directory.path(), format!("{}/busybox.deb", server.url()));
        let cache = Cache::open(&directory.path().join("cache"), None, || ()).unwrap();
        let fetched = |offline| {
            fetch(&[&package], &loaded, &cache, LockPolicy { locked: true, offline }, &Progress::silent())
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

    #[test]
    fn a_package_in_a_file_is_copied_without_the_network_and_a_changed_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (package, loaded) = locked(directory.path(), "vendor/busybox.deb".into());
        let file = directory.path().join("vendor/busybox.deb");
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "tHe package").unwrap();
        let cache = Cache::open(&directory.path().join("cache"), None, || ()).unwrap();
        let policy = LockPolicy { locked: true, offline: true };
        let fetched = || fetch(&[&package], &loaded, &cache, policy, &Progress::silent());
        let refused = fetched().unwrap_err();
        assert_eq!(class_of(&refused), Class::Verification);
        assert!(
            base::failure::render(&refused).contains("vendor/busybox.deb is not the package"),
            "{refused:#}"
        );
        fs::write(&file, "the package").unwrap();
        let path = fetched().unwrap().0["busybox-static_1_amd64.deb"].path.clone();
        assert_eq!(fs::read(path).unwrap(), b"the package");
    }
}
