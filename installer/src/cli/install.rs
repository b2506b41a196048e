//! `installer install`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::audience::Audience;
use super::finished::{self, Left};
use super::interactive::{self, Manner};
use super::media::Media;
use super::record::Record;
use super::{Context, consoles, media, preflight};
use crate::install::{
    Cancel, DOCUMENT, Disk, Parts, SystemHost, Unpacking, execute, finish, take_down, take_up,
};
use crate::installed::decide::words;
use crate::installed::{Decision, InstallRecord, decide};
use crate::inventory::{Inventory, Roots};
use crate::live::{is_live, set_up_network};
use crate::node::cluster::ClusterMember;
use crate::plan::Finish;
use crate::preflight::join::pin;
use crate::resolve::{SystemFetch, resolve};
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::progress::Progress;
use model::config::sources::Gathering;
use model::config::{self, InstallConfig, Secret};
use transfer::download::Patience;

/// Install on this machine.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The install configuration, in place of those of the medium, of a volume and of install.config_url.
    /// Kernel parameters are stronger.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The medium to install from: a directory or a URL.
    #[arg(long, value_name = "PATH or URL")]
    medium: Option<String>,
    /// Restart or power off at the end, as the configuration says.
    #[arg(long)]
    reboot: bool,
    /// Show progress and failures on every console of the machine too.
    #[arg(long)]
    consoles: bool,
    /// Tell the server of a fleet how the install goes, in place of the kernel parameter nqrust.report.
    #[arg(long, value_name = "URL")]
    report: Option<String>,
    /// Keep the answers that are given on the console, as a configuration that installs the next machine unattended. It
    /// holds secrets, and gets mode 0600.
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Ask everything and show the plan, and write nothing.
    #[arg(long, conflicts_with_all = ["reboot", "report"])]
    rehearse: bool,
    /// Rehearse on the disks and network cards of another machine, as `installer inventory` prints them.
    #[arg(long, value_name = "FILE", requires = "rehearse")]
    inventory: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let rehearsal = self.rehearse.then(|| self.inventory.clone());
        let manner = Manner { consoles: self.consoles, answers: self.answers.clone(), rehearsal };
        if self.rehearse {
            let media = self.media(&context.progress, &manner, &mut |_| {})?;
            return interactive::ask(&media, &manner, Audience::default());
        }
        let mut after = After::Nothing;
        consoles::with(self.consoles, &context.progress, || {
            let audience = Audience::of(self.report.as_deref())?;
            let reporter = audience.reporter(&context.progress);
            let mut record = Record::begin(&context.progress, reporter, &audience.tokens);
            let media = self.media(&context.progress, &manner, &mut |config| record.config(config));
            let (ended, media) = match media {
                Ok(media) if !media.combined.config.install.automatic && manner.can_ask() => {
                    context.progress.note("console", "The questions are asked on the console");
                    after = After::Ask(media, audience);
                    return Ok(());
                }
                Ok(media) => (install(&media, &context.progress, &mut record), media),
                Err(error) => match self.without_configuration(&error) {
                    Some((left, media)) => (Ok(Ended::Left(left)), media),
                    None => return record.end(Err(error)),
                },
            };
            match ended {
                Ok(Ended::Installed(end, inventory)) => {
                    // The end of the machine's run is told of before it comes.
                    record.end(Ok(()))?;
                    if self.reboot { finish(end, &inventory, &SystemRunner) } else { Ok(()) }
                }
                Ok(Ended::Left(left)) => {
                    left.tell(&context.progress);
                    let failure = left.failure().into();
                    record.leave(&failure);
                    if !self.reboot {
                        return Err(failure);
                    }
                    after = After::Start(media, audience, left);
                    Ok(())
                }
                Err(error) => record.end(Err(error)),
            }
        })?;
        match after {
            After::Nothing => Ok(()),
            After::Ask(media, audience) => interactive::ask(&media, &manner, audience),
            After::Start(media, audience, left) => {
                interactive::leave(&media, &manner, audience, &left, &context.progress)
            }
        }
    }

    /// The node that is there, and the medium, where the configuration cannot be had and a machine starts by itself.
    fn without_configuration(&self, error: &anyhow::Error) -> Option<(Left, Media)> {
        let inventory = self.reboot.then(|| Inventory::scan(&Roots::default()))?.ok()?;
        let left = finished::without_configuration(error, &inventory, &SystemRunner)?;
        Some((left, media::without_configuration(self.medium.as_deref()).ok()?))
    }

    /// The medium, and the configuration that there is.
    fn media(
        &self,
        progress: &Progress,
        manner: &Manner,
        read: &mut dyn FnMut(&InstallConfig),
    ) -> Result<Media> {
        let file = media::file(self.config.as_deref())?;
        let answers = manner.can_ask().then(Manner::nothing_yet);
        let gathering = Gathering { file, answers, ..Gathering::default() };
        media::prepare(self.medium.as_deref(), gathering, progress, read)
    }
}

/// What follows when the consoles are free again.
enum After {
    Nothing,
    /// The questions are asked.
    Ask(Media, Audience),
    /// The node that is there starts, unless somebody wants something else.
    Start(Media, Audience, Left),
}

/// How a run ended that did not fail.
#[allow(clippy::large_enum_variant)]
pub(super) enum Ended {
    /// The node is installed; what is to become of the machine.
    Installed(Finish, Inventory),
    /// Nothing was written, for a finished node is there.
    Left(Left),
}

/// Whether finished nodes may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consent {
    /// `install.reinstall` says so.
    ByRule,
    /// Somebody has seen them and said yes.
    Given,
}

/// Installs what the configuration says, if it says that nobody is asked.
fn install(media: &Media, progress: &Progress, record: &mut Record<'_>) -> Result<Ended> {
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
    carry_out((config, Consent::ByRule), media, progress, record, &Cancel::on_signals)
}

/// Installs what the configuration says, unless a finished node is in the way that must not go. That is found out before
/// anybody hears of an install, and before the network is set up.
pub(super) fn carry_out(
    (config, consent): (&InstallConfig, Consent),
    media: &Media,
    progress: &Progress,
    record: &mut Record<'_>,
    cancel: &dyn Fn() -> Result<Cancel>,
) -> Result<Ended> {
    let roots = Roots::default();
    let inventory = Inventory::scan(&roots)?;
    record.inventory(&inventory);
    let (rule, offer) = (&config.install.reinstall, finished::offer(media, config)?);
    let nodes = finished::look(config, &inventory, &SystemRunner);
    if let (Consent::ByRule, Decision::Leave(reason)) = (consent, decide(rule, &nodes, &offer)?) {
        return Ok(Ended::Left(Left { nodes, reason }));
    }
    for node in &nodes {
        progress.note("reinstall", format!("{}; the install goes over it", node.headline()));
    }
    let installed = InstallRecord::begin(&offer, &words(rule, &nodes))?.to_json()?;
    if is_live(&media::kernel_command_line()?) {
        set_up_network(config, Path::new("/"), &SystemRunner, progress)?;
    }
    record.started(&media.release);
    let fetch = SystemFetch::new(media.combined.authorities.clone(), Patience::default());
    let mut warn = |text| progress.note("configuration", format!("warning: {text}"));
    let config = &resolve(config, &fetch, &mut warn)?;
    record.resolved(config);
    let draft = |guid| crate::plan::plan(config, &inventory, &media.release, guid);
    let plan = draft(uuid::Uuid::new_v4())?;
    let preflight = preflight::step(config, media.release.epoch, progress)?;
    record.plan(&plan);
    // From here on a signal is heard where it is safe to stop.
    let cancel = cancel()?;
    let host = SystemHost::new()?;
    take_down(&plan.taken_down, &roots.sys, &SystemRunner, progress)?;
    let disk = Disk::open(&plan.disk)?;
    let mut plan = take_up(plan, &disk, &host, progress, &draft);
    if let Some(authority) = &preflight.authority {
        pin(&mut plan.document, authority);
    }
    let fleet = match ClusterMember::of(&plan.document) {
        Some(_) => record.kept_by_node()?,
        None => None,
    };
    let parts = Parts {
        device: &disk,
        open: &|target| Ok(Box::new(Disk::open(target)?)),
        source: media.source.as_ref(),
        runner: &SystemRunner,
        host: &host,
        progress,
        cancel: &cancel,
        document: &node_document,
        fleet: fleet.as_ref(),
        installed: &installed,
        unpacking: &Unpacking::of_live_system(),
        preflight: &preflight.to_text(),
    };
    execute(&plan, &parts)?;
    Ok(Ended::Installed(plan.finish, inventory))
}

/// The text of the node document. The node reads it at every boot: one that it would refuse must not cost a disk.
fn node_document(config: &InstallConfig) -> Result<Secret> {
    let text = config.for_node()?.to_yaml();
    config::parse(&text, DOCUMENT)?;
    Ok(Secret::new(text))
}
