//! The Debian packages of a definition: resolving and downloading them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use base::progress::Progress;

use super::download::{self, Download};
use crate::cache::Cache;
use crate::lock::{Lock, LockPolicy, LockRequest};
use crate::packages::ResolvedPackage;
use crate::sandbox;
use crate::steps::{self, PackageRepository, StepRequest, StepWork};

/// The hint if a mirror lacks a package or has another one.
const MIRROR_HINT: &str =
    "Mirrors replace packages: make the lock file anew with `iso-builder lock DEFINITION`.";

/// The digest of a root file system in a directory, including owners, modes and attributes.
pub(crate) fn survey(directory: &Path, cache: &Cache, progress: &Progress) -> Result<Digest> {
    let directory = directory.canonicalize().with_context(|| format!("resolving {}", directory.display()))?;
    let message = format!("Reading {}", directory.display());
    let answer = progress.within("survey", message, || {
        ask(cache, StepWork::Survey(directory.clone()), steps::SURVEY_OUTPUT)
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
    };
    let answer = progress.within("resolve", message, || ask(cache, work, "resolved.json"))?;
    serde_json::from_slice(&answer).context("reading what apt resolved")
}

/// Does `work` in the sandbox, and returns the content of its output `name`.
fn ask(cache: &Cache, work: StepWork, name: &str) -> Result<Vec<u8>> {
    let scratch = tempfile::tempdir_in(cache.scratch()).context("making a scratch directory")?;
    let out = scratch.path().join("out");
    files::make_directory(&out, 0o755)?;
    let request = StepRequest { work, out: out.clone(), scratch: scratch.path().to_owned(), epoch: 0 };
    sandbox::run(&request, scratch.path())?;
    files::read_at_most(&out.join(name), 64 << 20)
}

/// Downloads what the cache lacks and returns where every file is.
pub fn fetch(
    lock: &Lock,
    cache: &Cache,
    policy: LockPolicy,
    progress: &Progress,
) -> Result<PackageRepository> {
    let mut paths = BTreeMap::new();
    let mut missing = Vec::new();
    for package in &lock.packages {
        let path = stored_at(cache, package);
        if !download::is_complete(&path, package.size) {
            missing.push(Download {
                url: package.url.clone(),
                size: Some(package.size),
                sha256: package.sha256,
                path: path.clone(),
            });
        }
        paths.insert(package.file.clone(), path);
    }
    if let (true, Some(first)) = (policy.offline, missing.first()) {
        let what = format!("{} of the packages are not in the cache, and --offline was given", missing.len());
        return Err(Failure::new(Class::Network, what)
            .because(anyhow::anyhow!("the first is {}", first.url))
            .hint("Build once without --offline.")
            .into());
    }
    download::download_all(&missing, MIRROR_HINT, progress)?;
    Ok(PackageRepository(paths))
}

fn stored_at(cache: &Cache, package: &ResolvedPackage) -> PathBuf {
    cache.downloads().join(package.sha256.to_string())
}
