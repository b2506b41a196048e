//! Whether Kubernetes may start on the data of this node, for `installer kubernetes-guard`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::Result;

use base::failure::{Class, class_of, render};
use base::program::Context;
use cluster::kept_version::{data, image};

const CONSOLE: &str = "/dev/console";
/// For systemd, any other code says that the unit is to be passed over (systemd.service(5), `ExecCondition=`).
const FAILED: i32 = 255;

/// Ends well if Kubernetes may start, with an error if it must not, and the process with another code where that cannot be known: then
/// the unit fails, and is tried again.
pub(crate) fn guard(root: &Path, context: &Context) -> Result<()> {
    let checked = image::read(root).and_then(|release| match release {
        Some(release) => data::begin(root, &release.version),
        None => Ok(()),
    });
    match checked {
        Err(error) if class_of(&error) != Class::Hardware => {
            context.progress.warn("kubernetes-guard", &format!("{error:#}"));
            std::process::exit(FAILED);
        }
        Err(error) => {
            // Whoever stands before the machine sees nothing of the journal.
            let console = OpenOptions::new().write(true).open(CONSOLE);
            let _ = console.and_then(|mut console| writeln!(console, "{}", render(&error)));
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}
