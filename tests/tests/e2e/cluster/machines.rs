//! Machines on one wire that become the nodes of a cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use model::architecture::Architecture;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::Medium;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::wire::Wire;
use nqrust_tests::{paths, programs, steps};
use serde_json::{Value, json};

/// The virtual address of the cluster, in the network of the wire.
pub(super) const VIP: &str = "10.77.0.10";

/// One machine of the cluster.
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) role: &'static str,
    /// The last number of its address on the wire, and of its hardware addresses.
    pub(super) number: u8,
    pub(super) architecture: Architecture,
}

impl Member {
    /// A machine with a processor of x86.
    pub(super) const fn new(name: &'static str, role: &'static str, number: u8) -> Self {
        Self { name, role, number, architecture: Architecture::Amd64 }
    }

    /// A machine with a processor of 64-bit Arm.
    pub(super) const fn arm64(name: &'static str, role: &'static str, number: u8) -> Self {
        Self { name, role, number, architecture: Architecture::Arm64 }
    }

    pub(super) fn address(&self) -> String {
        format!("10.77.0.{}", self.number)
    }

    pub(super) fn mac(&self) -> String {
        format!("52:54:00:77:00:{}", self.number)
    }

    /// The hardware address of the card by which the test logs in.
    fn back_door(&self) -> String {
        format!("52:54:00:77:01:{}", self.number)
    }
}

/// The network of machines beside the wire.
#[derive(Clone, Copy)]
pub(super) enum MemberNetwork {
    /// The test can log in, and nothing else.
    Isolated,
    /// As isolated, with memory for a control plane.
    IsolatedServers,
    /// Whatever the host reaches, with memory for a control plane.
    Outside,
}

pub(super) struct Machines {
    pub(super) members: &'static [Member],
    pub(super) network: MemberNetwork,
    pub(super) wire: Wire,
}

impl Machines {
    pub(super) fn machine(&self, member: &Member, purpose: &str) -> Result<Machine> {
        let name = format!("{}-{purpose}", member.name);
        let firmware = match self.network {
            MemberNetwork::IsolatedServers => Firmware::Uefi,
            MemberNetwork::Isolated | MemberNetwork::Outside => Firmware::Bios,
        };
        let machine = Machine::new(&name, firmware).wire(&member.mac(), &self.wire)?;
        let machine = match member.architecture {
            Architecture::Amd64 => machine,
            Architecture::Arm64 => machine.arm64(),
        };
        let server = ByteSize::gib(4);
        Ok(match self.network {
            MemberNetwork::Isolated => machine.isolated_network(&member.back_door(), ""),
            MemberNetwork::IsolatedServers => {
                machine.memory(server).isolated_network(&member.back_door(), "")
            }
            MemberNetwork::Outside => machine.memory(server).network(&member.back_door()),
        })
    }

    /// Installs every member with its configuration in `nodes`, side by side; returns their disks in the same order. `medium` is that of
    /// an architecture.
    pub(super) fn install<'m>(
        &self,
        nodes: &Path,
        medium: &(dyn Fn(Architecture) -> &'m Medium + Sync),
        artifacts: &Artifacts,
    ) -> Result<Vec<Disk>> {
        thread::scope(|scope| {
            let install = |member: &'static Member| {
                scope.spawn(move || self.install_one(member, nodes, medium(member.architecture), artifacts))
            };
            let threads: Vec<_> = self.members.iter().map(install).collect();
            let ended = |thread: thread::ScopedJoinHandle<'_, Result<_>>| {
                thread.join().unwrap_or_else(|_| bail!("a machine's thread panicked"))
            };
            threads.into_iter().map(ended).collect()
        })
    }

    /// Installs a member with its configuration on a volume.
    fn install_one(
        &self,
        member: &Member,
        nodes: &Path,
        medium: &Medium,
        artifacts: &Artifacts,
    ) -> Result<Disk> {
        let configuration = nodes.join(format!("{}.yaml", member.name));
        let text =
            fs::read(&configuration).with_context(|| format!("reading {}", configuration.display()))?;
        let volume = steps::configuration_volume(member.name, &text, artifacts)?;
        let disk = Disk::empty(artifacts.disk(&format!("{}.qcow2", member.name)), ByteSize::gib(32))?;
        let live = self.machine(member, "install")?.disk(&disk).disk(&volume).cdrom(&medium.full);
        steps::install(&live, artifacts).with_context(|| format!("installing {}", member.name))?;
        Ok(disk)
    }
}

/// Writes the cluster file and lets `installer` check it and render the configurations; returns their directory.
/// `kubernetes` is what every node has below that key.
pub(super) fn render(
    members: &[Member],
    kubernetes: &Value,
    artifacts: &Artifacts,
    identity: &Identity,
) -> Result<PathBuf> {
    let file = artifacts.disk("cluster.yaml");
    // It has secrets, which no log may contain.
    fs::write(&file, cluster_file(members, kubernetes, identity).to_string())?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    let installer = paths::installer()?;
    let mut validate = Command::new(&installer);
    validate.args(["validate", "--cluster"]).arg(&file);
    programs::run(&mut validate, steps::COMMAND_LIMIT)?.success("installer validate --cluster")?;
    let nodes = artifacts.disk("nodes");
    let mut render = Command::new(&installer);
    render.args(["render", "--cluster"]).arg(&file).arg("-o").arg(&nodes);
    programs::run(&mut render, steps::COMMAND_LIMIT)?.success("installer render")?;
    Ok(nodes)
}

fn cluster_file(members: &[Member], kubernetes: &Value, identity: &Identity) -> Value {
    let pool = |role: &str| {
        let machines: Vec<_> = members
            .iter()
            .filter(|member| member.role == role)
            .map(|member| {
                let lab = json!({
                    "name": "lab", "method": "dhcp", "interfaces": [{ "hw_addr": member.back_door() }],
                });
                json!({
                    "hostname": member.name, "ip": member.address(), "macs": [member.mac()],
                    "overrides": { "install": { "networks": [lab] } },
                })
            })
            .collect();
        json!({ "name": role, "role": role, "template": "vm", "machines": machines })
    };
    let mut roles: Vec<_> = members.iter().map(|member| member.role).collect();
    roles.dedup();
    json!({
        "scheme_version": 1,
        "cluster": {
            "name": "e2e",
            "token": identity.token,
            "os": {
                "ssh_authorized_keys": [identity.public_key], "password": identity.password,
                "dns_nameservers": ["192.0.2.53"], "ntp_servers": ["ntp1.example.org"],
            },
            "install": {
                "automatic": true, "profile": "trial", "skipchecks": true, "vip": VIP,
                "management_interface": {
                    "method": "static", "subnet_mask": "255.255.255.0", "gateway": "10.77.0.1",
                },
            },
            "kubernetes": kubernetes,
        },
        "templates": { "vm": { "install": { "device": "/dev/vda" } } },
        "pools": roles.into_iter().map(pool).collect::<Vec<_>>(),
    })
}

/// True if a Node of the API (core/v1) is Ready and has the member's role.
pub(super) fn is_ready(node: &Value, member: &Member) -> bool {
    let any = |list: &Value, wanted: &[(&str, &str)]| {
        let fits = |entry: &Value| wanted.iter().all(|(key, value)| entry[*key] == *value);
        list.as_array().is_some_and(|list| list.iter().any(fits))
    };
    let label = format!("node-role.harvesterhci.io/{}", member.role);
    let taint = [("key", "node-role.kubernetes.io/etcd"), ("value", "true"), ("effect", "NoExecute")];
    any(&node["status"]["conditions"], &[("type", "Ready"), ("status", "True")])
        && node["metadata"]["labels"][label] == "true"
        && any(&node["spec"]["taints"], &taint) == (member.role == "witness")
}
