//! How long an emulated machine takes from power on to a node of Kubernetes that is Ready: after its install, when the cluster is made, and
//! when it is started again.

use std::time::Instant;

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::MAC;
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::steps;
use serde_json::json;

use crate::figure::Figure;

/// Free in QEMU's user network.
const VIP: &str = "10.0.2.100";

/// Seconds from power on.
struct BootSeconds {
    login: f64,
    ready: f64,
}

/// Installs the default image once and starts it twice.
pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let identity = Identity::load()?;
    let medium = Medium::built_apart("kubernetes", medium::stage_kubernetes)?;
    let disk = Disk::empty(artifacts.disk("ready.qcow2"), ByteSize::gib(32))?;
    let volume = steps::configuration_volume("ready", document(&identity).as_bytes(), artifacts)?;
    let machine = |purpose: &str| {
        Machine::new(purpose, Firmware::Uefi).control_plane().isolated_network(MAC, "").disk(&disk)
    };
    let began = Instant::now();
    steps::install(&machine("ready-install").disk(&volume).cdrom(&medium.full), artifacts)?;
    let installed = began.elapsed().as_secs_f64();
    let first = boot(&machine("ready-first"), &identity, artifacts).context("the first start")?;
    let again = boot(&machine("ready-again"), &identity, artifacts).context("the second start")?;
    let figure = |name: &str, boot: &BootSeconds| {
        Figure::new(name, boot.ready, "s", ("power on to login", boot.login))
    };
    Ok(vec![
        figure("emulated: first power on to Ready", &first),
        figure("emulated: power on to Ready, once more", &again),
        Figure::new(
            "emulated: empty disk to Ready",
            installed + first.ready,
            "s",
            ("the install alone", installed),
        ),
    ])
}

fn boot(machine: &Machine, identity: &Identity, artifacts: &Artifacts) -> Result<BootSeconds> {
    let began = Instant::now();
    let (vm, ssh) = steps::boot(machine, identity, artifacts)?;
    let login = began.elapsed().as_secs_f64();
    steps::await_ready(&ssh)?;
    let ready = began.elapsed().as_secs_f64();
    drop(ssh);
    vm.power_off(steps::SHUTDOWN_LIMIT)?;
    Ok(BootSeconds { login, ready })
}

/// A node that makes a cluster of its own.
fn document(identity: &Identity) -> String {
    json!({
        "scheme_version": 1,
        "token": identity.token,
        "os": {
            "hostname": "node-r",
            "ssh_authorized_keys": [identity.public_key],
            "ntp_servers": ["ntp1.example.org", "ntp2.example.org"],
        },
        "install": {
            "automatic": true, "mode": "create", "role": "management", "profile": "trial", "skipchecks": true,
            "device": "/dev/vda", "vip": VIP,
            "management_interface": { "interfaces": [{ "hw_addr": MAC }], "method": "dhcp" },
        },
        "kubernetes": { "distribution": "kubeadm", "timing": "relaxed" },
    })
    .to_string()
}
