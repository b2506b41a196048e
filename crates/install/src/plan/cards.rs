//! The network cards that the configuration names, against those of the machine: each address means one card, and each card has a
//! part in one network. A card that is missing is no mistake here; the preflight checks report it.

use base::failure::{Class, Failure};
use machine::inventory::Nic;
use machine::nics::{WantedCard, wanted};
use model::config::InstallConfig;
use model::machine::Mac;

/// Refuses an address that several cards have, and a card that two networks name, one by its name and one by its address.
pub(super) fn check(config: &InstallConfig, nics: &[Nic]) -> Result<(), Failure> {
    let mut taken: Vec<(&Nic, WantedCard<'_>)> = Vec::new();
    for card in wanted(config) {
        let Some(nic) = the_card(card, nics)? else { continue };
        if let Some((_, first)) = taken.iter().find(|(other, _)| other.name == nic.name) {
            // A card that another network has would only be the next one in two places.
            let used: Vec<_> = wanted(config)
                .into_iter()
                .filter_map(|card| the_card(card, nics).ok().flatten())
                .map(|nic| nic.name.as_str())
                .collect();
            let free: Vec<_> = nics.iter().filter(|nic| !used.contains(&nic.name.as_str())).collect();
            return Err(named_twice(nic, *first, card, &free));
        }
        taken.push((nic, card));
    }
    Ok(())
}

/// The card that is meant. With an address, a name changes nothing: the node finds the card by its address.
fn the_card<'a>(card: WantedCard<'_>, nics: &'a [Nic]) -> Result<Option<&'a Nic>, Failure> {
    let Some(wanted) = card.card.hw_addr.as_deref().and_then(|address| address.parse::<Mac>().ok()) else {
        return Ok(nics.iter().find(|nic| Some(nic.name.as_str()) == card.card.name.as_deref()));
    };
    let with_address: Vec<_> = nics.iter().filter(|nic| nic.mac.parse() == Ok(wanted)).collect();
    match with_address[..] {
        [] => Ok(None),
        [nic] => Ok(Some(nic)),
        ref all => {
            let described: Vec<_> = all.iter().map(|nic| describe(nic)).collect();
            let (network, count) = (card.network, all.len());
            let what =
                format!("{count} network cards have the address {wanted}: {}", described.join(" and "));
            let names: Vec<_> = all.iter().map(|nic| format!("{{name: {}}}", nic.name)).collect();
            Err(Failure::new(Class::Invalid, what).hint(format!(
                "Give the name of the card in network {network} in place of hw_addr: {}.",
                names.join(" or ")
            )))
        }
    }
}

fn named_twice(nic: &Nic, first: WantedCard<'_>, second: WantedCard<'_>, free: &[&Nic]) -> Failure {
    let what = format!(
        "{} is in two places: in network {} as {}, and in network {} as {}",
        describe(nic),
        first.network,
        written(first),
        second.network,
        written(second)
    );
    let others: Vec<_> = free.iter().map(|nic| describe(nic)).collect();
    let hint = match others.is_empty() {
        true => "Remove the card from one of them: this machine has no other card that is free.".to_owned(),
        false => {
            let others = others.join(", ");
            format!("Remove the card from one of them, or name another card. Other cards: {others}.")
        }
    };
    Failure::new(Class::Invalid, what).hint(hint)
}

fn written(card: WantedCard<'_>) -> String {
    card.card.hw_addr.as_deref().or(card.card.name.as_deref()).unwrap_or_default().to_owned()
}

fn describe(nic: &Nic) -> String {
    let driver = nic.driver.as_deref().map(|driver| format!(", {driver}")).unwrap_or_default();
    format!("{} ({}{driver})", nic.name, nic.mac)
}
