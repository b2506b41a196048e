//! `iso-builder check`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Failure};
use base::program::Context;
use model::release::{MANIFEST, Release};
use serde::Serialize;

use super::build::{ImageArguments, OUTPUT};
use crate::media::finished::machines::{CoveredRelease, FitVerdict, MachineFit, table};
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
    #[command(flatten)]
    images: ImageArguments,
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
    /// Tell which machines would not come up with the image: a directory with the output of `installer inventory` of each, as
    /// NAME.json. What the image can drive is read from its medium, so it has to be built; exit code 3 if a machine would not.
    #[arg(long, value_name = "DIR")]
    inventories: Option<PathBuf>,
    /// The finished medium: an ISO, the directory of a build, or a URL; by default what a build has put into `dist`.
    #[arg(long, value_name = "MEDIUM", requires = "inventories")]
    medium: Option<PathBuf>,
}

/// The report with the machines.
#[derive(Debug, Serialize)]
struct FleetReport {
    #[serde(flatten)]
    report: CheckReport,
    /// Absent without `--inventories`.
    #[serde(skip_serializing_if = "Option::is_none")]
    machines: Option<Vec<MachineFit>>,
}

impl CheckCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { definition, images, locked, strict, installer: named, inventories, medium } = self;
        let (images, installer) = (images.into(), InstallerChoice::of(named));
        let report = pipeline::check(&CheckOptions { definition, images, installer, locked })?;
        let machines = inventories.map(|directory| machines(&report, medium, &directory)).transpose()?;
        let report = FleetReport { report, machines };
        context.show(&report, || {
            let lines = report.report.checks.iter().map(line).collect::<Vec<_>>().join("\n");
            report.machines.iter().fold(lines, |lines, machines| format!("{lines}\n\n{}", table(machines)))
        })?;
        verdict(&report.report, strict)?;
        report.machines.iter().try_for_each(|machines| machines_verdict(machines, strict))
    }
}

/// Judges the machines by the medium of the checked definition.
fn machines(report: &CheckReport, medium: Option<PathBuf>, directory: &Path) -> Result<Vec<MachineFit>> {
    let named = medium.is_some();
    let medium = medium.unwrap_or_else(|| PathBuf::from(OUTPUT));
    if !named && !medium.join(MANIFEST).exists() {
        let what = format!("what {} can drive is not known", report.product);
        return Err(Failure::new(Class::Invalid, what)
            .because(anyhow::anyhow!("{OUTPUT} has no {MANIFEST}"))
            .hint("Build it, or name its medium: --medium MEDIUM")
            .into());
    }
    let covered = CoveredRelease::read(&medium)?;
    let Release { name, version, .. } = &covered.release;
    if !named && !report.product.starts_with(&format!("{name} {version} (")) {
        let what = format!("{OUTPUT} has {name} {version}, and the definition is of {}", report.product);
        return Err(Failure::new(Class::Invalid, what)
            .hint("Build the definition, or name the medium: --medium MEDIUM")
            .into());
    }
    covered.judge_all(directory)
}

fn machines_verdict(machines: &[MachineFit], strict: bool) -> Result<()> {
    let bad = |one: &&MachineFit| match one.verdict {
        FitVerdict::Ok => false,
        FitVerdict::Lost => true,
        FitVerdict::Unknown => strict,
    };
    let (bad, all) = (machines.iter().filter(bad).count(), machines.len());
    match bad {
        0 => Ok(()),
        bad => Err(Failure::new(
            Class::Hardware,
            format!("{bad} of {all} machines would not come up as they are"),
        )
        .hint("Build the image with what they lack; the table names it.")
        .into()),
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
    let architecture = check.architecture.map(|architecture| architecture.to_string());
    let image: Vec<_> = check.variant.iter().cloned().chain(architecture).collect();
    let image = if image.is_empty() { String::new() } else { format!(" ({})", image.join(", ")) };
    format!("{state:<8} {}{image}: {message}", check.part)
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
