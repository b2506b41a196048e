//! The configuration partition: the node document and the identity of the node; and the log of the install.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use uuid::Uuid;

use super::persistent::directory;
use crate::config::Secret;
use crate::digest::Digest;
use crate::failure::{Class, Classify, Failure};
use crate::files::{read_at_most, write_atomically};
use crate::progress::Progress;
use crate::progress::book::Book;
use crate::progress::json::JsonLines;
use crate::progress::plain::PlainLines;
use crate::release::Release;

/// The name of the node document on the configuration partition.
pub const DOCUMENT: &str = "node.yaml";

/// Writes the files of the configuration partition, mounted at `root`.
pub(super) fn write(root: &Path, document: &Secret, release: &Release) -> Result<()> {
    directory(root, 0o700)?;
    // As machine-id(5) wants it.
    let machine_id = format!("{}\n", Uuid::new_v4().simple());
    let files: [(&str, &[u8], u32); 3] = [
        (DOCUMENT, document.expose().as_bytes(), 0o600),
        ("machine-id", machine_id.as_bytes(), 0o444),
        (crate::release::MANIFEST, &release.to_bytes(), 0o644),
    ];
    for (name, bytes, mode) in files {
        let path = root.join(name);
        write_atomically(&path, bytes, mode).class(Class::DiskIo, || format!("storing {name}"))?;
    }
    Ok(())
}

/// Checks that the node document on the partition mounted at `root` is `document`.
pub(super) fn verify(root: &Path, document: &Secret) -> Result<()> {
    let path = root.join(DOCUMENT);
    let found = read_at_most(&path, 16 << 20).class(Class::DiskIo, || "reading the node document".into())?;
    if Digest::of(&found) == Digest::of(document.expose().as_bytes()) {
        return Ok(());
    }
    Err(Failure::new(Class::DiskIo, "the node document does not read back as written").into())
}

/// The log of an install, kept in memory until there is a place for it on the disk.
#[derive(Clone, Default)]
pub(super) struct Log {
    text: Book,
    events: Book,
}

impl Log {
    /// Begins with the plan and listens to `progress`.
    pub(super) fn begin(plan: &str, progress: &Progress) -> Self {
        let log = Self::default();
        let mut text = log.text.clone();
        let _ = writeln!(text, "{plan}");
        progress.add(Box::new(PlainLines::new(text)));
        progress.add(Box::new(JsonLines::new(log.events.clone())));
        log
    }

    /// Writes everything so far to the persistent partition, mounted at `root`.
    pub(super) fn store(&self, root: &Path) -> Result<()> {
        directory(&root.join("log"), 0o755)?;
        directory(&root.join("log/nqrust"), 0o700)?;
        for (name, book) in [("install.log", &self.text), ("install-events.jsonl", &self.events)] {
            let path = root.join("log/nqrust").join(name);
            write_atomically(&path, &book.bytes(), 0o600)
                .class(Class::DiskIo, || format!("storing {name}"))?;
        }
        Ok(())
    }
}
