//! `installer boot`: run by a unit in the initrd of an installed node, not by people.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use base::files;
use base::program::Context;
use machine::mount::SystemMounter;
use machine::node_release::RUNNING;
use model::boot::{BootParameters, Slot};
use model::release::SIGNATURES;
use node::boot::{self, BootRoots};
use node::pending_reset::PendingReset;
use node::recovery::RecoveryNotices;
use node::update::NodeSlots;

#[derive(Debug, clap::Args)]
pub(super) struct BootArgs {
    /// The root of the new system.
    #[arg(long, value_name = "DIR", default_value = "/sysroot")]
    root: PathBuf,
}

impl BootArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let root = self.root.as_path();
        let cmdline = files::read_text(Path::new("/proc/cmdline"))?;
        let places = BootRoots { root, run: Path::new("/run") };
        let booted = boot::boot(&places, &cmdline, &mut SystemMounter);
        if booted.is_err()
            && PendingReset::read(root).is_some_and(|pending| pending.is_under_way())
            && let Err(error) = recover_next(&cmdline)
        {
            context.progress.warn("boot", &format!("{error:#}"));
        }
        let text = match booted? {
            Some(boot) => {
                if !boot.notes.is_empty() && is_recovery(&cmdline)? {
                    let notices = RecoveryNotices { notes: boot.notes.clone(), ..RecoveryNotices::default() };
                    notices.write(Path::new("/"))?;
                }
                let applied = format!("The node document is applied: {} files.", boot.outcome.written.len());
                boot.notes
                    .iter()
                    .chain(&boot.outcome.warnings)
                    .fold(applied, |text, note| format!("{text}\nwarning: {note}"))
            }
            None => "Not an installed system: nothing to mount.".to_owned(),
        };
        context.tell("boot", &text);
        if let Err(error) = tell_release(&cmdline) {
            context.progress.warn("boot", &format!("{error:#}"));
        }
        Ok(())
    }
}

fn is_recovery(cmdline: &str) -> Result<bool> {
    Ok(BootParameters::parse(cmdline)?.is_some_and(|installed| installed.slot == Slot::Recovery))
}

/// Lets the recovery system start next.
fn recover_next(cmdline: &str) -> Result<()> {
    let Some(installed) = BootParameters::parse(cmdline)? else { return Ok(()) };
    let slots = NodeSlots::look(Path::new("/"), &installed)?;
    slots.change_record(|record| record.once = Some(Slot::Recovery)).map(drop)
}

/// Copies the manifest of the running slot to [`RUNNING`], and its signatures beside it. If the boot loader did not start this system, the node uses the installed one.
fn tell_release(cmdline: &str) -> Result<()> {
    let Some(installed) = BootParameters::parse(cmdline)?.filter(|installed| installed.esp.is_some()) else {
        return Ok(());
    };
    let slots = NodeSlots::look(Path::new("/"), &installed)?;
    let running = slots
        .slot(installed.slot)
        .release()
        .context("the boot volume of the running slot has no release manifest")?;
    let path = Path::new(RUNNING);
    if let Some(signatures) = running.signatures() {
        files::write_atomically(&path.with_file_name(SIGNATURES), signatures, 0o644)?;
    }
    files::write_atomically(path, running.bytes(), 0o644)
}
