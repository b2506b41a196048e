//! Another machine must not have the addresses that the node takes (RFC 5227, section 2.1.1).

use super::devices::{card, card_text};
use super::judge::judge;
use crate::check::{CheckOutcome, CheckSubject};
use crate::network::AddressHolder;
use crate::planned_node::AddressClaim;
use machine::inventory::Nic;
use machine::network_trouble::NetworkTrouble;

pub(super) fn address_conflict(subject: &CheckSubject<'_>) -> CheckOutcome {
    let claims = &subject.node.claims;
    if claims.is_empty() {
        return CheckOutcome::skipped("the configuration has no fixed address");
    }
    let answers = std::thread::scope(|scope| {
        let asked: Vec<_> = claims.iter().map(|claim| scope.spawn(|| free(subject, claim))).collect();
        let answers = asked.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(NetworkTrouble::Unable("was not checked: internal error".into())))
        });
        let labels = claims.iter().map(|claim| format!("{} ({})", claim.address, claim.key));
        labels.zip(answers).collect::<Vec<_>>()
    });
    judge(answers, "Give the node an address that is free, or take it away from the machine that has it.")
}

/// Asks for the address on its own device, and if that does not exist yet, behind each card that it may be behind later.
fn free(subject: &CheckSubject<'_>, claim: &AddressClaim) -> Result<String, NetworkTrouble> {
    match subject.network.holder(claim.address, &claim.device, subject.until) {
        Err(_) => free_on_cards(subject, claim),
        Ok(holder) => judged(subject, holder, &claim.device)
            .map(|free| if free { format!("is free on {}", claim.device) } else { OWN.into() }),
    }
}

/// The answer for an address that this machine has.
const OWN: &str = "is this machine's already";

/// Whether the address is free. Another machine that has it is a finding; this machine is none.
fn judged(subject: &CheckSubject<'_>, holder: AddressHolder, device: &str) -> Result<bool, NetworkTrouble> {
    match holder {
        AddressHolder::Other(mac) if !is_own(subject, &mac) => {
            Err(NetworkTrouble::Silent(format!("is in use: the machine {mac} answers for it on {device}")))
        }
        AddressHolder::Own | AddressHolder::Other(_) => Ok(false),
        AddressHolder::Nobody => Ok(true),
    }
}

fn free_on_cards(subject: &CheckSubject<'_>, claim: &AddressClaim) -> Result<String, NetworkTrouble> {
    if claim.vlan > 1 {
        return Err(NetworkTrouble::Unable(format!(
            "is for VLAN {}, which this system is not on",
            claim.vlan
        )));
    }
    let mut free = Vec::new();
    let mut unable = None;
    for nic in cards(subject, claim) {
        let holder =
            nic.and_then(|nic| Ok((nic, subject.network.holder(claim.address, &nic.name, subject.until)?)));
        match holder {
            Err(trouble) => unable = Some(trouble),
            Ok((nic, holder)) => match judged(subject, holder, &nic.name)? {
                true => free.push(nic.name.clone()),
                false => return Ok(OWN.into()),
            },
        }
    }
    match (free.is_empty(), unable) {
        (false, _) => Ok(format!("is free on {}", free.join(", "))),
        (true, Some(trouble)) => Err(trouble),
        (true, None) => Err(NetworkTrouble::Unable("was not asked for: no card has a link".into())),
    }
}

/// The cards that the configuration names and that have a link; if it names none, all that have.
fn cards<'a>(subject: &'a CheckSubject<'_>, claim: &'a AddressClaim) -> Vec<Result<&'a Nic, NetworkTrouble>> {
    let inventory = &subject.facts.inventory;
    if claim.cards.is_empty() {
        return inventory.nics.iter().filter(|nic| nic.carrier == Some(true)).map(Ok).collect();
    }
    let named = claim.cards.iter().map(|wanted| match card(inventory, wanted) {
        Some(nic) if nic.carrier == Some(true) => Ok(nic),
        _ => Err(NetworkTrouble::Unable(format!("was not asked for: {} has no link", card_text(wanted)))),
    });
    named.collect()
}

fn is_own(subject: &CheckSubject<'_>, mac: &str) -> bool {
    subject.facts.inventory.nics.iter().any(|nic| nic.mac.eq_ignore_ascii_case(mac))
}
