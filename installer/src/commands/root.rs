//! `installer root`: run by units of the initrd and of the node, not by people.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use nix::sys::mman::{MlockAllFlags, mlockall};

use crate::app::gather::kernel_command_line;
use crate::commands::update::{reboot, tell_fleet};
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::Context;
use base::progress::Progress;
use machine::image_health::{DamageFinding, ImageHealth};
use machine::verity_device::damage_was_found;
use model::boot::{BootParameters, Slot};
use node::root_image::{
    DamageEvents, ImageVerdict, LiveImage, MEMORY_DAMAGED, WRITE_AGAIN, check, condemn_slot,
    condemn_unopened, open, open_live, read_due,
};
use node::update::UpdatedNode;

/// Open the OS image of the node, or watch it.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct RootArgs {
    #[command(subcommand)]
    command: RootCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RootCommand {
    /// Make the device that is mounted at `/`, in the initrd.
    Open {
        /// The directory with the files of the medium, in a live system.
        #[arg(long)]
        medium: Option<PathBuf>,
        /// The OS image, where it is not on the medium.
        #[arg(long, requires = "medium")]
        image: Option<PathBuf>,
    },
    /// Repair the image after a boot that failed in the initrd, if it is damaged; that of a live system is only told.
    Repair,
    /// Repair the image of the running slot when it is damaged, and read it once a month; tell the damage of a live system's.
    Watch,
}

/// Where the initrd mounts the image.
const SYSROOT: &str = "/sysroot";
/// Why another slot starts, for the boot record.
const DAMAGE: &str = "damage";
/// How long the first read of an image waits after the start, to leave the disk to what starts.
const SETTLED: Duration = Duration::from_secs(60 * 60);
/// The longest wait for an event; the clock may be set meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long to wait after a check before the next one: a disk that fails again and again is not read all the time.
const PAUSE: Duration = Duration::from_secs(60);
/// The same where damage stays, of which there are events again and again.
const DAMAGED_PAUSE: Duration = Duration::from_secs(60 * 60);

impl RootArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let line = kernel_command_line()?;
        let root = Path::new("/");
        let Some(installed) = BootParameters::parse(&line)? else {
            return self.command.run_live(root, &line, context);
        };
        match self.command {
            RootCommand::Open { .. } => match open(root, &line, &installed, &SystemRunner) {
                Ok(opened) => {
                    context.tell("root", &format!("Slot {} is opened: {}.", opened.slot, opened.text));
                    Ok(())
                }
                Err(error) => {
                    match condemn_unopened(root, &installed, &error) {
                        Ok(true) => context.progress.warn("root", "another slot starts from now on"),
                        Ok(false) => {}
                        Err(why) => {
                            context.progress.warn("root", &format!("this slot starts again: {why:#}"))
                        }
                    }
                    Err(error)
                }
            },
            RootCommand::Repair => repair(root, &line, &installed, context),
            RootCommand::Watch => watch(root, &line, &installed, &context.progress),
        }
    }
}

impl RootCommand {
    /// In a live system, whose medium cannot be repaired.
    fn run_live(self, root: &Path, line: &str, context: &Context) -> Result<()> {
        match self {
            Self::Open { medium: Some(medium), image } => {
                let opened = open_live(root, line, &medium, image.as_deref(), &SystemRunner)?;
                context.tell("root", &format!("The OS image is opened: {opened}."));
                Ok(())
            }
            Self::Open { medium: None, .. } => Ok(()),
            Self::Repair if damage_was_found(&SystemRunner) == Some(true) => {
                let damage = live_damage(root, line, &Progress::silent(), &Cancel::on_signals())?;
                context.tell("root", &damage.join("\n"));
                Ok(())
            }
            Self::Repair => Ok(()),
            Self::Watch => watch_live(root, line, &context.progress),
        }
    }
}

/// What is damaged in the image of a live system whose kernel has found damage, in lines.
fn live_damage(root: &Path, line: &str, progress: &Progress, cancel: &Cancel) -> Result<Vec<String>> {
    let Some(image) = LiveImage::of_boot_medium(root, line)? else {
        return Ok(vec![MEMORY_DAMAGED.to_owned()]);
    };
    let damage = image.damage(root, progress, cancel)?;
    Ok(match damage.is_empty() {
        true => {
            vec!["A block of the OS image on the medium was read wrong once, and is right now.".to_owned()]
        }
        false => damage.into_iter().chain([WRITE_AGAIN.to_owned()]).collect(),
    })
}

/// Tells the damage of a live system's image once: what is read of it is always right, or an error.
fn watch_live(root: &Path, line: &str, progress: &Progress) -> Result<()> {
    let events = damage_events()?;
    keep_in_memory(progress);
    let cancel = Cancel::on_signals();
    while damage_was_found(&SystemRunner) != Some(true) && !events.wait(WAIT_MAX)? {
        cancel.check()?;
    }
    for line in live_damage(root, line, progress, &cancel)? {
        progress.warn("root", &line);
    }
    Ok(())
}

/// The events of the kernel about damage from now on.
fn damage_events() -> Result<DamageEvents, Failure> {
    DamageEvents::begin()
        .map_err(|error| Failure::new(Class::Unexpected, "listening for events of the kernel").because(error))
}

/// A damaged block of this program must not keep it from telling and repairing that.
fn keep_in_memory(progress: &Progress) {
    if let Err(error) = mlockall(MlockAllFlags::MCL_CURRENT) {
        progress.warn("root", &format!("this program may have to be read again while it runs: {error}"));
    }
}

/// In the initrd, before the restart after a boot that failed: what was damaged is written anew, so that the next start succeeds. Tells
/// nothing if nothing was damaged.
fn repair(root: &Path, line: &str, installed: &BootParameters, context: &Context) -> Result<()> {
    if damage_was_found(&SystemRunner) != Some(true) {
        return Ok(());
    }
    let verdict =
        check(root, Path::new(SYSROOT), line, installed, &Progress::silent(), &Cancel::on_signals())?;
    let (findings, end) = match &verdict {
        ImageVerdict::Whole => (&Vec::new(), "A block of the OS image was read wrong, and is right now."),
        ImageVerdict::Repaired(findings) => (findings, "The OS image was damaged, and is repaired."),
        // What this start needed may be among what was repaired.
        ImageVerdict::Damaged(findings) if findings.iter().any(|finding| finding.repaired) => {
            (findings, "The OS image is damaged, and a part of that is repaired.")
        }
        ImageVerdict::Damaged(findings) => match condemn_slot(root, installed)? {
            true => (findings, "The OS image is damaged: another slot starts from now on."),
            false => (findings, "The OS image is damaged."),
        },
    };
    let lines: Vec<_> = findings.iter().map(DamageFinding::to_string).chain([end.to_owned()]).collect();
    context.tell("root", &lines.join("\n"));
    Ok(())
}

fn watch(root: &Path, line: &str, installed: &BootParameters, progress: &Progress) -> Result<()> {
    // Before the first look: what comes in between is not lost.
    let events = damage_events()?;
    keep_in_memory(progress);
    let cancel = Cancel::on_signals();
    // The recovery system has no memory of its reads, and does not run long.
    let due = || match installed.slot {
        Slot::Recovery => Duration::MAX,
        Slot::A | Slot::B => read_due(&ImageHealth::read(root), Timestamp::now()),
    };
    let mut found = damage_was_found(&SystemRunner) == Some(true);
    let mut wait = due().max(SETTLED);
    loop {
        found = found || events.wait(wait.min(WAIT_MAX))?;
        cancel.check()?;
        if found {
            progress
                .warn("root", "the kernel has found a damaged block of the OS image: all of it is read now");
        } else if !due().is_zero() {
            wait = due();
            continue;
        }
        let pause = match check(root, root, line, installed, progress, &cancel) {
            Ok(verdict) => {
                conclude(root, &verdict, progress)?;
                if matches!(verdict, ImageVerdict::Damaged(_)) { DAMAGED_PAUSE } else { PAUSE }
            }
            Err(error) => {
                cancel.check()?;
                progress.warn("root", &format!("the OS image could not be checked: {error:#}"));
                PAUSE
            }
        };
        // Meanwhile the kernel may have found more, which is not lost: the next wait ends at once.
        cancel.pause(pause)?;
        (found, wait) = (false, due());
    }
}

/// Tells a verdict to everybody, and lets another good slot start if there is damage that stays.
fn conclude(root: &Path, verdict: &ImageVerdict, progress: &Progress) -> Result<()> {
    let findings = match verdict {
        ImageVerdict::Whole => {
            progress.note("root", "The OS image was read as a whole: nothing is damaged".to_owned());
            return Ok(());
        }
        ImageVerdict::Repaired(findings) | ImageVerdict::Damaged(findings) => findings,
    };
    findings.iter().for_each(|finding| progress.warn("root", &finding.to_string()));
    if let Err(error) = verdict.tell_cluster(root) {
        progress.warn("root", &format!("sending the event to the cluster failed: {error}"));
    }
    let mut node = match UpdatedNode::read(root) {
        Ok(node) => node,
        Err(error) => {
            progress.warn("root", &format!("nothing else is changed: {error:#}"));
            return Ok(());
        }
    };
    let stays = matches!(verdict, ImageVerdict::Damaged(_)) && node.slots.running != Slot::Recovery;
    if stays && node.has_good_other() {
        let reason = findings.iter().map(DamageFinding::to_string).collect::<Vec<_>>().join("; ");
        node.reject(DAMAGE, reason)?;
        tell_fleet(&node, progress);
        progress.warn("root", "the machine restarts into the other slot, which is good");
        return reboot(&SystemRunner);
    }
    tell_fleet(&node, progress);
    if stays {
        let next = "no other slot is good, so this one goes on: update the node, or install it again";
        progress.warn("root", next);
    }
    Ok(())
}
