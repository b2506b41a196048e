//! The file in which a node remembers its cards: beside the node document, world-readable, of one version.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::remembered::RememberedCards;
use base::files;

pub const FILE: &str = "cards.json";
/// Its permissions: hardware addresses are no secret.
pub const MODE: u32 = 0o644;
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CardRecord {
    version: u32,
    /// Name in the document to hardware address.
    cards: RememberedCards,
}

impl RememberedCards {
    #[must_use]
    pub fn to_text(&self) -> String {
        let record = CardRecord { version: VERSION, cards: self.clone() };
        #[expect(clippy::expect_used, reason = "a number and a map of texts always serialize")]
        let text = serde_json::to_string_pretty(&record).expect("JSON of texts");
        text + "\n"
    }

    fn parse(text: &str) -> Result<Self> {
        let record: CardRecord = serde_json::from_str(text)?;
        anyhow::ensure!(record.version == VERSION, "it has version {} and not {VERSION}", record.version);
        Ok(record.cards)
    }

    /// The cards that are remembered beside the document at `document`: none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version. Callers go on as if there were none, because a node without a record
    /// still finds its cards by their names.
    pub fn beside(document: &Path) -> Result<Self> {
        let path = path(document);
        let Some(text) = files::read_text_if_present(&path)? else { return Ok(Self::default()) };
        Self::parse(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Replaces the record beside the document at `document`, if it differs. Returns whether it did.
    pub fn keep_beside(&self, document: &Path) -> Result<bool> {
        // An unreadable record is replaced.
        if Self::beside(document).is_ok_and(|before| before == *self) {
            return Ok(false);
        }
        files::write_atomically(&path(document), self.to_text().as_bytes(), MODE)?;
        Ok(true)
    }
}

fn path(document: &Path) -> PathBuf {
    document.with_file_name(FILE)
}
