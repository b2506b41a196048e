//! The configuration partition: the node document and the identity of the node; and the log of the install.

use std::io::Write;
use std::path::Path;

use anyhow::Result;

use super::readback::{self, WrittenFile};
use super::store::directory;
use crate::installed;
use crate::plan::NodeTexts;
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files::write_atomically;
use base::progress::Progress;
use base::progress::json::JsonLines;
use base::progress::plain::PlainLines;
use base::progress::shared_bytes::SharedBytes;
use machine::nics::{RememberedCards, record};
use machine::unsigned_record;
use model::config::Secret;
use model::release::{MANIFEST, SIGNATURES};
use model::release_manifest::ReleaseManifest;
use reporting::fleet::handover;

/// The name of the node document on the configuration partition.
pub const DOCUMENT: &str = "node.yaml";

/// What a first start that asks for the document begins with, beside it.
pub const DEFAULTS: &str = "defaults.yaml";

/// The files of the configuration partition.
pub(crate) struct NodeFiles {
    document: Option<Secret>,
    defaults: Option<Secret>,
    machine_id: Option<String>,
    release: ReleaseManifest,
    installed: Option<Secret>,
    /// The record of an unsigned release; `None` for a signed one.
    unsigned: Option<String>,
    /// The network cards that the node remembers; `None` if its document names none.
    cards: Option<String>,
    fleet: Option<Secret>,
}

impl NodeFiles {
    pub(crate) fn new(texts: &NodeTexts, release: &ReleaseManifest, cards: &RememberedCards) -> Self {
        let NodeTexts { document, defaults, machine_id, fleet, installed, unsigned, .. } = texts.clone();
        let unsigned = unsigned.map(|record| record.to_text());
        let machine_id = machine_id.map(|id| format!("{id}\n"));
        let cards = (!cards.is_empty()).then(|| cards.to_text());
        Self { document, defaults, machine_id, release: release.clone(), installed, unsigned, cards, fleet }
    }

    /// Whether machines will start from copies of the disk.
    pub(crate) fn is_shared(&self) -> bool {
        self.machine_id.is_none()
    }

    /// Name, content and mode of each file.
    fn files(&self) -> Vec<(&'static str, &[u8], u32)> {
        let mut files = vec![(MANIFEST, self.release.bytes(), 0o644)];
        files.extend(self.release.signatures().map(|signatures| (SIGNATURES, signatures, 0o644)));
        let secrets =
            [(DOCUMENT, &self.document), (DEFAULTS, &self.defaults), (installed::FILE, &self.installed)];
        for (name, secret) in secrets {
            files.extend(secret.iter().map(|text| (name, text.expose().as_bytes(), 0o600)));
        }
        files.extend(self.machine_id.iter().map(|id| ("machine-id", id.as_bytes(), 0o444)));
        files.extend(
            self.unsigned
                .iter()
                .map(|record| (unsigned_record::FILE, record.as_bytes(), unsigned_record::MODE)),
        );
        files.extend(self.cards.iter().map(|cards| (record::FILE, cards.as_bytes(), record::MODE)));
        files.extend(self.fleet.iter().map(|kept| (handover::FILE, kept.expose().as_bytes(), 0o600)));
        files
    }

    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        directory(root, 0o700)?;
        for (name, bytes, mode) in self.files() {
            let path = root.join(name);
            write_atomically(&path, bytes, mode).class(Class::DiskIo, || format!("storing {name}"))?;
        }
        Ok(())
    }

    /// Reads them back from the partition, mounted again at `root`.
    pub(crate) fn verify(&self, root: &Path) -> Result<()> {
        let written = self.files().into_iter().map(|(name, bytes, _)| WrittenFile {
            path: name.into(),
            name: if name == DOCUMENT { "the node document".into() } else { name.into() },
            size: bytes.len() as u64,
            digest: Digest::of(bytes),
            again: Box::new(move || Ok(Box::new(bytes))),
        });
        let written: Vec<_> = written.collect();
        readback::check(root, &written, &|| Ok(()), &mut |_| ())
    }
}

/// The log of an install, kept in memory until the disk has a place for it.
#[derive(Clone, Default)]
pub(crate) struct InstallLog {
    text: SharedBytes,
    events: SharedBytes,
}

impl InstallLog {
    /// Begins with the plan and listens to `progress`.
    pub(crate) fn begin(plan: &str, progress: &Progress) -> Self {
        let log = Self::default();
        let mut text = log.text.clone();
        let _ = writeln!(text, "{plan}");
        progress.add(Box::new(PlainLines::new(text)));
        progress.add(Box::new(JsonLines::new(log.events.clone())));
        log
    }

    /// Writes everything so far to the persistent partition, mounted at `root`.
    pub(crate) fn store(&self, root: &Path) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use machine::unsigned_record::UnsignedRecord;
    use trust::{ReleaseTrust, UnsignedReason};

    #[test]
    fn a_node_keeps_the_signatures_of_its_release_and_that_it_was_not_signed() {
        let bytes = testing::release::release().to_bytes();
        for (signatures, trust) in [
            (Some(b"signed\n".to_vec()), ReleaseTrust::Signed(Vec::new())),
            (
                Some(b"signed by others\n".to_vec()),
                ReleaseTrust::Unsigned(UnsignedReason::UnknownKeys(Vec::new())),
            ),
            (None, ReleaseTrust::Unsigned(UnsignedReason::Missing)),
        ] {
            let release = ReleaseManifest::parse(bytes.clone(), signatures.clone()).unwrap();
            let texts = NodeTexts {
                document: None,
                defaults: None,
                machine_id: None,
                fleet: None,
                installed: None,
                unsigned: UnsignedRecord::of(&release, &trust),
                preflight: String::new(),
            };
            let root = tempfile::tempdir().unwrap();
            let files = NodeFiles::new(&texts, &release, &RememberedCards::default());
            files.write(root.path()).unwrap();
            files.verify(root.path()).unwrap();
            assert_eq!(std::fs::read(root.path().join(MANIFEST)).unwrap(), bytes);
            assert_eq!(std::fs::read(root.path().join(SIGNATURES)).ok(), signatures);
            let unsigned = matches!(trust, ReleaseTrust::Unsigned(_));
            assert_eq!(root.path().join(unsigned_record::FILE).exists(), unsigned, "{trust}");
        }
    }
}
