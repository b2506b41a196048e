//! The names that another version of udev would give to network cards (systemd.net-naming-scheme(7)).
//!
//! A name is the first that there is of three: that of the index on the board, of the slot, of the address on the bus. Only what has
//! changed among the schemes for slots of PCI is simulated. A driver that says more of its ports than before changes names too,
//! which no scheme tells.

use super::in_use::NamedCard;
use super::scheme::NamingScheme;

/// The name that `card` would have under the scheme `to`; none if it stays, or this program cannot tell.
#[must_use]
pub fn renamed(card: &NamedCard, to: NamingScheme) -> Option<String> {
    let from = card.scheme?;
    if !card.by_policy || from.takes_slots_as(to) || card.onboard.is_some() {
        return None;
    }
    let path = card.path.as_deref()?;
    let slot = if to.reads_firmware_slot() && card.firmware_slot.is_some_and(|slot| slot > 0) {
        Some(with_slot(path, card.firmware_slot?)?)
    } else if card.slot.is_some() && from.reads_firmware_slot() && !to.reads_firmware_slot() {
        // What hotplug says is not known.
        return None;
    } else if card.slot.is_none() && card.bridge_slot && to.takes_slot_of_bridge() {
        // The number of that slot is not known.
        return None;
    } else {
        card.slot.clone().filter(|_| !card.bridge_slot || to.takes_slot_of_bridge())
    };
    let name = slot.unwrap_or_else(|| path.to_owned());
    (name != card.name).then_some(name)
}

/// The name of the slot `slot` for the card with this name of its address, such as `ens2f0` for `enp59s0f0`. None if that has another
/// form.
fn with_slot(path: &str, slot: u32) -> Option<String> {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let kind = path.get(..2)?;
    let mut rest = path.get(2..)?;
    let mut domain = "";
    if let Some(after) = rest.strip_prefix('P') {
        let length = 1 + digits(after);
        (domain, rest) = rest.split_at(length);
    }
    let bus = rest.strip_prefix('p')?;
    let device = bus[digits(bus)..].strip_prefix('s')?;
    let function = &device[digits(device)..];
    Some(format!("{kind}{domain}s{slot}{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheme(name: &str) -> NamingScheme {
        NamingScheme::parse(name).unwrap()
    }

    #[test]
    fn a_card_is_renamed_where_the_schemes_take_slots_from_elsewhere() {
        let card = |name: &str, slot: Option<&str>, firmware_slot, bridge_slot, from: &str| NamedCard {
            name: name.into(),
            scheme: Some(scheme(from)),
            by_policy: true,
            slot: slot.map(str::to_owned),
            path: Some("enp59s0f0".into()),
            firmware_slot,
            bridge_slot,
            ..NamedCard::default()
        };
        for (card, to, expected) in [
            // The firmware knows a slot that hotplug does not.
            (card("enp59s0f0", None, Some(2), false, "v252"), "v257", Some("ens2f0")),
            (card("ens2f0", Some("ens2f0"), Some(2), false, "v252"), "v257", None),
            (card("ens3f0", Some("ens3f0"), Some(2), false, "v252"), "v257", Some("ens2f0")),
            (card("enp59s0f0", None, Some(0), false, "v252"), "v257", None),
            (card("enp59s0f0", None, None, false, "v252"), "v257", None),
            // The slot of a bridge, between v251 and v254 only.
            (card("ens4f0", Some("ens4f0"), None, true, "v252"), "v255", Some("enp59s0f0")),
            (card("ens4f0", Some("ens4f0"), None, true, "v252"), "v254", None),
            (card("enp59s0f0", None, None, true, "v249"), "v252", None),
            // Nothing of slots has changed, wherever this number came from.
            (card("ens3f0", Some("ens3f0"), Some(2), false, "v257"), "v258", None),
            // Back to a udev that does not ask the firmware: what hotplug says is not known.
            (card("ens2f0", Some("ens2f0"), Some(2), false, "v257"), "v252", None),
        ] {
            assert_eq!(renamed(&card, scheme(to)).as_deref(), expected, "{card:?} {to}");
        }
        let base = card("enp59s0f0", None, Some(2), false, "v252");
        for stays in [
            NamedCard { by_policy: false, ..base.clone() },
            NamedCard { scheme: None, ..base.clone() },
            NamedCard { onboard: Some("eno1".into()), name: "eno1".into(), ..base.clone() },
            NamedCard { path: None, ..base.clone() },
        ] {
            assert_eq!(renamed(&stays, scheme("v257")), None, "{stays:?}");
        }
    }

    #[test]
    fn the_name_of_a_slot_keeps_domain_function_and_port() {
        for (path, expected) in [
            ("enp59s0f0", Some("ens2f0")),
            ("enP2p1s0f1np1", Some("enP2s2f1np1")),
            ("ibp5s0d1", Some("ibs2d1")),
            ("enp0s3", Some("ens2")),
            ("enx525400123456", None),
            ("eth0", None),
            ("é", None),
            ("", None),
        ] {
            assert_eq!(with_slot(path, 2).as_deref(), expected, "{path}");
        }
    }
}
