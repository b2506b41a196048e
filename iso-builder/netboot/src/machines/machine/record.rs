//! The record of one machine or assignment, and its changes.

use std::net::IpAddr;

use model::machine::{Identity, Mac, Selector};
use serde::{Deserialize, Serialize};

use super::state::{DeploymentEvent, DeploymentState, InstallPermission};
use crate::machines::id::MachineId;
use crate::machines::token::DeploymentTicket;
use crate::moment::Moment;

/// The most cards that are kept of one machine.
const MOST_CARDS: usize = 64;
/// The most clients that are kept of one machine.
pub const MOST_CLIENTS: usize = 8;
/// The most that is kept of what a client sent, in bytes.
const LONGEST: usize = 200;

/// The most cards that are kept of a machine that no configuration names.
const STRANGER_CARDS: usize = 8;

/// A client that asked to boot as a machine. Its address is that of the connection; the identifiers that it sent are not
/// proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootClient {
    pub address: IpAddr,
    /// The identifiers that it sent last, for people.
    pub told: String,
    pub first: Moment,
    pub last: Moment,
    pub times: u64,
    /// When it took the configuration, if it did.
    pub took: Option<Moment>,
}

/// One record: the assignment of a configuration, or a machine that no configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub id: MachineId,
    /// The configuration whose assignment this is; none for a machine that no configuration names.
    pub assigned: Option<String>,
    /// The identifiers by which the record is found. Of an assignment: what the configuration's selectors name, and the cards
    /// that the installed machine has reported. Of any other machine: what its first request sent.
    pub identity: Identity,
    pub state: DeploymentState,
    pub permission: InstallPermission,
    /// The name of the configuration that it was offered last.
    pub configuration: Option<String>,
    pub first_seen: Moment,
    pub last_seen: Moment,
    /// When the present state began.
    pub since: Moment,
    /// The generation of its tokens; tokens of earlier generations are void.
    pub generation: u32,
    /// The ticket with which the configuration was taken last. Only its holder reports on the install.
    pub taken: Option<TakenTicket>,
    /// The clients that asked since the last redeployment, the latest last.
    pub clients: Vec<BootClient>,
}

/// What an operator decides by: it is another one once a machine was told, has done or was refused something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineVersion {
    pub state: DeploymentState,
    pub permission: InstallPermission,
    pub generation: u32,
}

/// The record of the ticket with which a configuration was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakenTicket {
    generation: u32,
    /// The same for all tickets of one deployment that were taken, each after a wait for the cluster.
    pub nonce: u64,
}

impl From<DeploymentTicket> for TakenTicket {
    fn from(ticket: DeploymentTicket) -> Self {
        Self { generation: ticket.generation, nonce: ticket.nonce }
    }
}

impl Machine {
    /// The assignment of the configuration `name`, which has these selectors.
    #[must_use]
    pub fn assignment(name: &str, selectors: &[Selector], now: Moment) -> Self {
        let mut machine = Self::stranger(Identity::default(), now);
        machine.assigned = Some(name.to_owned());
        machine.select(selectors);
        machine
    }

    /// A machine that no configuration names. Only the first of its cards are kept: nobody proves that they exist, and each costs
    /// time of the writer.
    #[must_use]
    pub fn stranger(mut identity: Identity, now: Moment) -> Self {
        identity.macs.truncate(STRANGER_CARDS);
        Self {
            id: MachineId::random(),
            assigned: None,
            identity,
            state: DeploymentState::default(),
            permission: InstallPermission::default(),
            configuration: None,
            first_seen: now,
            last_seen: now,
            since: now,
            generation: 0,
            taken: None,
            clients: Vec::new(),
        }
    }

    #[must_use]
    pub fn version(&self) -> MachineVersion {
        MachineVersion { state: self.state, permission: self.permission, generation: self.generation }
    }

    /// True if it is only known for having asked, and no configuration names it.
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.assigned.is_none()
            && self.state == DeploymentState::Waiting
            && self.permission == InstallPermission::Unsaid
    }

    /// True if an install is blocked: its configuration was taken, or it is denied.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state.is_taken() || self.permission == InstallPermission::Denied
    }

    pub fn apply(&mut self, event: DeploymentEvent, now: Moment) {
        let after = self.state.after(event);
        if after != self.state {
            (self.state, self.since) = (after, now);
        }
        if event == DeploymentEvent::Redeploy {
            (self.taken, self.clients) = (None, Vec::new());
            self.revoke();
        }
    }

    /// Makes all earlier tokens void, except the report token of the taken ticket.
    pub fn revoke(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Adds the identifiers that selectors name.
    pub fn select(&mut self, selectors: &[Selector]) {
        let identity = &mut self.identity;
        for selector in selectors {
            match selector {
                Selector::Mac(mac) if !identity.macs.contains(mac) => identity.macs.push(*mac),
                Selector::Mac(_) => {}
                Selector::Serial(mark) => identity.serial = Some(mark.as_str().to_owned()),
                Selector::Uuid(uuid) => identity.uuid = Some(*uuid),
                Selector::AssetTag(mark) => identity.asset_tag = Some(mark.as_str().to_owned()),
            }
        }
        identity.macs.sort_unstable();
    }

    /// Adds a card that the machine has reported. Returns whether it was new and there was room for it.
    pub fn learn(&mut self, mac: Mac) -> bool {
        let macs = &mut self.identity.macs;
        let new = macs.len() < MOST_CARDS && !macs.contains(&mac);
        if new {
            macs.push(mac);
            macs.sort_unstable();
        }
        new
    }

    /// The name of its configuration, or else an identifier of its identity.
    #[must_use]
    pub fn name(&self) -> String {
        self.assigned.clone().unwrap_or_else(|| described(&self.identity))
    }

    /// Records that a client asked. Returns whether it is a new client and others have asked before.
    pub fn asked(&mut self, address: IpAddr, told: &Identity, now: Moment) -> bool {
        self.last_seen = now;
        let known = self.clients.iter().position(|client| client.address == address);
        let mut client = match known {
            Some(place) => self.clients.remove(place),
            None => BootClient { address, told: String::new(), first: now, last: now, times: 0, took: None },
        };
        (client.last, client.times) = (now, client.times.saturating_add(1));
        client.told = shortened(&told.to_string());
        let other = known.is_none() && !self.clients.is_empty();
        self.remember(client);
        other
    }

    pub fn took(&mut self, address: IpAddr, now: Moment) {
        let known = self.clients.iter().position(|client| client.address == address);
        let client = match known {
            Some(place) => BootClient { took: Some(now), ..self.clients.remove(place) },
            None => {
                BootClient { address, told: String::new(), first: now, last: now, times: 0, took: Some(now) }
            }
        };
        self.remember(client);
    }

    /// Where there are too many clients, the one that asked the longest ago and took nothing is dropped.
    fn remember(&mut self, client: BootClient) {
        if self.clients.len() >= MOST_CLIENTS {
            let place = self.clients.iter().position(|client| client.took.is_none());
            self.clients.remove(place.unwrap_or_default());
        }
        self.clients.push(client);
    }
}

/// The machine's name in the log: its first card, or else its serial number, UUID or asset tag.
#[must_use]
pub fn described(identity: &Identity) -> String {
    let Identity { macs, serial, uuid, asset_tag } = identity;
    let mark = macs.first().map(ToString::to_string).or_else(|| serial.clone());
    let mark = mark.or_else(|| uuid.map(|uuid| uuid.to_string())).or_else(|| asset_tag.clone());
    // Serial numbers come from the machine, and must not steer a terminal.
    let mark: String = mark.unwrap_or_default().chars().filter(|c| !c.is_control()).collect();
    format!("machine {mark}")
}

fn shortened(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or_default()].to_owned()
}
