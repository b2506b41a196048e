//! The questions of each screen, made from the answers; and what is answered, put back there. One file a screen.

mod access;
mod cluster;
mod disks;
mod names;
pub mod network;
mod welcome;

use serde_json::Value;

use super::Facts;
use super::answers::{Answers, Origin};
use crate::ui::toolkit::form::{Choice, Field, Kind};
use model::config::Mode;
use model::config::shape::{self, Shape};

/// A screen with questions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Screen {
    /// What machine this is, and what it shall become.
    Welcome,
    /// Where the system goes.
    Disks,
    /// The management network.
    Network,
    /// Host name, name servers, time servers, proxy.
    Names,
    /// The cluster that begins, or that is joined.
    Cluster,
    /// Who may log in.
    Access,
}

/// The screens of a mode, in order.
#[must_use]
pub fn order(mode: Mode) -> &'static [Screen] {
    use Screen::{Access, Cluster, Disks, Names, Network, Welcome};
    match mode {
        Mode::Create | Mode::Join => &[Welcome, Disks, Network, Names, Cluster, Access],
        Mode::Install => &[Welcome, Disks, Network, Names, Access],
    }
}

impl Screen {
    /// The title; stable.
    #[must_use]
    pub fn title(self, mode: Mode) -> &'static str {
        match self {
            Self::Welcome => "Install: what this machine becomes",
            Self::Disks => "Install: disks",
            Self::Network => "Install: management network",
            Self::Names => "Install: names and servers",
            Self::Cluster if mode == Mode::Join => "Install: the cluster to join",
            Self::Cluster => "Install: the new cluster",
            Self::Access => "Install: who may log in",
        }
    }

    /// Its questions.
    #[must_use]
    pub fn fields(self, answers: &Answers, facts: &Facts) -> Vec<Field> {
        match self {
            Self::Welcome => welcome::fields(answers, facts),
            Self::Disks => disks::fields(answers, facts),
            Self::Network => network::fields(answers, &facts.inventory.nics),
            Self::Names => names::fields(answers),
            Self::Cluster => cluster::fields(answers),
            Self::Access => access::fields(answers),
        }
    }

    /// Puts what stands in a field into the answers.
    pub fn take(self, field: &Field, answers: &mut Answers, facts: &Facts) {
        match (self, &field.kind) {
            (_, Kind::Text) => {}
            (Self::Disks, Kind::Choice { .. }) => disks::take(field, answers, facts),
            (Self::Network, _) if network::take(field, answers, &facts.inventory.nics) => {}
            (Self::Names, _) if names::take(field, answers) => {}
            _ => take_plain(field, answers),
        }
    }

    /// Groups whose mistakes are told on this screen though no field has them.
    #[must_use]
    pub fn groups(self) -> &'static [&'static str] {
        match self {
            Self::Access => &["os"],
            Self::Network => &["install.management_interface"],
            _ => &[],
        }
    }
}

/// What a repetition of the password is called.
pub const REPETITION: &str = "repetition";

/// Takes a field that is like any other of its kind.
fn take_plain(field: &Field, answers: &mut Answers) {
    match &field.kind {
        Kind::Secret(line) => take_secret(answers, &field.id, &line.text()),
        Kind::Line(line) => take_text(answers, &field.id, &line.text()),
        Kind::Choice { chosen, .. } => take_word(answers, &field.id, *chosen),
        Kind::Marks { .. } | Kind::Text => {}
    }
}

/// The words of `key`, in the order in which its choice shows them.
fn words(id: &str) -> &'static [&'static str] {
    match id {
        "install.mode" => &["create", "join", "install"],
        "install.role" => &["default", "management", "worker", "witness"],
        "install.profile" => &["production", "trial"],
        "install.management_interface.method" => &["dhcp", "static"],
        "install.management_interface.bond_options.mode" => &network::BONDS,
        "install.vip_mode" => &["static", "dhcp"],
        _ => &[],
    }
}

fn take_word(answers: &mut Answers, id: &str, chosen: Option<usize>) {
    let Some(word) = chosen.and_then(|chosen| words(id).get(chosen)) else { return };
    // The first is what holds without a word, where there can be none.
    let nothing = chosen == Some(0) && (id == "install.vip_mode" || answers.value(id).is_none());
    answers.give(id, (!nothing).then(|| Value::from(*word)));
}

/// Text as the kind of value that the key has; nothing for no text.
fn take_text(answers: &mut Answers, id: &str, text: &str) {
    let text = text.trim();
    let shape = id.split('.').try_fold(shape::install_config(), Shape::at);
    let value = match shape {
        _ if text.is_empty() => None,
        Some(Shape::List(_)) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(items.map(Value::from).collect())
        }
        Some(Shape::Number { .. }) => {
            Some(text.parse::<u32>().map_or_else(|_| Value::from(text), Value::from))
        }
        _ => Some(Value::from(text)),
    };
    answers.give(id, value);
}

/// A secret that was found is not shown and stays until another one is typed.
fn take_secret(answers: &mut Answers, id: &str, text: &str) {
    let answered = answers.origin(id) == Some(Origin::Answered);
    if !text.is_empty() || answered {
        answers.give(id, (!text.is_empty()).then(|| Value::from(text)));
    }
}

/// A line for a key.
fn line(answers: &Answers, id: &str, label: &str, usual: &str) -> Field {
    Field::line(id, label, &answers.text(id)).remark(remark(answers, id, usual))
}

/// A line for a key whose value is not seen.
fn secret(answers: &Answers, id: &str, label: &str, usual: &str) -> Field {
    let answered = answers.origin(id) == Some(Origin::Answered);
    let text = if answered { answers.text(id) } else { String::new() };
    Field::secret(id, label, &text).remark(remark(answers, id, usual))
}

/// A choice for a key.
fn choice(answers: &Answers, id: &str, label: &str, options: Vec<Choice>) -> Field {
    let word = answers.text(id);
    let chosen = words(id).iter().position(|known| *known == word);
    let found = answers.origin(id).is_some_and(|origin| origin != Origin::Answered);
    let remark = remark(answers, id, "").filter(|_| found);
    Field::choice(id, label, options, chosen.or(Some(0))).remark(remark)
}

/// Where a value comes from, or what happens without one.
fn remark(answers: &Answers, id: &str, usual: &str) -> Option<String> {
    match answers.origin(id) {
        Some(Origin::Found(kind)) => Some(format!("from: {kind}")),
        Some(Origin::Answered) => None,
        None => Some(usual.to_owned()).filter(|usual| !usual.is_empty()),
    }
}

/// Answers what most machines want, where nothing has been answered or found.
pub fn suggest(screen: Screen, answers: &mut Answers, facts: &Facts) {
    match screen {
        Screen::Network => network::suggest(answers, &facts.inventory.nics),
        Screen::Disks => disks::suggest(answers, facts),
        _ => {}
    }
}
