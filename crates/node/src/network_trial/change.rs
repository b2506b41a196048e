//! A change of the networks: checked with the whole document, its differences value by value, and its consequences for a cluster.
//! Pure.

use std::net::Ipv4Addr;

use super::networks::{KEYS, NetworkDifference, Networks};
use base::failure::{Class, Failure};
use cluster::configuration::ClusterMember;
use machine::network::management_device;
use model::config::sources::{Document, SourceKind, combine};
use model::config::{Diagnostic, InstallConfig, Invalid, Method, Role};

const OTHERS: &str = "only `install.management_interface`, `install.networks` and `os.dns_nameservers` are changed on trial; \
                      other keys are changed in the node document and applied";

#[derive(Clone, Debug)]
pub struct NetworkChange {
    pub before: InstallConfig,
    pub after: InstallConfig,
    pub remarks: Vec<Diagnostic>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedNode {
    pub addresses: Vec<Ipv4Addr>,
    /// Whether a member of the cluster's etcd runs on it, whatever its document says.
    pub keeps_etcd: bool,
}

/// A problem that a change makes in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ClusterConcern {
    pub text: String,
    /// Whether the user has to accept it explicitly.
    pub grave: bool,
}

impl NetworkChange {
    /// The change of the document `text` by `part`, which has keys of the networks only, each replaced as a whole. `names` are
    /// the names of the two in messages. All mistakes are in one error ([`Class::Invalid`]).
    pub fn read(text: &str, part: &str, names: (&str, &str)) -> anyhow::Result<Self> {
        let document = Document::yaml(SourceKind::File, names.0, text);
        let part = Document::yaml(SourceKind::File, names.1, part).part(&KEYS, OTHERS);
        let refused = |invalid: Invalid| {
            let what = format!("the networks in {} cannot be those of this node\n{invalid}", names.1);
            anyhow::Error::from(Failure::new(Class::Invalid, what).places(&invalid.0).because(invalid))
        };
        let before = combine(&[Document::yaml(SourceKind::File, names.0, text)]).map_err(refused)?.config;
        let after = combine(&[document, part]).map_err(refused)?;
        let about = |said: &Diagnostic| KEYS.iter().any(|key| said.path.starts_with(key));
        let remarks = after.warnings.into_iter().filter(about).collect();
        Ok(Self { before, after: after.config, remarks })
    }

    #[must_use]
    pub fn differences(&self) -> Vec<NetworkDifference> {
        Networks::of(&self.before).differences(&Networks::of(&self.after))
    }

    /// The problems for the node's cluster; empty for a node without one.
    #[must_use]
    pub fn concerns(&self, present: &AffectedNode) -> Vec<ClusterConcern> {
        let Some(member) = ClusterMember::of(&self.before) else { return Vec::new() };
        let mut concerns = Vec::new();
        let mut add = |grave, text: String| concerns.push(ClusterConcern { text, grave });
        let servers = member.server || present.keeps_etcd;
        match (self.moves(present), servers) {
            (true, true) => add(
                true,
                format!(
                    "the node's own address changes, and it is a server of its cluster: etcd and the certificates know \
                     it by the old one. After a restart of {} it cannot find the other servers, nor they it, until it is \
                     taken out of the cluster and joins again; a cluster of one server does not start",
                    member.unit
                ),
            ),
            (true, false) => add(
                false,
                format!(
                    "the node's own address changes: the cluster knows the node by the old one until {} is restarted",
                    member.unit
                ),
            ),
            (false, _) => {}
        }
        let devices = [&self.before, &self.after].map(management_device);
        let answers = member.server && self.before.install.own_role() != Role::Witness;
        if answers && devices[0] != devices[1] {
            let text = "the virtual address of the cluster stays on the old device during the trial: \
                another server takes it over, or it is unreachable";
            add(false, text.to_owned());
        }
        concerns
    }

    /// Whether the node's own address changes, or may change.
    fn moves(&self, present: &AffectedNode) -> bool {
        let [before, after] = [&self.before, &self.after]
            .map(|config| config.install.management_interface.clone().unwrap_or_default());
        match (before.method, after.method) {
            (Method::Static, Method::Static) => before.ip != after.ip,
            (Method::Dhcp, Method::Static) => !after.ip.is_some_and(|ip| present.addresses.contains(&ip)),
            (Method::Static, Method::Dhcp) => true,
            (Method::Dhcp, Method::Dhcp) => {
                before.interfaces != after.interfaces || before.vlan_id != after.vlan_id
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};

    const WORKER: &str = "# the node's own\nserver_url: https://192.0.2.10\ntoken: a-long-and-random-shared-text\n\
        os:\n  hostname: node-2\n  dns_nameservers: [192.0.2.53]\n\
        install:\n  mode: join\n  role: worker\n  management_interface: {interfaces: [{name: a}], method: static, ip: 192.0.2.12, \
        subnet_mask: 255.255.255.0, gateway: 192.0.2.1, mtu: 9000}\n";

    fn read(document: &str, part: &str) -> anyhow::Result<NetworkChange> {
        NetworkChange::read(document, part, ("/oem/node.yaml", "new.yaml"))
    }

    #[test]
    fn a_key_of_the_part_takes_the_place_of_the_document_s_as_a_whole() {
        let change = read(WORKER, "install: {management_interface: {interfaces: [{name: a}]}}").unwrap();
        let management = change.after.install.management_interface.as_ref().unwrap();
        assert_eq!((management.method, management.ip, management.mtu), (Method::Dhcp, None, 0));
        assert_eq!(change.after.os, change.before.os, "what is not in the part stays");
        assert_eq!(change.after.server_url, change.before.server_url);
        assert_eq!(change.differences().len(), 5);
    }

    #[test]
    fn mistakes_are_those_of_validate_each_at_its_place() {
        let part = "install:\n  management_interface: {interfaces: [{name: a}], method: static, ip: 192.0.2.13, \
                    subnet_mask: 255.255.255.0, gateway: 198.51.100.1}\n  mode: create\nos: {hostname: x, dns_nameservers: [q]}\n";
        let error = read(WORKER, part).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        let text = render(&error);
        for wanted in ["new.yaml:3:9: only `install", "new.yaml:4:16: only `install", "new.yaml:4:37: "] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        let part =
            part.replace("  mode: create\n", "").replace("hostname: x, ", "").replace("[q]", "[192.0.2.53]");
        let text = render(&read(WORKER, &part).unwrap_err());
        assert!(
            text.contains("the gateway is outside the node's network") && text.contains("new.yaml:2:"),
            "{text}"
        );
        assert!(!text.contains("shared-text"), "{text}");
    }

    #[test]
    fn what_the_new_networks_break_elsewhere_in_the_document_is_a_mistake_there() {
        let server = "token: a-long-and-random-shared-text\nos: {dns_nameservers: [192.0.2.53]}\ninstall:\n  vip: 192.0.2.10\n  \
                      management_interface: {interfaces: [{name: a}]}\n";
        let part = "install: {management_interface: {interfaces: [{name: a}], method: static, ip: 192.0.2.10, \
                    subnet_mask: 255.255.255.0, gateway: 192.0.2.1}}";
        let text = render(&read(server, part).unwrap_err());
        assert!(text.contains("/oem/node.yaml:4:8: "), "{text}");
    }

    fn concerns(document: &str, part: &str, present: &AffectedNode) -> Vec<bool> {
        read(document, part).unwrap().concerns(present).iter().map(|concern| concern.grave).collect()
    }

    #[test]
    fn the_address_of_a_server_is_a_grave_matter_and_that_of_a_worker_is_told() {
        let moved = "install: {management_interface: {interfaces: [{name: a}], method: static, ip: 192.0.2.13, \
                     subnet_mask: 255.255.255.0, gateway: 192.0.2.1}}";
        let stays = moved.replace("192.0.2.13", "192.0.2.12").replace("}}", ", mtu: 1400}}");
        let plain = AffectedNode::default();
        let management = WORKER.replace("worker", "management");
        assert_eq!(concerns(WORKER, moved, &plain), [false]);
        assert_eq!(concerns(WORKER, &stays, &plain), [false; 0]);
        for role in ["management", "witness"] {
            assert_eq!(concerns(&WORKER.replace("worker", role), moved, &plain), [true], "{role}");
        }
        assert_eq!(concerns(&management, &stays, &plain), [false; 0]);
        let promoted = AffectedNode { keeps_etcd: true, ..AffectedNode::default() };
        assert_eq!(concerns(&WORKER.replace("worker", "default"), moved, &promoted), [true]);
        let alone = "install: {mode: install}";
        assert_eq!(
            concerns(alone, "install: {management_interface: {interfaces: [{name: a}]}}", &plain),
            [false; 0]
        );
    }

    #[test]
    fn fixing_the_address_that_a_dhcp_server_gave_moves_nothing() {
        let dhcp = "token: a-long-and-random-shared-text\nos: {dns_nameservers: [192.0.2.53]}\ninstall:\n  vip: 192.0.2.10\n  \
                    management_interface: {interfaces: [{name: a}]}\n";
        let part = "install: {management_interface: {interfaces: [{name: a}], method: static, ip: 192.0.2.7, \
                    subnet_mask: 255.255.255.0, gateway: 192.0.2.1}}";
        let present = AffectedNode { addresses: vec![[192, 0, 2, 7].into()], keeps_etcd: true };
        assert_eq!(concerns(dhcp, part, &present), [false; 0]);
        assert_eq!(concerns(dhcp, part, &AffectedNode::default()), [true]);
        let vlan = "install: {management_interface: {interfaces: [{name: a}], vlan_id: 7}}";
        assert_eq!(concerns(dhcp, vlan, &present), [true, false], "the virtual address is told of too");
    }
}
