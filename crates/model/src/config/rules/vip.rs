//! The virtual address of the cluster.

use super::finding::{Finding, is_unattended};
use super::ipv4::{is_one_machine, prefix_length, reserved};
use super::network::{MANAGEMENT, views};
use super::ranges;
use crate::config::{Distribution, InstallConfig, Mode, Profile, VipMode};

const VIP: &str = "install.vip";

/// A new cluster has an address that stays when nodes go: `vip`, or what a DHCP server has for `vip_hw_addr`.
pub(super) fn is_complete(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    if install.mode != Mode::Create {
        return Vec::new();
    }
    let finding = |path: &str, code, message: &str| vec![Finding::new(path, code, message)];
    match (install.vip_mode, install.vip, &install.vip_hw_addr) {
        (Some(VipMode::Dhcp), _, None) => {
            finding("install.vip_hw_addr", "missing-value", "`vip_mode: dhcp` needs `vip_hw_addr`")
        }
        (Some(VipMode::Static), None, _) => finding(VIP, "missing-value", "`vip_mode: static` needs `vip`"),
        (None | Some(VipMode::Static), _, Some(_)) => {
            let message = "`vip_hw_addr` does nothing unless `vip_mode` is dhcp";
            finding("install.vip_hw_addr", "no-effect", message)
        }
        (None, None, None) if is_unattended(config) => missing(install.profile),
        _ => Vec::new(),
    }
}

/// keepalived, which carries the address on nodes of kubeadm, does not ask a DHCP server.
pub(super) fn suits_the_distribution(config: &InstallConfig) -> Vec<Finding> {
    let dhcp = config.install.vip_mode == Some(VipMode::Dhcp);
    let message = "with `kubernetes.distribution: kubeadm` the virtual address is a fixed one, `install.vip`";
    let wrong = dhcp && config.kubernetes.distribution() == Distribution::Kubeadm;
    wrong.then(|| Finding::new("install.vip_mode", "wrong-distribution", message)).into_iter().collect()
}

/// A trial of one node can do with the node's own address.
fn missing(profile: Profile) -> Vec<Finding> {
    let finding = match profile {
        Profile::Production => Finding::new(
            VIP,
            "missing-value",
            "a new cluster needs `install.vip`, the address that nodes and users know it by",
        ),
        Profile::Trial => {
            Finding::warning(VIP, "no-vip", "without `install.vip` no further node can join this trial")
        }
    };
    vec![finding]
}

/// The address is free, and where the management network reaches it.
pub(super) fn fits_the_network(config: &InstallConfig) -> Vec<Finding> {
    let Some(vip) = config.install.vip else { return Vec::new() };
    let finding = |message: String| Some(Finding::new(VIP, "unusable-vip", message));
    if !is_one_machine(vip) {
        return finding("no cluster can have this address".to_owned()).into_iter().collect();
    }
    if config.os.dns_nameservers.contains(&vip) {
        return finding("this is the address of a name server".to_owned()).into_iter().collect();
    }
    let taken = [("pods", ranges::pods(config)), ("services", ranges::services(config))];
    if let Some((name, cidr)) = taken.into_iter().find(|(_, cidr)| cidr.contains(vip)) {
        return finding(format!("the address is in the network of the {name}, {cidr}")).into_iter().collect();
    }
    let own = views(config).into_iter().filter_map(|view| view.subnet().map(|subnet| (view, subnet)));
    let fault = own.filter_map(|(view, subnet)| {
        let length = subnet.length();
        let mask = view.mask.filter(|mask| prefix_length(*mask).is_some())?;
        if view.ip == Some(vip) {
            return Some("this is the node's own address".to_owned());
        } else if view.gateway == Some(vip) {
            return Some("this is the gateway's address".to_owned());
        }
        match (subnet.contains(vip), view.is_management()) {
            (false, true) => Some(format!(
                "the address is outside the node's network {subnet}, so that no node could answer for it; \
                 see `{MANAGEMENT}`"
            )),
            (true, false) => {
                Some(format!("the address is in {}, not in the management network", view.title()))
            }
            (true, true) => {
                Some(format!("this is the {} address of the node's network", reserved(vip, mask, length)?))
            }
            (false, false) => None,
        }
    });
    fault.take(1).filter_map(finding).collect()
}
