//! Starting a node from its disk, on a machine that starts its medium first.
//!
//! UEFI is told to start the disk next (`BootNext`), and the machine restarts: the whole chain of Secure Boot and of
//! measured starts is that of the disk. Where there is no UEFI, where it refuses, or where it was told just before and started
//! the medium again, the node's own kernel is started in place of the running one (kexec). Nothing is written to any disk.
//! Each way is tried once, so that no machine restarts for ever: what is left is told, and the machine stays.

mod boot_files;

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use super::firmware;
use crate::execute::kernel_calls;
use crate::installed::NodePlace;
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure, causes};
use base::files::{make_directory, write_atomically};
use boot_files::BootFiles;

/// The firmware's variables, where the machine was started by UEFI.
const VARIABLES: &str = "/sys/firmware/efi/efivars";

/// Where the files of the kernel to start lie meanwhile: in memory.
const STAGE: &str = "/run/nqrust-start";

/// Starts the node at `place`; `title` is the product's name, which its entry in the firmware has. Tells `note` what is
/// done. When it comes back without an error the machine is about to go down.
///
/// # Errors
/// No way works. The machine is as it was.
pub fn start_node(place: &NodePlace, title: &str, runner: &dyn Runner, note: &dyn Fn(String)) -> Result<()> {
    let disk = place.disk.display();
    let mut troubles = Vec::new();
    let variables = Path::new(VARIABLES);
    if variables.exists() {
        match by_firmware(place, title, variables, runner) {
            Ok(Some(number)) => {
                note(format!("The firmware starts {disk} next (Boot{number:04X}); the machine restarts"));
                match restart("reboot", runner) {
                    Ok(()) => return Ok(()),
                    Err(error) => troubles.push(error),
                }
            }
            Ok(None) => note("The firmware was told to start the disk, and started the medium again".into()),
            Err(error) => troubles.push(error.context("telling the firmware to start the disk")),
        }
    }
    match by_kernel(place, runner) {
        Ok(slot) => {
            note(format!("The kernel of {disk}, slot {slot}, takes the place of this one"));
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

/// Tells the firmware; none where it has been told before and did not do it.
fn by_firmware(place: &NodePlace, title: &str, variables: &Path, runner: &dyn Runner) -> Result<Option<u16>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if firmware::was_told(variables, now, runner)? {
        return Ok(None);
    }
    firmware::start_next(variables, title, (&place.esp, place.sector)).map(Some)
}

/// Starts the node's kernel; says of which slot.
fn by_kernel(place: &NodePlace, runner: &dyn Runner) -> Result<char> {
    let disk = File::open(&place.disk).with_context(|| format!("opening {}", place.disk.display()))?;
    let files = BootFiles::read(&disk, &place.esp)
        .with_context(|| format!("reading the boot files of {}", place.disk.display()))?;
    let stage = Path::new(STAGE);
    make_directory(stage, 0o700)?;
    let staged = |name: &str, bytes: &[u8]| -> Result<File> {
        let path = stage.join(name);
        write_atomically(&path, bytes, 0o600)?;
        // Opened anew: the kernel refuses a file that somebody could still write to.
        File::open(&path).with_context(|| format!("opening {}", path.display()))
    };
    let (kernel, initrd) = (staged("vmlinuz", &files.kernel)?, staged("initrd", &files.initrd)?);
    kernel_calls::load_kernel(&kernel, &initrd, &files.line).context("loading the kernel")?;
    let _ = fs::remove_dir_all(stage);
    restart("kexec", runner)?;
    Ok(files.slot)
}

fn restart(verb: &str, runner: &dyn Runner) -> Result<()> {
    let request = Invocation::new("systemctl").args(["--no-block", verb]).limit(Duration::from_secs(60));
    runner.run(&request).map(drop)
}
