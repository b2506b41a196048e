//! Options of bonds (the kernel's `Documentation/networking/bonding.rst`).

use super::network::{NetworkView, views};
use crate::config::{BondMode, BondOptions, InstallConfig};
use document::finding::Finding;

/// Milliseconds between two looks at the links where the document does not say.
const MIIMON: u32 = 100;

fn bonds(config: &InstallConfig) -> Vec<(NetworkView<'_>, &BondOptions)> {
    views(config).into_iter().filter_map(|view| view.bond.map(|bond| (view, bond))).collect()
}

/// Options that only some modes have are given for those.
pub(super) fn options_fit_the_mode(config: &InstallConfig) -> Vec<Finding> {
    use BondMode::{ActiveBackup, BalanceAlb, BalanceRr, BalanceTlb, BalanceXor, Broadcast, Lacp};
    const OPTIONS: [(&[&str], &[BondMode]); 8] = [
        (&["primary", "primary_reselect"], &[ActiveBackup, BalanceTlb, BalanceAlb]),
        (
            &[
                "lacp_rate",
                "ad_select",
                "ad_actor_sys_prio",
                "ad_actor_system",
                "ad_user_port_key",
                "min_links",
            ],
            &[Lacp],
        ),
        (&["xmit_hash_policy"], &[BalanceXor, Lacp, BalanceTlb]),
        (
            &["arp_interval", "arp_ip_target", "arp_validate", "arp_all_targets"],
            &[BalanceRr, ActiveBackup, BalanceXor, Broadcast],
        ),
        (&["num_grat_arp", "num_unsol_na"], &[ActiveBackup]),
        (&["packets_per_slave"], &[BalanceRr]),
        (&["tlb_dynamic_lb"], &[BalanceTlb]),
        (&["lp_interval"], &[BalanceTlb, BalanceAlb]),
    ];
    let mut findings = Vec::new();
    for (view, bond) in bonds(config) {
        let mut given: Vec<_> = bond.further().into_iter().map(|(name, _)| name).collect();
        given.extend(bond.primary.as_ref().map(|_| "primary"));
        for key in given {
            let modes = OPTIONS.iter().find(|(keys, _)| keys.contains(&key)).map(|(_, modes)| *modes);
            let Some(modes) = modes.filter(|modes| !modes.contains(&bond.mode)) else { continue };
            let names: Vec<_> = modes.iter().map(|mode| mode.name()).collect();
            let (mode, names) = (bond.mode.name(), names.join(", "));
            let message = format!("`{key}` does nothing in the mode {mode}; it is for {names}");
            let path = view.path(&format!("bond_options.{key}"));
            findings.push(Finding::new(path, "bond-option", message));
        }
    }
    findings
}

/// Links are watched in one way, and by ARP only with somebody to ask.
pub(super) fn links_are_watched_in_one_way(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (view, bond) in bonds(config) {
        let mut tell = |key: &str, message: &str| {
            findings.push(Finding::new(view.path(&format!("bond_options.{key}")), "bond-option", message));
        };
        if bond.arp_interval.is_some() && bond.miimon.is_some_and(|miimon| miimon > 0) {
            tell("arp_interval", "`miimon` watches the links already; keep one of them");
        }
        if bond.arp_interval.is_some() && bond.arp_ip_target.is_none() {
            tell("arp_interval", "`arp_interval` needs `arp_ip_target`, the addresses to ask");
        }
        for (key, given) in [
            ("arp_ip_target", bond.arp_ip_target.is_some()),
            ("arp_validate", bond.arp_validate.is_some()),
            ("arp_all_targets", bond.arp_all_targets.is_some()),
        ] {
            if given && bond.arp_interval.is_none() {
                tell(key, &format!("`{key}` does nothing without `arp_interval`"));
            }
        }
        if bond.num_grat_arp.zip(bond.num_unsol_na).is_some_and(|(arp, neighbour)| arp != neighbour) {
            tell("num_unsol_na", "`num_grat_arp` says another number, and the two are one option");
        }
    }
    findings
}

/// The preferred card is one of the bond's. Where a card is given by its address, its name is not known yet.
pub(super) fn primary_is_a_card(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (view, bond) in bonds(config) {
        let Some(primary) = &bond.primary else { continue };
        let mut names = view.cards.iter().map(|card| card.name.as_ref());
        if names.all(|name| name.is_some_and(|name| name != primary)) {
            let message = "this is not one of the cards of the network";
            findings.push(Finding::new(view.path("bond_options.primary"), "bond-option", message));
        }
    }
    findings
}

/// Delays are counted in looks at the links.
pub(super) fn delays_fit(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (view, bond) in bonds(config) {
        let interval = bond.miimon.unwrap_or(if bond.arp_interval.is_some() { 0 } else { MIIMON });
        for (key, delay) in [
            ("updelay", bond.updelay),
            ("downdelay", bond.downdelay),
            ("peer_notif_delay", bond.peer_notif_delay),
        ] {
            let Some(delay) = delay.filter(|delay| *delay > 0) else { continue };
            let message = match interval {
                0 => format!("`{key}` does nothing with `miimon: 0`, which never looks at the links"),
                _ if !delay.is_multiple_of(interval) => {
                    format!("`{key}` is not a multiple of `miimon`, {interval} milliseconds")
                }
                _ => continue,
            };
            findings.push(Finding::new(view.path(&format!("bond_options.{key}")), "bond-option", message));
        }
    }
    findings
}
