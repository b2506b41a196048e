//! The virtual address of the cluster.

use document::finding::Finding;

use super::ipv4::{is_one_machine, prefix_length, reserved};
use super::network::{MANAGEMENT, views_with_disks};
use super::ranges;
use super::shared::is_unattended;
use crate::config::{Distribution, InstallConfig, Mode, Profile, VipMode};
use document::diagnostic::Severity;

const VIP: &str = "install.vip";

/// A new cluster has an address that stays when nodes go: `vip`, or what a DHCP server has for `vip_hw_addr`.
pub(super) fn is_complete(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    if install.mode != Mode::Create {
        return Vec::new();
    }
    let mut findings = Vec::new();
    match (install.vip_mode, install.vip, &install.vip_hw_addr) {
        (Some(VipMode::Dhcp), _, None) => {
            let message = "`vip_mode: dhcp` needs `vip_hw_addr`";
            findings.push(Finding::new("install.vip_hw_addr", "missing-value", message));
        }
        (Some(VipMode::Static), None, _) => {
            findings.push(Finding::new(VIP, "missing-value", "`vip_mode: static` needs `vip`"));
        }
        (None, None, _) if is_unattended(config) => findings.extend(missing(install.profile)),
        _ => {}
    }
    if install.vip_mode != Some(VipMode::Dhcp) && install.vip_hw_addr.is_some() {
        let message = "`vip_hw_addr` has no effect unless `vip_mode` is dhcp";
        findings.push(Finding::warning("install.vip_hw_addr", "no-effect", message));
    }
    findings
}

/// keepalived, which carries the address on nodes of kubeadm, does not ask a DHCP server.
pub(super) fn suits_the_distribution(config: &InstallConfig) -> Vec<Finding> {
    let dhcp = config.install.vip_mode == Some(VipMode::Dhcp);
    let message =
        "`kubernetes.distribution: kubeadm` supports only a fixed virtual address; set `install.vip`";
    let wrong = dhcp && config.kubernetes.distribution() == Distribution::Kubeadm;
    wrong.then(|| Finding::new("install.vip_mode", "wrong-distribution", message)).into_iter().collect()
}

/// A trial of one node can do with the node's own address.
fn missing(profile: Profile) -> Vec<Finding> {
    let finding = match profile {
        Profile::Production => {
            Finding::new(VIP, "missing-value", "a new cluster needs `install.vip`, its virtual address")
        }
        Profile::Trial => {
            Finding::warning(VIP, "no-vip", "without `install.vip` no other node can join this trial cluster")
        }
    };
    vec![finding]
}

/// The address is free, and where the management network reaches it.
pub(super) fn fits_the_network(config: &InstallConfig) -> Vec<Finding> {
    let Some(vip) = config.install.vip else { return Vec::new() };
    let finding = |message: String| Some(Finding::new(VIP, "unusable-vip", message));
    let warning = |message: String| Some(Finding::warning(VIP, "vip-elsewhere", message));
    if !is_one_machine(vip) {
        return finding("a cluster cannot have this address".to_owned()).into_iter().collect();
    }
    if config.os.dns_nameservers.contains(&vip) {
        return finding("this is the address of a name server".to_owned()).into_iter().collect();
    }
    let taken = [("pods", ranges::pods(config)), ("services", ranges::services(config))];
    if let Some((name, cidr)) = taken.into_iter().find(|(_, cidr)| cidr.contains(vip)) {
        return finding(format!("the address is in the network of the {name}, {cidr}")).into_iter().collect();
    }
    let own =
        views_with_disks(config).into_iter().filter_map(|view| view.subnet().map(|subnet| (view, subnet)));
    let fault = own.filter_map(|(view, subnet)| {
        let length = subnet.length();
        let mask = view.mask.filter(|mask| prefix_length(*mask).is_some())?;
        if view.ip == Some(vip) {
            return finding("this is the node's own address".to_owned());
        } else if view.gateway == Some(vip) {
            return finding("this is the gateway's address".to_owned());
        }
        match (subnet.contains(vip), view.is_management()) {
            (false, true) => warning(format!(
                "the address is outside the node's network {subnet}: only hosts that have a route to it, or are told of \
                 it by the node, reach it; see `{MANAGEMENT}`"
            )),
            (true, false) => {
                warning(format!("the address is in {}, not in the management network", view.title()))
            }
            (true, true) => {
                let reserved = reserved(vip, mask, length)?;
                finding(format!("this is the {reserved} address of the node's network"))
            }
            (false, false) => None,
        }
    });
    let mut faults: Vec<_> = fault.collect();
    // An address that cannot be used tells more than one that lies elsewhere.
    faults.sort_by_key(|fault| fault.severity == Severity::Warning);
    faults.truncate(1);
    faults
}
