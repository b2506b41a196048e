//! The record of the files that an apply wrote. The next apply removes those that its document no longer asks for.
//!
//! There are two records: `/etc` is new at every boot and its record with it; files elsewhere persist, and so must their record.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files::{self, Root};
use machine::node_files::{NodeFile, write};

/// The record of the files below `/etc`, from the root.
pub const MANIFEST: &str = "etc/nqrust/applied.json";
/// The record of all other files, from the root: what is not below `/etc` persists.
pub const LASTING: &str = "var/lib/nqrust/applied.json";
/// The tree that [`MANIFEST`] covers.
const FRESH: &str = "etc/";
const RECORDS: [&str; 2] = [LASTING, MANIFEST];

/// The record of an apply. Contains no values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppliedRecord {
    /// Digest of the document and of the machine id beside it, in the record of `/etc` once an apply is complete.
    pub document: Option<Digest>,
    /// The files, from the root, sorted. Account files are edited, not owned, and not included.
    pub files: Vec<String>,
}

impl AppliedRecord {
    /// The record of `/etc` below `root`; `None` if nothing has been applied since the boot.
    pub fn read(root: &Path) -> Result<Option<Self>> {
        Self::read_at(root, MANIFEST)
    }

    fn read_at(root: &Path, record: &str) -> Result<Option<Self>> {
        let path = root.join(record);
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_text(&path)?;
        let applied: Self =
            serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let is_relative = |path: &String| {
            belongs_to(record, path) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
        };
        match applied.files.iter().find(|path| !is_relative(path)) {
            None => Ok(Some(applied)),
            Some(stray) => {
                Err(Failure::new(Class::Unexpected, format!("{} names {stray:?}", path.display()))
                    .hint("Remove the record and apply again.")
                    .into())
            }
        }
    }

    /// The record of `/etc` as a file, with further files in it.
    pub(super) fn with(mut self, further: impl Iterator<Item = String>) -> Result<NodeFile> {
        self.files.extend(further);
        self.files.sort();
        self.files.dedup();
        Ok(NodeFile::new(MANIFEST, 0o600, serde_json::to_string_pretty(&self)? + "\n"))
    }

    fn write_at(&self, root: &Root, record: &str) -> Result<()> {
        if *self == Self::default() {
            return root.remove(record).map(drop);
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        write(root, &NodeFile::new(record, 0o600, text)).map(drop)
    }
}

/// The files of earlier applies below `root`.
pub(super) fn before(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for record in RECORDS {
        files.extend(AppliedRecord::read_at(root, record)?.unwrap_or_default().files);
    }
    Ok(files)
}

/// Records new files before they are written, so that the next apply knows all files of an interrupted one.
pub(super) fn announce(root: &Root, before: &[String], owned: &[String]) -> Result<()> {
    for record in RECORDS {
        let known = files_of(record, before);
        let files: BTreeSet<&String> = known.union(&files_of(record, owned)).copied().collect();
        if files != known {
            let files = files.into_iter().cloned().collect();
            AppliedRecord { document: None, files }.write_at(root, record)?;
        }
    }
    Ok(())
}

/// Records that everything is written and the rest removed. The record with the document's digest is the last.
pub(super) fn finish(root: &Root, document: Digest, owned: &[String]) -> Result<()> {
    for record in RECORDS {
        let document = (record == MANIFEST).then_some(document);
        let files = files_of(record, owned).into_iter().cloned().collect();
        AppliedRecord { document, files }.write_at(root, record)?;
    }
    Ok(())
}

fn belongs_to(record: &str, path: &str) -> bool {
    path.starts_with(FRESH) == (record == MANIFEST)
}

fn files_of<'a>(record: &str, files: &'a [String]) -> BTreeSet<&'a String> {
    files.iter().filter(|path| belongs_to(record, path)).collect()
}
