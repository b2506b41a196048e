//! The audit log: who has decided what about the fleet. An entry is stored in the transaction of what it tells, so that there is
//! none without the other.

use std::fmt;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::access_token::TokenRole;
use super::id::MachineId;
use crate::moment::Moment;

/// The longest name that is kept of a machine or an actor, in bytes.
const NAME: usize = 256;

/// How an actor was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ActorKind {
    /// By a token.
    Token,
    /// By the right to open the state: a command on a server.
    Command,
}

/// Who has done something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    pub kind: ActorKind,
    /// The name of the token, or `USER@HOST` of a command.
    pub name: String,
    /// That of the token.
    pub role: Option<TokenRole>,
    /// The address of the client.
    pub address: Option<IpAddr>,
}

impl Actor {
    /// Who has used the token `name` from the client at `address`.
    #[must_use]
    pub fn token(name: &str, role: TokenRole, address: Option<IpAddr>) -> Self {
        Self { kind: ActorKind::Token, name: name.to_owned(), role: Some(role), address }
    }

    /// A command of `user` on the host `host`.
    #[must_use]
    pub fn command(user: &str, host: &str) -> Self {
        let name = shortened(format!("{user}@{host}"));
        Self { kind: ActorKind::Command, name, role: None, address: None }
    }
}

/// `NAME from ADDRESS`.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(address) => write!(f, "{} from {address}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuditAction {
    Allow,
    Deny,
    Redeploy,
    Forget,
    Dismiss,
    /// A machine was let install by a token that it sent.
    Enroll,
    MakeToken,
    RevokeToken,
}

base::names!(AuditAction {
    Allow = "allow",
    Deny = "deny",
    Redeploy = "redeploy",
    Forget = "forget",
    Dismiss = "dismiss",
    Enroll = "enroll",
    MakeToken = "make-token",
    RevokeToken = "revoke-token",
});

/// What an action was on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuditSubject {
    Machine {
        /// As the API and the page have it.
        #[serde(serialize_with = "displayed")]
        #[schemars(with = "String")]
        id: MachineId,
        /// That of its configuration, or an identifier.
        name: String,
    },
    Conflict {
        id: String,
        /// The client whose request it was.
        address: Option<IpAddr>,
    },
    Token {
        id: String,
        name: String,
        role: TokenRole,
        /// RFC 3339.
        expires: Option<String>,
        /// How many machines it lets install.
        #[serde(default)]
        uses: Option<u32>,
    },
}

/// The name of the subject.
impl fmt::Display for AuditSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine { name, .. } => f.write_str(name),
            Self::Conflict { id, address: Some(address) } => write!(f, "conflict {id} of {address}"),
            Self::Conflict { id, address: None } => write!(f, "conflict {id}"),
            Self::Token { name, role, .. } => write!(f, "{name} ({role})"),
        }
    }
}

impl AuditSubject {
    #[must_use]
    pub fn machine(id: MachineId, name: String) -> Self {
        Self::Machine { id, name: shortened(name) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuditResult {
    Done,
    /// The record was removed.
    Removed,
    /// The state of the machine does not allow it; nothing was changed.
    Refused,
}

base::names!(AuditResult { Done = "done", Removed = "removed", Refused = "refused" });

/// What was done, without the number that it gets in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditRecord {
    pub actor: Actor,
    pub action: AuditAction,
    #[serde(flatten)]
    pub subject: AuditSubject,
    pub result: AuditResult,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// Counts up from 1.
    pub number: u64,
    pub time: Moment,
    pub record: AuditRecord,
}

/// Which entries are wanted, the latest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditQuery {
    /// Only entries with a lower number.
    pub before: Option<u64>,
    /// Only those about this machine.
    pub machine: Option<MachineId>,
    pub limit: usize,
}

fn displayed<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn shortened(mut text: String) -> String {
    let end = (0..=NAME.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
    text
}
