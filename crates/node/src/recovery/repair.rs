//! Checks everything that a start of this node needs, and repairs what can be repaired without loss.

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::root_image::damage_in_words;
use crate::update::UpdatedNode;
use base::cancel::Cancel;
use base::command::Runner;
use base::progress::Progress;
use install::execute::{FilesystemCheck, check_filesystem, read_esp};
use machine::mounted::is_mounted;
use model::boot::{BootParameters, BootVolume, Slot};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RepairState {
    Whole,
    Repaired,
    Damaged,
    /// It is empty or in use.
    Unchecked,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RepairFinding {
    pub subject: String,
    pub state: RepairState,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl RepairFinding {
    fn new(subject: impl Into<String>, state: RepairState, text: impl Into<String>) -> Self {
        Self { subject: subject.into(), state, text: text.into() }
    }
}

/// Checks this node. Rewrites the boot record; repairs file systems and OS images only with `yes`.
///
/// # Errors
/// The boot record cannot be written, or the work was cancelled.
pub fn repair(
    node: &mut UpdatedNode,
    installed: &BootParameters,
    yes: bool,
    runner: &dyn Runner,
    progress: &Progress,
) -> Result<Vec<RepairFinding>> {
    let mut findings = boot_files(&node.slots.esps);
    node.rewrite_record()?;
    findings.push(RepairFinding::new("boot record", RepairState::Whole, "written anew"));
    let volumes = [("persistent", Some(installed.persistent)), ("data", installed.data)];
    for (name, volume) in volumes {
        if let Some(volume) = volume {
            findings.push(progress.within("repair", format!("Checking the file system {name}"), || {
                filesystem(name, &volume, yes, runner)
            })?);
        }
    }
    let cancel = Cancel::on_signals();
    for slot in Slot::ALL {
        findings.push(read_slot(node, slot, yes, progress, &cancel)?);
    }
    Ok(findings)
}

fn boot_files(esps: &[std::path::PathBuf]) -> Vec<RepairFinding> {
    let read: Vec<_> = esps.iter().map(|esp| (esp, read_esp(esp))).collect();
    let first = read.iter().find_map(|(_, digest)| digest.as_ref().ok());
    let finding = |(esp, digest): &(&std::path::PathBuf, Result<base::digest::Digest>)| {
        let subject = format!("boot files on {}", esp.display());
        match digest {
            Err(error) => RepairFinding::new(subject, RepairState::Damaged, format!("{error:#}")),
            Ok(digest) if Some(digest) != first => {
                RepairFinding::new(subject, RepairState::Damaged, "they differ from those of the other disk")
            }
            Ok(_) => RepairFinding::new(subject, RepairState::Whole, ""),
        }
    };
    read.iter().map(finding).collect()
}

fn filesystem(name: &str, volume: &BootVolume, yes: bool, runner: &dyn Runner) -> Result<RepairFinding> {
    let subject = format!("file system {name}");
    let device = volume.device();
    if is_mounted(Path::new("/"), &device)? {
        let text = "it is in use; the recovery system can check it";
        return Ok(RepairFinding::new(subject, RepairState::Unchecked, text));
    }
    Ok(match check_filesystem(runner, &device, yes) {
        FilesystemCheck::Whole => RepairFinding::new(subject, RepairState::Whole, ""),
        FilesystemCheck::Repaired => RepairFinding::new(subject, RepairState::Repaired, ""),
        FilesystemCheck::Damaged(why) => {
            let next = match yes {
                true => format!("by hand, with answers that may lose files: e2fsck -f {}", device.display()),
                false => "what can be repaired without a loss: installer update repair --yes".to_owned(),
            };
            RepairFinding::new(subject, RepairState::Damaged, format!("{why}; {next}"))
        }
    })
}

fn read_slot(
    node: &UpdatedNode,
    slot: Slot,
    yes: bool,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<RepairFinding> {
    let subject = format!("slot {slot}");
    let devices = node.slots.slot(slot);
    let Some(release) = devices.release() else {
        let text = "it has no commit mark, or its boot volume is damaged: GRUB starts nothing from it; \
            installer update apply writes it";
        return Ok(RepairFinding::new(subject, RepairState::Unchecked, text));
    };
    cancel.check()?;
    let version = format!("{} {}", release.name, release.version);
    if yes {
        let others = Slot::ALL.into_iter().filter(|other| *other != slot);
        let others: Vec<_> = others.map(|other| node.slots.slot(other).clone()).collect();
        let mended = devices.mend(&others, &release, progress, cancel);
        cancel.check()?;
        return Ok(match mended {
            Ok(check) if check.damage.is_empty() => RepairFinding::new(subject, RepairState::Whole, version),
            Ok(check) => {
                let state = if check.is_repaired() { RepairState::Repaired } else { RepairState::Damaged };
                RepairFinding::new(subject, state, damage_in_words(&check, slot, &release.version).join("; "))
            }
            Err(error) => RepairFinding::new(subject, RepairState::Damaged, format!("{version}: {error:#}")),
        });
    }
    let read = devices.open_to_read().and_then(|opened| opened.place().holds(&release, progress, cancel));
    cancel.check()?;
    Ok(match read {
        Ok(true) => RepairFinding::new(subject, RepairState::Whole, version),
        Ok(false) => {
            let text = format!(
                "{version} does not read back as its release manifest says; what another slot has of it is copied by: \
                 installer update repair --yes"
            );
            RepairFinding::new(subject, RepairState::Damaged, text)
        }
        Err(error) => RepairFinding::new(subject, RepairState::Damaged, format!("{version}: {error:#}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    #[test]
    fn file_systems_are_repaired_only_with_a_word() {
        for (failures, yes, state, program) in [
            (0, false, FilesystemCheck::Whole, "e2fsck -f -n /dev/x"),
            (1, false, FilesystemCheck::Damaged("exit status 4".into()), "e2fsck -f -n /dev/x"),
            (1, true, FilesystemCheck::Repaired, "e2fsck -f -p /dev/x"),
            (2, true, FilesystemCheck::Damaged("exit status 4".into()), "e2fsck -f -p /dev/x"),
        ] {
            let runner = ScriptedRunner::silent().fail("", "exit status 4").times(failures);
            assert_eq!(check_filesystem(&runner, Path::new("/dev/x"), yes), state);
            assert!(runner.commands().iter().all(|command| command == program));
        }
    }

    #[test]
    fn boot_files_that_cannot_be_read_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let esp = directory.path().join("esp");
        std::fs::write(&esp, vec![0; 1 << 20]).unwrap();
        let findings = boot_files(&[esp]);
        assert_eq!(findings[0].state, RepairState::Damaged);
        assert!(findings[0].text.contains("boot files"), "{findings:?}");
    }
}
