//! Everything that a server serves, and what it answers: requests in, replies out. No socket is known here.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use base::failure::causes;
use base::percent;
use base::progress::Progress;
use model::config::Secret;
use model::machine::identity::{real_text, real_uuid};
use model::machine::{Identity, Mac};
use uuid::Uuid;

use super::boot::{self, BOOT, BootSystem, CONFIGURATION, DeploymentTokens, GRUB, MEDIUM};
use super::configurations::Configurations;
use super::files::{MediumFiles, ServedFile};
use super::fleet::routes::Fleet;
use super::hosts::{RequestProvenance, ServerNames};
use super::machine::{BootAnswer, ConfigurationFit, DiskBootReason, TokenRefusal, described};
use super::machine_registry::{BootDecision, MachineRegistry};
use super::moment::Moment;
use super::range::{self, RangeSelection};

/// Where loaders are served, for firmware that boots over HTTP.
const LOADERS: &str = "/loaders/";
/// The most that is taken of what a machine says about itself, in bytes.
const LONGEST: usize = 256;
/// Cards that a machine tells, at most. iPXE tells five.
const MOST_CARDS: usize = 64;
/// The step that the server's messages belong to.
pub const STEP: &str = "serve";

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub struct ServedRequest<'a> {
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
    pub fields: range::RangeFields<'a>,
    /// The fields that say what has caused the request.
    pub provenance: RequestProvenance<'a>,
}

/// A request for `/` without header fields, of a client whose address is not known.
impl Default for ServedRequest<'_> {
    fn default() -> Self {
        Self {
            peer: Ipv4Addr::UNSPECIFIED.into(),
            head: false,
            path: "/",
            query: "",
            host: None,
            fields: range::RangeFields::default(),
            provenance: RequestProvenance::default(),
        }
    }
}

/// What it is answered.
#[derive(Debug)]
pub enum ServedReply {
    /// Of a file, what is selected.
    File(ServedFile, RangeSelection),
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
    /// The request may not do what it asks for; why.
    Refused(&'static str),
    /// The path is there for GET alone.
    OnlyGet,
    /// The server has trouble, which it has told its operator.
    Trouble,
}

/// What a server serves.
#[derive(Debug)]
pub struct Router {
    /// The medium's files.
    pub files: MediumFiles,
    /// What machines boot.
    pub system: BootSystem,
    /// The machines and what was done with them.
    pub store: MachineRegistry,
    /// Loaders by their names.
    pub loaders: BTreeMap<String, ServedFile>,
    /// Where machines reach the server, without a slash at its end; else at the name by which they did, which is one of
    /// `hosts`.
    pub base: Option<String>,
    /// The names of the server.
    pub hosts: ServerNames,
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

impl Router {
    /// A site whose parts are these.
    #[must_use]
    pub fn new(
        files: MediumFiles,
        system: BootSystem,
        store: MachineRegistry,
        configurations: Configurations,
    ) -> Self {
        Self {
            files,
            system,
            store,
            loaders: BTreeMap::new(),
            base: None,
            hosts: ServerNames::of_this_host(None),
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
    pub fn answer(&self, asked: &ServedRequest<'_>, now: Moment) -> ServedReply {
        self.route(asked, now).unwrap_or_else(|error| {
            let why = causes(&error).join(": ");
            self.progress.note(STEP, format!("{}: error: {why}", asked.peer));
            trouble(asked.path)
        })
    }

    fn route(&self, asked: &ServedRequest<'_>, now: Moment) -> Result<ServedReply> {
        let path = asked.path;
        if let Some(name) = path.strip_prefix(MEDIUM) {
            let served = percent::decode(name).and_then(|name| self.files.get(&name));
            return Ok(file(served, asked));
        }
        if let Some(name) = path.strip_prefix(LOADERS) {
            return Ok(file(self.loaders.get(name), asked));
        }
        if path == "/boot.ipxe" {
            return Ok(file(Some(&ServedFile::small(boot::ipxe_start().into_bytes())), asked));
        }
        if path == "/grub/grub.cfg" {
            return Ok(file(Some(&ServedFile::small(boot::grub_start().into_bytes())), asked));
        }
        let (token, card) = (path.strip_prefix(CONFIGURATION), path.strip_prefix(GRUB));
        if token.is_none() && card.is_none() && path != BOOT {
            return Ok(ServedReply::NotFound);
        }
        // What follows changes what the machine may do, and HEAD must not.
        if asked.head {
            return Ok(ServedReply::OnlyGet);
        }
        if let Some(refusal) = self.refusal(asked) {
            return Ok(refusal);
        }
        match (token, card) {
            (Some(token), _) => self.configuration(token, asked, now),
            (_, Some(card)) => self.boot(told(&format!("mac={card}")), asked, Loader::Grub, now),
            _ => self.boot(told(asked.query), asked, Loader::Ipxe, now),
        }
    }

    /// Why a request may not change anything, if it may not.
    fn refusal(&self, asked: &ServedRequest<'_>) -> Option<ServedReply> {
        let Some(host) = asked.host.filter(|host| is_host(host)) else {
            return Some(ServedReply::Bad("the field Host is not the name of a server"));
        };
        let note = |why: String| self.progress.note(STEP, format!("{}: refused: {why}", asked.peer));
        if asked.provenance.is_web_page() {
            note("a web page has caused the request".to_owned());
            return Some(ServedReply::Refused("this is not for web pages"));
        }
        if !self.hosts.has(host) {
            note(format!(
                "the request is for {host}, which is no name of this host; if machines reach it so, give --base-url"
            ));
            return Some(ServedReply::Refused("this server has another name; its log has more"));
        }
        None
    }

    /// Tells a machine what to boot.
    fn boot(
        &self,
        identity: Option<Identity>,
        asked: &ServedRequest<'_>,
        loader: Loader,
        now: Moment,
    ) -> Result<ServedReply> {
        let Some(identity) = identity else { return Ok(ServedReply::Bad("no machine has so many cards")) };
        if identity.is_empty() {
            return Ok(ServedReply::Bad("say which machine asks: mac=, uuid=, serial= or asset="));
        }
        let base = self.base_for(asked);
        let booted = self.store.boot(&identity, asked.peer, &self.configurations(), now)?;
        self.tell(&booted, &identity, asked.peer);
        Ok(ServedReply::Script(match (&booted.answer, &booted.tokens) {
            (BootAnswer::Install, Some((configuration, report))) => {
                let deployment =
                    DeploymentTokens { configuration: configuration.expose(), report: report.expose() };
                match loader {
                    Loader::Ipxe => self.system.ipxe(&base, deployment),
                    Loader::Grub => self.system.grub(&base, deployment),
                }
            }
            (BootAnswer::Disk(why), _) => loader.disk(*why),
            (BootAnswer::Install, None) => loader.disk(DiskBootReason::Trouble),
        }))
    }

    /// Tells the operator what was decided.
    fn tell(&self, booted: &BootDecision, identity: &Identity, peer: IpAddr) {
        let who = described(identity);
        let what = match booted.answer {
            BootAnswer::Install => "boots the installer".to_owned(),
            BootAnswer::Disk(DiskBootReason::Conflict) => {
                format!("boots from disk: conflict between {}", booted.conflict.join(" and "))
            }
            BootAnswer::Disk(DiskBootReason::Unknown) if booted.fit == ConfigurationFit::Fallback => {
                "boots from disk: only the fallback is for it, and nobody has allowed it".to_owned()
            }
            BootAnswer::Disk(why) => format!("boots from disk: {why}"),
        };
        self.progress.note(STEP, format!("{peer}: {who} {what}"));
        if !booted.others.is_empty() {
            let others: Vec<_> = booted.others.iter().map(ToString::to_string).collect();
            let others = others.join(" and ");
            self.progress.note(STEP, format!("{peer}: asked as {who}, as which {others} asked before"));
        }
    }

    /// Hands out a configuration, once.
    fn configuration(&self, token: &str, asked: &ServedRequest<'_>, now: Moment) -> Result<ServedReply> {
        let peer = asked.peer;
        let taken = self.store.take(token, peer, &self.configurations(), self.validity, now)?;
        let note = |what: String| self.progress.note(STEP, format!("{peer}: {what}"));
        match taken {
            Ok(taking) => {
                let who = described(&taking.machine.identity);
                note(format!("{who} has taken its configuration {}", taking.name));
                Ok(ServedReply::Configuration(taking.text))
            }
            Err(TokenRefusal::Unknown) => Ok(ServedReply::NotFound),
            Err(TokenRefusal::Gone) => {
                note("asks for a configuration with a token that is void".into());
                Ok(ServedReply::Gone)
            }
        }
    }

    /// Where the machine that asks reaches this server. Its host was checked.
    fn base_for(&self, asked: &ServedRequest<'_>) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let by_host = || format!("{scheme}://{}", asked.host.unwrap_or_default());
        self.base.clone().unwrap_or_else(by_host)
    }
}

/// The answer where the server has trouble. A machine that boots starts from its disk then: it must neither wait for the
/// trouble's end nor install.
#[must_use]
pub fn trouble(path: &str) -> ServedReply {
    match path {
        BOOT => ServedReply::Script(Loader::Ipxe.disk(DiskBootReason::Trouble)),
        path if path.starts_with(GRUB) => ServedReply::Script(Loader::Grub.disk(DiskBootReason::Trouble)),
        _ => ServedReply::Trouble,
    }
}

/// Which loader asks.
#[derive(Clone, Copy, Debug)]
enum Loader {
    Ipxe,
    Grub,
}

impl Loader {
    /// The script with which it leaves the machine to its disk.
    fn disk(self, why: DiskBootReason) -> String {
        match self {
            Self::Ipxe => boot::ipxe_disk(why),
            Self::Grub => boot::grub_disk(why),
        }
    }
}

fn file(served: Option<&ServedFile>, asked: &ServedRequest<'_>) -> ServedReply {
    let Some(served) = served else { return ServedReply::NotFound };
    // Ranges are of GET alone (RFC 9110, section 14.2).
    let fields = if asked.head { range::RangeFields { range: None, ..asked.fields } } else { asked.fields };
    let selection = range::select(fields, served.length, &served.tag());
    ServedReply::File(served.clone(), selection)
}

/// What a machine tells of itself in a query. What is not known to it is empty, and what makes no sense is passed over.
/// None where it tells more cards than a machine has.
fn told(query: &str) -> Option<Identity> {
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
    (identity.macs.len() <= MOST_CARDS).then_some(identity)
}

/// A name or an address with perhaps a port, and nothing that a script could misunderstand.
fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    !host.is_empty() && host.len() <= 255 && host.chars().all(plain)
}

#[cfg(test)]
mod tests;
