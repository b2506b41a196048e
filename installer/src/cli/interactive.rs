//! `installer install` where somebody can be asked: the machine behind the screens.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use uuid::Uuid;

use super::media::{self, Media};
use super::record::Record;
use super::{consoles, install, preflight};
use crate::command::SystemRunner;
use crate::config::sources::{Combined, Document, Entry, Kind, Request, combine, state::refusal, url};
use crate::config::{InstallConfig, Secret};
use crate::download::Patience;
use crate::failure::{Class, Classify, Failure};
use crate::files::{read_text, write_atomically};
use crate::install::{Cancel, finish};
use crate::interactive::answers::{Answers, recorded};
use crate::interactive::{End, Facts, Machine, run};
use crate::inventory::{Inventory, Roots};
use crate::live::{is_live, set_up_network};
use crate::plan::{Finish, Plan};
use crate::preflight::Intent;
use crate::progress::plain::PlainLines;
use crate::progress::{Event, Progress, Sink};
use crate::terminal::Console;

/// Whether somebody has ended the program while it installed.
static STOP: AtomicBool = AtomicBool::new(false);

/// How the questions are asked.
#[derive(Debug, Default)]
pub(super) struct Manner {
    /// On every console of the machine, not on the terminal of this process.
    pub(super) consoles: bool,
    /// Where the answers are kept.
    pub(super) answers: Option<PathBuf>,
    /// Whether nothing is done in the end; and the machine that is played, where it is not this one.
    pub(super) rehearsal: Option<Option<PathBuf>>,
}

impl Manner {
    /// Whether there is anybody to ask.
    pub(super) fn can_ask(&self) -> bool {
        self.consoles || (std::io::stdin().is_terminal() && std::io::stdout().is_terminal())
    }

    /// A document that says nothing new: somebody who can be asked needs no configuration to begin with.
    pub(super) fn nothing_yet() -> Document {
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

/// Asks, and installs what is answered.
pub(super) fn ask(media: &Media, manner: &Manner) -> Result<()> {
    let player = Player { media, manner, live: is_live(&media::kernel_command_line()?) };
    let facts = Facts {
        product: format!("{} {}", media.release.name, media.release.version),
        inventory: player.inventory()?,
        rehearsal: manner.rehearsal.is_some(),
        can_quit: !manner.consoles,
        // 244 random bits as text that survives every file and header.
        fresh_token: Secret::new(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())),
    };
    run::run(manner.open()?, facts, Answers::on(&media.combined), &player).map(drop)
}

/// This machine, or in a rehearsal none.
struct Player<'a> {
    media: &'a Media,
    manner: &'a Manner,
    live: bool,
}

impl Machine for Player<'_> {
    fn inventory(&self) -> Result<Inventory> {
        match &self.manner.rehearsal {
            Some(Some(path)) => {
                let what = || format!("reading the inventory {}", path.display());
                serde_json::from_str(&read_text(path).class(Class::Invalid, what)?)
                    .class(Class::Invalid, what)
            }
            _ => Inventory::scan(&Roots::default()),
        }
    }

    fn fetch(&self, from: &str) -> Result<Combined> {
        let found = &self.media.combined;
        let authorities = found.authorities.clone();
        let request =
            Request { url: from.to_owned(), named_by: "the console".into(), sha256: None, authorities };
        // Somebody waits for it.
        let patience = Patience { attempts: 2, limit: Some(Duration::from_secs(30)), ..url::patience() };
        let fetched = url::fetch(&request, patience)?;
        let below = Document::yaml(Kind::Embedded, "what was found before", found.config.to_yaml());
        let mut combined = combine(&[below, fetched]).map_err(refusal)?;
        // What was found before keeps the source that it had.
        let before = |entry: &Entry| found.entries.iter().find(|known| known.path == entry.path).cloned();
        combined.entries = combined
            .entries
            .iter()
            .filter_map(
                |entry| if entry.source == Kind::Embedded { before(entry) } else { Some(entry.clone()) },
            )
            .collect();
        Ok(combined)
    }

    fn try_network(&self, config: &InstallConfig) -> Result<String> {
        if self.manner.rehearsal.is_some() || !self.live {
            return Ok("The network was not tried: this is not the system of the medium.".into());
        }
        let notes = Notes::default();
        let progress = Progress::new(vec![Box::new(notes.clone())]);
        set_up_network(config, Path::new("/"), &SystemRunner, &progress)
            .class(Class::Network, || "setting up the network".into())?;
        let notes = notes.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let warnings: Vec<_> = notes.iter().filter_map(|note| note.strip_prefix("warning: ")).collect();
        match warnings[..] {
            [] => Ok(notes.last().cloned().unwrap_or_else(|| "The network is as it was.".into())),
            _ => Err(Failure::new(Class::Network, warnings.join("\n"))
                .hint("Check cables, switch, VLAN and DHCP server.")
                .into()),
        }
    }

    fn try_cluster(&self, config: &InstallConfig) -> Result<String> {
        if self.manner.rehearsal.is_some() {
            return Ok("The cluster was not asked: this is a rehearsal.".into());
        }
        let report = preflight::check(Intent::of(config))?;
        let refused: Vec<_> = report.stops().filter(|verdict| verdict.class == Class::Join).collect();
        match refused.first() {
            None => Ok("The cluster would take this machine.".into()),
            Some(first) => {
                let told: Vec<_> = refused.iter().map(|verdict| verdict.text()).collect();
                let failure = Failure::new(Class::Join, told.join("\n"));
                Err(failure.hint(first.next().unwrap_or_default()).into())
            }
        }
    }

    fn plan(&self, config: &InstallConfig) -> Result<Plan> {
        crate::plan::plan(config, &self.inventory()?, &self.media.release, Uuid::new_v4())
    }

    fn install(&self, config: &InstallConfig, progress: &Progress) -> Result<()> {
        if self.manner.consoles {
            // The journal of the live system keeps what the screen shows.
            progress.add(Box::new(PlainLines::new(std::io::stderr())));
        }
        let mut record = Record::begin(progress, None, &[]);
        record.config(config);
        let cancel = || Ok(Cancel::new(&STOP));
        let result = install::carry_out(config, self.media, progress, &mut record, &cancel);
        record.end(result).map(drop)
    }

    fn stop(&self) {
        STOP.store(true, Ordering::Relaxed);
    }

    fn record(&self, config: &InstallConfig) -> Result<Option<String>> {
        let Some(path) = &self.manner.answers else { return Ok(None) };
        write_atomically(path, recorded(&config.for_node()?).as_bytes(), 0o600)?;
        Ok(Some(path.display().to_string()))
    }

    fn end(&self, how: End) -> Result<()> {
        let how = match how {
            End::Restart => Finish::Reboot,
            End::PowerOff => Finish::Poweroff,
            End::Quit => return Ok(()),
        };
        finish(how, &self.inventory()?, &SystemRunner)
    }
}

/// What is told beside the steps.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Sink for Notes {
    fn show(&mut self, event: &Event) {
        if event.state == crate::progress::State::Progress && event.bytes.is_none() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.message.clone());
        }
    }
}
