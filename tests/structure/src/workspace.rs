//! The crates of the workspace, with their module trees.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::modules::{Definition, Module, read_module};

/// One crate: a library or a program with its modules.
#[derive(Debug)]
pub struct Crate {
    /// As in paths: `iso_builder`.
    pub name: String,
    /// The folder `src/`, relative to the workspace.
    pub sources: PathBuf,
    /// The module of `src/lib.rs`.
    pub root: Module,
}

/// The packages that the rules apply to: those that ship.
pub const FOLDERS: [&str; 16] = [
    "crates/base",
    "crates/formats",
    "crates/document",
    "crates/model",
    "crates/transfer",
    "crates/medium",
    "crates/machine",
    "crates/reporting",
    "crates/cluster",
    "crates/install",
    "crates/preflight",
    "crates/node",
    "crates/ui",
    "installer",
    "iso-builder/netboot",
    "iso-builder",
];

impl Crate {
    /// The number of source files, without tests.
    #[must_use]
    pub fn files(&self) -> usize {
        self.modules().iter().filter(|module| module.lines > 0).count()
    }

    /// The number of lines in those files, with their tests.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.modules().iter().map(|module| module.lines).sum()
    }

    /// The public types, with the files that define them.
    #[must_use]
    pub fn public_types(&self) -> BTreeMap<&str, Vec<&Path>> {
        let mut found: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
        for module in self.modules() {
            for (name, definition) in &module.items {
                if *definition == Definition::PublicType {
                    found.entry(name).or_default().push(&module.file);
                }
            }
        }
        found
    }

    fn modules(&self) -> Vec<&Module> {
        let mut found = vec![&self.root];
        let mut next = 0;
        while let Some(module) = found.get(next).copied() {
            found.extend(module.children.values());
            next += 1;
        }
        found
    }
}

#[must_use]
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads the libraries of the packages in `folders`, which are relative to `root`.
///
/// # Errors
///
/// If a source file cannot be read or is not Rust.
pub fn read_crates(root: &Path, folders: &[&str]) -> Result<Vec<Crate>> {
    folders
        .iter()
        .map(|folder| {
            let manifest = root.join(folder).join("Cargo.toml");
            let text = std::fs::read_to_string(&manifest)
                .with_context(|| format!("reading {}", manifest.display()))?;
            let name =
                package_name(&text).with_context(|| format!("no package name in {}", manifest.display()))?;
            let sources = Path::new(folder).join("src");
            let file = sources.join("lib.rs");
            let root = read_module(root, &file, &sources)?;
            Ok(Crate { name: name.replace('-', "_"), sources, root })
        })
        .collect()
}

/// The value of the first `name = "…"` in a manifest.
fn package_name(manifest: &str) -> Option<String> {
    let line = manifest.lines().find(|line| line.starts_with("name = "))?;
    line.split('"').nth(1).map(str::to_owned)
}
