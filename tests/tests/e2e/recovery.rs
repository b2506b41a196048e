//! The recovery system of a node: reached by SSH, and a reset that it makes although the power fails.

use std::time::Duration;

use anyhow::Context;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{Checks, MAC};
use nqrust_tests::qemu::{Firmware, Machine};
use nqrust_tests::steps;
use nqrust_tests::updates::{UPDATE_LIMIT, logged_in_where, restarted, running};

/// For the start of the recovery system, a reset, and the first start of the node after it.
const RESET_LIMIT: Duration = Duration::from_secs(1800);
const TRACE: &str = "/var/lib/e2e-trace";

#[test]
fn the_recovery_system_resets_a_node_although_the_power_fails() {
    scenario("recovery", |artifacts| {
        let identity = Identity::load()?;
        let disk = steps::installed_disk(&identity, artifacts)?;
        let machine = |name: &str| Machine::new(name, Firmware::Uefi).network(MAC).disk(&disk).reboots();
        let (mut vm, ssh) = steps::boot(&machine("node"), &identity, artifacts)?;
        let mut checks = Checks::default();
        ssh.run(&format!("echo kept | sudo -n tee {TRACE} && sync"))?;
        let document = ssh.run("sudo -n sha256sum /oem/node.yaml")?;
        let host_key = ssh.run("sudo -n cat /oem/ssh/ssh_host_ed25519_key.pub")?;

        let recovery = "sudo -n installer update start recovery";
        let ssh = restarted(&mut vm, &ssh, recovery, &identity, artifacts)?;
        checks.equal("the recovery system runs", &running(&ssh)?, &"recovery".to_owned());
        checks.equal(
            "its /var is in memory",
            ssh.run("findmnt --noheadings --output FSTYPE /var")?.trim(),
            "tmpfs",
        );
        checks.equal(
            "it is the same host",
            &ssh.run("ssh-keyscan -t ed25519 localhost 2>/dev/null | grep -v '^#' | cut -d' ' -f2,3")?
                .trim()
                .to_owned(),
            &host_key.split(' ').take(2).collect::<Vec<_>>().join(" "),
        );
        let containerd = ssh.attempt("systemctl is-active containerd", UPDATE_LIMIT)?;
        checks.equal("no containers run", containerd.stdout.trim(), "inactive");
        let failed = ssh.run("systemctl list-units --failed --no-legend --plain")?;
        checks.equal("no unit has failed", failed.trim(), "");
        let repair = ssh.attempt("sudo -n installer update repair --yes", UPDATE_LIMIT)?;
        artifacts.append("repair.txt", &format!("{}{}", repair.stdout, repair.stderr))?;
        checks.equal("nothing is damaged", &repair.code, &0);
        vm.qmp.screendump(&artifacts.path("recovery.png"))?;
        steps::collect_journal(&ssh, artifacts, "recovery")?;

        let unsure = ssh.attempt("sudo -n installer update reset --level state < /dev/null", UPDATE_LIMIT)?;
        checks.equal("a reset wants a confirmation", &unsure.code, &2);
        // The console's output so far has a login prompt too.
        vm.serial.rest(Duration::from_secs(1));
        let reset = ssh.attempt("sudo -n installer update reset --level state --yes", UPDATE_LIMIT)?;
        checks.that("a reset restarts the node", [0, 255].contains(&reset.code));
        // It begins when the system starts its services, as the login does.
        vm.serial.wait_for(" login: ", UPDATE_LIMIT).context("the system that resets the node")?;
        vm.kill()?;

        let mut vm = machine("reset").start(artifacts)?;
        // The recovery system answers before.
        let wanted = ("the node after its reset", RESET_LIMIT);
        let reset = logged_in_where(&mut vm, (&identity, artifacts), wanted, |ssh| Ok(running(ssh)? == "a"));
        vm.qmp.screendump(&artifacts.path("reset.png"))?;
        let ssh = reset.with_context(|| format!("the console said last:\n{}", vm.serial.last_words()))?;
        checks.that("what was in /var is gone", !ssh.succeeds(&format!("sudo -n test -e {TRACE}"))?);
        checks.equal(
            "/var is on the disk",
            ssh.run("findmnt --noheadings --output FSTYPE /var")?.trim(),
            "ext4",
        );
        checks.equal("the document is the same", &ssh.run("sudo -n sha256sum /oem/node.yaml")?, &document);
        checks.equal(
            "the host key too",
            &ssh.run("sudo -n cat /oem/ssh/ssh_host_ed25519_key.pub")?,
            &host_key,
        );
        checks.that("nothing more is asked for", !ssh.succeeds("sudo -n test -e /oem/reset.json")?);
        checks.equal("containers can run", ssh.run("systemctl is-active containerd")?.trim(), "active");
        steps::collect_journal(&ssh, artifacts, "after")?;
        checks.finish("the recovery system")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}
