//! The cluster file of a cluster of namespaces, from which `installer render` makes the documents of its nodes.

use std::net::Ipv4Addr;

use model::config::Role;
use serde_json::{Map, Value, json};

use super::Switch;

/// The virtual address of every such cluster; each is alone in its segment.
pub const VIP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// Made up for such clusters; they protect nothing else.
pub const TOKEN: &str = "e2e-9c1f7ab04d6e82355d0f";
pub const AGENT_TOKEN: &str = "e2e-agents-41c0b7d2e98a66f3";

/// The roles that pools of machines have, and the pools' names.
const POOLS: [(Role, &str); 4] = [
    (Role::Management, "control"),
    (Role::Witness, "vote"),
    (Role::Worker, "work"),
    (Role::Default, "spare"),
];

/// A node as the cluster file describes it.
#[derive(Clone, Debug)]
pub struct ClusterNode {
    pub name: String,
    pub role: Role,
    /// The last number of its address, and of its hardware address.
    pub last: u8,
    /// Keys of its document beside those of the other nodes.
    pub overrides: Value,
}

impl ClusterNode {
    #[must_use]
    pub fn new(name: &str, role: Role, last: u8) -> Self {
        Self { name: name.to_owned(), role, last, overrides: Value::Object(Map::new()) }
    }

    /// The same node with `overrides` in its document.
    #[must_use]
    pub fn with(self, overrides: Value) -> Self {
        Self { overrides, ..self }
    }

    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(198, 51, 100, self.last)
    }

    #[must_use]
    pub fn hardware_address(&self) -> String {
        format!("52:54:00:6e:72:{:02x}", self.last)
    }

    fn machine(&self, creator: &str) -> Value {
        let mut machine = json!({
            "hostname": self.name,
            "ip": self.address(),
            "macs": [self.hardware_address()],
            "overrides": self.overrides,
        });
        if self.role == Role::Management {
            machine["create"] = json!(self.name == creator);
        }
        machine
    }
}

pub(super) fn cluster_file(nodes: &[ClusterNode], creator: &str) -> Value {
    let pool = |(role, name): &(Role, &str)| {
        let machines = nodes.iter().filter(|node| node.role == *role).map(|node| node.machine(creator));
        let machines: Vec<_> = machines.collect();
        (!machines.is_empty()).then(|| json!({ "name": name, "role": role, "machines": machines }))
    };
    json!({
        "scheme_version": 1,
        "cluster": {
            "name": "namespaces",
            "token": TOKEN,
            "os": {
                "password": "e2e-only-in-namespaces",
                "dns_nameservers": [Switch::ADMINISTRATOR],
                "ntp_servers": [Switch::ADMINISTRATOR],
            },
            "install": {
                "automatic": true,
                "device": "/dev/vda",
                "vip": VIP,
                "management_interface": { "subnet_mask": "255.255.255.0", "gateway": Switch::ADMINISTRATOR },
            },
            "kubernetes": { "distribution": "kubeadm", "agent_token": AGENT_TOKEN },
        },
        "pools": POOLS.iter().filter_map(pool).collect::<Vec<_>>(),
    })
}
