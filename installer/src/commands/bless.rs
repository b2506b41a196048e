//! `installer bless`: run by a unit at every boot, not by people.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::app::gather::kernel_command_line;
use crate::commands::update::{Announcement, PATIENCE, come_back, reboot, tell_fleet};
use base::cancel::Cancel;
use base::command::{Invocation, Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::program::Context;
use base::progress::Progress;
use cluster::health::{Baseline, BootVerdict, FailedCheck, NodeProbe, Timing, observe_until_verdict};
use cluster::stages::observed_node::ObservedNode;
use cluster::stages::readiness_watch::ReadinessWatch;
use cluster::stages::{StageState, all_done};
use machine::clock::now_text;
use machine::image_health::ImageHealth;
use model::boot::BootParameters;
use node::recovery::SlotTries;
use node::root_image::end_trial;
use node::update::{TriedRelease, UpdateLock, UpdatedNode};

#[derive(Debug, clap::Args)]
pub(super) struct BlessArgs {}

impl BlessArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        bless(&context.progress)
    }
}

/// Reasons in the boot record for a bad slot, beside GRUB's own.
const HEALTH: &str = "health";
const DAMAGE: &str = "damage";

/// Restarts a machine on which a boot on trial comes to no verdict, in the initrd or later. It does not run on others.
const DEADLINE: &str = "nqrust-trial.timer";
/// How long reading the slot waits for the node to be ready, to leave disk and processors to what starts. [`DEADLINE`] comes 45 minutes
/// after the start of the machine, and reading a slow disk takes a quarter of an hour.
const READING_WAITS: Duration = Duration::from_secs(20 * 60);
/// How long to wait for another update of this node. One that takes longer writes a slot; then the recovery system stays as it is.
const LOCK_PATIENCE: Duration = Duration::from_secs(600);

/// Reports the result of the last update, waits for the verdict on this boot, and writes it to the boot record.
fn bless(progress: &Progress) -> Result<()> {
    let begun = Instant::now();
    let line = kernel_command_line()?;
    let Some(installed) = BootParameters::parse(&line)? else { return Ok(()) };
    // This boot was not started by the boot loader, so it is no verdict on a slot.
    if installed.esp.is_none() {
        return Ok(());
    }
    let root = Path::new("/");
    let mut node = UpdatedNode::read(root)?;
    if let Some(reason) = node.settle()? {
        progress.warn("bless", &format!("the last update was taken back: {reason}"));
    }
    tell_fleet(&node, progress);
    let announcement = Announcement::begin(&node);
    // The baseline is only for the release that was staged after it.
    let baseline = Baseline::read(root).filter(|_| node.tried_release() == TriedRelease::Runs);
    loop {
        match judged(baseline.as_ref(), progress) {
            BootVerdict::Good { .. } => break,
            BootVerdict::Bad { failed } => {
                let reason = |failed: &FailedCheck| format!("{}: {}", failed.check, failed.reason);
                let reasons: Vec<_> = failed.iter().map(reason).collect();
                return not_good(&mut node, HEALTH, reasons.join("; "), progress);
            }
            BootVerdict::StayOnTrial { .. } => {
                node.stay_on_trial()?;
                end_deadline(progress);
            }
        }
    }
    let cancel = Cancel::on_signals();
    let ready = |limit| await_ready(root, limit, progress, &cancel);
    let reads = || node.reads_through(progress, &cancel);
    let on_trial = node.on_trial();
    if on_trial && !read_when_ready(begun.elapsed(), ready, reads)? {
        let reason = "its slot does not read back as its release manifest says: the disk, or what is on it, is damaged";
        return not_good(&mut node, DAMAGE, reason.to_owned(), progress);
    }
    node.approve()?;
    if on_trial {
        remember_read(root, progress);
        if let Err(error) = end_trial(root, &line, &installed, &SystemRunner) {
            progress.warn(
                "bless",
                &format!("a damaged block restarts the machine until its next start: {error:#}"),
            );
        }
    }
    end_deadline(progress);
    announcement.end();
    tell_fleet(&node, progress);
    node.unwritten.iter().for_each(|trouble| progress.warn("bless", trouble));
    progress.note("bless", format!("Slot {} is good", installed.slot));
    if let Err(error) = SlotTries::forget(root) {
        progress.warn("bless", &format!("the tries of the recovery system are still counted: {error:#}"));
    }
    // Writing the recovery system takes minutes, in which the node can have its pods again.
    let back = come_back(&node, Duration::ZERO, &cancel, progress);
    // The node is good without it.
    if let Err(error) = renew_recovery(root, progress, &cancel) {
        progress.warn("bless", &format!("the recovery system was not renewed: {error:#}"));
    }
    if !back {
        come_back(&node, PATIENCE, &cancel, progress);
    }
    Ok(())
}

/// The slot was read as a whole: the next time is in a month.
fn remember_read(root: &Path, progress: &Progress) {
    if let Err(error) = ImageHealth::read(root).note(root, &now_text(), Vec::new()) {
        progress.warn("bless", &format!("the OS image will be read again soon: {error:#}"));
    }
}

/// Reads the slot once the node is ready in its cluster, or `elapsed` leaves no more time to wait; whether it matches its manifest.
fn read_when_ready(
    elapsed: Duration,
    ready: impl FnOnce(Duration) -> Result<()>,
    reads: impl FnOnce() -> Result<bool>,
) -> Result<bool> {
    ready(READING_WAITS.saturating_sub(elapsed))?;
    reads()
}

/// Waits up to `limit` until the node is ready in its cluster. Returns at once if a stage has failed, without a cluster, and if the node
/// cannot be read.
fn await_ready(root: &Path, limit: Duration, progress: &Progress, cancel: &Cancel) -> Result<()> {
    let subject = match ObservedNode::read(root) {
        Ok(Some(subject)) => subject,
        Ok(None) => return Ok(()),
        Err(error) => {
            progress.warn("bless", &format!("the slot is read now: {error:#}"));
            return Ok(());
        }
    };
    let watch = ReadinessWatch { root, subject: &subject, record: false };
    let mut stuck = false;
    let watched = watch.run(&SystemRunner, Some(limit), &mut |stages, _| {
        cancel.check()?;
        stuck = stages.iter().any(|stage| stage.state == StageState::Failed);
        // A failed stage needs a person, so waiting is useless.
        ensure!(!stuck, "a stage has failed");
        Ok(())
    });
    match watched {
        Ok(stages) if all_done(&stages) => {}
        Err(error) if !stuck => return Err(error),
        _ => progress.note("bless", "The node is not ready, and its slot is read all the same".to_owned()),
    }
    Ok(())
}

/// Writes the running release into the recovery slot, and remembers what this node must not take any more, once no other update changes
/// the slots.
fn renew_recovery(root: &Path, progress: &Progress, cancel: &Cancel) -> Result<()> {
    let _lock = UpdateLock::take_unless(root, LOCK_PATIENCE, || Ok(cancel.check()?))?;
    // The other update may have changed them.
    let node = UpdatedNode::read(root)?;
    let renewed = node.renew_recovery(progress, cancel);
    // Afterwards, because the floor follows the recovery system too.
    match node.remember_trust() {
        Ok(None) => {}
        Ok(Some(memory)) => progress.note("bless", format!("This node remembers: {memory}")),
        Err(error) => {
            progress.warn("bless", &format!("this node remembers nothing of this release: {error:#}"))
        }
    }
    renewed
}

fn judged(baseline: Option<&Baseline>, progress: &Progress) -> BootVerdict {
    let probe = NodeProbe::new(Path::new("/"), &SystemRunner);
    observe_until_verdict(&probe, baseline, Timing::default(), &mut |text| progress.note("bless", text))
}

/// Stops the timer that restarts a boot on trial without a verdict.
fn end_deadline(progress: &Progress) {
    let stopped = SystemRunner
        .run(&Invocation::new("systemctl").args(["stop", DEADLINE]).limit(Duration::from_secs(60)));
    if let Err(error) = stopped {
        progress.warn("bless", &format!("{DEADLINE} still runs, and will restart this machine: {error:#}"));
    }
}

/// Goes back at once if there is a good release: another try of this one would get the same verdict. Tries are for boots that end
/// without a verdict.
fn not_good(node: &mut UpdatedNode, why: &str, reason: String, progress: &Progress) -> Result<()> {
    if node.on_trial() && node.has_good_other() {
        node.reject(why, reason.clone())?;
        progress.warn(
            "bless",
            &format!("this release is not good, the machine restarts into the one before: {reason}"),
        );
        return reboot(&SystemRunner);
    }
    // No other slot is good, and a person may want to look at this one.
    end_deadline(progress);
    Err(Failure::new(Class::Unexpected, format!("slot {} is not good", node.slots.running))
        .because(reason)
        .hint("See `installer health` and the journal. The boot loader counts this start as a failed one.")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_slot_is_read_after_the_node_is_ready_or_when_there_is_no_more_time() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        for (elapsed, limit) in [(0, 20), (5, 15), (20, 0), (60, 0)] {
            let order = RefCell::new(Vec::new());
            let ready = |limit: Duration| {
                order.borrow_mut().push(format!("ready within {} min", limit.as_secs() / 60));
                Ok(())
            };
            let reads = || {
                order.borrow_mut().push("read".to_owned());
                Ok(true)
            };
            assert!(read_when_ready(minutes(elapsed), ready, reads).unwrap());
            assert_eq!(order.into_inner(), [format!("ready within {limit} min"), "read".to_owned()]);
        }
    }

    #[test]
    fn a_slot_is_not_read_once_the_machine_shuts_down() {
        let stopped = |_| Err(Failure::new(Class::Cancelled, "stopped").into());
        assert!(read_when_ready(Duration::ZERO, stopped, || panic!("it is read")).is_err());
    }
}
