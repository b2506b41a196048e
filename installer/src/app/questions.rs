//! The questions of an install on a console: the machine behind the screens of [`ui::questions`].
//!
//! `installer install` and `installer first-start` call it.

use machine::inventory::read_identity;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use uuid::Uuid;

use super::finished_nodes::{self, UntouchedNodes};
use super::gather::{self, Media};
use super::install::{ReinstallConsent, carry_out};
use super::inventory_file::read_inventory;
use super::report::{FailureDetails, RunRecord};
use super::report_target::ReportTarget;
use super::{consoles, fitness, started_image};
use base::cancel::Cancel;
use base::command::SystemRunner;
use base::failure::{Class, Classify, Failure, class_of};
use base::files::write_atomically;
use base::parallel::locked;
use base::progress::plain::PlainLines;
use base::progress::{Event, Progress, Sink};
use install::execute::{finish, start_node};
use install::installed::FinishedNode;
use install::late_devices as devices;
use install::plan::AfterInstall;
use install::sources::{url, volume};
use install::usb_stick::{self, StickSurvey, StickVolume};
use machine::inventory::{Inventory, Roots};
use machine::keyboard::Keymaps;
use machine::live::help::{self, HelpAccess};
use machine::live::multipath::join_paths;
use machine::live::network_disks::connect_disks;
use machine::live::{is_live, set_up_network};
use machine::network_disks::connect::SystemPace;
use machine::readable_secret::readable_secret;
use machine::verity_device::damage_was_found;
use model::config::sources::{CombinedConfig, ConfigEntry, Document, SourceKind, SourceRequest};
use model::config::sources::{combine, state::refusal};
use model::config::{Install, InstallConfig, Secret};
use node::root_image::{DamageEvents, LiveImage};
use preflight::network::Offline;
use preflight::{PlannedNode, PreflightReport};
use reporting::archive;
use transfer::download::RetryPolicy;
use ui::answers::{Answers, recorded};
use ui::questions::state::COUNTDOWN;
use ui::questions::{
    self, ConfigOrigin, ConversationEnd, ConversationFacts, Destination, InstallMachine, MachineNews,
    ShownNode, ShownPlan, run,
};
use ui::toolkit::Console;

/// Letters of the token of a new cluster: 140 bits.
const TOKEN_LETTERS: usize = 32;

static STOP: AtomicBool = AtomicBool::new(false);

/// How the questions are asked.
#[derive(Debug, Default)]
pub(crate) struct QuestionSettings {
    /// On every console of the machine, not on the terminal of this process.
    pub(crate) consoles: bool,
    pub(crate) answers: Option<PathBuf>,
    /// Whether this is the first start of a disk image, on which the node is already.
    pub(crate) first_start: bool,
    /// `Some` for a rehearsal, which writes nothing; the inner path is the inventory of another machine.
    pub(crate) rehearsal: Option<Option<PathBuf>>,
}

impl QuestionSettings {
    /// Whether there is a console or a terminal for questions.
    pub(crate) fn can_ask(&self) -> bool {
        self.consoles || (std::io::stdin().is_terminal() && std::io::stdout().is_terminal())
    }

    /// An empty document: with questions, no configuration is needed to begin with.
    pub(crate) fn nothing_yet() -> Document {
        Document::answers(&json!({ "scheme_version": 1 }))
    }

    fn open(&self) -> Result<Vec<Console>> {
        if !self.consoles {
            return Ok(vec![Console::standard()?]);
        }
        let mut opened: Vec<_> = consoles::devices().iter().map(|path| Console::open(path)).collect();
        opened.sort_by_key(Result::is_err);
        let (consoles, mut errors): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
        match errors.pop() {
            Some(Err(error)) if consoles.is_empty() => Err(error),
            _ => Ok(consoles.into_iter().flatten().collect()),
        }
    }
}

/// Asks, and installs the answers. Each install is reported to the target.
pub(crate) fn ask(media: &Media, settings: &QuestionSettings, report_target: ReportTarget) -> Result<()> {
    let player = QuestionedMachine::new(media, settings, report_target)?;
    let facts = player.conversation(None)?;
    run::run(settings.open()?, facts, Answers::on(&media.combined), &player).map(drop)
}

/// Shows on every console which finished node an automatic install has left as it is, and starts it after a countdown without
/// input. Without a console the countdown runs too: until then the machine can be stopped.
pub(crate) fn leave(
    media: &Media,
    settings: &QuestionSettings,
    report_target: ReportTarget,
    left: &UntouchedNodes,
    progress: &Progress,
) -> Result<()> {
    let player = QuestionedMachine::new(media, settings, report_target)?;
    *locked(&player.nodes) = left.nodes.clone();
    let consoles = settings.open().unwrap_or_default();
    if consoles.is_empty() {
        let text = format!("The node starts from its disk in {} seconds", COUNTDOWN.as_secs());
        progress.note("reinstall", text);
        std::thread::sleep(COUNTDOWN);
        return player.start_node();
    }
    let facts = player.conversation(Some(left))?;
    match run::run(consoles, facts, Answers::on(&media.combined), &player) {
        // The last console is gone: there can be no more input.
        Err(error) if class_of(&error) == Class::Cancelled => player.start_node(),
        ended => ended.map(drop),
    }
}

struct QuestionedMachine<'a> {
    media: &'a Media,
    settings: &'a QuestionSettings,
    report_target: ReportTarget,
    live: bool,
    spared: Mutex<Vec<PathBuf>>,
    evidence: Mutex<Option<FailureDetails>>,
    nodes: Mutex<Vec<FinishedNode>>,
}

impl<'a> QuestionedMachine<'a> {
    fn new(media: &'a Media, settings: &'a QuestionSettings, report_target: ReportTarget) -> Result<Self> {
        let live = is_live(&gather::kernel_command_line()?);
        let (spared, evidence, nodes) = (Mutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { media, settings, report_target, live, spared, evidence, nodes })
    }

    fn conversation(&self, left: Option<&UntouchedNodes>) -> Result<ConversationFacts> {
        if self.live && self.settings.rehearsal.is_none() {
            let config = &self.media.combined.config;
            // A target that is away holds up the questions: where they will be asked the user reads for what.
            let progress = Progress::new(vec![Box::new(PlainLines::new(std::io::stderr()))]);
            // What is wrong with them the install says, in which they are tried again.
            let _ = consoles::with(self.settings.consoles, &progress, || {
                let pace = &mut SystemPace::default();
                connect_disks((config, false), Path::new("/"), &SystemRunner, pace, &progress)
            });
            let place = (&Roots::default(), Path::new("/"));
            join_paths(config, self.inventory()?, place, &SystemRunner, &Progress::silent())?;
        }
        let (machine, settings) = (self.facts()?, self.settings);
        Ok(ConversationFacts {
            product: format!("{} {}", self.media.release.name, self.media.release.version),
            hardware: machine.describe(),
            inventory: machine.inventory,
            keyboards: Keymaps::of(Path::new("/")).keyboards(),
            rehearsal: settings.rehearsal.is_some(),
            first_start: settings.first_start,
            can_quit: !settings.consoles,
            can_help: self.live && settings.consoles && settings.rehearsal.is_none(),
            fresh_token: readable_secret(TOKEN_LETTERS)?,
            left: left.map(|left| questions::ShownNodes {
                nodes: finished_nodes::present(&left.nodes),
                why: left.why(),
            }),
        })
    }

    /// The facts about the machine; in a rehearsal on another one only its inventory is known.
    fn facts(&self) -> Result<preflight::MachineFacts> {
        let inventory = self.inventory()?;
        Ok(match self.settings.rehearsal {
            Some(Some(_)) => preflight::MachineFacts::of_inventory(inventory),
            _ => preflight::MachineFacts::scan(&Roots::default(), inventory),
        })
    }

    /// Whether the running system exists only for this install, so that its settings can be changed.
    fn owns_the_system(&self) -> bool {
        (self.live || self.settings.first_start) && self.settings.rehearsal.is_none()
    }

    /// Trusted certificate authorities (PEM): those of what was found, and of the answers.
    fn authorities(&self, config: &InstallConfig) -> Vec<String> {
        let answered = config.install.ca_certificates.iter().map(ToString::to_string);
        let mut all: Vec<_> = self.media.combined.authorities.iter().cloned().chain(answered).collect();
        all.sort();
        all.dedup();
        all
    }

    /// The configuration of a volume or a URL, on top of `below`. A volume can name a URL, which has precedence.
    fn bring(&self, from: &ConfigOrigin, below: Document) -> Result<CombinedConfig> {
        let mut documents = vec![below];
        let (url, named_by, sha256, trusted) = match from {
            ConfigOrigin::Url(url) => {
                (url.clone(), "the console".to_owned(), None, self.media.combined.authorities.clone())
            }
            ConfigOrigin::Volume => {
                let volume =
                    volume::read(&volume::VolumeRoots::default(), &mut || read_identity(Path::new("/")))?;
                let document = volume.ok_or_else(no_volume)?.document;
                let name = document.name().to_owned();
                documents.push(document);
                let combined = combine(&documents).map_err(refusal)?;
                let Install { config_url, config_sha256, .. } = &combined.config.install;
                let named =
                    config_url.as_ref().filter(|_| says(&combined, "install.config_url", SourceKind::Volume));
                let Some(url) = named else { return Ok(combined) };
                (
                    url.as_str().to_owned(),
                    name,
                    config_sha256.as_ref().map(ToString::to_string),
                    combined.authorities,
                )
            }
        };
        let request = SourceRequest { url, named_by, sha256, authorities: trusted };
        // The user is waiting.
        let retry = RetryPolicy { attempts: 2, limit: Some(Duration::from_secs(30)), ..url::retry() };
        documents.push(url::fetch(&request, retry)?);
        Ok(combine(&documents).map_err(refusal)?)
    }

    /// Writes a file to a stick; returns its place in words.
    fn write(&self, volume: &StickVolume, name: &str, content: &[u8]) -> Result<String> {
        usb_stick::write(volume, name, content, &self.inventory()?, &locked(&self.spared))?;
        Ok(format!("{name} is on {}. The stick can be pulled out.", volume.describe()))
    }
}

impl InstallMachine for QuestionedMachine<'_> {
    fn inventory(&self) -> Result<Inventory> {
        match &self.settings.rehearsal {
            Some(Some(path)) => read_inventory(path),
            _ => Inventory::scan(&Roots::default()),
        }
    }

    fn watch(&self, over: &AtomicBool, tell: &(dyn Fn(MachineNews) + Sync)) {
        // Another machine has no events here.
        if matches!(self.settings.rehearsal, Some(Some(_))) {
            return;
        }
        std::thread::scope(|scope| {
            if self.live {
                scope.spawn(|| watch_image(over, tell));
            }
            devices::watch(over, &|| tell(MachineNews::DevicesChanged));
        });
    }

    fn set_keyboard(&self, name: &str) -> Result<String> {
        if !self.owns_the_system() {
            return Ok(format!(
                "The installed node will have the keyboard layout {name}; this screen keeps its own."
            ));
        }
        let keymap = Keymaps::of(Path::new("/")).load(name, &SystemRunner)?;
        let keymap = if keymap == name { String::new() } else { format!(" (keymap {keymap})") };
        Ok(format!("The keyboard layout is {name}{keymap}."))
    }

    fn fetch(&self, from: &ConfigOrigin) -> Result<CombinedConfig> {
        let found = &self.media.combined;
        let below = Document::yaml(SourceKind::Embedded, "what was found before", found.config.to_yaml());
        let mut combined = self.bring(from, below)?;
        // Values found before keep their source.
        let before =
            |entry: &ConfigEntry| found.entries.iter().find(|known| known.path == entry.path).cloned();
        combined.entries = combined
            .entries
            .iter()
            .filter_map(|entry| {
                if entry.source == SourceKind::Embedded { before(entry) } else { Some(entry.clone()) }
            })
            .collect();
        Ok(combined)
    }

    fn try_network(&self, config: &InstallConfig) -> Result<String> {
        if !self.owns_the_system() {
            return Ok("The network was not tried: this is not the system of the medium.".into());
        }
        let notes = NoteCollector::default();
        let progress = Progress::new(vec![Box::new(notes.clone())]);
        set_up_network(config, Path::new("/"), &SystemRunner, &progress)
            .class(Class::Network, || "setting up the network".into())?;
        let notes = locked(&notes.0).clone();
        let warnings: Vec<_> = notes.iter().filter_map(|note| note.strip_prefix("warning: ")).collect();
        match warnings[..] {
            [] => Ok(notes.last().cloned().unwrap_or_else(|| "The network is unchanged.".into())),
            _ => Err(Failure::new(Class::Network, warnings.join("\n"))
                .hint("Check cables, switch, VLAN and DHCP server.")
                .into()),
        }
    }

    fn try_cluster(&self, config: &InstallConfig) -> Result<String> {
        if self.settings.rehearsal.is_some() {
            return Ok("The cluster was not asked: this is a rehearsal.".into());
        }
        let report = fitness::check(PlannedNode::of(config))?;
        let refused: Vec<_> = report.stops().filter(|verdict| verdict.class == Class::Join).collect();
        match refused.first() {
            None => Ok("The cluster would accept this machine.".into()),
            Some(first) => {
                let told: Vec<_> = refused.iter().map(|verdict| verdict.text()).collect();
                let failure = Failure::new(Class::Join, told.join("\n"));
                Err(failure.hint(first.next().unwrap_or_default()).into())
            }
        }
    }

    fn check(&self, config: &InstallConfig) -> Result<PreflightReport> {
        let config = &started_image::with_its_disks(config, self.settings.first_start);
        let intent = PlannedNode {
            not_before: Some(self.media.release.epoch),
            several_paths: self.media.has_multipath().ok(),
            coverage: self.media.judged_coverage(&Roots::default()),
            crash_dumps: self.media.crash_dump_support().ok(),
            disk_protocols: self.media.disk_protocols().ok(),
            ..PlannedNode::of(config)
        };
        match self.settings.rehearsal {
            Some(_) => Ok(preflight::run(&self.facts()?, &intent, &Offline)),
            None => fitness::check(intent),
        }
    }

    fn present(&self, config: &InstallConfig) -> Result<Vec<ShownNode>> {
        // The disks of another machine are not here, and a node that starts is no finished one.
        let nodes = match self.settings.rehearsal {
            Some(Some(_)) => Vec::new(),
            _ if self.settings.first_start => Vec::new(),
            _ => finished_nodes::look(config, &self.inventory()?, &SystemRunner),
        };
        *locked(&self.nodes) = nodes.clone();
        Ok(finished_nodes::present(&nodes))
    }

    fn start_node(&self) -> Result<()> {
        let nodes = locked(&self.nodes).clone();
        let Some(node) = nodes.first() else {
            return Err(Failure::new(Class::Invalid, "there is no finished node to start").into());
        };
        let progress = Progress::new(vec![Box::new(PlainLines::new(std::io::stderr()))]);
        start_node(&node.place, &self.media.release.name, &SystemRunner, &|text| progress.note("start", text))
    }

    fn plan(&self, config: &InstallConfig) -> Result<ShownPlan> {
        if self.settings.first_start {
            return Ok(started_image::shown(self.media, config));
        }
        let plan = self.media.plan(config, &self.inventory()?, Uuid::new_v4())?;
        *locked(&self.spared) = plan.disks().map(|disk| disk.path.clone()).collect();
        Ok(ShownPlan::from(&plan))
    }

    fn install(&self, config: &InstallConfig, progress: &Progress) -> Result<()> {
        if self.settings.consoles {
            // The journal of the live system gets what the screen shows.
            progress.add(Box::new(PlainLines::new(std::io::stderr())));
        }
        if self.settings.first_start {
            let authorities = self.authorities(config);
            return started_image::become_node(config, authorities, self.media, progress);
        }
        let reporter = self.report_target.reporter(progress);
        let mut record = RunRecord::begin(progress, reporter, &self.report_target.tokens);
        record.config(config);
        record.trust(&self.authorities(config));
        let cancel = || Cancel::on_signals_or(&STOP);
        let result = gather::take_proxies(config).and_then(|()| {
            // The user has seen the existing nodes.
            let consent = (config, ReinstallConsent::Given);
            carry_out(consent, self.media, progress, &mut record, &cancel)
        });
        *locked(&self.evidence) = result.as_ref().err().and_then(|error| record.evidence(error));
        record.end(result).map(drop)
    }

    fn stop(&self) {
        STOP.store(true, Ordering::Relaxed);
    }

    fn record(&self, config: &InstallConfig) -> Result<Option<String>> {
        let Some(path) = &self.settings.answers else { return Ok(None) };
        write_atomically(path, self.configuration(config)?.expose().as_bytes(), 0o600)?;
        Ok(Some(path.display().to_string()))
    }

    fn configuration(&self, config: &InstallConfig) -> Result<Secret> {
        Ok(Secret::new(recorded(&config.for_node()?)))
    }

    fn volumes(&self) -> Result<StickSurvey> {
        Ok(StickSurvey::of(&self.inventory()?, &locked(&self.spared)))
    }

    fn save_configuration(&self, config: &InstallConfig, volume: &StickVolume) -> Result<String> {
        let host = config.os.hostname.as_deref().map(|host| format!("-{host}")).unwrap_or_default();
        let name = format!("nqrust-config{host}.yaml");
        self.write(volume, &name, self.configuration(config)?.expose().as_bytes())
    }

    fn save_logs(&self, destination: &Destination) -> Result<String> {
        let evidence = locked(&self.evidence);
        let Some(evidence) = evidence.as_ref() else {
            return Err(
                Failure::new(Class::Invalid, "no install has failed: there are no logs to save").into()
            );
        };
        let archive = evidence.archive(&SystemRunner)?;
        match destination {
            Destination::Volume(volume) => self.write(volume, &archive.name, &archive.bytes),
            Destination::Url(url, method) => {
                archive::send(&archive, url, *method, &self.authorities(&evidence.config))?;
                Ok(format!("The server has accepted {}.", archive.name))
            }
        }
    }

    fn open_access(&self) -> Result<HelpAccess> {
        help::open(&gather::kernel_command_line()?, &SystemRunner)
    }

    fn close_access(&self) -> Result<()> {
        help::close(&SystemRunner)
    }

    fn shell(&self, terminal: File, term: &str, password: &Secret) -> Result<()> {
        help::shell(terminal, term, password)
    }

    fn end(&self, how: ConversationEnd) -> Result<()> {
        let how = match how {
            ConversationEnd::Restart => AfterInstall::Reboot,
            ConversationEnd::PowerOff => AfterInstall::Poweroff,
            ConversationEnd::Quit => return Ok(()),
        };
        finish(how, &self.inventory()?, &SystemRunner)
    }
}

/// Tells once that the image of this live system is damaged. Its blocks and files are in the journal, from `installer root watch`.
fn watch_image(over: &AtomicBool, tell: &dyn Fn(MachineNews)) {
    // Without events of the kernel there is nothing to tell.
    let Ok(events) = DamageEvents::begin() else { return };
    let mut found = damage_was_found(&SystemRunner) == Some(true);
    while !found && !over.load(Ordering::Relaxed) {
        match events.wait(Duration::from_millis(300)) {
            Ok(damage) => found = damage,
            Err(_) => return,
        }
    }
    if found {
        tell(MachineNews::ImageDamaged(LiveImage::damage_notice(Path::new("/"))));
    }
}

/// Whether a source of this kind has this value.
fn says(combined: &CombinedConfig, path: &str, kind: SourceKind) -> bool {
    combined.entries.iter().any(|entry| entry.path == path && entry.source == kind)
}

fn no_volume() -> Failure {
    Failure::new(Class::Invalid, "no volume with a label for configurations contains one")
        .hint("Plug it in, wait a moment, and try again.")
}

#[derive(Clone, Default)]
struct NoteCollector(Arc<Mutex<Vec<String>>>);

impl Sink for NoteCollector {
    fn show(&mut self, event: &Event) {
        if event.state == base::progress::StepState::Progress && event.bytes.is_none() {
            locked(&self.0).push(event.message.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medium::payload_sources::LocalMedium;
    use reporting::archive::UploadMethod;
    use testing::release::release;
    use testing::reports::{ReportServer, ServerReaction};
    use trust::ReleaseTrust;

    fn media() -> Media {
        let combined = combine(&[]).unwrap();
        let source = Box::new(LocalMedium::new("/nonexistent"));
        let trust = ReleaseTrust::Signed(Vec::new());
        let policy = gather::ReleasePolicy::Any;
        Media {
            source,
            release: release().into(),
            trust,
            policy,
            combined,
            customization: None,
            coverage: Default::default(),
        }
    }

    fn player<'a>(
        media: &'a Media,
        settings: &'a QuestionSettings,
        report_target: ReportTarget,
    ) -> QuestionedMachine<'a> {
        QuestionedMachine { live: false, ..QuestionedMachine::new(media, settings, report_target).unwrap() }
    }

    #[test]
    fn an_install_at_the_console_is_told_to_fleet_and_webhooks_and_leaves_logs_without_secrets() {
        let server = ReportServer::new(&[ServerReaction::Status(204)]);
        let (media, settings) = (media(), QuestionSettings::default());
        let url = format!("{}/MARK-path", server.url).parse().unwrap();
        let report_target = ReportTarget { url: Some(url), tokens: vec!["MARK-path".into()] };
        let player = player(&media, &settings, report_target);
        let destination = |path: &str| {
            let url = format!("{}/{path}/", server.url).parse().unwrap();
            Destination::Url(url, UploadMethod::Put)
        };
        assert_eq!(class_of(&player.save_logs(&destination("early")).unwrap_err()), Class::Invalid);
        // A missing disk: the install ends before anything is written.
        let text = format!(
            "{{token: MARK-cluster-token, os: {{hostname: node-1}}, install: {{device: /dev/disk/by-id/nothing-of-that-name, \
             webhooks: [{{event: FAILED, method: POST, url: '{}/hook', payload: 'ended'}}]}}}}",
            server.url
        );
        let config = model::config::parse(&text, "f").unwrap();
        player.install(&config, &Progress::silent()).unwrap_err();
        let told = player.save_logs(&destination("logs")).unwrap();
        assert!(told.starts_with("The server has accepted report-"), "{told}");
        let requests = server.requests();
        let body = |path: &str| -> String {
            let of = requests
                .iter()
                .filter(|request| request.split_whitespace().nth(1).is_some_and(|at| at.starts_with(path)));
            of.filter_map(|request| request.split_once("\r\n\r\n")).map(|(_, body)| body).collect()
        };
        assert_eq!(body("/hook"), "ended");
        let fleet = body("/MARK-path");
        assert!(fleet.contains("\"hostname\":\"node-1\"") && fleet.contains("{\"failure\":"), "{fleet}");
        assert!(!fleet.contains("MARK"), "{fleet}");
        assert!(!body("/logs/report-").is_empty());
    }

    #[test]
    fn nobody_is_let_in_on_a_system_that_is_not_live() {
        let (media, settings) = (media(), QuestionSettings::default());
        let error = player(&media, &settings, ReportTarget::default()).open_access().unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
    }
}
