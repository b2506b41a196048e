//! The kernel settings that come with a module: without the module, `/proc/sys` does not have them.
//!
//! No file of an image lists the settings of a kernel, so those of the kernel itself cannot be compared with a release.

/// The beginning of settings in the form of sysctl(8) with dots, and the module whose code registers them (`register_net_sysctl`
/// and `register_sysctl` in the kernel's source).
const MODULES: [(&str, &str); 20] = [
    ("net.bridge.", "br_netfilter"),
    ("net.netfilter.nf_conntrack_", "nf_conntrack"),
    ("net.nf_conntrack_max", "nf_conntrack"),
    ("net.ipv4.vs.", "ip_vs"),
    ("net.ipv6.", "ipv6"),
    ("net.mpls.", "mpls_router"),
    ("net.rds.", "rds"),
    ("net.sctp.", "sctp"),
    ("net.smc.", "smc"),
    ("net.tipc.", "tipc"),
    ("net.vrf.", "vrf"),
    ("sunrpc.", "sunrpc"),
    ("fs.nfs.nlm_", "lockd"),
    ("fs.nfs.nsm_", "lockd"),
    ("fs.nfs.nfs_", "nfs"),
    ("fs.xfs.", "xfs"),
    ("dev.cdrom.", "cdrom"),
    ("dev.parport.", "parport"),
    ("dev.raid.", "md_mod"),
    ("dev.scsi.", "scsi_mod"),
];

/// The module that a setting comes with; none for one of the kernel itself, or of a module that is not known.
#[must_use]
pub fn module_of(key: &str) -> Option<&'static str> {
    let key = dotted(key);
    MODULES.iter().find(|(beginning, _)| key.starts_with(beginning)).map(|(_, module)| *module)
}

/// The first separator says what separates: after a `/`, a `.` belongs to a name (sysctl.d(5)). A `-` in front means that a failure
/// is ignored.
fn dotted(key: &str) -> String {
    let key = key.strip_prefix('-').unwrap_or(key);
    match key.find(['.', '/']) {
        Some(place) if key[place..].starts_with('/') => {
            key.chars().map(|letter| if letter == '/' { '.' } else { letter }).collect()
        }
        _ => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_that_of_its_module_in_every_form() {
        for (key, module) in [
            ("net.bridge.bridge-nf-call-iptables", Some("br_netfilter")),
            ("net/bridge/bridge-nf-call-iptables", Some("br_netfilter")),
            ("-net.bridge.bridge-nf-call-iptables", Some("br_netfilter")),
            ("net/ipv6/conf/eth0.1/forwarding", Some("ipv6")),
            ("net.netfilter.nf_conntrack_max", Some("nf_conntrack")),
            ("net.nf_conntrack_max", Some("nf_conntrack")),
            ("net.netfilter.nf_log.2", None),
            ("net.ipv4.ip_forward", None),
            ("vm.swappiness", None),
            ("net", None),
        ] {
            assert_eq!(module_of(key), module, "{key}");
        }
    }
}
