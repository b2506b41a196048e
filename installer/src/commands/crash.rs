//! `installer crash`: run by units of an installed node and of the initrd of a crash kernel, not by people.

use std::path::Path;

use anyhow::Result;
use jiff::Timestamp;

use base::command::SystemRunner;
use base::files::FileSystemRoom;
use base::files::read_text;
use base::program::Context;
use base::size::ByteSize;
use install::execute::KernelToLoad;
use machine::mount::SystemMounter;
use node::crash::dump::{self, DumpPlaces};
use node::crash::load;

/// Where the files of the crash kernel are until it is loaded: in memory.
const STAGE: &str = "/run/nqrust/crash-kernel";
/// Where the persistent partition is mounted for a dump.
const MOUNT: &str = "/run/nqrust/crash";

/// Load the kernel that starts where the running one crashes, or write its dump.
#[derive(Debug, clap::Args)]
pub(super) struct CrashArgs {
    #[command(subcommand)]
    command: CrashCommand,
}

#[derive(Debug, clap::Subcommand)]
enum CrashCommand {
    /// Load the kernel of the running slot, as `os.host.crash_kernel` of the node document says.
    Load,
    /// Write the dump of the kernel in whose place this one runs.
    Dump,
}

impl CrashArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let text = match self.command {
            CrashCommand::Load => load::load(Path::new("/"), &SystemRunner, &|crash| {
                let (kernel, initrd, line) = (&crash.kernel, &crash.initrd, &crash.line);
                KernelToLoad { kernel, initrd, line }.load_for_crash(Path::new(STAGE))
            })?,
            CrashCommand::Dump => dump()?,
        };
        context.tell("crash", &text);
        Ok(())
    }
}

fn dump() -> Result<String> {
    let line = read_text(Path::new("/proc/cmdline"))?;
    let places = DumpPlaces { root: Path::new("/"), mount: Path::new(MOUNT), room: &FileSystemRoom::of };
    let record = dump::dump(&places, &line, &mut SystemMounter, &SystemRunner, Timestamp::now())?;
    let reason = record.reason.as_deref().unwrap_or("the kernel gave no reason");
    Ok(match (record.dump_bytes, &record.lacking) {
        (Some(bytes), _) => format!("The dump is written ({}): {reason}", ByteSize::bytes(bytes)),
        (None, why) => {
            format!("Only messages are written ({}): {reason}", why.as_deref().unwrap_or_default())
        }
    })
}
