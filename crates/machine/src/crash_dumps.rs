//! Dumps of kernels that have crashed, on the persistent partition: where they are, which are there, and how they are called.
//!
//! A dump is a directory with the moment of the crash in its name: the kernel's messages as text, the dump itself where there was room
//! for it, and a record. Until all of it is on the disk the name ends with [`PARTIAL`].
//!
//! A crash whose kernel did not even reach the partition leaves nothing there. So a node with a loaded crash kernel keeps [`ARMED`] until it
//! shuts down, or its crash is recorded. Where a start finds that of an earlier one, it writes [`UNEXPLAINED`].

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::inventory::directory_names;
use crate::paths::below;
use base::failure::{Class, Classify};
use base::files::{make_directory, read_text, read_text_if_present, removed, write_atomically};
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
/// Beside the dumps: the boot ID of the start whose crash kernel is loaded.
pub const ARMED: &str = "armed";
/// Beside the dumps: the previous start of the node ended without a shutdown and without a crash that was recorded. It is an
/// [`UnexplainedEnd`].
const UNEXPLAINED: &str = "unexplained.json";

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
    /// What was free of the crash kernel's memory before it wrote the dump, in bytes (MemAvailable of `/proc/meminfo`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_available: Option<u64>,
}

/// The end of a start of the node that nothing explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnexplainedEnd {
    /// When the start began whose crash kernel wrote nothing, in UTC.
    pub started: String,
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

/// Ends what a power cut, a time limit or a second crash has left incomplete below a directory: messages and record are kept, and what there
/// is of a dump is removed.
///
/// # Errors
/// [`Class::DiskIo`] if files cannot be removed or renamed.
pub fn settle_partial(directory: &Path) -> Result<()> {
    for name in directory_names(directory) {
        let Some(whole) = name.strip_suffix(PARTIAL).map(|whole| directory.join(whole)) else { continue };
        let path = directory.join(&name);
        if path.join(RECORD).exists() && !whole.exists() {
            remove_if_present(&path.join(DUMP))?;
            fs::rename(&path, &whole).class(Class::DiskIo, || format!("renaming {}", path.display()))?;
        } else {
            fs::remove_dir_all(&path).class(Class::DiskIo, || format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Notes that the crash kernel of the start with this boot ID is loaded.
///
/// # Errors
/// [`Class::DiskIo`] if the file cannot be written.
pub fn arm(root: &Path, boot_id: &str) -> Result<()> {
    let directory = below(root, DIRECTORY);
    make_directory(&directory, 0o700)?;
    write_atomically(&directory.join(ARMED), boot_id.as_bytes(), 0o600)
}

/// Judges how the previous start of the node at `root` ended, at the start with this boot ID, and notes it for the status.
///
/// # Errors
/// [`Class::DiskIo`] if files cannot be read, written or removed.
pub fn judge_previous_end(root: &Path, boot_id: &str) -> Result<Option<UnexplainedEnd>> {
    let directory = below(root, DIRECTORY);
    let (armed, note) = (directory.join(ARMED), directory.join(UNEXPLAINED));
    let began = match read_text_if_present(&armed)? {
        // This start itself: the unit was started again.
        Some(id) if id == boot_id => return Ok(unexplained_end(root)),
        Some(_) => fs::metadata(&armed).and_then(|metadata| metadata.modified()).ok(),
        None => None,
    };
    let began = began.and_then(|began| Timestamp::try_from(began).ok());
    let end = began.map(|began| UnexplainedEnd { started: format!("{began:.0}") });
    match &end {
        Some(end) => write_atomically(&note, serde_json::to_string(end)?.as_bytes(), 0o600)?,
        None => remove_if_present(&note)?,
    }
    disarm(&directory)?;
    Ok(end)
}

/// Notes that the end of the start whose crash kernel was loaded is explained; `directory` is that of the dumps. A shutdown does the same
/// (`nqrust-crash.service`).
///
/// # Errors
/// [`Class::DiskIo`] if the file cannot be removed.
pub fn disarm(directory: &Path) -> Result<()> {
    remove_if_present(&directory.join(ARMED))
}

/// The end of the previous start of the node at `root`, if nothing explains it.
#[must_use]
pub fn unexplained_end(root: &Path) -> Option<UnexplainedEnd> {
    let text = read_text(&below(root, DIRECTORY).join(UNEXPLAINED)).ok()?;
    serde_json::from_str(&text).ok()
}

fn remove_if_present(path: &Path) -> Result<()> {
    removed(fs::remove_file(path)).class(Class::DiskIo, || format!("removing {}", path.display()))
}

impl fmt::Display for UnexplainedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the start of {} ended without a shutdown and without a record: the machine lost power or was reset, or its crash kernel \
             did not reach the persistent partition",
            self.started
        )
    }
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
    }

    #[test]
    fn an_interrupted_dump_keeps_its_messages_and_says_that_it_is_not_complete() {
        let root = tempfile::tempdir().unwrap();
        let directory = below(root.path(), DIRECTORY);
        put(root.path(), "20261129T040000Z.partial", r#"{"kernel": "6.12.1", "lacking": "interrupted"}"#);
        for file in [MESSAGES, DUMP] {
            fs::write(directory.join("20261129T040000Z.partial").join(file), "x").unwrap();
        }
        // Nothing is known of one without a record.
        fs::create_dir_all(directory.join("20261129T050000Z.partial")).unwrap();
        fs::create_dir_all(directory.join("notes")).unwrap();
        settle_partial(&directory).unwrap();
        let found = of_node(root.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].record.lacking.as_deref(), Some("interrupted"));
        let kept = directory.join("20261129T040000Z");
        assert!(
            kept.join(MESSAGES).exists() && !kept.join(DUMP).exists() && directory.join("notes").exists()
        );
        assert!(!directory.join("20261129T050000Z.partial").exists());
        settle_partial(Path::new("/nonexistent")).unwrap();
    }

    #[test]
    fn an_end_without_shutdown_and_without_a_recorded_crash_is_noted_until_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(judge_previous_end(root, "1").unwrap(), None);
        arm(root, "1").unwrap();
        assert_eq!(judge_previous_end(root, "1").unwrap(), None, "it is the same start");
        let end = judge_previous_end(root, "2").unwrap().unwrap();
        assert!(
            end.to_string().starts_with("the start of 20") && end.to_string().contains("lost power"),
            "{end}"
        );
        assert_eq!(unexplained_end(root), Some(end));
        arm(root, "2").unwrap();
        // A shutdown, and a crash that was recorded.
        disarm(&below(root, DIRECTORY)).unwrap();
        assert_eq!(judge_previous_end(root, "3").unwrap(), None);
        assert_eq!(unexplained_end(root), None);
    }

    #[test]
    fn a_name_is_read_as_it_was_made() {
        let now: Timestamp = "2026-11-29T02:31:05Z".parse().unwrap();
        assert_eq!(name(now), "20261129T023105Z");
        assert_eq!(moment(&name(now)), Some(now));
    }
}
