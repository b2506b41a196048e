//! Mounting and configuring an installed node in its initrd, for `installer boot`.

use std::path::Path;

use anyhow::Result;

use crate::node::boot::{self, BootRoots};
use crate::node::mount::SystemMounter;
use base::files;
use base::program::Context;

/// Mounts the node below `root`, the root of the new system, and prints what was done.
pub(crate) fn boot_node(root: &Path, context: &Context) -> Result<()> {
    let cmdline = files::read_text(Path::new("/proc/cmdline"))?;
    let places = BootRoots { root, run: Path::new("/run") };
    let text = match boot::boot(&places, &cmdline, &mut SystemMounter)? {
        Some(boot) => {
            let applied = format!("The node document is applied: {} files.", boot.outcome.written.len());
            boot.notes
                .iter()
                .chain(&boot.outcome.warnings)
                .fold(applied, |text, note| format!("{text}\nwarning: {note}"))
        }
        None => "Not an installed system: nothing to mount.".to_owned(),
    };
    context.tell("boot", &text);
    Ok(())
}
