//! The journal of the server: what happens, each entry with its time, as text for people and as JSON for programs.
//!
//! The entries are events of [`Progress`], with `details` that `docs/output.md` describes.

use base::failure::Class;
use base::progress::Progress;
use model::machine::Identity;
use serde_json::{Value, json};

use super::fleet::stage::MachineStage;
use super::fleet::view::MachineRow;
use super::machine::{BootAnswer, described};

/// The step of the server in progress events.
pub const STEP: &str = "serve";

/// One entry.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalEntry {
    text: String,
    details: Value,
}

/// Writes a line about something that happened now.
pub fn write(progress: &Progress, text: &str) {
    JournalEntry::note(text).write(progress);
}

/// Writes a warning.
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

    /// A machine is in another stage than before.
    #[must_use]
    pub fn stage(row: &MachineRow) -> Self {
        let text = format!("{}: {}", called(row), row.stage.text().to_lowercase());
        Self::of_row("stage", text, row)
    }

    /// A machine has begun to wait for its cluster.
    #[must_use]
    pub fn waiting(row: &MachineRow) -> Self {
        let reason = row.message.as_deref().unwrap_or_default();
        let mut entry = Self::of_row("waiting", format!("{}: {reason}", called(row)), row);
        entry.details["reason"] = reason.into();
        entry
    }

    /// A machine is installed, or its node is ready.
    #[must_use]
    pub fn finished(row: &MachineRow, stage: MachineStage) -> Self {
        let how = match stage {
            MachineStage::Joined => "is ready in its cluster",
            _ => "is installed",
        };
        let mut entry = Self::of_row("finished", format!("{} {how}", called(row)), row);
        (entry.details["stage"], entry.details["group"]) = (json!(stage), json!(stage.group()));
        entry
    }

    /// An install has failed, a node cannot join, or an update was taken back.
    #[must_use]
    pub fn failed(row: &MachineRow) -> Self {
        let error = row.error.clone().unwrap_or_default();
        let why = match error.causes.is_empty() {
            true => row.message.clone().unwrap_or_default(),
            false => error.causes.join(": "),
        };
        let stage = row.failed_in.map(|stage| format!(" in stage {}", stage.text().to_lowercase()));
        let why = if why.is_empty() { why } else { format!(": {why}") };
        let text = format!("{} failed{}{why}", called(row), stage.unwrap_or_default());
        let mut entry = Self::of_row("failed", text, row);
        if let (Value::Object(details), Some(error)) = (&mut entry.details, &row.error) {
            let class = Class::from_exit_code(error.exit_code);
            let more = json!({
                "failed_in": row.failed_in, "class": class, "exit_code": error.exit_code,
                "causes": error.causes, "hints": error.hints,
            });
            details.extend(more.as_object().cloned().unwrap_or_default());
        }
        entry
    }

    fn of_row(event: &str, text: String, row: &MachineRow) -> Self {
        let machine = JournalMachine {
            id: Some(row.id.clone()),
            name: &row.name,
            identity: &row.identity,
            configuration: row.configuration.as_deref(),
        };
        let details = json!({
            "event": event, "machine": machine.to_json(), "stage": row.stage, "group": row.group,
        });
        Self { text, details }
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

/// A machine in a text: its name, and an identifier where the name is none.
fn called(row: &MachineRow) -> String {
    let mark = described(&row.identity);
    if mark.ends_with(&row.name) { mark } else { format!("{} ({mark})", row.name) }
}
