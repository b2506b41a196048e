//! `installer install` from its arguments to its end: unattended, or with the questions on a console.

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::Result;

use crate::app::consoles;
use crate::app::finished_nodes::{self, UntouchedNodes};
use crate::app::gather::{self, Media, UnsignedArgs};
use crate::app::install::{InstallEnd, ReinstallConsent, carry_out};
use crate::app::questions::{self, QuestionSettings};
use crate::app::report::RunRecord;
use crate::app::report_target::ReportTarget;
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::files::named;
use base::program::Context;
use base::progress::Progress;
use install::execute::finish;
use install::late_devices::await_absent;
use machine::inventory::{Inventory, Roots};
use medium::payload_sources::RetryPolicy;
use model::config::InstallConfig;
use model::config::sources::Gathering;

/// Install on this machine.
#[derive(Debug, clap::Args)]
pub(super) struct InstallArgs {
    /// The install configuration, in place of those of the medium, of a volume and of install.config_url.
    /// Kernel parameters have precedence.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The medium to install from: an ISO, a drive that holds one, a directory with the content of one or with what a
    /// build wrote, the URL of an ISO or of a directory, or oci:DIRECTORY for a release in an OCI layout.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// Restart or power off at the end, as the configuration says.
    #[arg(long)]
    reboot: bool,
    /// Show progress and failures on every console of the machine too.
    #[arg(long)]
    consoles: bool,
    /// Report the install to this fleet server, in place of the one in the kernel parameter nqrust.report.
    #[arg(long, value_name = "URL")]
    report: Option<String>,
    /// Keep the answers that are given on the console, as a configuration that installs the next machine unattended.
    /// It contains secrets, and gets mode 0600.
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Ask all questions and show the plan, but write nothing.
    #[arg(long, conflicts_with_all = ["reboot", "report"])]
    rehearse: bool,
    /// Rehearse on the disks and network cards of another machine, as `installer inventory` prints them.
    #[arg(long, value_name = "FILE", requires = "rehearse")]
    inventory: Option<PathBuf>,
    #[command(flatten)]
    unsigned: UnsignedArgs,
}

impl InstallArgs {
    /// Installs, asks, or leaves the machine as it is, depending on medium, configuration and disks.
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.answers.as_deref().is_some_and(named::is_standard) {
            let what = "the answers cannot go to standard output, which is the terminal with the questions";
            return Err(Failure::new(Class::Invalid, what).hint("Name a file with --answers.").into());
        }
        let rehearsal = self.rehearse.then(|| self.inventory.clone());
        let settings = QuestionSettings {
            consoles: self.consoles,
            answers: self.answers.clone(),
            first_start: false,
            rehearsal,
        };
        if self.rehearse {
            let media = self.media(&context.progress, &settings, &mut |_| {})?;
            return questions::ask(&media, &settings, ReportTarget::default());
        }
        let mark = context.progress.mark();
        loop {
            let failed = Cell::new(None);
            let ended = self.once(context, &settings, &failed);
            let failed = failed.take().filter(|_| self.consoles && ended.is_err());
            let Some(config) = failed else { return ended };
            // The sinks of this run are not for the next one.
            context.progress.back_to(mark);
            // The machine may be unattended: it has to go on by itself when a disk comes late.
            let wait = || await_absent(&config, &Roots::default(), &context.progress);
            if !consoles::with(true, &context.progress, wait).unwrap_or(false) {
                return ended;
            }
            context.progress.back_to(mark);
        }
    }

    /// One run. `failed` gets the configuration of an automatic install that failed before it wrote anything.
    fn once(
        &self,
        context: &Context,
        settings: &QuestionSettings,
        failed: &Cell<Option<InstallConfig>>,
    ) -> Result<()> {
        let after = consoles::with(self.consoles, &context.progress, || {
            let report_target = ReportTarget::of(self.report.as_deref())?;
            let reporter = report_target.reporter(&context.progress);
            let mut record = RunRecord::begin(&context.progress, reporter, &report_target.tokens);
            let media = self.media(&context.progress, settings, &mut |config| record.config(config));
            let (ended, media) = match media {
                Ok(media) if !media.combined.config.install.automatic && settings.can_ask() => {
                    context.progress.note("console", "The questions are asked on the console");
                    return Ok(AfterRun::Ask(media, report_target));
                }
                Ok(media) => (install(&media, &context.progress, &mut record, failed), media),
                Err(error) => match self.without_configuration(&error) {
                    Some((left, media)) => (Ok(InstallEnd::Untouched(left)), media),
                    None => return record.end(Err(error)),
                },
            };
            match ended {
                Ok(InstallEnd::Installed(end, inventory)) => {
                    // Reported before the machine goes down.
                    record.end(Ok(()))?;
                    if self.reboot {
                        finish(end, &inventory, &SystemRunner)?;
                    }
                    Ok(AfterRun::Nothing)
                }
                Ok(InstallEnd::Untouched(left)) => {
                    left.tell(&context.progress);
                    let failure = left.failure().into();
                    record.leave(&failure);
                    if !self.reboot {
                        return Err(failure);
                    }
                    Ok(AfterRun::Start(media, report_target, left))
                }
                Err(error) => record.end(Err(error)),
            }
        })?;
        match after {
            AfterRun::Nothing => Ok(()),
            AfterRun::Ask(media, report_target) => questions::ask(&media, settings, report_target),
            AfterRun::Start(media, report_target, left) => {
                questions::leave(&media, settings, report_target, &left, &context.progress)
            }
        }
    }

    /// The existing node and the medium, if the configuration cannot be loaded and the machine starts unattended.
    fn without_configuration(&self, error: &anyhow::Error) -> Option<(UntouchedNodes, Media)> {
        let inventory = self.reboot.then(|| Inventory::scan(&Roots::default()))?.ok()?;
        let left = finished_nodes::without_configuration(error, &inventory, &SystemRunner)?;
        Some((left, gather::without_configuration(self.medium.as_deref(), self.unsigned.policy()).ok()?))
    }

    fn media(
        &self,
        progress: &Progress,
        settings: &QuestionSettings,
        read: &mut dyn FnMut(&InstallConfig),
    ) -> Result<Media> {
        let file = gather::file(self.config.as_deref())?;
        let answers = settings.can_ask().then(QuestionSettings::nothing_yet);
        let gathering = Gathering { file, answers, ..Gathering::default() };
        let (medium, policy) = (self.medium.as_deref(), self.unsigned.policy());
        let media = gather::prepare(medium, gathering, policy, RetryPolicy::default(), progress, read)?;
        media.require_verified()?;
        Ok(media)
    }
}

/// What follows when the consoles are free again.
enum AfterRun {
    Nothing,
    Ask(Media, ReportTarget),
    /// Start the existing node, unless the user decides otherwise.
    Start(Media, ReportTarget, UntouchedNodes),
}

/// The failure of a run that needs answers and cannot ask for them.
pub(super) fn no_terminal() -> Failure {
    let what = "the configuration does not say install.automatic: true, and there is no terminal to ask on";
    Failure::new(Class::Invalid, what).hint("Set install.automatic: true, or start this on a terminal.")
}

/// Installs the configuration, if it is an automatic one. `failed` gets it if nothing was written.
fn install(
    media: &Media,
    progress: &Progress,
    record: &mut RunRecord<'_>,
    failed: &Cell<Option<InstallConfig>>,
) -> Result<InstallEnd> {
    record.trust(&media.combined.authorities);
    let config = &media.combined.config;
    if !config.install.automatic {
        return Err(no_terminal().into());
    }
    media.tell_warnings(progress);
    failed.set(Some(config.clone()));
    let cancel = || {
        failed.set(None);
        Cancel::on_signals()
    };
    carry_out((config, ReinstallConsent::ByRule), media, progress, record, &cancel)
}
