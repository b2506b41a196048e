//! Fields for keys of the install configuration, made from the answers; and their values, put back there.

use serde_json::Value;

use super::answers::{AnswerOrigin, Answers};
use super::toolkit::form::{Choice, Field, FieldKind};
use model::config::shape::{self, Shape};

/// Policies of a bond, in the order in which they are offered.
pub(crate) const BONDS: [&str; 7] =
    ["active-backup", "802.3ad", "balance-rr", "balance-xor", "broadcast", "balance-tlb", "balance-alb"];

/// Takes the value of a field without special rules.
pub(crate) fn take_plain(field: &Field, answers: &mut Answers) {
    match &field.kind {
        FieldKind::Secret(line) => take_secret(answers, &field.id, &line.text()),
        FieldKind::Line(line) => take_text(answers, &field.id, &line.text()),
        FieldKind::Choice { chosen, .. } => take_word(answers, &field.id, *chosen),
        FieldKind::Marks { .. } | FieldKind::Text => {}
    }
}

/// The values of `key`, in the order of its choice.
fn words(id: &str) -> &'static [&'static str] {
    match id {
        "install.mode" => &["create", "join", "install"],
        "install.role" => &["default", "management", "worker", "witness"],
        "install.profile" => &["production", "trial"],
        "install.management_interface.method" => &["dhcp", "static"],
        "install.management_interface.bond_options.mode" => &BONDS,
        "install.vip_mode" => &["static", "dhcp"],
        _ => &[],
    }
}

pub(crate) fn take_word(answers: &mut Answers, id: &str, chosen: Option<usize>) {
    let Some(word) = chosen.and_then(|chosen| words(id).get(chosen)) else { return };
    // The first option is the default, if the key may be absent.
    let nothing = chosen == Some(0) && (id == "install.vip_mode" || answers.value(id).is_none());
    answers.give(id, (!nothing).then(|| Value::from(*word)));
}

/// Stores text as the type of the key; an empty text removes the value.
pub(crate) fn take_text(answers: &mut Answers, id: &str, text: &str) {
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
    let answered = answers.origin(id) == Some(AnswerOrigin::Answered);
    if !text.is_empty() || answered {
        answers.give(id, (!text.is_empty()).then(|| Value::from(text)));
    }
}

pub(crate) fn line(answers: &Answers, id: &str, label: &str, usual: &str) -> Field {
    Field::line(id, label, &answers.text(id)).remark(remark(answers, id, usual))
}

pub(crate) fn secret(answers: &Answers, id: &str, label: &str, usual: &str) -> Field {
    let answered = answers.origin(id) == Some(AnswerOrigin::Answered);
    let text = if answered { answers.text(id) } else { String::new() };
    Field::secret(id, label, &text).remark(remark(answers, id, usual))
}

pub(crate) fn choice(answers: &Answers, id: &str, label: &str, options: Vec<Choice>) -> Field {
    let word = answers.text(id);
    let chosen = words(id).iter().position(|known| *known == word);
    let found = answers.origin(id).is_some_and(|origin| origin != AnswerOrigin::Answered);
    let remark = remark(answers, id, "").filter(|_| found);
    Field::choice(id, label, options, chosen.or(Some(0))).remark(remark)
}

/// The origin of a value, or the default without one.
pub(crate) fn remark(answers: &Answers, id: &str, usual: &str) -> Option<String> {
    match answers.origin(id) {
        Some(AnswerOrigin::Found(kind)) => Some(format!("from: {kind}")),
        Some(AnswerOrigin::Answered) => None,
        None => Some(usual.to_owned()).filter(|usual| !usual.is_empty()),
    }
}
