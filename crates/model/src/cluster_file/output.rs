//! A directory with the document of each node, and a record of what was written there.
//!
//! The record, [`RECORD`], is what makes it safe to write again: a file that is not in it, or that somebody has changed
//! since, is refused; one that the cluster file no longer has is removed; and a template is what it was when nodes were
//! made from it. It also tells servers which document a machine gets, by hardware address.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::ValidClusterFile;
use super::render::DocumentRecord;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files;

const RECORD: &str = "rendered.json";
/// Documents hold secrets.
const MODE: u32 = 0o600;
const LIMIT: u64 = 16 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Version of the record; 1.
    v: u32,
    cluster: String,
    /// Digests of the templates that nodes are made from.
    templates: BTreeMap<String, String>,
    nodes: Vec<DocumentRecord>,
}

/// The files of a directory by their change, by name.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// New, or with new content.
    pub written: Vec<String>,
    /// The same as before.
    pub unchanged: Vec<String>,
    /// Of nodes that the cluster file no longer has.
    pub removed: Vec<String>,
}

/// Writes the document of each node into `directory`, each with mode 0600 and in one step, and the record after them.
/// Everything that speaks against it is found before anything is written, and is [`Class::Invalid`].
pub fn write(cluster: &ValidClusterFile, directory: &Path) -> Result<Report> {
    let old = read_record(directory)?;
    if let Some(old) = &old {
        same_cluster(cluster, old, directory)?;
        same_templates(cluster, old)?;
    }
    let old = old.map(|record| record.nodes).unwrap_or_default();
    only_ours(cluster, &old, directory)?;
    let doing = || format!("writing the documents of the cluster {}", cluster.name);
    files::output_directory(directory, 0o700)?;
    let mut report = Report::default();
    for document in &cluster.documents {
        let (name, bytes) = (&document.entry.file, document.text.as_bytes());
        let path = directory.join(name);
        if is_same(&path, bytes) {
            report.unchanged.push(name.clone());
        } else {
            files::write_atomically(&path, bytes, MODE).class(Class::DiskIo, doing)?;
            report.written.push(name.clone());
        }
    }
    let bytes = record(cluster)?;
    if !is_same(&directory.join(RECORD), &bytes) {
        files::write_atomically(&directory.join(RECORD), &bytes, MODE).class(Class::DiskIo, doing)?;
    }
    for entry in stale(cluster, &old) {
        let path = directory.join(&entry.file);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => {
                other.class(Class::DiskIo, || format!("removing {}", path.display()))?;
                report.removed.push(entry.file.clone());
            }
        }
    }
    Ok(report)
}

/// The records of the documents that [`write`] has written into `directory`; empty for another directory.
pub fn rendered(directory: &Path) -> Result<Vec<DocumentRecord>> {
    Ok(read_record(directory)?.map(|record| record.nodes).unwrap_or_default())
}

fn record(cluster: &ValidClusterFile) -> Result<Vec<u8>> {
    let nodes = cluster.documents.iter().map(|document| document.entry.clone()).collect();
    let record = Record { v: 1, cluster: cluster.name.clone(), templates: cluster.templates.clone(), nodes };
    let mut bytes = serde_json::to_vec_pretty(&record)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn read_record(directory: &Path) -> Result<Option<Record>> {
    let path = directory.join(RECORD);
    let doing = || format!("reading {}, the record of what was rendered", path.display());
    if !path.try_exists().map_err(|error| files::unusable(directory, error))? {
        return Ok(None);
    }
    let bytes = files::read_entry(directory, Path::new(RECORD), LIMIT).class(Class::DiskIo, doing)?;
    let record: Record = serde_json::from_slice(&bytes).class(Class::Invalid, doing)?;
    let plain = |entry: &DocumentRecord| {
        entry.file == format!("{}.yaml", entry.hostname) && !entry.hostname.contains('/')
    };
    if record.v != 1 || !record.nodes.iter().all(plain) {
        let what = format!("{} is not a record that this program has written", path.display());
        return Err(Failure::new(Class::Invalid, what).hint("Render into another directory.").into());
    }
    Ok(Some(record))
}

fn same_cluster(cluster: &ValidClusterFile, old: &Record, directory: &Path) -> Result<(), Failure> {
    if old.cluster == cluster.name {
        return Ok(());
    }
    let what = format!(
        "{} holds the documents of the cluster `{}`, not of `{}`",
        directory.display(),
        old.cluster,
        cluster.name
    );
    Err(Failure::new(Class::Invalid, what).hint("Give each cluster a directory of its own."))
}

/// A template that nodes are made from stays what it is.
fn same_templates(cluster: &ValidClusterFile, old: &Record) -> Result<(), Failure> {
    let changed: Vec<_> = cluster
        .templates
        .iter()
        .filter(|(name, digest)| old.templates.get(*name).is_some_and(|old| old != *digest))
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    let what = format!("a template that nodes were made from has changed: {}", changed.join(", "));
    let hint = "Restore the template, add the changed one under another name, and use that name in the pools that \
                are to have it.";
    Err(Failure::new(Class::Invalid, what).hint(hint))
}

/// Refuses a directory with files that `render` did not write, or that were changed since.
fn only_ours(cluster: &ValidClusterFile, old: &[DocumentRecord], directory: &Path) -> Result<()> {
    let new = cluster.documents.iter().map(|document| &document.entry);
    let mut foreign = Vec::new();
    for name in new.clone().chain(stale(cluster, old)).map(|entry| &entry.file) {
        let path = directory.join(name);
        let doing = || format!("comparing {} with what was rendered", path.display());
        let bytes = match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).class(Class::DiskIo, doing),
            Ok(metadata) if !metadata.is_file() => {
                foreign.push(name.clone());
                continue;
            }
            Ok(_) => files::read_at_most(&path, LIMIT).class(Class::DiskIo, doing)?,
        };
        let digest = Digest::of(&bytes).to_string();
        if !old.iter().chain(new.clone()).any(|entry| entry.file == *name && entry.sha256 == digest) {
            foreign.push(name.clone());
        }
    }
    if foreign.is_empty() {
        return Ok(());
    }
    let what = format!(
        "{} holds files that `render` did not write, or that were changed since: {}",
        directory.display(),
        foreign.join(", ")
    );
    let hint = "Put what was changed into the cluster file and move these files away, or render into another directory.";
    Err(Failure::new(Class::Invalid, what).hint(hint).into())
}

/// Documents of nodes that the cluster file no longer has.
fn stale<'o>(
    cluster: &ValidClusterFile,
    old: &'o [DocumentRecord],
) -> impl Iterator<Item = &'o DocumentRecord> {
    let new: Vec<_> = cluster.documents.iter().map(|document| document.entry.file.clone()).collect();
    old.iter().filter(move |entry| !new.contains(&entry.file))
}

/// True if the file is there with this content and its mode.
fn is_same(path: &Path, bytes: &[u8]) -> bool {
    let mode = std::fs::symlink_metadata(path).map(|metadata| metadata.permissions().mode() & 0o7777);
    mode.is_ok_and(|mode| mode == MODE) && files::read_at_most(path, LIMIT).is_ok_and(|old| old == bytes)
}
