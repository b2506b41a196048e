//! Compares the base of a definition with what the product needs of one, before anything that takes long: by its packages as soon
//! as they are known, and by its files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::files::{read_at_most, write_atomically};
use serde_json::json;
use walkdir::WalkDir;

use super::base_system::BaseSystem;
use super::context::Build;
use crate::cache::StepKey;
use crate::definition::{Base, LoadedDefinition};
use crate::lock::Lock;
use crate::product::requirements::{BaseContents, MissingParts};

/// The output that lists the paths of a base, each with a NUL byte after it.
const PATHS_OUTPUT: &str = "paths";
const PATHS_LIMIT: u64 = 256 << 20;

impl Build<'_> {
    /// Fails unless a base with these paths and the definition's overlays have what a node needs.
    pub(super) fn check_base(&self, paths: &BTreeSet<PathBuf>) -> Result<()> {
        let loaded = &self.inputs.loaded;
        missing(loaded, |contents| contents.lacks_files(paths))?.refuse("the base lacks")
    }

    /// The paths of the base. A step of its own, so that a build that makes nothing of the base need not read it.
    pub(super) fn base_paths(&self, base: &BaseSystem) -> Result<BTreeSet<PathBuf>> {
        let key = StepKey::new("base-paths", 1, json!({ "base": base.digest()? }));
        let outputs = self.inputs.cache.step(&key, |out| {
            let paths = archived(&base.archive()?)?;
            let bytes: Vec<_> =
                paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
            write_atomically(&out.join(PATHS_OUTPUT), &bytes, 0o644)
        })?;
        let bytes = read_at_most(&outputs.path(PATHS_OUTPUT)?, PATHS_LIMIT)?;
        let paths = bytes.split(|byte| *byte == 0).map(|path| PathBuf::from(OsStr::from_bytes(path)));
        // The root itself has the empty path.
        Ok(paths.collect())
    }
}

/// The files that `find` reports missing, with the definition's overlays counted in.
pub(super) fn missing(
    loaded: &LoadedDefinition,
    find: impl FnOnce(&BaseContents<'_>) -> MissingParts,
) -> Result<MissingParts> {
    let mut overlays = BTreeSet::new();
    let LoadedDefinition { definition, .. } = loaded;
    for overlay in definition.overlays.rootfs.iter().chain(&definition.overlays.initrd) {
        overlays.extend(paths_below(&loaded.resolve(overlay))?);
    }
    Ok(find(&BaseContents { definition, overlays: &overlays }))
}

/// The files that a base of the packages of a lock and their dependencies is known to lack. Mirrors that the definition names may have
/// the same files in packages of other names, so that only the files tell.
pub(super) fn missing_packages(loaded: &LoadedDefinition, lock: &Lock) -> Result<MissingParts> {
    let base = loaded.definition.base_list();
    let packages = lock.packages_for(|list| Some(list) == base.as_ref());
    let names: BTreeSet<_> = packages.iter().filter_map(|package| package.file.split('_').next()).collect();
    missing(loaded, |contents| contents.lacks_packages(&names))
}

/// Fails if the packages of a base are known to lack something. Bases of another kind are compared by their files.
pub(super) fn check_packages(loaded: &LoadedDefinition, lock: &Lock) -> Result<()> {
    let Base::Debian(_) = &loaded.definition.base else { return Ok(()) };
    let missing = missing_packages(loaded, lock)?;
    if loaded.definition.packages.mirrors.is_empty() { missing.refuse("the base lacks") } else { Ok(()) }
}

/// The paths of a directory, relative to it.
pub(super) fn paths_below(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut paths = BTreeSet::new();
    for entry in WalkDir::new(root) {
        let entry = entry.with_context(|| format!("reading {}", root.display()))?;
        paths.extend(entry.path().strip_prefix(root).map(Path::to_owned));
    }
    Ok(paths)
}

/// The paths in a plain tar archive.
pub(super) fn archived(archive: &Path) -> Result<BTreeSet<PathBuf>> {
    let reading = || format!("reading {}", archive.display());
    let mut tar = tar::Archive::new(File::open(archive).with_context(reading)?);
    let mut paths = BTreeSet::new();
    for entry in tar.entries_with_seek().with_context(reading)? {
        let path = entry.with_context(reading)?.path().with_context(reading)?.into_owned();
        // As mmdebstrap writes them.
        paths.insert(path.strip_prefix(".").map(Path::to_owned).unwrap_or(path));
    }
    Ok(paths)
}
