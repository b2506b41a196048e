//! What was found when the OS image of a node was read as a whole, and what was damaged in it: a file that is written whole or not at
//! all. One that cannot be read counts as none.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::paths::below;
use base::files::{self, Attributes, Root};

const FILE: &str = "/var/lib/nqrust/image-health.json";

/// How many findings are kept, the newest.
const FINDINGS_MAX: usize = 16;

/// The health of the OS images that a node has had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageHealth {
    /// When the running image was last read as a whole, and whether nothing of it is damaged now.
    pub read: Option<WholeRead>,
    /// The newest last.
    pub findings: Vec<DamageFinding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeRead {
    /// In RFC 3339. For people: the clock may have been wrong.
    pub at: String,
    pub whole: bool,
}

/// Damage that was found in the image of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageFinding {
    /// In RFC 3339. For people: the clock may have been wrong.
    pub at: String,
    /// Which release and what of it, a clause: `damage in block 7 of the OS image of 1.2.0 in slot a on /dev/sda4`.
    pub text: String,
    /// Whether it was written anew, and reads back right.
    pub repaired: bool,
}

impl ImageHealth {
    /// That of the node at `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = files::read_text(&below(root, FILE)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Adds what was found at `at`, when the image was read as a whole, and stores it: after a loss of power there is this or the one
    /// before.
    pub fn note(mut self, root: &Path, at: &str, found: Vec<DamageFinding>) -> Result<Self> {
        self.read =
            Some(WholeRead { at: at.to_owned(), whole: found.iter().all(|finding| finding.repaired) });
        self.findings.extend(found);
        let surplus = self.findings.len().saturating_sub(FINDINGS_MAX);
        self.findings.drain(..surplus);
        let text = serde_json::to_string_pretty(&self)? + "\n";
        let attributes = Attributes { mode: 0o644, owner: None };
        Root::open(root)?.write(FILE, text.as_bytes(), attributes)?;
        Ok(self)
    }

    /// What a person has to know, each a clause: what is damaged now, and the last repair.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let damaged = self.read.as_ref().is_some_and(|read| !read.whole);
        let last = self.findings.iter().rev();
        let shown = if damaged { last.take_while(|finding| !finding.repaired).count().max(1) } else { 1 };
        self.findings.iter().rev().take(shown).map(DamageFinding::to_string).collect()
    }
}

impl fmt::Display for DamageFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, text, repaired } = self;
        let end = if *repaired { "written anew" } else { "not repaired" };
        write!(f, "{text}, {end} ({})", day(at))
    }
}

/// When the running image was last read as a whole.
impl fmt::Display for WholeRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = if self.whole { "nothing is damaged" } else { "it is damaged" };
        write!(f, "read as a whole on {}: {found}", day(&self.at))
    }
}

fn day(at: &str) -> &str {
    at.split('T').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(day: u8, repaired: bool) -> DamageFinding {
        let at = format!("2026-12-{day:02}T03:04:05Z");
        DamageFinding { at, text: format!("damage in block {day} on /dev/sda4"), repaired }
    }

    #[test]
    fn what_was_found_is_remembered_and_told_until_it_is_repaired() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("var")).unwrap();
        let health = ImageHealth::read(root.path());
        assert_eq!((health.warnings(), health.read.clone()), (Vec::new(), None));
        let repaired = finding(1, true);
        let health = health.note(root.path(), &repaired.at, vec![repaired.clone()]).unwrap();
        assert_eq!(ImageHealth::read(root.path()), health);
        let told = "damage in block 1 on /dev/sda4, written anew (2026-12-01)";
        assert_eq!(health.warnings(), [told]);
        assert_eq!(
            health.read.as_ref().unwrap().to_string(),
            "read as a whole on 2026-12-01: nothing is damaged"
        );
        let two = vec![finding(2, false), finding(3, false)];
        let health = health.note(root.path(), "2026-12-03T00:00:00Z", two).unwrap();
        assert_eq!(health.warnings().len(), 2);
        assert!(health.warnings()[0].contains("block 3") && health.warnings()[0].contains("not repaired"));
        let health = health.note(root.path(), "2026-12-04T00:00:00Z", Vec::new()).unwrap();
        assert!(health.read.as_ref().unwrap().whole);
    }

    #[test]
    fn old_findings_are_dropped_and_a_damaged_file_counts_as_none() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("var")).unwrap();
        let mut health = ImageHealth::default();
        for day in 1..=20 {
            health = health.note(root.path(), &finding(day, true).at, vec![finding(day, true)]).unwrap();
        }
        assert_eq!(health.findings.len(), FINDINGS_MAX);
        assert!(health.findings[0].text.contains("block 5 "));
        std::fs::write(below(root.path(), FILE), "{").unwrap();
        assert_eq!(ImageHealth::read(root.path()), ImageHealth::default());
    }
}
