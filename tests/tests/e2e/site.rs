//! A site that has lost everything but one node: the node serves the release that it runs. A machine without a system boots over
//! the network from it and is installed, with the images of the node; then a new boot server takes the node as its medium.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, Result};
use base::files::write_atomically;
use base::size::ByteSize;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::http;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{self, Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::serve::Server;
use nqrust_tests::{secrets, steps};

/// Printed once a node serves.
const SERVED: &str = "Machines without a system boot its installer from";

#[test]
#[ignore = "two installs and two boots: `make soak` runs it"]
fn a_node_that_is_left_of_a_site_installs_the_next_machine_over_the_network() {
    scenario("site", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let private = tempfile::tempdir()?;
        let nodes = private.path().join("nodes");
        let configuration = |hostname: &str| Document::new(hostname).to_json(&identity).to_string();
        let of_machine = nodes.join(format!("mac-{}.yaml", MAC.replace(':', "-")));
        write_atomically(&of_machine, configuration("node-n").as_bytes(), 0o600)?;

        // The site as it was: a boot server and a node.
        let (state, log) = (private.path().join("state"), artifacts.path("server.log"));
        let mut server = Server::start(&medium.full, &nodes, &state, &log)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = Machine::new("install", Firmware::Bios).network_boot(MAC, &server.script()).disk(&disk);
        steps::install(&live, artifacts).context("installing the first node")?;
        server.kill()?;
        fs::remove_dir_all(&state)?;

        let first = Machine::new("first-node", Firmware::Uefi).network(MAC).disk(&disk);
        let (mut vm, ssh) = steps::boot(&first, &identity, artifacts)?;
        let configured = http::Server::start(private.path(), 0)?;
        write_atomically(&private.path().join("next.yaml"), configuration("node-next").as_bytes(), 0o600)?;
        let config_url = format!("http://10.0.2.2:{}/next.yaml", configured.port());
        ssh.run(&format!(
            "sudo -n systemd-run --quiet --unit=serving installer update serve --config-url {config_url}"
        ))?;
        let told = Deadline::after(steps::COMMAND_LIMIT).every(MACHINE_INTERVAL).poll(
            "a node that serves",
            || {
                let told = ssh.run("sudo -n journalctl --no-pager --output=cat --unit=serving")?;
                Ok(told.contains(SERVED).then_some(told))
            },
        )?;
        artifacts.append("served.txt", &told)?;
        let port = forwarded(&mut vm, 7480)?;
        let release = medium.release()?;
        let digest = nqrust_tests::updates::manifest_digest(&medium.full)?;
        let mut checks = Checks::default();
        let lacks = ["lacks", "are not on this node"].iter().any(|words| told.contains(words));
        checks.that(&format!("it lacks nothing: {told}"), !lacks);
        for path in ["/oem/node.yaml", "/../oem/node.yaml", "/medium/../oem/node.yaml", "/etc/shadow"] {
            let request =
                format!("curl --path-as-is -s -o /dev/null -w '%{{http_code}}' http://127.0.0.1:7480{path}");
            checks.equal(&format!("the answer to {path}"), ssh.run(&request)?, "404".to_owned());
        }
        for payload in release.carried_payloads() {
            let request = format!(
                "curl -sf http://127.0.0.1:7480/medium/{digest}/{} | sha256sum | cut -d' ' -f1",
                payload.path
            );
            checks.equal(&payload.path, ssh.run(&request)?, payload.sha256.to_string());
        }
        checks.finish("what the node serves")?;

        // The next machine has nothing but an address of a DHCP server that names the node.
        let disk = Disk::empty(artifacts.disk("next.qcow2"), ByteSize::gib(32))?;
        let script = format!("http://10.0.2.2:{port}/boot.ipxe");
        let live = Machine::new("install-next", Firmware::Bios).network_boot(MAC, &script).disk(&disk);
        steps::install(&live, artifacts).context("installing the next machine from the node")?;

        // A new boot server gets its medium from the node.
        let url = format!("http://127.0.0.1:{port}");
        let log = artifacts.path("new-server.log");
        let server = Server::start(Path::new(&url), &nodes, &state, &log)?;
        let script = server.ask(&format!("/v1/boot?mac={MAC}"), None)?;
        let mut checks = Checks::default();
        checks.contains("what a configured machine boots", &script, "nqrust.install.automatic=true");
        checks.contains("its release", &script, &digest.oci());
        checks.that("no file of the release is missing", !server.said()?.contains("are not on this medium"));
        drop(server);
        steps::collect_logs(&ssh, artifacts, "first-node")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;

        let next = Machine::new("next-node", Firmware::Bios).network(MAC).disk(&disk);
        let (vm, ssh) = steps::boot(&next, &identity, artifacts)?;
        checks.equal("the host name", ssh.run("hostname")?, "node-next".to_owned());
        node::check_images(&ssh, &release, "management", &mut checks)?;
        let kept = ssh.run(&format!("sudo -n ls /var/lib/nqrust/release/{digest}/images/metadata"))?;
        checks.contains("the next node can serve its site too", &kept, "worker.db");
        steps::collect_logs(&ssh, artifacts, "next-node")?;
        checks.finish("the machine that was installed from a node")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// A port of this host that is forwarded to one of the machine.
fn forwarded(vm: &mut Vm, to: u16) -> Result<u16> {
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let said = vm.qmp.human(&format!("hostfwd_add net0 tcp:127.0.0.1:{port}-:{to}"))?;
    anyhow::ensure!(said.trim().is_empty(), "forwarding a port: {said}");
    Ok(port)
}
