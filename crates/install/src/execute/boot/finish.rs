//! The restart or power-off after an install.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use anyhow::Result;

use crate::execute::kernel_calls;
use crate::plan::AfterInstall;
use base::command::{Invocation, Runner};
use machine::inventory::Inventory;

/// Ejects an optical boot medium if the drive allows it, and asks the service manager to restart the machine or power it off.
pub fn finish(how: AfterInstall, inventory: &Inventory, runner: &dyn Runner) -> Result<()> {
    for drive in inventory.disks.iter().filter(|disk| disk.optical && disk.boot_medium) {
        // A drive whose medium is mounted stays locked; then the boot order decides, as it does for a stick.
        let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(&drive.path);
        let _ = opened.map(|drive: File| kernel_calls::eject(&drive));
    }
    let verb = match how {
        AfterInstall::Reboot => "reboot",
        AfterInstall::Poweroff => "poweroff",
    };
    ask_for(verb, runner)
}

/// Asks the service manager for the end of this system, by its verb: `reboot`, `poweroff`, `kexec`.
pub fn ask_for(verb: &str, runner: &dyn Runner) -> Result<()> {
    let request = Invocation::new("systemctl").args(["--no-block", verb]).limit(Duration::from_secs(60));
    runner.run(&request).map(drop)
}
