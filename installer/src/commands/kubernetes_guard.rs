//! `installer kubernetes-guard`: asked by the units of Kubernetes before they start.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

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
    /// Returns if Kubernetes may start, with an error if it must not, and ends the process with [`FAILED`] where that cannot be
    /// known: then the unit fails, and is tried again.
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let root = self.root.as_path();
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
                // A person at the machine does not see the journal.
                let console = OpenOptions::new().write(true).open(CONSOLE);
                let _ = console.and_then(|mut console| writeln!(console, "{}", render(&error)));
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }
}

const CONSOLE: &str = "/dev/console";
/// systemd skips the unit for codes below this one (systemd.service(5), `ExecCondition=`).
const FAILED: i32 = 255;
