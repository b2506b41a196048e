//! Everything that a server serves, and its replies to requests. Without sockets.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Result;
use base::failure::causes;
use base::percent;
use base::progress::Progress;
use medium::network_boot::files::MediumFiles;
use medium::network_boot::system::{BootSystem, is_host};
use medium::network_boot::{GRUB_START, IPXE_START, LOADERS, MEDIUM};
use model::config::Secret;
use model::machine::identity::{real_text, real_uuid};
use model::machine::{Identity, Mac};
use uuid::Uuid;

use super::health::HealthProbe;
use super::provenance::{RequestProvenance, ServerNames};
use super::scrapers::AcceptedScrapers;
use crate::boot::scripts::{self, DeploymentTokens};
use crate::fleet::audit;
use crate::fleet::routes::Fleet;
use crate::journal::{self, JournalEntry, JournalMachine};
use crate::machines::access_token;
use crate::machines::configurations::Configurations;
use crate::machines::identity_keys;
use crate::machines::machine::{BootAnswer, ConfigurationFit, DiskBootReason, TokenRefusal, described};
use crate::machines::registry::{BootDecision, MachineRegistry};
use crate::machines::store::StoreUnavailable;
use crate::machines::stranger_rate::StrangerVerdict;
use crate::moment::Moment;
use crate::protocol::{BOOT, CONFIGURATION, ENROLL, GRUB};
use transfer::range::{RangeFields, RangeSelection};
use transfer::server::response::CachePolicy;
use transfer::server::served_file::ServedFile;

/// The longest identifier of a machine, in bytes; a longer one is ignored.
const LONGEST: usize = 256;
/// The most cards in a request. iPXE sends five.
const MOST_CARDS: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct ServedRequest<'a> {
    /// The address of the connection's other end.
    pub peer: IpAddr,
    /// True if the method is HEAD, not GET.
    pub head: bool,
    /// As it was sent.
    pub path: &'a str,
    /// The text after the `?`, as it was sent.
    pub query: &'a str,
    pub host: Option<&'a str>,
    pub fields: RangeFields<'a>,
    pub provenance: RequestProvenance<'a>,
}

/// A request for `/` without header fields, from an unspecified address.
impl Default for ServedRequest<'_> {
    fn default() -> Self {
        Self {
            peer: Ipv4Addr::UNSPECIFIED.into(),
            head: false,
            path: "/",
            query: "",
            host: None,
            fields: RangeFields::default(),
            provenance: RequestProvenance::default(),
        }
    }
}

#[derive(Debug)]
pub enum ServedReply {
    /// The selected part of a file, and how long a cache may keep it.
    File(ServedFile, RangeSelection, CachePolicy),
    /// A script for this machine at this moment, which must not be cached.
    Script(String),
    Configuration(Secret),
    /// The server's name alone was asked for, as people do: the fleet page is elsewhere.
    FleetPage,
    NotFound,
    /// The configuration was there and will not be again.
    Gone,
    /// The configuration is not handed out before so many seconds have passed.
    Early(u64),
    /// The request is malformed, and why.
    Bad(&'static str),
    /// The request is not allowed, and why.
    Refused(&'static str),
    /// The path exists for GET only.
    OnlyGet,
    /// The state cannot be read or changed now; the same request may succeed after [`RETRY`] seconds.
    Unavailable,
    /// An internal error, which was logged.
    Trouble,
}

/// Seconds after which a client asks again that was answered [`ServedReply::Unavailable`].
pub const RETRY: u64 = 10;
/// Seconds after which a machine that still waits has reported again, and sooner than which none has started its installer.
const SETTLING: u64 = 12;

#[derive(Debug)]
pub struct Router {
    pub files: MediumFiles,
    pub system: BootSystem,
    pub store: MachineRegistry,
    pub loaders: BTreeMap<String, ServedFile>,
    /// The URL at which machines reach the server, without a slash at its end. If none, they use the host of their
    /// request, which is one of `hosts`.
    pub base: Option<String>,
    pub hosts: ServerNames,
    pub tls: bool,
    pub fleet: Fleet,
    pub health: Arc<HealthProbe>,
    /// Whether everybody may read the metrics, without a token.
    pub metrics_for_all: bool,
    pub scrapers: AcceptedScrapers,
    /// Validity of a token for a configuration, in seconds.
    pub validity: u64,
    /// Messages for the operator.
    pub progress: Progress,
    configurations: RwLock<Arc<Configurations>>,
}

impl Router {
    /// With defaults for all other fields.
    #[must_use]
    pub fn new(
        files: MediumFiles,
        system: BootSystem,
        store: MachineRegistry,
        configurations: Configurations,
    ) -> Self {
        let release = files.release();
        store.metrics().serves(&release.name, &release.version.to_string());
        Self {
            files,
            system,
            store,
            loaders: BTreeMap::new(),
            base: None,
            hosts: ServerNames::of_this_host(None),
            tls: false,
            // A placeholder that gives nobody access; `run` sets the real one.
            fleet: Fleet::new(&Secret::new(Uuid::new_v4().to_string()), false),
            health: Arc::default(),
            metrics_for_all: false,
            scrapers: AcceptedScrapers::default(),
            validity: 3600,
            progress: Progress::silent(),
            configurations: RwLock::new(Arc::new(configurations)),
        }
    }

    pub fn replace(&self, configurations: Configurations) {
        *self.configurations.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configurations);
    }

    #[must_use]
    pub fn configurations(&self) -> Arc<Configurations> {
        Arc::clone(&self.configurations.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// May block on the disk.
    pub fn answer(&self, asked: &ServedRequest<'_>, now: Moment) -> ServedReply {
        self.route(asked, now).unwrap_or_else(|error| {
            if error.is::<StoreUnavailable>() {
                // The store has told the operator.
                return unavailable(asked);
            }
            let why = causes(&error).join(": ");
            journal::write(&self.progress, &format!("{}: error: {why}", asked.peer));
            trouble(asked.path)
        })
    }

    fn route(&self, asked: &ServedRequest<'_>, now: Moment) -> Result<ServedReply> {
        let path = asked.path;
        if let Some(name) = path.strip_prefix(MEDIUM) {
            let served = percent::decode(name).and_then(|name| self.files.find(&name));
            return Ok(file(served, asked));
        }
        let unnamed = |served| (served, CachePolicy::Revalidate);
        if let Some(name) = path.strip_prefix(LOADERS) {
            return Ok(file(self.loaders.get(name).map(unnamed), asked));
        }
        if path == IPXE_START {
            let token = enroll(asked.query);
            let script = scripts::ipxe_start(self.files.release().architecture, token);
            return Ok(match token {
                // A script with a token is kept by no cache.
                Some(_) => ServedReply::Script(script),
                None => file(Some(unnamed(&ServedFile::in_memory(script.into_bytes()))), asked),
            });
        }
        if path == GRUB_START {
            return Ok(file(
                Some(unnamed(&ServedFile::in_memory(scripts::grub_start().into_bytes()))),
                asked,
            ));
        }
        if path == "/" {
            return Ok(ServedReply::FleetPage);
        }
        let (token, card) = (path.strip_prefix(CONFIGURATION), path.strip_prefix(GRUB));
        if token.is_none() && card.is_none() && path != BOOT {
            return Ok(ServedReply::NotFound);
        }
        // The requests below change state, which HEAD must not.
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

    /// The refusal of a request that may not change anything.
    fn refusal(&self, asked: &ServedRequest<'_>) -> Option<ServedReply> {
        let Some(host) = asked.host.filter(|host| is_host(host)) else {
            return Some(ServedReply::Bad("the field Host is not the name of a server"));
        };
        let note = |why: String| journal::write(&self.progress, &format!("{}: refused: {why}", asked.peer));
        if asked.provenance.is_web_page() {
            note("the request comes from a web page".to_owned());
            return Some(ServedReply::Refused("web pages cannot use this path"));
        }
        if !self.hosts.has(host) {
            note(format!(
                "the request is for {host}, which is not a name of this host; if machines use it, give it with --base-url"
            ));
            return Some(ServedReply::Refused("this is not a name of the server; the server's log has more"));
        }
        None
    }

    fn boot(
        &self,
        identity: Option<Identity>,
        asked: &ServedRequest<'_>,
        loader: Loader,
        now: Moment,
    ) -> Result<ServedReply> {
        let Some(identity) = identity else {
            return Ok(ServedReply::Bad("a machine does not have so many network cards"));
        };
        if identity.is_empty() {
            return Ok(ServedReply::Bad("identify the machine: mac=, uuid=, serial= or asset="));
        }
        let base = self.base_for(asked);
        let configurations = self.configurations();
        let booted =
            self.store.boot_with(enroll(asked.query), &identity, asked.peer, &configurations, now)?;
        self.tell(&booted, &identity, &configurations, asked.peer);
        booted.enrolled.iter().for_each(|entry| audit::journal(entry).write(&self.progress));
        match booted.answer {
            BootAnswer::Install => self.store.metrics().boot_answered("installer", ""),
            BootAnswer::Disk(why) => self.store.metrics().boot_answered("disk", why.name()),
        }
        Ok(ServedReply::Script(match (&booted.answer, &booted.tokens) {
            (BootAnswer::Install, Some((configuration, report))) => {
                let deployment = DeploymentTokens {
                    configuration: configuration.expose(),
                    report: report.expose(),
                    word: &booted.deployment,
                };
                match loader {
                    Loader::Ipxe => scripts::ipxe_install(&self.system, &base, deployment),
                    Loader::Grub => scripts::grub_install(&self.system, &base, deployment),
                }
            }
            (BootAnswer::Disk(why), _) => loader.disk(*why),
            (BootAnswer::Install, None) => loader.disk(DiskBootReason::Trouble),
        }))
    }

    /// Logs what was decided.
    fn tell(
        &self,
        booted: &BootDecision,
        identity: &Identity,
        configurations: &Configurations,
        peer: IpAddr,
    ) {
        match booted.stranger {
            Some(StrangerVerdict::Dropped { first: false }) => return,
            Some(StrangerVerdict::Dropped { first: true }) => {
                let text =
                    format!("{peer}: too many unknown machines ask; they boot from disk and are not listed");
                return journal::write(&self.progress, &text);
            }
            Some(StrangerVerdict::Recorded { dropped }) if dropped > 0 => {
                let text = format!("{dropped} requests of unknown machines were not listed");
                journal::write(&self.progress, &text);
            }
            _ => {}
        }
        let names = configurations.naming(&identity_keys::of(identity));
        let name = names.first().filter(|_| names.len() == 1);
        let hostname = name.and_then(|name| configurations.hostname(name));
        let who = called(identity, hostname);
        let what = match booted.answer {
            BootAnswer::Install => "boots the installer".to_owned(),
            BootAnswer::Disk(DiskBootReason::Conflict) => {
                format!("boots from disk: conflict between {}", booted.conflict.join(" and "))
            }
            BootAnswer::Disk(DiskBootReason::Unknown) if booted.fit == ConfigurationFit::Fallback => {
                "boots from disk: only the fallback fits it, and no operator has allowed it".to_owned()
            }
            BootAnswer::Disk(why) => format!("boots from disk: {why}"),
        };
        let mark = described(identity);
        let machine = JournalMachine {
            id: booted.machine.map(|id| id.to_string()),
            name: hostname.unwrap_or(&mark),
            identity,
            configuration: name.copied(),
        };
        let text = format!("{peer}: {who} {what}");
        JournalEntry::seen(text, &peer.to_string(), &machine, booted.answer).write(&self.progress);
        if !booted.others.is_empty() {
            let others: Vec<_> = booted.others.iter().map(ToString::to_string).collect();
            let others = others.join(" and ");
            journal::write(
                &self.progress,
                &format!("{peer}: asked as {who}; {others} asked as the same machine before"),
            );
        }
    }

    /// Hands out a configuration, once; to a machine that waits for its cluster again, after it was started again.
    fn configuration(&self, token: &str, asked: &ServedRequest<'_>, now: Moment) -> Result<ServedReply> {
        let peer = asked.peer;
        if let Some((machine, issued)) = self.store.waiting(token)? {
            // A machine that was started again does not report until it has its configuration.
            let heard = self.store.run(machine.id)?.and_then(|run| run.heard);
            if heard.is_some_and(|heard| heard > issued) {
                let who = described(&machine.identity);
                let text =
                    format!("{peer}: refused: asked for the configuration of {who}, which waits with it");
                journal::write(&self.progress, &text);
                return Ok(ServedReply::Gone);
            }
            let settled = issued.plus(SETTLING);
            if now < settled {
                return Ok(ServedReply::Early(settled.0 - now.0));
            }
        }
        let taken = self.store.take(token, peer, &self.configurations(), self.validity, now)?;
        let note = |what: String| journal::write(&self.progress, &format!("{peer}: {what}"));
        match taken {
            Ok(taking) => {
                let configurations = self.configurations();
                let (identity, hostname) = (&taking.machine.identity, configurations.hostname(&taking.name));
                let who = called(identity, hostname);
                let text = format!("{peer}: {who} has taken its configuration {}", taking.name);
                let mark = described(identity);
                let machine = JournalMachine {
                    id: Some(taking.machine.id.to_string()),
                    name: hostname.unwrap_or(&mark),
                    identity,
                    configuration: Some(&taking.name),
                };
                JournalEntry::taken(text, &peer.to_string(), &machine).write(&self.progress);
                Ok(ServedReply::Configuration(taking.text))
            }
            Err(TokenRefusal::Unknown) => Ok(ServedReply::NotFound),
            Err(TokenRefusal::Gone) => {
                note("requested a configuration with an invalid token".into());
                Ok(ServedReply::Gone)
            }
        }
    }

    /// The URL at which the requesting machine reaches this server. The request's host was checked.
    fn base_for(&self, asked: &ServedRequest<'_>) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let by_host = || format!("{scheme}://{}", asked.host.unwrap_or_default());
        self.base.clone().unwrap_or_else(by_host)
    }
}

/// A machine in the log: its hostname, where its configuration has one, and an identifier.
fn called(identity: &Identity, hostname: Option<&str>) -> String {
    match hostname {
        Some(hostname) => format!("{hostname} ({})", described(identity)),
        None => described(identity),
    }
}

/// The answer after an internal error. A machine that boots is sent to its disk: it must neither wait nor install.
#[must_use]
pub fn trouble(path: &str) -> ServedReply {
    match path {
        BOOT => ServedReply::Script(Loader::Ipxe.disk(DiskBootReason::Trouble)),
        path if path.starts_with(GRUB) => ServedReply::Script(Loader::Grub.disk(DiskBootReason::Trouble)),
        _ => ServedReply::Trouble,
    }
}

/// The answer while the state is unavailable. A machine that boots asks again for some minutes: whether it installs is not known.
#[must_use]
fn unavailable(asked: &ServedRequest<'_>) -> ServedReply {
    match asked.path {
        BOOT => ServedReply::Script(scripts::ipxe_wait(enroll(asked.query))),
        path if path.starts_with(GRUB) => ServedReply::Script(scripts::grub_wait()),
        _ => ServedReply::Unavailable,
    }
}

#[derive(Clone, Copy, Debug)]
enum Loader {
    Ipxe,
    Grub,
}

impl Loader {
    fn disk(self, why: DiskBootReason) -> String {
        match self {
            Self::Ipxe => scripts::ipxe_disk(why),
            Self::Grub => scripts::grub_disk(why),
        }
    }
}

fn file(served: Option<(&ServedFile, CachePolicy)>, asked: &ServedRequest<'_>) -> ServedReply {
    let Some((served, policy)) = served else { return ServedReply::NotFound };
    ServedReply::File(served.clone(), served.select(asked.fields, asked.head), policy)
}

/// Parses the identity in a query. Empty and malformed values are ignored. None if there are more cards than a machine
/// has.
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

/// The token in a query with which a machine asks to be let install. One with other characters than tokens have is none: it would
/// stand in a script.
fn enroll(query: &str) -> Option<&str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(key, _)| *key == ENROLL)
        .map(|(_, token)| token)
        .filter(|token| access_token::is_plain(token))
}

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod tests;
