//! Paths: the workspace, its target directory, and the two programs under test.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

#[must_use]
pub fn workspace() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

#[must_use]
pub fn target() -> PathBuf {
    // A relative path is relative to the workspace, where cargo is called; tests run in their package's directory.
    workspace().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The directory of the end-to-end tests' artifacts.
#[must_use]
pub fn e2e() -> PathBuf {
    target().join("e2e")
}

/// The directory of the tests in the user's cache, as in the Makefile.
pub fn cache() -> Result<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    Ok(cache.context("there is neither XDG_CACHE_HOME nor HOME")?.join("nqrust"))
}

/// The key directory of the tests. Its only key is the development key that their media are signed with.
#[must_use]
pub fn keys() -> PathBuf {
    workspace().join("tests/keys")
}

/// The `installer` for images; `NQRUST_INSTALLER` names another.
pub fn installer() -> Result<PathBuf> {
    program("NQRUST_INSTALLER", "bin/installer")
}

/// The installer for images for 64-bit Arm; `NQRUST_INSTALLER_ARM64` names another.
pub fn installer_arm64() -> Result<PathBuf> {
    program("NQRUST_INSTALLER_ARM64", "bin/installer-arm64")
}

/// The `iso-builder` under test; `NQRUST_ISO_BUILDER` names another.
pub fn iso_builder() -> Result<PathBuf> {
    program("NQRUST_ISO_BUILDER", "bin/iso-builder")
}

fn program(variable: &str, below_target: &str) -> Result<PathBuf> {
    let path = env::var_os(variable).map_or_else(|| target().join(below_target), PathBuf::from);
    if !path.is_file() {
        bail!(
            "{} is missing; run `make binaries` (for arm64 `make installer-arm64`), or name the program in {variable}",
            path.display()
        );
    }
    Ok(path)
}
