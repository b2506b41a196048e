//! On the running node: the image is read as a whole when the kernel has found damage, and once a month. Damage is repaired from the
//! other half of a mirror or from another slot with the same image, remembered, and told.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use walkdir::{DirEntryExt, WalkDir};

use crate::update::slots::SlotDevices;
use base::cancel::Cancel;
use base::progress::Progress;
use cluster::node_object::{NodeEvent, NodeObject};
use formats::squashfs::Expansion;
use formats::verity::BLOCK_BYTES;
use install::execute::{DamagedPart, SlotCheck, SlotDamage, SlotSource};
use machine::clock;
use machine::image_health::{DamageFinding, ImageHealth};
use model::boot::{BootParameters, BootVolume, Slot};

/// How often the image is read as a whole: blocks that nobody reads decay unseen.
pub const READ_PERIOD: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// How many blocks, and how many files, a text names.
const NAMES_MAX: usize = 4;

/// What came of reading the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageVerdict {
    Whole,
    /// All that was damaged was written anew.
    Repaired(Vec<DamageFinding>),
    Damaged(Vec<DamageFinding>),
}

/// How long until the image has to be read again.
#[must_use]
pub fn read_due(health: &ImageHealth, now: Timestamp) -> Duration {
    let read = health.read.as_ref().and_then(|read| read.at.parse::<Timestamp>().ok());
    // A clock that was set back must not put it off for ever.
    let passed = read.and_then(|read| Duration::try_from(now.duration_since(read)).ok());
    passed.map_or(Duration::ZERO, |passed| READ_PERIOD.saturating_sub(passed))
}

/// Reads the image of the slot that the command line `line` names, repairs it, and remembers what was found. `mounted` is where the image
/// is mounted: `/`, or in the initrd another directory.
pub fn check(
    root: &Path,
    mounted: &Path,
    line: &str,
    installed: &BootParameters,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<ImageVerdict> {
    let (slot, volume) = (installed.slot, BootVolume::of_root(line)?);
    let devices = SlotDevices::of_root(root, slot, &volume)?;
    let source = devices.source()?;
    let release = &source.release;
    let others = SlotDevices::beside_root(root, slot, &volume);
    let found = devices.mend(&others, release, progress, cancel)?;
    let findings = findings(&found, slot, &release.version, &|blocks| {
        let files = files_in(&source, blocks).map(|numbers| paths_of(mounted, &numbers));
        // What else blocks hold, such as directories, is not looked for.
        files.unwrap_or_default()
    });
    ImageHealth::read(root).note(root, &clock::now_text(), findings.clone())?;
    Ok(match (findings.is_empty(), found.is_repaired()) {
        (true, _) => ImageVerdict::Whole,
        (false, true) => ImageVerdict::Repaired(findings),
        (false, false) => ImageVerdict::Damaged(findings),
    })
}

impl ImageVerdict {
    /// Tells the cluster of the node at `root`, if it has one. A failure is told in words.
    pub fn tell_cluster(&self, root: &Path) -> Result<(), String> {
        let (reason, findings) = match self {
            Self::Whole => return Ok(()),
            Self::Repaired(findings) => ("ImageRepaired", findings),
            Self::Damaged(findings) => ("ImageDamaged", findings),
        };
        let Some(own) = NodeObject::read(root) else { return Ok(()) };
        let message = findings.iter().map(DamageFinding::to_string).collect::<Vec<_>>().join("; ");
        own.tell(root, &NodeEvent { reason, message, warning: true, at: clock::now_text() })
    }
}

/// The findings in words; `files` tells the paths of the files that have data in blocks.
fn findings(
    check: &SlotCheck,
    slot: Slot,
    version: &str,
    files: &dyn Fn(&[u64]) -> Vec<PathBuf>,
) -> Vec<DamageFinding> {
    let at = clock::now_text();
    let finding = |damage: &SlotDamage| {
        let text = damage_of(&damage.part, version, &format!("in slot {slot} on {}", damage.disk), files);
        DamageFinding { at: at.clone(), text, repaired: damage.repaired }
    };
    check.damage.iter().map(finding).collect()
}

/// Which part of the image of a release with this version is damaged, and where that is: a clause.
pub(super) fn damage_of(
    damaged: &DamagedPart,
    version: &str,
    place: &str,
    files: &dyn Fn(&[u64]) -> Vec<PathBuf>,
) -> String {
    let mut text = format!("damage in {} of {version} {place}", part(damaged));
    if let DamagedPart::Blocks(blocks) = damaged {
        let files = files(blocks);
        if !files.is_empty() {
            let names: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
            text.push_str(&format!(" ({})", some_of(&names)));
        }
    }
    text
}

/// The damage that was found in a slot with a release of this version, each a clause.
#[must_use]
pub fn damage_in_words(check: &SlotCheck, slot: Slot, version: &str) -> Vec<String> {
    findings(check, slot, version, &|_| Vec::new()).iter().map(DamageFinding::to_string).collect()
}

/// The inode numbers of the files that have data in these blocks of a slot's image.
fn files_in(source: &SlotSource, blocks: &[u64]) -> Result<Vec<u32>> {
    Ok(Expansion::plan(source)?.files_in(&places_of(blocks))?)
}

/// Where these blocks of an image are, in bytes.
pub(super) fn places_of(blocks: &[u64]) -> Vec<Range<u64>> {
    let block = BLOCK_BYTES as u64;
    blocks.iter().map(|number| number * block..(number + 1) * block).collect()
}

/// The files with these inode numbers in the file system at `root`, by their paths there.
pub(super) fn paths_of(root: &Path, numbers: &[u32]) -> Vec<PathBuf> {
    let numbers: BTreeSet<_> = numbers.iter().map(|number| u64::from(*number)).collect();
    let entries =
        WalkDir::new(root).same_file_system(true).sort_by_file_name().into_iter().filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_type().is_file() && numbers.contains(&entry.ino()))
        .map(|entry| Path::new("/").join(entry.path().strip_prefix(root).unwrap_or(entry.path())))
        .collect()
}

fn part(part: &DamagedPart) -> String {
    match part {
        DamagedPart::HashTree => "the hash tree".to_owned(),
        DamagedPart::BootVolume => "the boot volume".to_owned(),
        DamagedPart::Blocks(numbers) => match numbers.as_slice() {
            [] => "the OS image".to_owned(),
            [only] => format!("block {only} (byte {}) of the OS image", only * BLOCK_BYTES as u64),
            several => {
                let numbers: Vec<_> = several.iter().map(u64::to_string).collect();
                format!("blocks {} of the OS image", some_of(&numbers))
            }
        },
    }
}

fn some_of(names: &[String]) -> String {
    let (shown, more) = names.split_at(names.len().min(NAMES_MAX));
    let rest = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{rest}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::image_health::WholeRead;

    #[test]
    fn an_image_is_read_once_a_month_whatever_the_clock_says() {
        let day = 24 * 60 * 60;
        let read = |at: &str| ImageHealth {
            read: Some(WholeRead { at: at.to_owned(), whole: true }),
            ..ImageHealth::default()
        };
        let due =
            |health: &ImageHealth| read_due(health, "2026-12-31T00:00:00Z".parse().unwrap()).as_secs() / day;
        assert_eq!(due(&read("2026-12-21T00:00:00Z")), 20);
        for overdue in ["2026-11-01T00:00:00Z", "2027-06-01T00:00:00Z", "never"] {
            assert_eq!(due(&read(overdue)), 0, "{overdue}");
        }
        assert_eq!(due(&ImageHealth::default()), 0);
    }

    #[test]
    fn files_are_found_by_their_inode_numbers() {
        use std::os::unix::fs::MetadataExt;
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("usr")).unwrap();
        let file = root.path().join("usr/file");
        std::fs::write(&file, "").unwrap();
        std::fs::write(root.path().join("other"), "").unwrap();
        let Ok(number) = u32::try_from(std::fs::metadata(&file).unwrap().ino()) else { return };
        assert_eq!(paths_of(root.path(), &[number]), [Path::new("/usr/file")]);
        assert!(paths_of(root.path(), &[]).is_empty());
    }

    #[test]
    fn damage_is_told_with_its_part_slot_and_disk() {
        let damage = |part| SlotDamage { disk: "/dev/sda4".into(), part, repaired: true };
        let check = SlotCheck {
            damage: vec![
                damage(DamagedPart::Blocks(vec![7])),
                damage(DamagedPart::Blocks((1..=6).collect())),
                damage(DamagedPart::HashTree),
            ],
        };
        let files = |blocks: &[u64]| match blocks {
            [7] => vec!["/usr/bin/one".into(), "/usr/bin/two".into()],
            _ => Vec::new(),
        };
        let told: Vec<_> =
            findings(&check, Slot::A, "1.2.0", &files).into_iter().map(|finding| finding.text).collect();
        assert_eq!(
            told,
            [
                "damage in block 7 (byte 28672) of the OS image of 1.2.0 in slot a on /dev/sda4 (/usr/bin/one, /usr/bin/two)",
                "damage in blocks 1, 2, 3, 4 and 2 more of the OS image of 1.2.0 in slot a on /dev/sda4",
                "damage in the hash tree of 1.2.0 in slot a on /dev/sda4",
            ]
        );
    }
}
