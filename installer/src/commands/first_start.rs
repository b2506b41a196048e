//! `installer first-start`: run by a unit of a node that has no document yet, not by people.

use std::path::Path;

use anyhow::Result;

use crate::app::questions::{self, QuestionSettings};
use crate::app::report_target::ReportTarget;
use crate::app::started_image::become_node;
use crate::app::{consoles, gather};
use crate::commands::install::no_terminal;
use base::failure::{Class, Failure};
use base::program::Context;
use machine::paths::DOCUMENT;
use model::config::sources::Gathering;

/// Make a machine that started from a disk image the node that its sources say, or ask on its consoles.
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub(super) struct FirstStartArgs {
    /// Ask and show progress on every console of the machine.
    #[arg(long)]
    consoles: bool,
}

impl FirstStartArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { consoles } = self;
        if Path::new(DOCUMENT).exists() {
            return Err(Failure::new(Class::Invalid, format!("this node has its document, {DOCUMENT}"))
                .hint("Change that file, then run: installer apply")
                .into());
        }
        let settings = QuestionSettings { consoles, first_start: true, ..QuestionSettings::default() };
        let asks = consoles::with(consoles, &context.progress, || {
            let progress = &context.progress;
            let answers = settings.can_ask().then(QuestionSettings::nothing_yet);
            let media = gather::of_first_start(Gathering { answers, ..Gathering::default() }, progress)?;
            if !media.combined.config.install.automatic {
                progress.note("console", "The questions are asked on the console");
                return Ok(Some(media));
            }
            media.tell_warnings(progress);
            let authorities = media.combined.authorities.clone();
            become_node(&media.combined.config, authorities, &media, progress)?;
            Ok(None)
        })?;
        match asks {
            Some(media) if settings.can_ask() => questions::ask(&media, &settings, ReportTarget::default()),
            Some(_) => Err(no_terminal().into()),
            None => Ok(()),
        }
    }
}
