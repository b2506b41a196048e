//! keepalived on every control plane node of kubeadm: VRRP (RFC 5798) in the management network.
//!
//! `installer apply` only enables the service. `installer kubeadm` writes its configuration: a joining node learns the address from
//! its cluster, and only the node knows the device and its own address.

use std::net::Ipv4Addr;

use machine::node_files::NodeFile;
use machine::paths::KUBERNETES;
use model::config::Timing;

/// Debian's unit. It does nothing where its configuration is missing or empty.
pub(crate) const KEEPALIVED: &str = "keepalived.service";

/// The ConfigMap in `kube-system` by which the first node tells further ones the virtual address, in the key `vip`; empty where
/// there is none.
pub(crate) const CLUSTER: &str = "nqrust-cluster";

const PLACE: &str = "etc/keepalived/keepalived.conf";
/// keepalived starts its own processes again, but a service that ends would leave the address where it is.
const RESTART: &str = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=1\n";

pub(super) fn files() -> Vec<NodeFile> {
    vec![
        NodeFile::link(PLACE, &VirtualRouter::path()),
        NodeFile::new(&format!("etc/systemd/system/{KEEPALIVED}.d/50-nqrust.conf"), 0o644, RESTART),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VirtualRouter {
    pub(crate) vip: Ipv4Addr,
    /// The device of the management network.
    pub(crate) device: String,
    /// The node's own address there.
    pub(crate) own: Ipv4Addr,
    pub(crate) timing: Timing,
}

impl VirtualRouter {
    /// The file of the configuration. It lasts, so that the address is there again before the API is.
    pub(crate) fn path() -> String {
        format!("{KUBERNETES}/keepalived.conf")
    }

    /// Tells the clusters of a segment apart: the last number of the address, which nobody else has in a network of 256
    /// addresses; 0 is not allowed (RFC 5798, 5.2.3).
    fn id(&self) -> u8 {
        self.vip.octets()[3].max(1)
    }

    /// No node takes the address from another one. Different priorities let one be quicker where several would take it at once
    /// (RFC 5798, 6.1, `Skew_Time`).
    fn priority(&self) -> u8 {
        100 + self.own.octets()[3] % 100
    }

    /// Seconds between advertisements, between two checks, for one check, and how many have to fail.
    fn intervals(&self) -> [u8; 4] {
        match self.timing {
            Timing::Standard => [1, 1, 2, 3],
            // On an emulated processor the start of two pods kept the API from answering for 27 s.
            Timing::Relaxed => [2, 5, 10, 6],
        }
    }

    /// The configuration (keepalived.conf(5)), of a node that is the only server of its cluster if `alone` says so.
    ///
    /// A node holds the address only while its own API server is ready, which asks etcd too. The certificate is not checked, for
    /// the check never leaves the node. It runs as a user without rights, and without the proxies of the system.
    ///
    /// The only server holds the address in any case: a failed check lowers its priority, which nobody contends for. Without a
    /// weight the check takes the address away.
    ///
    /// A lost link is ignored (`dont_track_primary`): a single node is still its cluster and keeps its address; one of several loses
    /// etcd's majority with its link, and so the check.
    pub(crate) fn configuration(&self, alone: bool) -> String {
        let Self { vip, device, .. } = self;
        let (id, priority) = (self.id(), self.priority());
        let [advertisement, interval, limit, fall] = self.intervals();
        let timeout = limit + 1;
        let weight = weight(alone);
        format!(
            r#"# Written by `installer kubeadm`; changes here do not last.
global_defs {{
    dynamic_interfaces
    enable_script_security
    script_user nobody
    vrrp_version 3
    vrrp_garp_master_refresh 60
}}

vrrp_script api_server {{
    script "/usr/bin/curl --disable --silent --fail --insecure --noproxy * --max-time {limit} --output /dev/null https://127.0.0.1:6443/readyz"
    interval {interval}
    timeout {timeout}
    {weight}
    fall {fall}
    rise 2
    init_fail
}}

vrrp_instance cluster {{
    interface {device}
    dont_track_primary
    state BACKUP
    nopreempt
    virtual_router_id {id}
    priority {priority}
    advert_int {advertisement}
    virtual_ipaddress {{
        {vip}/32 dev {device}
    }}
    track_script {{
        api_server
    }}
}}
"#
        )
    }
}

/// What a failed check does: nothing that others see, or it takes the address away.
fn weight(alone: bool) -> &'static str {
    match alone {
        true => "weight -1",
        false => "weight 0",
    }
}

/// Whether a configuration is that of the only server of its cluster.
pub(crate) fn is_alone(configuration: &str) -> bool {
    configuration.lines().any(|line| line.trim() == weight(true))
}

/// A configuration as it is for the only server of a cluster, or for one of several.
pub(crate) fn with_servers(configuration: &str, alone: bool) -> String {
    configuration.replacen(weight(!alone), weight(alone), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(vip: [u8; 4], own: [u8; 4], timing: Timing) -> VirtualRouter {
        VirtualRouter { vip: vip.into(), device: "mgmt-br.100".to_owned(), own: own.into(), timing }
    }

    #[test]
    fn the_configuration_has_its_golden_file() {
        for (name, timing, alone) in [
            ("keepalived", Timing::Standard, false),
            ("keepalived-alone", Timing::Standard, true),
            ("keepalived-relaxed", Timing::Relaxed, false),
        ] {
            let text = router([192, 0, 2, 10], [192, 0, 2, 11], timing).configuration(alone);
            let path = format!("{}/src/configuration/golden/{name}.conf", env!("CARGO_MANIFEST_DIR"));
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{path}");
        }
    }

    #[test]
    fn a_configuration_follows_the_number_of_servers_and_is_else_as_it_was() {
        let router = router([192, 0, 2, 10], [192, 0, 2, 11], Timing::Standard);
        for (from, to) in [(false, true), (true, false), (true, true), (false, false)] {
            let text = with_servers(&router.configuration(from), to);
            assert_eq!(text, router.configuration(to));
            assert_eq!(is_alone(&text), to);
        }
        assert!(!is_alone(""), "a node that has not looked yet");
    }

    #[test]
    fn identifier_and_priority_are_in_their_ranges_for_any_address() {
        for last in 0..=u8::MAX {
            let router = router([192, 0, 2, last], [192, 0, 2, last], Timing::Standard);
            assert!(router.id() >= 1 && (100..200).contains(&router.priority()), "{last}");
        }
    }

    #[test]
    fn nodes_beside_each_other_do_not_take_the_address_at_once() {
        let priority = |last| router([192, 0, 2, 10], [192, 0, 2, last], Timing::Standard).priority();
        assert_ne!(priority(11), priority(12));
    }
}
