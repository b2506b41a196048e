//! `installer recovery`: run by a unit of the recovery system, not by people.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};

use crate::app::gather::kernel_command_line;
use crate::commands::update::{at_work, reboot};
use base::command::{Runner, SystemRunner};
use base::program::Context;
use base::progress::Progress;
use model::boot::BootParameters;
use node::pending_reset::PendingReset;
use node::recovery::tries::ALONE;
use node::recovery::{IdleTime, NodeReset, RecoveryNotices, SlotTries, carry_out};
use node::update::{UpdateLock, UpdatedNode};
use ui::recovery_page::KEYS;

/// Finish a reset of this node, or try its slots again when nobody is at the recovery system.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct RecoveryArgs {}

impl RecoveryArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        recover(&context.progress)
    }
}

const POLL: Duration = Duration::from_secs(20);
/// How long a command that has just ended may hold the lock.
const LOCK_LIMIT: Duration = Duration::from_secs(30);
/// The sessions of systemd-logind (`logind-session.c`).
const SESSIONS: &str = "/run/systemd/sessions";

fn recover(progress: &Progress) -> Result<()> {
    let root = Path::new("/");
    let mut node = UpdatedNode::read(root)?;
    // GRUB does not count starts of the recovery system; this resets its count of the slots.
    node.approve()?;
    if let Some(pending) = PendingReset::read(root) {
        return reset(pending, &mut node, progress);
    }
    await_nobody(root, &SystemRunner);
    let mut tries = SlotTries::read(root);
    let Some(slot) = tries.take(&node.good_slots()) else {
        progress.note("recovery", "This machine is unattended, and no good slot is left to try again");
        return Ok(());
    };
    // The count is stored first: a slot that cannot be started must not be tried forever.
    tries.write(root)?;
    progress.note(
        "recovery",
        format!(
            "This machine was unattended for {} minutes: slot {slot} is tried again",
            ALONE.as_secs() / 60
        ),
    );
    node.start_once(slot.into())?;
    reboot(&SystemRunner)
}

fn reset(pending: PendingReset, node: &mut UpdatedNode, progress: &Progress) -> Result<()> {
    let root = Path::new("/");
    let _lock = UpdateLock::take(root, LOCK_LIMIT)?;
    let doing = Some(format!("a reset of level {}, asked for at {}", pending.level.as_str(), pending.at));
    let notices = RecoveryNotices::read(root);
    RecoveryNotices { doing, ..notices.clone() }.write(root)?;
    let installed =
        BootParameters::parse(&kernel_command_line()?)?.context("this is not an installed node")?;
    let mut effects = NodeReset { root, node, installed, runner: &SystemRunner };
    let done = carry_out(pending, &mut effects, progress);
    let failed = done.as_ref().err().map(|error| format!("the reset is not complete: {error:#}"));
    RecoveryNotices { failed, ..notices }.write(root)?;
    done?;
    progress.note("recovery", "The reset is complete; the machine restarts");
    reboot(&SystemRunner)
}

/// Returns once this machine has been unattended for long enough: no key on a console, no session, no running update.
fn await_nobody(root: &Path, runner: &dyn Runner) {
    let begin = (Instant::now(), SystemTime::now());
    let mut idle = IdleTime::default();
    loop {
        let seen = fs::metadata(root.join(KEYS.trim_start_matches('/'))).and_then(|file| file.modified());
        let seen = seen.ok().and_then(|at| at.duration_since(begin.1).ok());
        let occupied = at_work(runner) || has_session(&root.join(SESSIONS.trim_start_matches('/')));
        if idle.is_over(begin.0.elapsed(), occupied, seen) {
            return;
        }
        std::thread::sleep(POLL);
    }
}

/// Whether somebody is logged in, by the files of systemd-logind in this directory.
fn has_session(sessions: &Path) -> bool {
    let files = fs::read_dir(sessions).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| base::files::read_text(&file.path()).ok());
    let has = |text: &str, line: &str| text.lines().any(|there| there == line);
    texts.into_iter().any(|text| has(&text, "CLASS=user") && !has(&text, "STATE=closing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_that_of_somebody_who_is_logged_in() {
        let sessions = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(sessions.path().join(name), text).unwrap();
        assert!(!has_session(&sessions.path().join("none")));
        write("c1", "UID=0\nSTATE=online\nCLASS=manager\n");
        write("3", "UID=1000\nSTATE=closing\nCLASS=user\n");
        assert!(!has_session(sessions.path()));
        write("4", "UID=1000\nACTIVE=1\nSTATE=active\nCLASS=user\n");
        assert!(has_session(sessions.path()));
    }
}
