//! Whether somebody else has the addresses that the node takes (RFC 5227, section 2.1.1).

use super::devices::{card, told};
use super::judge;
use crate::inventory::Nic;
use crate::preflight::intent::Claim;
use crate::preflight::network::{Holder, Trouble};
use crate::preflight::{Outcome, Subject};

pub(super) fn address_conflict(subject: &Subject<'_>) -> Outcome {
    let claims = &subject.intent.claims;
    if claims.is_empty() {
        return Outcome::skipped("the configuration has no fixed address");
    }
    let answers = std::thread::scope(|scope| {
        let asked: Vec<_> = claims.iter().map(|claim| scope.spawn(|| free(subject, claim))).collect();
        let answers = asked.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Trouble::Unable("was not asked for to the end".into())))
        });
        let labels = claims.iter().map(|claim| format!("{} ({})", claim.address, claim.key));
        labels.zip(answers).collect::<Vec<_>>()
    });
    judge(answers, "Give the node an address that is free, or take it away from the machine that has it.")
}

/// Asks for the address behind each card that it may come to be behind.
fn free(subject: &Subject<'_>, claim: &Claim) -> Result<String, Trouble> {
    if claim.vlan > 1 {
        return Err(Trouble::Unable(format!("is for VLAN {}, which this system is not on", claim.vlan)));
    }
    let mut free = Vec::new();
    let mut unable = None;
    for nic in cards(subject, claim) {
        let (name, nic) = match nic {
            Ok(nic) => (nic.name.clone(), nic),
            Err(trouble) => {
                unable = Some(trouble);
                continue;
            }
        };
        match subject.network.holder(claim.address, &name, subject.until) {
            Ok(Holder::Other(mac)) if !is_own(subject, &mac) => {
                let what = format!("is in use: the machine {mac} answers for it on {}", nic.name);
                return Err(Trouble::Silent(what));
            }
            Ok(Holder::Own | Holder::Other(_)) => return Ok("is this machine's already".into()),
            Ok(Holder::Nobody) => free.push(name),
            Err(trouble) => unable = Some(trouble),
        }
    }
    match (free.is_empty(), unable) {
        (false, _) => Ok(format!("is free on {}", free.join(", "))),
        (true, Some(trouble)) => Err(trouble),
        (true, None) => Err(Trouble::Unable("was not asked for: no card has a link".into())),
    }
}

/// The cards that the configuration names and that have a link; where it names none, all that have.
fn cards<'a>(subject: &'a Subject<'_>, claim: &'a Claim) -> Vec<Result<&'a Nic, Trouble>> {
    let inventory = &subject.facts.inventory;
    if claim.cards.is_empty() {
        return inventory.nics.iter().filter(|nic| nic.carrier == Some(true)).map(Ok).collect();
    }
    let named = claim.cards.iter().map(|wanted| match card(inventory, wanted) {
        Some(nic) if nic.carrier == Some(true) => Ok(nic),
        _ => Err(Trouble::Unable(format!("was not asked for: {} has no link", told(wanted)))),
    });
    named.collect()
}

/// Another card of this machine may answer for it.
fn is_own(subject: &Subject<'_>, mac: &str) -> bool {
    subject.facts.inventory.nics.iter().any(|nic| nic.mac.eq_ignore_ascii_case(mac))
}
