//! Everything that a server serves, and what it answers: requests in, replies out. No socket is known here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, Result};
use installer::config::Secret;
use installer::failure::causes;
use installer::machine::identity::{real_text, real_uuid};
use installer::machine::{Identity, Mac};
use installer::percent;
use installer::progress::Progress;
use uuid::Uuid;

use super::boot::{self, BOOT, CONFIGURATION, Deployment, GRUB, MEDIUM, System};
use super::files::{Files, Served};
use super::fleet::routes::Fleet;
use super::machines::{Answer, Event, Fit, Machine, Moment, Permission, Refused, Tokens, Why};
use super::nodes::Configurations;
use super::range::{self, Selection};
use super::store::Store;
use super::token;

/// Where loaders are served, for firmware that boots over HTTP.
const LOADERS: &str = "/loaders/";
/// The most that is taken of what a machine says about itself, in bytes.
const LONGEST: usize = 256;
/// The step that the server's messages belong to.
pub const STEP: &str = "serve";

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The address of the client, as its connection has it.
    pub peer: IpAddr,
    /// GET or HEAD: whether there is to be a body.
    pub head: bool,
    /// The path, as it came.
    pub path: &'a str,
    /// What follows `?`.
    pub query: &'a str,
    /// The field `Host`.
    pub host: Option<&'a str>,
    /// The fields about ranges.
    pub fields: range::Fields<'a>,
}

/// A request for `/` without header fields, of a client whose address is not known.
impl Default for Asked<'_> {
    fn default() -> Self {
        Self {
            peer: Ipv4Addr::UNSPECIFIED.into(),
            head: false,
            path: "/",
            query: "",
            host: None,
            fields: range::Fields::default(),
        }
    }
}

/// What it is answered.
#[derive(Debug)]
pub enum Reply {
    /// Of a file, what is selected.
    File(Served, Selection),
    /// A script, which holds for this moment and this machine only.
    Script(String),
    /// A configuration.
    Configuration(Secret),
    /// There is nothing of this name.
    NotFound,
    /// There was, and will not be again.
    Gone,
    /// The question makes no sense; why.
    Bad(&'static str),
    /// The path is there for GET alone.
    OnlyGet,
    /// The server has trouble, which it has told its operator.
    Trouble,
}

/// What a server serves.
#[derive(Debug)]
pub struct Site {
    /// The medium's files.
    pub files: Files,
    /// What machines boot.
    pub system: System,
    /// The machines and what was done with them.
    pub store: Store,
    /// Loaders by their names.
    pub loaders: BTreeMap<String, Served>,
    /// Where machines reach the server, without a slash at its end; else they are taken at their word.
    pub base: Option<String>,
    /// Whether connections are secured.
    pub tls: bool,
    /// What machines report, for those who know its token.
    pub fleet: Fleet,
    /// How long a token for a configuration is valid, in seconds.
    pub validity: u64,
    /// Where the operator is told what happens.
    pub progress: Progress,
    configurations: RwLock<Arc<Configurations>>,
}

impl Site {
    /// A site whose parts are these.
    #[must_use]
    pub fn new(files: Files, system: System, store: Store, configurations: Configurations) -> Self {
        Self {
            files,
            system,
            store,
            loaders: BTreeMap::new(),
            base: None,
            tls: false,
            // Nobody knows this token; who starts the server tells another.
            fleet: Fleet::new(&Secret::new(Uuid::new_v4().to_string()), false),
            validity: 3600,
            progress: Progress::silent(),
            configurations: RwLock::new(Arc::new(configurations)),
        }
    }

    /// Takes these configurations in place of those before.
    pub fn replace(&self, configurations: Configurations) {
        *self.configurations.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configurations);
    }

    /// The configurations as they are now.
    #[must_use]
    pub fn configurations(&self) -> Arc<Configurations> {
        Arc::clone(&self.configurations.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Answers a question. May wait for the disk.
    pub fn answer(&self, asked: &Asked<'_>, now: Moment) -> Reply {
        self.route(asked, now).unwrap_or_else(|error| {
            self.progress.note(STEP, format!("error: {}", causes(&error).join(": ")));
            Reply::Trouble
        })
    }

    fn route(&self, asked: &Asked<'_>, now: Moment) -> Result<Reply> {
        let path = asked.path;
        if let Some(name) = path.strip_prefix(MEDIUM) {
            let served = percent::decode(name).and_then(|name| self.files.get(&name));
            return Ok(file(served, asked));
        }
        if let Some(name) = path.strip_prefix(LOADERS) {
            return Ok(file(self.loaders.get(name), asked));
        }
        if path == "/boot.ipxe" {
            return Ok(file(Some(&Served::small(boot::ipxe_start().into_bytes())), asked));
        }
        if path == "/grub/grub.cfg" {
            return Ok(file(Some(&Served::small(boot::grub_start().into_bytes())), asked));
        }
        let (token, card) = (path.strip_prefix(CONFIGURATION), path.strip_prefix(GRUB));
        match (token, card) {
            // What follows changes what the machine may do, and HEAD must not.
            (Some(_), _) | (_, Some(_)) if asked.head => Ok(Reply::OnlyGet),
            (Some(token), _) => self.configuration(token, now),
            (_, Some(card)) => self.boot(&told(&format!("mac={card}")), asked, Loader::Grub, now),
            _ if path == BOOT && asked.head => Ok(Reply::OnlyGet),
            _ if path == BOOT => self.boot(&told(asked.query), asked, Loader::Ipxe, now),
            _ => Ok(Reply::NotFound),
        }
    }

    /// Tells a machine what to boot.
    fn boot(&self, identity: &Identity, asked: &Asked<'_>, loader: Loader, now: Moment) -> Result<Reply> {
        if identity.is_empty() {
            return Ok(Reply::Bad("say which machine asks: mac=, uuid=, serial= or asset="));
        }
        let Some(base) = self.base_for(asked) else {
            return Ok(Reply::Bad("the field Host is not the name of a server"));
        };
        let configurations = self.configurations();
        let tokens = (token::random()?, token::random()?);
        let answer = self.store.change(|machines| {
            let machine = machines.seen(identity, now);
            // What was told before counts too: a machine is the same through each of its cards.
            let (fit, name) = configurations.choose(&machine.identity)?;
            let answer = machine.state.answer(machine.permission, fit);
            if answer == Answer::Install {
                machine.apply(Event::Booted, now);
                machine.configuration = name.map(str::to_owned);
                machine.tokens = Some(self.tokens(&tokens, now)?);
            }
            anyhow::Ok((answer, described(machine), fit))
        })??;
        let (answer, who, fit) = answer;
        self.tell(answer, &who, fit);
        let deployment = Deployment { configuration: tokens.0.expose(), report: tokens.1.expose() };
        Ok(Reply::Script(match (answer, loader) {
            (Answer::Install, Loader::Ipxe) => self.system.ipxe(&base, deployment),
            (Answer::Install, Loader::Grub) => self.system.grub(&base, deployment),
            (Answer::Disk(why), Loader::Ipxe) => boot::ipxe_disk(why),
            (Answer::Disk(why), Loader::Grub) => boot::grub_disk(why),
        }))
    }

    fn tokens(&self, (configuration, report): &(Secret, Secret), now: Moment) -> Result<Tokens> {
        let digest = |token: &Secret| token::digest(token.expose()).context("making a token");
        Ok(Tokens {
            configuration: digest(configuration)?,
            report: digest(report)?,
            until: now.plus(self.validity),
            used: false,
        })
    }

    fn tell(&self, answer: Answer, who: &str, fit: Fit) {
        let what = match answer {
            Answer::Install => "boots the installer".to_owned(),
            Answer::Disk(Why::Unknown) if fit == Fit::Fallback => {
                "boots from disk: only the fallback is for it, and nobody has allowed it".to_owned()
            }
            Answer::Disk(why) => format!("boots from disk: {why}"),
        };
        self.progress.note(STEP, format!("{who} {what}"));
    }

    /// Hands out a configuration, once.
    fn configuration(&self, token: &str, now: Moment) -> Result<Reply> {
        let Some(digest) = token::digest(token) else { return Ok(Reply::NotFound) };
        let configurations = self.configurations();
        let taken = self.store.change(|machines| {
            let machine = machines.take(digest, now)?;
            Ok((described(machine), machine.configuration.clone()))
        })?;
        let (who, name) = match taken {
            Ok(taken) => taken,
            Err(Refused::Unknown) => return Ok(Reply::NotFound),
            Err(Refused::Gone) => return Ok(Reply::Gone),
        };
        let name = name.unwrap_or_default();
        let Some(text) = configurations.text(&name) else {
            self.progress.note(STEP, format!("{who} asks for {name}, which is no longer there"));
            return Ok(Reply::Gone);
        };
        self.progress.note(STEP, format!("{who} has taken its configuration {name}"));
        Ok(Reply::Configuration(text.clone()))
    }

    /// Where the machine that asks reaches this server.
    fn base_for(&self, asked: &Asked<'_>) -> Option<String> {
        let scheme = if self.tls { "https" } else { "http" };
        let by_host = || asked.host.filter(|host| is_host(host)).map(|host| format!("{scheme}://{host}"));
        self.base.clone().or_else(by_host)
    }
}

/// Which loader asks.
#[derive(Clone, Copy, Debug)]
enum Loader {
    Ipxe,
    Grub,
}

fn file(served: Option<&Served>, asked: &Asked<'_>) -> Reply {
    let Some(served) = served else { return Reply::NotFound };
    // Ranges are of GET alone (RFC 9110, section 14.2).
    let fields = if asked.head { range::Fields { range: None, ..asked.fields } } else { asked.fields };
    let selection = range::select(fields, served.length, &served.tag());
    Reply::File(served.clone(), selection)
}

/// A machine as an operator knows it: what it has been called, and its first card.
#[must_use]
pub fn described(machine: &Machine) -> String {
    let Identity { macs, serial, uuid, .. } = &machine.identity;
    let mark = macs.first().map(ToString::to_string);
    let mark = mark.or_else(|| serial.clone()).or_else(|| uuid.map(|uuid| uuid.to_string()));
    let denied = if machine.permission == Permission::Denied { ", denied," } else { "" };
    // Serial numbers come from the machine, and must not steer a terminal.
    let mark: String = mark.unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    format!("machine {mark}{denied}")
}

/// What a machine tells of itself in a query. What is not known to it is empty, and what makes no sense is passed over.
fn told(query: &str) -> Identity {
    let mut identity = Identity::default();
    for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let Some(value) = percent::decode(value).filter(|value| value.len() <= LONGEST) else { continue };
        match key {
            "mac" => identity.macs.extend(value.parse::<Mac>().ok()),
            "uuid" => identity.uuid = real_uuid(&value),
            "serial" => identity.serial = real_text(&value),
            "asset" => identity.asset_tag = real_text(&value),
            _ => {}
        }
    }
    identity.macs.sort_unstable();
    identity.macs.dedup();
    identity
}

/// A name or an address with perhaps a port, and nothing that a script could misunderstand.
fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    !host.is_empty() && host.len() <= 255 && host.chars().all(plain)
}

#[cfg(test)]
mod tests;
