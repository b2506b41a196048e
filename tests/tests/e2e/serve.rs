//! Machines that boot from the network: one with a configuration installs, even if the server is killed meanwhile, and
//! then boots from its disk; one without a configuration never installs. Also the ways from a machine's firmware to the
//! server, with dnsmasq for DHCP and TFTP.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use base::files::write_atomically;
use base::size::ByteSize;
use model::config::cluster_secrets::agent_token;
use model::config::{Distribution, Secret};
use nqrust_tests::artifacts::{Artifacts, scenario, scenario_alone};
use nqrust_tests::deadline::Deadline;
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::segment::Segment;
use nqrust_tests::serve::Server;
use nqrust_tests::ssh::Ssh;
use nqrust_tests::{secrets, steps};
use serde_json::{Value, json};
use tempfile::TempDir;
use testing::supervisor::{Authorities, Supervisor, SupervisorBehavior};
use uuid::Uuid;

/// The hardware address of a machine without a configuration.
const STRANGER: &str = "52:54:00:6e:71:99";
/// The address that QEMU's user network gives a machine too.
const ADDRESS: &str = "10.0.2.15";
/// From power on to the first question.
const ASK: Duration = Duration::from_secs(300);
/// Printed when the installer begins to download the OS image from the server.
const WRITING: &str = "Writing the OS image";

/// The inputs and the state of a server, in a directory that only its owner can read.
struct Deployment {
    private: TempDir,
    medium: Medium,
}

impl Deployment {
    /// A deployment with one configuration, for [`MAC`].
    fn new(identity: &Identity) -> Result<Self> {
        Self::of(steps::medium_without_configuration(identity)?, &Document::new("node-n"), identity)
    }

    fn of(medium: Medium, document: &Document, identity: &Identity) -> Result<Self> {
        let deployment = Self { private: tempfile::tempdir()?, medium };
        let file = deployment.nodes().join(format!("mac-{}.yaml", MAC.replace(':', "-")));
        write_atomically(&file, document.to_json(identity).to_string().as_bytes(), 0o600)?;
        Ok(deployment)
    }

    fn nodes(&self) -> PathBuf {
        self.private.path().join("nodes")
    }

    fn state(&self) -> PathBuf {
        self.private.path().join("state")
    }
}

#[test]
fn a_known_machine_installs_from_the_network_though_the_server_dies_and_a_stranger_does_not() {
    scenario("serve", |artifacts| {
        let identity = Identity::load()?;
        let deployment = Deployment::new(&identity)?;
        let (medium, state) = (&deployment.medium, deployment.state());
        let log = artifacts.path("server.log");
        let mut server = Server::start(&medium.full, &deployment.nodes(), &state, &log)?;

        stranger(&server, artifacts)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = Machine::new("install", Firmware::Bios).network_boot(MAC, &server.script()).disk(&disk);
        let mut vm = live.start(artifacts)?;
        server.wait_for("has taken its configuration", steps::BOOT_LIMIT).context("booting the installer")?;
        steps::expect(&mut vm, WRITING, steps::INSTALL_LIMIT).context("beginning to install")?;
        server.kill()?;
        std::thread::sleep(Duration::from_secs(5));
        server.again()?;
        steps::expect(&mut vm, steps::INSTALL_COMPLETE, steps::INSTALL_LIMIT).context("installing")?;
        vm.wait_for_exit(steps::SHUTDOWN_LIMIT).context("waiting for the reboot after the install")?;

        // It asks the server again, which tells it to boot from its disk.
        let again =
            Machine::new("first-boot", Firmware::Bios).network_boot(MAC, &server.script()).disk(&disk);
        let (vm, ssh) = steps::boot(&again, &identity, artifacts)?;
        let mut checks = Checks::default();
        checks.contains("the server's log", &server.said()?, "boots from disk: it");
        checks.equal("the host name", ssh.run("hostname")?, "node-n");
        node::check_images(&ssh, &medium.release()?, "management", &mut checks)?;
        told_of_node(&server, &ssh, &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("the first boot")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        server.kill()?;
        // If a server was killed, its latest changes are in the journal.
        for name in ["machines.db", "machines.db-wal"] {
            fs::copy(state.join(name), artifacts.path(name))?;
        }
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
#[ignore = "an install and a boot: `make soak` runs it"]
fn a_machine_with_uefi_is_led_by_dnsmasq_and_tftp_to_its_install_and_then_to_its_disk() {
    through_dnsmasq("serve-uefi", Firmware::Uefi);
}

#[test]
#[ignore = "an install and a boot: `make soak` runs it"]
fn a_machine_with_bios_is_led_by_dnsmasq_to_its_install_and_then_to_its_disk() {
    through_dnsmasq("serve-bios", Firmware::Bios);
}

#[test]
#[ignore = "an install: `make soak` runs it"]
fn a_machine_that_boots_by_uefi_http_installs() {
    scenario("serve-http", |artifacts| {
        let identity = Identity::load()?;
        let (segment, deployment) = (Segment::lay()?, Deployment::new(&identity)?);
        let server = on_segment(&segment, &deployment, artifacts)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = Machine::new("install", Firmware::Uefi).segment(MAC, &segment).http_boot().disk(&disk);
        steps::install(&live, artifacts)?;
        let mut checks = Checks::default();
        checks.that("nothing went by TFTP", !server.said()?.contains("dnsmasq-tftp: sent"));
        checks.contains("the server's log", &server.said()?, "has taken its configuration");
        checks.finish("an install by UEFI HTTP boot")
    });
}

#[test]
#[ignore = "an install and a control plane: `make soak` runs it"]
fn a_node_of_kubeadm_is_joined_on_the_page_of_the_server_that_it_was_installed_from() {
    scenario_alone("serve-joined", |artifacts| {
        let identity = Identity::load()?;
        let medium = Medium::built_apart("kubernetes", medium::stage_kubernetes)?;
        let document = Document { address: Some(ADDRESS.to_owned()), ..Document::new("node-n") };
        let deployment = Deployment::of(medium, &document, &identity)?;
        let log = artifacts.path("server.log");
        let (full, nodes) = (&deployment.medium.full, deployment.nodes());
        let server = Server::start(full, &nodes, &deployment.state(), &log)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let machine = |purpose, firmware| Machine::new(purpose, firmware).control_plane().disk(&disk);
        let live = machine("install", Firmware::Bios).network_boot(MAC, &server.script());
        steps::install(&live, artifacts)?;
        let node = machine("first-boot", Firmware::Uefi).network(MAC);
        let (mut vm, ssh) = steps::boot(&node, &identity, artifacts)?;
        let told = told_stage(&server, "joining")?;
        let mut checks = Checks::default();
        checks.that(&format!("nothing is left to do: {told}"), told["next"].is_null());
        steps::await_ready(&ssh)?;
        let told = told_stage(&server, "joined")?;
        artifacts.append("machine.json", &told.to_string())?;
        checks.equal("the group of a node that is ready", &told["group"], "installed");
        let reports = ssh.succeeds("sudo -n test -e /oem/fleet.json")?;
        checks.equal("a node that is ready reports to its server", reports, false);
        vm.qmp.screendump(&artifacts.path("ready.png"))?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("a node on its server's page")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
#[ignore = "an install and two boots of an installer: `make soak` runs it"]
fn a_machine_that_joins_waits_with_the_reason_on_its_screen_and_goes_on_by_itself() {
    scenario_alone("serve-waits", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let private = tempfile::tempdir()?;
        let file = private.path().join("cluster.yaml");
        write_atomically(&file, cluster_file(&identity).to_string().as_bytes(), 0o600)?;
        let (state, log) = (private.path().join("state"), artifacts.path("server.log"));
        let server = Server::of_cluster(&medium.full, &file, &state, &log)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let machine =
            |purpose| Machine::new(purpose, Firmware::Bios).network_boot(MAC, &server.script()).disk(&disk);

        let mut vm = machine("waits").start(artifacts)?;
        let told = "node-1, which creates the cluster, has not asked to boot yet";
        steps::expect(&mut vm, told, steps::INSTALL_LIMIT).context("waiting for the first machine")?;
        let mut creator = FakeCreator::boot(&server)?;
        creator.tell(&[("image", "started", None)], None)?;
        creator.tell(&[("run", "failed", Some(6))], Some("writing to /dev/vda"))?;
        let failed =
            "node-1, which creates the cluster, has failed in stage writing (disk-io): writing to /dev/vda";
        steps::expect(&mut vm, failed, ASK).context("the failure of the first machine")?;
        // It loses power while it waits.
        vm.kill()?;
        let mut checks = Checks::default();
        let untouched = Disk::empty(artifacts.disk("untouched.qcow2"), ByteSize::gib(32))?;
        checks.that("nothing is written while it waits", disk.same_bytes_as(&untouched)?);
        let mut vm = machine("waits-again").start(artifacts)?;
        steps::expect(&mut vm, failed, steps::INSTALL_LIMIT).context("waiting after a power cut")?;
        let mut creator = FakeCreator::boot(&server)?;
        creator.tell(&[("preflight", "started", None)], None)?;
        steps::expect(&mut vm, "node-1, which creates the cluster, is not ready yet (preflight)", ASK)?;
        creator.tell(&[("run", "done", Some(0))], None)?;

        let authorities = Authorities::make(&artifacts.disk("authorities"))?;
        let agents = agent_token(&Secret::new(identity.token.clone()))?;
        let manner = SupervisorBehavior {
            server_token: identity.token.clone(),
            agent_token: agents.expose().to_owned(),
            ..SupervisorBehavior::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], Distribution::Rke2.supervisor_port()));
        let cluster = Supervisor::start_on(address, &authorities, manner)?;
        steps::expect(&mut vm, steps::INSTALL_COMPLETE, steps::INSTALL_LIMIT).context("going on")?;
        vm.wait_for_exit(steps::SHUTDOWN_LIMIT).context("waiting for the reboot after the install")?;
        checks.that("the cluster was asked", !cluster.asked().is_empty());
        checks.contains(
            "the server's log",
            &server.said()?,
            "node-2 (machine 52:54:00:6e:71:01) is installed",
        );
        checks.finish("a machine that waits")?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Two machines; the virtual address of their cluster is this host in the network of a machine.
fn cluster_file(identity: &Identity) -> Value {
    json!({
        "cluster": {
            "name": "waits", "token": identity.token,
            "install": {
                "vip": "10.0.2.2", "automatic": true, "profile": "trial", "device": "/dev/vda",
                "management_interface": { "subnet_mask": "255.255.255.0", "gateway": "10.0.2.3" },
            },
            "os": { "ssh_authorized_keys": [identity.public_key], "dns_nameservers": ["10.0.2.3"] },
        },
        "pools": [
            { "name": "first", "role": "management", "machines": [
                { "hostname": "node-1", "ip": "10.0.2.14", "macs": [FakeCreator::MAC] },
            ]},
            { "name": "others", "role": "worker", "machines": [
                { "hostname": "node-2", "ip": ADDRESS, "macs": [MAC] },
            ]},
        ],
    })
}

/// The machine that creates the cluster, as the server sees it. It is a double: nothing is installed.
struct FakeCreator<'a> {
    server: &'a Server,
    reports: String,
    run: Uuid,
    seq: u64,
}

impl<'a> FakeCreator<'a> {
    const MAC: &'static str = "52:54:00:6e:71:88";

    /// Boots, and takes the configuration.
    fn boot(server: &'a Server) -> Result<Self> {
        let script = server.ask(&format!("/v1/boot?mac={}", Self::MAC), None)?;
        let path = |name: &str| {
            let url = script.split_whitespace().find_map(|word| word.strip_prefix(name));
            let url = url.with_context(|| format!("no {name} in {script}"))?;
            Ok::<_, anyhow::Error>(format!("/{}", url.splitn(4, '/').nth(3).unwrap_or_default()))
        };
        server.ask(&path("nqrust.install.config_url=")?, None)?;
        Ok(Self { server, reports: path("nqrust.report=")?, run: Uuid::new_v4(), seq: 0 })
    }

    /// Reports these events, each a step, a state and an exit code, and an error.
    fn tell(&mut self, events: &[(&str, &str, Option<u8>)], error: Option<&str>) -> Result<()> {
        let machine = json!({ "macs": [Self::MAC], "serial": null, "uuid": null, "asset_tag": null });
        let mut lines = vec![json!({ "hello": { "v": 1, "run": self.run, "machine": machine } })];
        for (step, state, exit_code) in events {
            self.seq += 1;
            lines.push(json!({ "event": {
                "v": 1, "seq": self.seq, "time": "2026-11-21T10:00:00Z", "step": step, "state": state,
                "message": "of a double", "exit_code": exit_code,
            }}));
        }
        lines.extend(
            error.map(|cause| json!({ "failure": { "causes": [cause], "hints": [], "exit_code": 6 } })),
        );
        let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.server.ask(&self.reports, Some(&body)).map(drop)
    }
}

/// The server's entry for the node once it is in this stage.
fn told_stage(server: &Server, stage: &str) -> Result<Value> {
    Deadline::after(ASK).poll(&format!("the stage {stage} of the node"), || {
        let fleet = server.fleet()?;
        let node = fleet["machines"].as_array().into_iter().flatten().find(|one| one["name"] == "node-n");
        Ok(node.filter(|one| one["stage"] == stage).cloned())
    })
}

/// The node continues to report to its server how it joins its cluster. Its medium has no distribution, so it reports
/// that it cannot.
fn told_of_node(server: &Server, ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let kept = ssh.run("sudo -n stat -c '%a %U' /oem/fleet.json")?;
    checks.equal("mode and owner of what the node keeps for its server", kept, "600 root");
    let machine = told_stage(server, "not-joined")?;
    checks.contains("why the node does not join", &machine["error"].to_string(), "is not in the OS image");
    checks.contains("what can be asked for", &machine["actions"].to_string(), "redeploy");
    Ok(())
}

fn on_segment(segment: &Segment, deployment: &Deployment, artifacts: &Artifacts) -> Result<Server> {
    let (nodes, state, log) = (deployment.nodes(), deployment.state(), artifacts.path("server.log"));
    Server::on_segment(segment, None, [&deployment.medium.full, &nodes, &state, &log])
}

/// Installs an empty machine that boots from the network, without any input.
fn through_dnsmasq(name: &str, firmware: Firmware) {
    scenario(name, |artifacts| {
        let identity = Identity::load()?;
        let (segment, deployment) = (Segment::lay()?, Deployment::new(&identity)?);
        let server = on_segment(&segment, &deployment, artifacts)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let machine = |purpose| Machine::new(purpose, firmware).segment(MAC, &segment).disk(&disk);
        steps::install(&machine("install"), artifacts)?;
        let mut vm = machine("first-boot").start(artifacts)?;
        server.wait_for("boots from disk: it", ASK)?;
        steps::expect(&mut vm, " login: ", steps::BOOT_LIMIT).context("booting the node")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// A machine without a configuration is told to boot from its disk, which is empty and has to stay so.
fn stranger(server: &Server, artifacts: &Artifacts) -> Result<()> {
    let disk = Disk::empty(artifacts.disk("stranger.qcow2"), ByteSize::gib(32))?;
    let untouched = Disk::empty(artifacts.disk("untouched.qcow2"), ByteSize::gib(32))?;
    let machine =
        Machine::new("stranger", Firmware::Bios).network_boot(STRANGER, &server.script()).disk(&disk);
    let vm = machine.start(artifacts)?;
    let words = format!("machine {STRANGER} boots from disk: no configuration names this machine");
    server.wait_for(&words, ASK)?;
    vm.kill()?;
    let mut checks = Checks::default();
    checks.that("the stranger's disk is empty", disk.same_bytes_as(&untouched)?);
    checks.finish("a machine that nobody knows")
}
