//! The journal's entries about a machine, from its row.

use base::failure::Class;
use serde_json::{Map, Value, json};

use super::stage::MachineStage;
use super::view::MachineRow;
use crate::journal::{JournalEntry, JournalMachine};
use crate::machines::machine::described;

/// A machine is in another stage than before.
#[must_use]
pub fn stage(row: &MachineRow) -> JournalEntry {
    let text = format!("{}: {}", called(row), row.stage.text().to_lowercase());
    entry("stage", text, row, row.stage, &[])
}

/// A machine has begun to wait for its cluster.
#[must_use]
pub fn waiting(row: &MachineRow) -> JournalEntry {
    let reason = row.message.as_deref().unwrap_or_default();
    entry("waiting", format!("{}: {reason}", called(row)), row, row.stage, &[("reason", reason.into())])
}

/// A machine is installed, or its node is ready.
#[must_use]
pub fn finished(row: &MachineRow, stage: MachineStage) -> JournalEntry {
    let how = match stage {
        MachineStage::Joined => "is ready in its cluster",
        _ => "is installed",
    };
    entry("finished", format!("{} {how}", called(row)), row, stage, &[])
}

/// An install has failed, a node cannot join, or an update was taken back.
#[must_use]
pub fn failed(row: &MachineRow) -> JournalEntry {
    let causes = row.error.as_ref().map(|error| error.causes.join(": "));
    let why = causes.filter(|causes| !causes.is_empty()).or_else(|| row.message.clone());
    let why = why.filter(|why| !why.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
    let stage = row.failed_in.map(|stage| format!(" in stage {}", stage.text().to_lowercase()));
    let text = format!("{} failed{}{why}", called(row), stage.unwrap_or_default());
    let Some(error) = &row.error else { return entry("failed", text, row, row.stage, &[]) };
    let further = [
        ("failed_in", json!(row.failed_in)),
        ("class", json!(Class::from_exit_code(error.exit_code))),
        ("exit_code", error.exit_code.into()),
        ("causes", json!(error.causes)),
        ("hints", json!(error.hints)),
    ];
    entry("failed", text, row, row.stage, &further)
}

fn entry(
    event: &str,
    text: String,
    row: &MachineRow,
    stage: MachineStage,
    further: &[(&str, Value)],
) -> JournalEntry {
    let machine = JournalMachine {
        id: Some(row.id.clone()),
        name: &row.name,
        identity: &row.identity,
        configuration: row.configuration.as_deref(),
    };
    let stages = [("stage", json!(stage)), ("group", json!(stage.group()))];
    let all = stages.iter().chain(further).map(|(key, value)| ((*key).to_owned(), value.clone()));
    JournalEntry::of_machine(event, text, &machine, all.collect::<Map<_, _>>())
}

/// A machine in a text: its name, and a mark where the name is none.
fn called(row: &MachineRow) -> String {
    let mark = described(&row.identity);
    if mark.ends_with(&row.name) { mark } else { format!("{} ({mark})", row.name) }
}
