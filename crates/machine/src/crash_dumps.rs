//! Dumps of kernels that have crashed, on the persistent partition: where they are, which are there, and how they are called.
//!
//! A dump is a directory with the moment of the crash in its name: the kernel's messages as text, the dump itself where there was room
//! for it, and a record. Until all of it is on the disk the name ends with [`PARTIAL`].

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::inventory::directory_names;
use crate::paths::below;
use base::failure::{Class, Classify};
use base::files::read_text;
use base::size::ByteSize;

/// Where dumps are on a node.
pub const DIRECTORY: &str = "/var/lib/nqrust/crash";
/// The same from the root of the persistent partition, which is mounted at `/var`.
pub const DIRECTORY_ON_PARTITION: &str = "lib/nqrust/crash";
/// The end of the name of a directory that is not complete.
pub const PARTIAL: &str = ".partial";
/// The kernel's messages.
pub const MESSAGES: &str = "dmesg.txt";
/// The dump, in the format of makedumpfile(8), which crash(8) reads.
pub const DUMP: &str = "vmcore";
/// The [`CrashRecord`].
pub const RECORD: &str = "crash.json";

/// The form of a name: the moment in UTC.
const NAME: &str = "%Y%m%dT%H%M%SZ";

/// What is known of a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashRecord {
    /// The kernel's release.
    pub kernel: String,
    /// The kernel's words for why it stopped; none if its messages have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The size of the dump in bytes; none if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dump_bytes: Option<u64>,
    /// Why there is no dump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacking: Option<String>,
}

/// A crash of which something is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrashDump {
    /// The moment of the crash, in UTC.
    pub moment: String,
    /// On the node.
    pub directory: PathBuf,
    #[serde(flatten)]
    pub record: CrashRecord,
}

/// The name of the directory for a crash at this moment.
#[must_use]
pub fn name(moment: Timestamp) -> String {
    moment.strftime(NAME).to_string()
}

fn moment(name: &str) -> Option<Timestamp> {
    // The Z is a letter of the form, which no parser takes for an offset.
    let text = name.strip_suffix('Z')?;
    let civil = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S", text).ok()?;
    civil.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The complete dumps below a directory, the newest first, each with its moment.
#[must_use]
pub fn complete(directory: &Path) -> Vec<(Timestamp, PathBuf)> {
    let names = directory_names(directory).into_iter();
    let mut found: Vec<_> = names.filter_map(|name| Some((moment(&name)?, directory.join(name)))).collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found
}

/// The dumps of the node at `root`, the newest first.
#[must_use]
pub fn of_node(root: &Path) -> Vec<CrashDump> {
    let read = |(moment, path): (Timestamp, PathBuf)| {
        let text = read_text(&path.join(RECORD)).unwrap_or_default();
        let record = serde_json::from_str(&text).unwrap_or_default();
        let directory = Path::new(DIRECTORY).join(name(moment));
        CrashDump { moment: format!("{moment:.0}"), directory, record }
    };
    complete(&below(root, DIRECTORY)).into_iter().map(read).collect()
}

/// Removes what a power cut or a second crash has left incomplete below a directory.
pub fn remove_partial(directory: &Path) -> Result<()> {
    for name in directory_names(directory).into_iter().filter(|name| name.ends_with(PARTIAL)) {
        let path = directory.join(name);
        fs::remove_dir_all(&path).class(Class::DiskIo, || format!("removing {}", path.display()))?;
    }
    Ok(())
}

impl fmt::Display for CrashDump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CrashRecord { reason, dump_bytes, lacking, .. } = &self.record;
        write!(f, "{}: {} (", self.moment, reason.as_deref().unwrap_or("the kernel gave no reason"))?;
        match dump_bytes {
            Some(bytes) => write!(f, "{}", ByteSize::bytes(*bytes))?,
            None => f.write_str("only messages")?,
        }
        write!(f, " in {}", self.directory.display())?;
        match lacking {
            Some(why) => write!(f, "; {why})"),
            None => f.write_str(")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, name: &str, record: &str) {
        let directory = below(root, DIRECTORY).join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(RECORD), record).unwrap();
    }

    #[test]
    fn dumps_are_listed_from_the_newest_and_incomplete_ones_are_none() {
        let root = tempfile::tempdir().unwrap();
        assert!(of_node(root.path()).is_empty());
        let whole = r#"{"kernel": "6.12.1", "reason": "sysrq triggered crash", "dump_bytes": 47185920}"#;
        put(root.path(), "20261128T235959Z", whole);
        put(root.path(), "20261129T023105Z", r#"{"kernel": "6.12.1", "lacking": "5 MiB are free"}"#);
        for other in ["20261129T040000Z.partial", "notes", "20261399T000000Z"] {
            put(root.path(), other, whole);
        }
        let lines: Vec<_> = of_node(root.path()).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "2026-11-29T02:31:05Z: the kernel gave no reason (only messages in /var/lib/nqrust/crash/20261129T023105Z; \
                 5 MiB are free)",
                "2026-11-28T23:59:59Z: sysrq triggered crash (45 MiB in /var/lib/nqrust/crash/20261128T235959Z)",
            ]
        );
        let directory = below(root.path(), DIRECTORY);
        remove_partial(&directory).unwrap();
        assert!(!directory.join("20261129T040000Z.partial").exists() && directory.join("notes").exists());
        assert_eq!(of_node(root.path()).len(), 2);
        remove_partial(Path::new("/nonexistent")).unwrap();
    }

    #[test]
    fn a_name_is_read_as_it_was_made() {
        let now: Timestamp = "2026-11-29T02:31:05Z".parse().unwrap();
        assert_eq!(name(now), "20261129T023105Z");
        assert_eq!(moment(&name(now)), Some(now));
    }
}
