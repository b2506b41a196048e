//! `iso-builder check`.

use std::path::PathBuf;

use anyhow::Result;
use base::failure::{Class, Failure};
use base::program::Context;

use crate::pipeline::{self, BuildCheck, CheckOptions, CheckReport, CheckState, InstallerChoice};

/// Check an image definition and everything that it refers to, without network and privileges.
///
/// Tells all mistakes at once, in about a second: of the definition, of configurations, manifests and charts, of the files of a
/// Kubernetes release, of the images in archives and layouts, of the lock file, of the installer, and of this host. What a
/// build has to read or download is `unknown`. Nothing is written.
#[derive(Debug, clap::Args)]
pub(super) struct CheckCommand {
    /// The image definition; `-` is standard input.
    definition: PathBuf,
    /// Fail if the lock file is absent or does not fit the definition, as `build --locked` does.
    #[arg(long)]
    locked: bool,
    /// Fail on warnings too.
    #[arg(long)]
    strict: bool,
    /// The installer that a build would put into the OS image; by default the one beside this builder. Repeatable,
    /// once for each architecture.
    #[arg(long, value_name = "FILE", env = "NQRUST_INSTALLER")]
    installer: Vec<PathBuf>,
}

impl CheckCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { definition, locked, strict, installer: named } = self;
        let report =
            pipeline::check(&CheckOptions { definition, installer: InstallerChoice::of(named), locked })?;
        context.show(&report, || report.checks.iter().map(line).collect::<Vec<_>>().join("\n"))?;
        verdict(&report, strict)
    }
}

/// One part: its state, and what was found, with further lines below it.
fn line(check: &BuildCheck) -> String {
    let state = match check.state {
        CheckState::Ok => "ok",
        CheckState::Warning => "warning",
        CheckState::Error => "error",
        CheckState::Unknown => "unknown",
    };
    let message = check.message.trim().trim_start_matches("error: ").replace('\n', "\n         ");
    let architecture =
        check.architecture.map(|architecture| format!(" ({architecture})")).unwrap_or_default();
    format!("{state:<8} {}{architecture}: {message}", check.part)
}

fn verdict(report: &CheckReport, strict: bool) -> Result<()> {
    let count = |state, noun: &str| match report.count(state) {
        0 => None,
        1 => Some(format!("1 {noun}")),
        count => Some(format!("{count} {noun}s")),
    };
    let errors = count(CheckState::Error, "error");
    let warnings = count(CheckState::Warning, "warning").filter(|_| strict);
    let found = errors.into_iter().chain(warnings).collect::<Vec<_>>();
    if found.is_empty() {
        return Ok(());
    }
    let what = format!("{} does not pass: {}", report.definition.display(), found.join(" and "));
    Err(Failure::new(Class::Invalid, what).into())
}
