//! In the initrd: from the slot of `root=` to the device that is mounted at `/`.

use std::path::Path;

use anyhow::{Context, Result};

use crate::update::NodeSlots;
use crate::update::slots::SlotDevices;
use crate::update::tried_release::condemn;
use base::command::Runner;
use base::failure::{Class, class_of};
use machine::paths::below;
use machine::trust_store;
use machine::verity_device::{AtDamage, ROOT_DEVICE};
use model::boot::record::{BootFailureWord, UpdateSlot};
use model::boot::{BootParameters, BootVolume, Slot, parameter};
use model::release_manifest::ReleaseManifest;
use trust::{TrustError, judge};

/// The image that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedImage {
    pub slot: Slot,
    /// Its release, and who has signed it: a clause.
    pub text: String,
}

/// Makes [`ROOT_DEVICE`] of the slot that the command line `line` names. `root` is that of the
/// initrd, which has the trust store of its release.
///
/// # Errors
/// [`Class::Verification`] if the manifest is not that which its makers have signed.
pub fn open(root: &Path, line: &str, installed: &BootParameters, runner: &dyn Runner) -> Result<OpenedImage> {
    let slot = installed.slot;
    let devices = SlotDevices::of_root(root, slot, &BootVolume::of_root(line)?)?;
    let source = devices.source().with_context(|| format!("reading the release of slot {slot}"))?;
    let origin = origin(root, &source.release, slot)?;
    let at_damage = match slot {
        // GRUB has counted this start.
        _ if on_trial(line) => AtDamage::Restart,
        // It is there to repair the others: what can be read of it helps.
        Slot::Recovery => AtDamage::Tell,
        Slot::A | Slot::B => AtDamage::Fail,
    };
    source.verity_device(at_damage)?.make(runner)?;
    let release = &source.release;
    Ok(OpenedImage { slot, text: format!("{} {}, {origin}", release.name, release.version) })
}

/// Ends the trial of a boot that has become good: from now on damage is repaired, and no longer restarts the machine. Does nothing where
/// this boot was none.
pub fn end_trial(root: &Path, line: &str, installed: &BootParameters, runner: &dyn Runner) -> Result<()> {
    if !on_trial(line) || !below(root, ROOT_DEVICE).exists() {
        return Ok(());
    }
    let devices = SlotDevices::of_root(root, installed.slot, &BootVolume::of_root(line)?)?;
    devices.source()?.verity_device(AtDamage::Fail)?.replace(runner)
}

fn origin(root: &Path, release: &ReleaseManifest, slot: Slot) -> Result<String> {
    match judged(root, release)? {
        Ok(origin) => Ok(origin),
        // A signature that is damaged keeps nobody from repairing the node.
        Err(error) if slot == Slot::Recovery => Ok(error.to_string()),
        Err(error) => {
            Err(error.failure(&format!("slot {slot}"), "installer update apply writes it anew").into())
        }
    }
}

/// Who has signed a release, as far as the initrd knows: the keys of a node's owner are on a partition that is not mounted yet, and those of
/// an install come with its configuration. So only what contradicts itself is an error here. Who may sign was decided when a slot was
/// written, or is decided by the install, and is told again by both.
pub(super) fn judged(root: &Path, release: &ReleaseManifest) -> Result<Result<String, TrustError>> {
    let store = trust_store::of_image(root)?.allowing_unsigned(true);
    Ok(match judge(release, release.bytes(), release.signatures(), &store) {
        Ok(trust) => Ok(trust.to_string()),
        Err(error @ (TrustError::RevokedRelease | TrustError::RevokedKeys(_))) => Ok(error.to_string()),
        Err(error) => Err(error),
    })
}

fn on_trial(line: &str) -> bool {
    line.split_whitespace().any(|word| word.split('=').next() == Some(parameter::TRIAL))
}

/// Lets another slot start from now on, because the image of this one cannot be opened. Does nothing where a disk only could not be
/// read, which the next start may be able to, and for the recovery system; returns whether it did something.
pub fn condemn_unopened(root: &Path, installed: &BootParameters, error: &anyhow::Error) -> Result<bool> {
    match class_of(error) {
        Class::Verification => condemn_slot(root, installed),
        _ => Ok(false),
    }
}

/// Lets another slot start from now on. Does nothing for the recovery system, and where the boot loader did not start this one; returns
/// whether it did something.
pub fn condemn_slot(root: &Path, installed: &BootParameters) -> Result<bool> {
    let Some(slot) = UpdateSlot::of(installed.slot).filter(|_| installed.esp.is_some()) else {
        return Ok(false);
    };
    let slots = NodeSlots::look(root, installed)?;
    slots.change_record(|record| condemn(record, slot, BootFailureWord::IMAGE)).map(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_a_word_of_the_command_line() {
        assert!(on_trial("root=x nqrust.trial=7 quiet") && on_trial("nqrust.trial"));
        assert!(!on_trial("root=x nqrust.gen=7 nqrust.trials=1"));
    }

    #[test]
    fn what_contradicts_itself_is_refused_and_what_is_only_unsigned_starts() {
        let root = tempfile::tempdir().unwrap();
        let release = |signatures: Option<&[u8]>| {
            let bytes = testing::release::release().to_bytes();
            ReleaseManifest::parse(bytes, signatures.map(<[u8]>::to_vec)).unwrap()
        };
        assert_eq!(origin(root.path(), &release(None), Slot::A).unwrap(), "not signed");
        let error = origin(root.path(), &release(Some(b"torn")), Slot::A).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification);
        let told = origin(root.path(), &release(Some(b"torn")), Slot::Recovery).unwrap();
        assert!(told.contains("is damaged"), "{told}");
    }
}
