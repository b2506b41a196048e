//! The fields of the management network: of a machine that is installed ([`super::questions`]), and of a node
//! ([`super::node_page`]).

use serde_json::{Value, json};

use super::answers::Answers;
use super::fields::{BONDS, choice, line, remark, take_plain};
use crate::toolkit::form::{Choice, Field};
use machine::inventory::Nic;
use model::config::Method;

const CARDS: &str = "install.management_interface.interfaces";
const SERVERS: &str = "os.dns_nameservers";

/// The fields, with the name servers also for DHCP: an install has them on another screen in that case.
#[must_use]
pub(crate) fn all_fields(answers: &Answers, nics: &[Nic]) -> Vec<Field> {
    let mut fields = fields(answers, nics);
    if !fields.iter().any(|field| field.id == SERVERS) {
        fields.push(line(answers, SERVERS, "Name servers", "empty: from DHCP"));
    }
    fields
}

/// Puts the value of one of these fields into the answers.
pub(crate) fn answer(field: &Field, answers: &mut Answers, nics: &[Nic]) {
    if !take(field, answers, nics) {
        take_plain(field, answers);
    }
}

pub(crate) fn fields(answers: &Answers, nics: &[Nic]) -> Vec<Field> {
    let config = answers.understood();
    let management = config.install.management_interface.unwrap_or_default();
    let marked = marked(answers, nics);
    let cards = nics.iter().zip(&marked).map(|(nic, marked)| (card(nic), *marked)).collect();
    let at = |key: &str| format!("install.management_interface.{key}");
    let mut fields = vec![
        Field::marks(CARDS, "Network cards; several make a bond", cards).remark(remark(answers, CARDS, "")),
    ];
    if marked.iter().filter(|marked| **marked).count() > 1 {
        let policies = BONDS.map(|policy| match policy {
            "active-backup" => Choice::new("active-backup: one card is active, another takes over"),
            "802.3ad" => Choice::new("802.3ad: LACP, which the switch must support"),
            other => Choice::new(other),
        });
        fields.push(choice(answers, &at("bond_options.mode"), "Bond mode", policies.to_vec()));
    }
    let methods = vec![Choice::new("From a DHCP server"), Choice::new("Fixed")];
    fields.push(choice(answers, &at("method"), "Address", methods));
    if management.method == Method::Static {
        fields.push(line(answers, &at("ip"), "Address", ""));
        fields.push(line(answers, &at("subnet_mask"), "Network mask", "such as 255.255.255.0"));
        fields.push(line(answers, &at("gateway"), "Gateway", ""));
        fields.push(line(answers, SERVERS, "Name servers", "joined by commas"));
    }
    fields.push(optional(answers, &at("vlan_id"), "VLAN", "2 to 4094; empty is none"));
    fields.push(optional(answers, &at("mtu"), "MTU", "bytes; empty: the card's own"));
    fields
}

/// A number; zero is shown as empty.
fn optional(answers: &Answers, id: &str, label: &str, usual: &str) -> Field {
    let text = Some(answers.text(id)).filter(|text| text != "0").unwrap_or_default();
    let found = remark(answers, id, usual).filter(|_| !text.is_empty());
    Field::line(id, label, &text).remark(found.or(Some(usual.to_owned())))
}

fn card(nic: &Nic) -> Choice {
    let link = match (nic.carrier, nic.speed) {
        (Some(true), Some(speed)) => format!("link, {speed} Mbit/s"),
        (Some(true), None) => "link".to_owned(),
        (Some(false), _) => "no link".to_owned(),
        (None, _) => "down".to_owned(),
    };
    Choice::new(format!("{}  {}  {link}", nic.name, nic.mac))
}

/// For each card: true if the answer has it, by name or by hardware address.
fn marked(answers: &Answers, nics: &[Nic]) -> Vec<bool> {
    let cards = answers.value(CARDS).and_then(|cards| cards.as_array().cloned()).unwrap_or_default();
    let is = |nic: &Nic, card: &Value| match (card["hw_addr"].as_str(), card["name"].as_str()) {
        (Some(address), _) => address.eq_ignore_ascii_case(&nic.mac),
        (None, name) => name == Some(&nic.name),
    };
    nics.iter().map(|nic| cards.iter().any(|card| is(nic, card))).collect()
}

/// Takes the value of a field with special rules; returns whether this was one.
pub(crate) fn take(field: &Field, answers: &mut Answers, nics: &[Nic]) -> bool {
    if field.id == CARDS {
        let now: Vec<usize> =
            (0..).zip(marked(answers, nics)).filter(|(_, on)| *on).map(|(at, _)| at).collect();
        if now != field.marked() {
            let cards = field.marked().into_iter().filter_map(|at| nics.get(at));
            // By its address: the names of cards change with the slots that are in use.
            let cards: Vec<_> = cards.map(|nic| json!({ "hw_addr": nic.mac })).collect();
            answers.give(CARDS, (!cards.is_empty()).then(|| Value::from(cards)));
        }
        return true;
    }
    let zero = matches!(field.id.rsplit('.').next(), Some("vlan_id" | "mtu"));
    if zero && field.typed().is_some_and(|text| text.trim().is_empty()) {
        if !matches!(answers.text(&field.id).as_str(), "" | "0") {
            answers.give(&field.id, None);
        }
        return true;
    }
    false
}

/// Marks the first card with a link if none is marked: right for most machines.
pub(crate) fn suggest(answers: &mut Answers, nics: &[Nic]) {
    let linked = nics.iter().find(|nic| nic.carrier == Some(true)).or(nics.first());
    if let (None, Some(nic)) = (answers.value(CARDS).filter(|cards| cards != &json!([])), linked) {
        answers.give(CARDS, Some(json!([{ "hw_addr": nic.mac }])));
    }
}
