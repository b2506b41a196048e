//! The journal of the server: what happens, each entry with its time, as text for people and as JSON for programs.
//!
//! The entries are events of [`Progress`], with `details` that `docs/reference/output.md` describes.

use base::progress::Progress;
use model::machine::Identity;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::machines::machine::BootAnswer;

/// The step of the server in progress events.
pub const STEP: &str = "serve";

#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    text: String,
    details: Value,
}

/// Writes a line about something that happened now.
pub fn write(progress: &Progress, text: &str) {
    JournalEntry::note(text).write(progress);
}

pub fn warn(progress: &Progress, warning: &str) {
    let plain = warning.replacen(": warning: ", ": ", 1);
    let plain = plain.strip_prefix("warning: ").unwrap_or(&plain);
    JournalEntry { text: format!("warning: {plain}"), details: json!({ "event": "warning" }) }
        .write(progress);
}

impl JournalEntry {
    /// Something that has only a text.
    #[must_use]
    pub fn note(text: impl Into<String>) -> Self {
        Self { text: text.into(), details: json!({ "event": "note" }) }
    }

    /// The server listens; `details` are what it serves and where.
    #[must_use]
    pub fn listening(text: impl Into<String>, mut details: Value) -> Self {
        details["event"] = "listening".into();
        Self { text: text.into(), details }
    }

    /// The client at `client` asked what to boot, as the machine `machine`.
    #[must_use]
    pub fn seen(
        text: impl Into<String>,
        client: &str,
        machine: &JournalMachine<'_>,
        answer: BootAnswer,
    ) -> Self {
        let (boots, reason) = match answer {
            BootAnswer::Install => ("installer", Value::Null),
            BootAnswer::Disk(why) => ("disk", json!(why)),
        };
        let details = json!({
            "event": "machine-seen", "client": client, "machine": machine.to_json(), "boots": boots, "reason": reason,
        });
        Self { text: text.into(), details }
    }

    /// The client at `client` has taken the configuration of `machine`.
    #[must_use]
    pub fn taken(text: impl Into<String>, client: &str, machine: &JournalMachine<'_>) -> Self {
        let details =
            json!({ "event": "configuration-taken", "client": client, "machine": machine.to_json() });
        Self { text: text.into(), details }
    }

    /// Something that an operator has done, as `entry` of the audit log tells it.
    #[must_use]
    pub fn audit(text: impl Into<String>, entry: &impl Serialize) -> Self {
        let details = json!({ "event": "operator-action", "audit": entry });
        Self { text: text.into(), details }
    }

    /// Something that has happened to a machine.
    #[must_use]
    pub fn of_machine(
        event: &str,
        text: impl Into<String>,
        machine: &JournalMachine<'_>,
        further: Map<String, Value>,
    ) -> Self {
        let mut details =
            Map::from_iter([("event".to_owned(), event.into()), ("machine".to_owned(), machine.to_json())]);
        details.extend(further);
        Self { text: text.into(), details: details.into() }
    }

    pub fn write(self, progress: &Progress) {
        // Names and errors come from machines: they neither steer a terminal nor begin lines of their own.
        let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
        progress.journal(STEP, self.text.chars().map(plain).collect::<String>(), self.details);
    }
}

/// A machine in the details of an entry.
#[derive(Clone, Debug)]
pub struct JournalMachine<'a> {
    /// That of the fleet; none of a machine that has no record.
    pub id: Option<String>,
    pub name: &'a str,
    pub identity: &'a Identity,
    pub configuration: Option<&'a str>,
}

impl JournalMachine<'_> {
    fn to_json(&self) -> Value {
        let Self { id, name, identity, configuration } = self;
        json!({ "id": id, "name": name, "identity": identity, "configuration": configuration })
    }
}
