//! Starting a node from its disk, on a machine that starts its medium first.
//!
//! UEFI is asked to start the disk next (`BootNext`), and the machine restarts: the whole chain of Secure Boot and of measured
//! boot is that of the disk. Without UEFI, or if it refuses, or if it was asked just before and started the medium again, the
//! node's own kernel is started in place of the running one (kexec). Nothing is written to any disk. Each way is tried once, so
//! that no machine restarts for ever; after that the error is shown and the machine stays on.

mod boot_files;

use std::fs::File;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::finish::ask_for;
use super::firmware;
use super::load::KernelToLoad;
use crate::execute::kernel_calls::LoadedFor;
use crate::installed::NodePlace;
use base::command::Runner;
use base::failure::{Class, Failure, causes};
use boot_files::BootFiles;
use model::boot::Slot;

/// The firmware's variables, if the machine was started by UEFI.
const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Where the files of the kernel to start are kept until it is loaded: in memory.
const STAGE: &str = "/run/nqrust-start";

/// Starts the node at `place`; `title` is the product's name, which its entry in the firmware has. `note` receives what is done.
/// After a return without an error the machine is about to go down.
///
/// # Errors
/// No way works. The machine is unchanged.
pub fn start_node(place: &NodePlace, title: &str, runner: &dyn Runner, note: &dyn Fn(String)) -> Result<()> {
    let disk = place.disk.display();
    let mut troubles = Vec::new();
    let variables = Path::new(VARIABLES);
    if variables.exists() {
        match by_firmware(place, title, variables, runner) {
            Ok(Some(number)) => {
                note(format!("The firmware starts {disk} next (Boot{number:04X}); the machine restarts"));
                match ask_for("reboot", runner) {
                    Ok(()) => return Ok(()),
                    Err(error) => troubles.push(error),
                }
            }
            Ok(None) => note("The firmware was asked to start the disk and started the medium again".into()),
            Err(error) => troubles.push(error.context("asking the firmware to start the disk")),
        }
    }
    match by_kernel(place, runner) {
        Ok(slot) => {
            note(format!("Starting the kernel of {disk}, slot {slot}, in place of this one"));
            return Ok(());
        }
        Err(error) => troubles.push(error.context("starting the kernel of the disk")),
    }
    let why: Vec<_> = troubles.iter().map(|trouble| causes(trouble).join(": ")).collect();
    let what = format!("the node on {disk} cannot be started from here");
    Err(Failure::new(Class::Hardware, what)
        .because(anyhow::anyhow!("{}", why.join("; ")))
        .hint(
            "Take the medium out, or put the disk before it in the boot order of the firmware, and restart.",
        )
        .into())
}

/// Asks the firmware; `None` if it was asked just before and did not do it.
fn by_firmware(place: &NodePlace, title: &str, variables: &Path, runner: &dyn Runner) -> Result<Option<u16>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if firmware::was_told(variables, now, runner)? {
        return Ok(None);
    }
    firmware::start_next(variables, title, (&place.esp, place.sector)).map(Some)
}

/// Starts the node's kernel; returns its slot.
fn by_kernel(place: &NodePlace, runner: &dyn Runner) -> Result<Slot> {
    let disk = File::open(&place.disk).with_context(|| format!("opening {}", place.disk.display()))?;
    let files = BootFiles::read(&disk, place)
        .with_context(|| format!("reading the boot files of {}", place.disk.display()))?;
    let (kernel, initrd, line) = (&files.kernel, &files.initrd, &files.line);
    KernelToLoad { kernel, initrd, line }.load(Path::new(STAGE), LoadedFor::Restart)?;
    ask_for("kexec", runner)?;
    Ok(files.slot)
}
