//! Options of bonds (the kernel's `Documentation/networking/bonding.rst`).

use super::finding::Finding;
use super::network::{NetworkView, views};
use crate::config::{BondMode, BondOptions, InstallConfig};

/// Milliseconds between two looks at the links where the document does not say.
const MIIMON: u32 = 100;

fn bonds(config: &InstallConfig) -> Vec<(NetworkView<'_>, &BondOptions)> {
    views(config).into_iter().filter_map(|view| view.bond.map(|bond| (view, bond))).collect()
}

/// Options that only some modes have are given for those.
pub(super) fn options_fit_the_mode(config: &InstallConfig) -> Vec<Finding> {
    use BondMode::{ActiveBackup, BalanceAlb, BalanceTlb, BalanceXor, Lacp};
    let mut findings = Vec::new();
    for (view, bond) in bonds(config) {
        let options: [(&str, bool, &[BondMode]); 3] = [
            ("primary", bond.primary.is_some(), &[ActiveBackup, BalanceTlb, BalanceAlb]),
            ("lacp_rate", bond.lacp_rate.is_some(), &[Lacp]),
            ("xmit_hash_policy", bond.xmit_hash_policy.is_some(), &[BalanceXor, Lacp, BalanceTlb]),
        ];
        for (key, given, modes) in options {
            if given && !modes.contains(&bond.mode) {
                let names: Vec<_> = modes.iter().map(|mode| mode.name()).collect();
                let (mode, names) = (bond.mode.name(), names.join(", "));
                let message = format!("`{key}` does nothing in the mode {mode}; it is for {names}");
                findings.push(Finding::new(
                    view.path(&format!("bond_options.{key}")),
                    "bond-option",
                    message,
                ));
            }
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
        let interval = bond.miimon.unwrap_or(MIIMON);
        for (key, delay) in [("updelay", bond.updelay), ("downdelay", bond.downdelay)] {
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
