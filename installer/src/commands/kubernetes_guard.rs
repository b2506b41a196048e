//! `installer kubernetes-guard`: asked by the units of Kubernetes before they start.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use base::failure::{Class, class_of, render};
use base::program::Context;
use cluster::kept_version::{data, image};

/// Say whether the Kubernetes in its place may start on the data of this node, and remember that it does; exit code 3 if it is older
/// than the one that has worked on the data.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct KubernetesGuardArgs {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl KubernetesGuardArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        guard(&self.root, context)
    }
}

const CONSOLE: &str = "/dev/console";
/// For systemd, any other code says that the unit is to be passed over (systemd.service(5), `ExecCondition=`).
const FAILED: i32 = 255;

/// Ends well if Kubernetes may start, with an error if it must not, and the process with another code where that cannot be known: then
/// the unit fails, and is tried again.
fn guard(root: &Path, context: &Context) -> Result<()> {
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
