//! The messages about the machine that creates a cluster, for those that wait: on their pages and on their screens.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use base::failure::Class;
use model::config::redact::Secrets;
use model::fleet::{self, RunFailure};

use super::listing;
use super::query::MachineOrder;
use super::stage::{MachineStage, StageGroup};
use super::view::{FleetView, MachineRow};
use crate::machines::configurations::Configurations;

/// The most that is said of one error, in bytes.
const ERROR: usize = 600;

/// Who creates the cluster that a machine waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwaitedCreator<'a> {
    Elsewhere,
    Configuration(&'a str),
}

impl<'a> AwaitedCreator<'a> {
    /// None where the machine does not wait.
    #[must_use]
    pub fn of(row: &MachineRow, configurations: &'a Configurations) -> Option<Self> {
        let name = row.configuration.as_deref().filter(|_| row.stage == MachineStage::WaitingForCluster)?;
        Some(configurations.creator(name).map_or(Self::Elsewhere, Self::Configuration))
    }

    fn configuration(&self) -> Option<&'a str> {
        match self {
            Self::Configuration(name) => Some(name),
            Self::Elsewhere => None,
        }
    }

    /// How far the creator is, whose row is `row`, and what to do next. Without secrets of its configuration: it is read by
    /// whoever sees the screen of another machine.
    #[must_use]
    pub fn explained(&self, row: Option<&MachineRow>, configurations: &Configurations) -> String {
        let Self::Configuration(name) = self else {
            return "No configuration here creates its cluster. Start the cluster; the install then goes on."
                .into();
        };
        let hostname = configurations.hostname(name).unwrap_or(name);
        let state = match row {
            None => "has not asked to boot yet. Switch it on; this install then goes on by itself.".into(),
            Some(row) => state(row, hostname, &configurations.secrets(name)),
        };
        fleet::beginning(&format!("{hostname}, which creates the cluster, {state}"), fleet::MESSAGE)
    }
}

/// Tells of each machine that waits for its cluster how far the machine is that creates it.
pub fn explain(view: &mut FleetView, configurations: &Configurations) {
    let waits: Vec<_> = view
        .machines
        .iter()
        .enumerate()
        .filter_map(|(place, row)| Some((place, AwaitedCreator::of(row, configurations)?)))
        .collect();
    // Thousands of machines may wait for thousands of clusters.
    let creators: HashSet<_> = waits.iter().filter_map(|(_, awaited)| awaited.configuration()).collect();
    let mut rows: HashMap<String, Arc<MachineRow>> = HashMap::new();
    for row in &view.machines {
        let Some(name) = row.configuration.as_deref().filter(|name| creators.contains(name)) else {
            continue;
        };
        // Of several machines that were offered it, the one that an operator has to look at first.
        let is_first =
            |known: &Arc<MachineRow>| listing::compare(row, known, MachineOrder::Attention).is_lt();
        if rows.get(name).is_none_or(is_first) {
            rows.insert(name.to_owned(), Arc::clone(row));
        }
    }
    for (place, awaited) in waits {
        let creator = awaited.configuration().and_then(|name| rows.get(name)).map(|row| &**row);
        let text = awaited.explained(creator, configurations);
        if let Some(row) = view.machines.get_mut(place) {
            Arc::make_mut(row).explain_wait(text);
        }
    }
}

fn state(row: &MachineRow, hostname: &str, secrets: &Secrets) -> String {
    let stage = row.stage.text().to_lowercase();
    let failure = row.error.as_ref();
    let error = failure.and_then(|failure| error(failure, secrets)).map(|error| format!(": {error}"));
    let error = error.unwrap_or_default();
    match row.stage {
        MachineStage::Failed => {
            let stage = row.failed_in.map(|stage| format!(" in stage {}", stage.text().to_lowercase()));
            let class = failure.map(|failure| Class::from_exit_code(failure.exit_code));
            let class =
                class.filter(|class| *class != Class::Unexpected).map(|class| format!(" ({})", word(class)));
            let (stage, class) = (stage.unwrap_or_default(), class.unwrap_or_default());
            format!(
                "has failed{stage}{class}{error}. Correct this and start {hostname} again; this install then goes on by itself."
            )
        }
        MachineStage::NotJoined => format!(
            "is installed, but its cluster does not start{error}. The page of {hostname} says what to do; this install then goes on by itself."
        ),
        MachineStage::Denied => {
            "is denied by an operator. Allow it and start it; this install then goes on by itself.".into()
        }
        MachineStage::Waiting => {
            "installs when it boots next. Start it; this install then goes on by itself.".into()
        }
        _ if row.group == StageGroup::Installed || row.stage == MachineStage::UpdateRolledBack => {
            "is installed. This install goes on when the cluster answers.".into()
        }
        _ if row.silent => format!(
            "has not reported for minutes (stage {stage}). Look at its console; this install goes on when the cluster answers."
        ),
        _ => format!("is not ready yet ({stage}). This install goes on when the cluster answers."),
    }
}

/// The error as one clause: the first line of each cause.
fn error(failure: &RunFailure, secrets: &Secrets) -> Option<String> {
    let first = |cause: &String| secrets.hide(cause).lines().next().unwrap_or_default().trim().to_owned();
    let causes: Vec<_> = failure.causes.iter().map(first).filter(|cause| !cause.is_empty()).collect();
    let text = causes.join(": ");
    (!text.is_empty()).then(|| fleet::beginning(text.trim_end_matches('.'), ERROR))
}

/// The word of a class, as errors in JSON have it.
fn word(class: Class) -> String {
    let value = base::encode::json(&class);
    value.as_str().unwrap_or_default().to_owned()
}
