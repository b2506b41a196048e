//! The machines that a server knows, and what each may do: a pure state machine. [`super::store`] keeps it on disk.
//!
//! ```text
//! Waiting ── boots ──▶ Booting ── takes its configuration ──▶ Installing ── reports its end ──▶ Installed
//!                      ▲  ▲  │                                    │                                 │
//!                      │  │  └── reports a failure ──▶ Failed ◀───┘      reports that it is ready ──┤
//!                      │  └─────────── boots ────────────┘                                          ▼
//!                      └── boots ── Redeploy ◀── somebody asks ── any state                       Joined
//! ```
//!
//! A machine that has taken its configuration boots from its disk until a redeployment is asked for: whether the
//! install came to its end or the machine lost power, nothing is erased twice without somebody's word. An install that
//! *reported* a failure may be tried again by starting the machine again, for it restarts only by hand. Whether a
//! machine is denied, or allowed though no configuration names it, is kept beside its state, so that neither loses what
//! has been done to the machine.

use std::collections::BTreeMap;
use std::fmt;

use installer::digest::Digest;
use installer::machine::Identity;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How many machines without a configuration are remembered. Anybody on the network can make up more.
pub const MOST_STRANGERS: usize = 1000;

/// How many cards of one machine are remembered.
const MOST_CARDS: usize = 64;

/// A moment in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Now, by the clock of this machine.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self(since.map_or(0, |since| since.as_secs()))
    }

    /// The moment `seconds` later.
    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

/// RFC 3339.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0).ok();
        match seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok()) {
            Some(moment) => write!(f, "{moment}"),
            None => write!(f, "@{}", self.0),
        }
    }
}

/// What a machine is called here: chosen when it is first seen, the same as long as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MachineId(Uuid);

impl MachineId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl std::str::FromStr for MachineId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        text.parse().map(Self)
    }
}

/// How far a deployment of a machine has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing was given to it yet.
    #[default]
    Waiting,
    /// It was told to boot the installer, and has not asked for its configuration yet.
    Booting,
    /// It has its configuration.
    Installing,
    /// It has reported that it is installed.
    Installed,
    /// It has reported that it is ready in its cluster.
    Joined,
    /// It has reported that its install failed.
    Failed,
    /// Somebody wants it installed again when it boots next.
    Redeploy,
}

/// What somebody has said about a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Nothing: it may install where a configuration names it.
    #[default]
    Unsaid,
    /// It may install with the fallback too.
    Allowed,
    /// It may not install.
    Denied,
}

/// Which configuration there is for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// One that names it.
    Own,
    /// The fallback, which is for machines that somebody allows.
    Fallback,
    /// None.
    Nothing,
}

/// What a machine is told when it asks what to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The installer.
    Install,
    /// Its own disk, and why.
    Disk(Why),
}

/// Why a machine boots from its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// No configuration names it and nobody has allowed it.
    Unknown,
    /// Somebody has denied it.
    Denied,
    /// It has taken its configuration and not reported an end.
    Started,
    /// It is installed.
    Installed,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "no configuration is for this machine",
            Self::Denied => "somebody has denied this machine",
            Self::Started => "its install was begun already; redeploy it to install again",
            Self::Installed => "it is installed; redeploy it to install again",
        })
    }
}

/// What happens to a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was told to boot the installer.
    Booted,
    /// It took its configuration.
    Took,
    /// It reported that it is installed.
    Finished,
    /// It reported that it is ready in its cluster.
    Joined,
    /// It reported that the install failed.
    Failed,
    /// Somebody wants it installed again.
    Redeploy,
}

impl State {
    /// The state after `event`. What does not fit changes nothing: reports come late, twice and out of order.
    #[must_use]
    pub fn after(self, event: Event) -> Self {
        match (self, event) {
            (_, Event::Redeploy) => Self::Redeploy,
            (Self::Installing | Self::Installed | Self::Joined, Event::Booted) => self,
            (_, Event::Booted) => Self::Booting,
            // Somebody at the console may try again what has failed.
            (Self::Booting | Self::Failed, Event::Took) => Self::Installing,
            (Self::Booting | Self::Installing | Self::Failed, Event::Finished) => Self::Installed,
            (Self::Booting | Self::Installing | Self::Failed | Self::Installed, Event::Joined) => {
                Self::Joined
            }
            (Self::Booting | Self::Installing, Event::Failed) => Self::Failed,
            (_, Event::Took | Event::Finished | Event::Joined | Event::Failed) => self,
        }
    }

    /// What a machine in this state boots.
    #[must_use]
    pub fn answer(self, permission: Permission, fit: Fit) -> Answer {
        match (permission, fit, self) {
            (Permission::Denied, ..) => Answer::Disk(Why::Denied),
            (_, Fit::Nothing, _) | (Permission::Unsaid, Fit::Fallback, _) => Answer::Disk(Why::Unknown),
            (_, _, Self::Installing) => Answer::Disk(Why::Started),
            (_, _, Self::Installed | Self::Joined) => Answer::Disk(Why::Installed),
            (_, _, Self::Waiting | Self::Booting | Self::Failed | Self::Redeploy) => Answer::Install,
        }
    }
}

/// The tokens of one deployment. Only their digests are kept: who reads the file can take nobody's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Opens the configuration, once.
    pub configuration: Digest,
    /// Lets the machine report, as long as this is its last deployment.
    pub report: Digest,
    /// Until when the first can be used.
    pub until: Moment,
    /// Whether it has been used.
    pub used: bool,
}

/// Why a token opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Nobody was given it, or the machine was given another since.
    Unknown,
    /// It was used, its time is over, or the machine was denied since.
    Gone,
}

/// One machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name here.
    pub id: MachineId,
    /// What it has told of itself so far.
    pub identity: Identity,
    /// How far its deployment has come.
    pub state: State,
    /// What somebody has said about it.
    #[serde(default)]
    pub permission: Permission,
    /// The name of the configuration that it was given last.
    #[serde(default)]
    pub configuration: Option<String>,
    /// When it asked for the first time...
    pub first_seen: Moment,
    /// ...and for the last.
    pub last_seen: Moment,
    /// Since when its deployment is in this state.
    pub since: Moment,
    /// The tokens of its last deployment.
    #[serde(default)]
    pub tokens: Option<Tokens>,
}

impl Machine {
    fn new(identity: Identity, now: Moment) -> Self {
        Self {
            id: MachineId::random(),
            identity,
            state: State::default(),
            permission: Permission::default(),
            configuration: None,
            first_seen: now,
            last_seen: now,
            since: now,
            tokens: None,
        }
    }

    /// Whether nothing is known of it but that it asked.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.state == State::Waiting && self.permission == Permission::Unsaid
    }

    /// Lets something happen to its deployment.
    pub fn apply(&mut self, event: Event, now: Moment) {
        let after = self.state.after(event);
        if after != self.state {
            (self.state, self.since) = (after, now);
        }
        if event == Event::Redeploy {
            self.tokens = None;
        }
    }
}

/// Whether two identities are those of one machine: a card is of both, or serial number and UUID do not contradict each
/// other and one of them is of both. Two boards that differ in nothing but their cards count as one machine, which then
/// installs once: on the safe side.
#[must_use]
pub fn is_same(one: &Identity, other: &Identity) -> bool {
    if one.macs.iter().any(|mac| other.macs.contains(mac)) {
        return true;
    }
    let agree = |one: Option<&str>, other: Option<&str>| {
        one.zip(other).map(|(one, other)| one.eq_ignore_ascii_case(other))
    };
    let serial = agree(one.serial.as_deref(), other.serial.as_deref());
    let uuid = one.uuid.zip(other.uuid).map(|(one, other)| one == other);
    let marks = [serial, uuid];
    marks.contains(&Some(true)) && !marks.contains(&Some(false))
}

/// All machines of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines(BTreeMap<MachineId, Machine>);

impl Machines {
    /// Every machine, in the order of their names here.
    pub fn iter(&self) -> impl Iterator<Item = &Machine> {
        self.0.values()
    }

    /// One machine.
    #[must_use]
    pub fn get(&self, id: MachineId) -> Option<&Machine> {
        self.0.get(&id)
    }

    /// One machine, to let something happen to it.
    pub fn get_mut(&mut self, id: MachineId) -> Option<&mut Machine> {
        self.0.get_mut(&id)
    }

    /// The machine with this identity, which is new or has told more of itself than before.
    pub fn seen(&mut self, identity: &Identity, now: Moment) -> &mut Machine {
        // Two that turn out to be one: what keeps it from installing counts.
        let caution = |machine: &&Machine| {
            let done = matches!(machine.state, State::Installing | State::Installed | State::Joined);
            (machine.permission == Permission::Denied, done, !machine.is_stranger())
        };
        let same = self.0.values().filter(|machine| is_same(&machine.identity, identity));
        let known = same.max_by_key(caution);
        let machine = known.map_or_else(|| Machine::new(identity.clone(), now), Clone::clone);
        if known.is_none() {
            self.forget_a_stranger();
        }
        let machine = self.0.entry(machine.id).or_insert(machine);
        machine.last_seen = now;
        learn(&mut machine.identity, identity);
        machine
    }

    /// Makes room for one more, where there are too many that only asked.
    fn forget_a_stranger(&mut self) {
        let strangers = || self.0.values().filter(|machine| machine.is_stranger());
        let oldest = strangers().min_by_key(|machine| machine.last_seen).map(|machine| machine.id);
        if strangers().count() >= MOST_STRANGERS
            && let Some(oldest) = oldest
        {
            self.0.remove(&oldest);
        }
    }

    /// The machine whose configuration `token` opens, which from now on it opens no more.
    pub fn take(&mut self, token: Digest, now: Moment) -> Result<&Machine, Refused> {
        let given = |machine: &&mut Machine| {
            machine.tokens.as_ref().is_some_and(|tokens| tokens.configuration == token)
        };
        let machine = self.0.values_mut().find(given).ok_or(Refused::Unknown)?;
        let tokens = machine.tokens.as_mut().ok_or(Refused::Unknown)?;
        if tokens.used || now > tokens.until || machine.permission == Permission::Denied {
            return Err(Refused::Gone);
        }
        tokens.used = true;
        machine.last_seen = now;
        machine.apply(Event::Took, now);
        Ok(machine)
    }

    /// The machine that may report with `token`.
    #[must_use]
    pub fn reporting(&self, token: Digest) -> Option<&Machine> {
        self.0.values().find(|machine| machine.tokens.as_ref().is_some_and(|tokens| tokens.report == token))
    }

    /// What lasts: machines of which more is known than that they asked.
    pub fn lasting(&self) -> impl Iterator<Item = &Machine> {
        self.iter().filter(|machine| !machine.is_stranger())
    }
}

impl FromIterator<Machine> for Machines {
    fn from_iter<I: IntoIterator<Item = Machine>>(machines: I) -> Self {
        Self(machines.into_iter().map(|machine| (machine.id, machine)).collect())
    }
}

/// Adds to what is known what is new. A card's address stays known when the machine boots from another card.
fn learn(known: &mut Identity, told: &Identity) {
    for mac in &told.macs {
        if known.macs.len() < MOST_CARDS && !known.macs.contains(mac) {
            known.macs.push(*mac);
        }
    }
    known.macs.sort_unstable();
    let news = |known: &mut Option<String>, told: &Option<String>| {
        if known.is_none() {
            known.clone_from(told);
        }
    };
    news(&mut known.serial, &told.serial);
    news(&mut known.asset_tag, &told.asset_tag);
    known.uuid = known.uuid.or(told.uuid);
}

#[cfg(test)]
mod tests;
