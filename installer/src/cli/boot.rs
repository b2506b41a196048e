//! `installer boot`: run by a unit in the initrd of an installed node, not by people.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Context, print};
use crate::node::boot::{self, Places};
use crate::node::mount::SystemMounter;
use base::files;

/// Arguments of `installer boot`.
#[derive(Debug, clap::Args)]
pub(super) struct Boot {
    /// The root of the new system.
    #[arg(long, value_name = "DIR", default_value = "/sysroot")]
    root: PathBuf,
}

impl Boot {
    pub(super) fn run(self, _context: &Context) -> Result<()> {
        let cmdline = files::read_text(Path::new("/proc/cmdline"))?;
        let places = Places { root: &self.root, run: Path::new("/run") };
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
        print(&text)
    }
}
