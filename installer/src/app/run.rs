//! The run of `installer install` from its options to its end: unattended, or with the questions on a console.

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::Result;

use super::consoles;
use super::finished_nodes::{self, UntouchedNodes};
use super::gather::{self, Media};
use super::install::{InstallEnd, ReinstallConsent, carry_out};
use super::questions::{self, QuestionSettings};
use super::report::RunRecord;
use super::report_target::ReportTarget;
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

/// What the command line says about a run. The fields are the arguments of `installer install`.
pub(crate) struct RunOptions {
    pub(crate) config: Option<PathBuf>,
    pub(crate) medium: Option<String>,
    pub(crate) reboot: bool,
    pub(crate) consoles: bool,
    pub(crate) report: Option<String>,
    pub(crate) answers: Option<PathBuf>,
    pub(crate) rehearse: bool,
    pub(crate) inventory: Option<PathBuf>,
}

impl RunOptions {
    /// Installs, asks, or leaves the machine as it is, depending on medium, configuration and disks.
    pub(crate) fn run(self, context: &Context) -> Result<()> {
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
            // Nobody may ever look at the console of this machine: a disk that comes late must not need anyone.
            let named = failed.take().filter(|_| self.consoles && ended.is_err());
            let wait = |config: &InstallConfig| {
                let mut again = false;
                let progress = &context.progress;
                // What showed, kept and sent the progress of this run is not for the next one.
                progress.back_to(mark);
                consoles::with(true, progress, || {
                    again = await_absent(config, &Roots::default(), progress)?;
                    Ok(())
                })?;
                Ok::<_, anyhow::Error>(again)
            };
            if !named.is_some_and(|config| wait(&config).unwrap_or(false)) {
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
        let mut after = AfterRun::Nothing;
        consoles::with(self.consoles, &context.progress, || {
            let report_target = ReportTarget::of(self.report.as_deref())?;
            let reporter = report_target.reporter(&context.progress);
            let mut record = RunRecord::begin(&context.progress, reporter, &report_target.tokens);
            let media = self.media(&context.progress, settings, &mut |config| record.config(config));
            let (ended, media) = match media {
                Ok(media) if !media.combined.config.install.automatic && settings.can_ask() => {
                    context.progress.note("console", "The questions are asked on the console");
                    after = AfterRun::Ask(media, report_target);
                    return Ok(());
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
                    if self.reboot { finish(end, &inventory, &SystemRunner) } else { Ok(()) }
                }
                Ok(InstallEnd::Untouched(left)) => {
                    left.tell(&context.progress);
                    let failure = left.failure().into();
                    record.leave(&failure);
                    if !self.reboot {
                        return Err(failure);
                    }
                    after = AfterRun::Start(media, report_target, left);
                    Ok(())
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
        Some((left, gather::without_configuration(self.medium.as_deref()).ok()?))
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
        let media =
            gather::prepare(self.medium.as_deref(), gathering, RetryPolicy::default(), progress, read)?;
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
        let what =
            "the configuration does not say install.automatic: true, and there is no terminal to ask on";
        return Err(Failure::new(Class::Invalid, what)
            .hint("Set install.automatic: true, or start this on a terminal.")
            .into());
    }
    media.tell_warnings(progress);
    failed.set(Some(config.clone()));
    let cancel = || {
        failed.set(None);
        Cancel::on_signals()
    };
    carry_out((config, ReinstallConsent::ByRule), media, progress, record, &cancel)
}
