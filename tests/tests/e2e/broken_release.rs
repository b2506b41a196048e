//! Bad releases, each in a machine: the previous release runs in the end, the reason is reported, and nothing is retried
//! by itself.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use install::plan::BOOT_ROOM;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::deadline::Deadline;
use nqrust_tests::faults::{Fault, Relay};
use nqrust_tests::http::Server;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{Checks, MAC};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{
    self, CURRENT, NEXT, UPDATE_LIMIT, awaited, from_served, release, restarted_where, running, serve,
    settled, slot,
};

/// Covers the 15 minutes in which a release has to be good, or three starts that a timer ends.
const TRIAL_LIMIT: Duration = Duration::from_secs(1800);
/// The time in which a node reports why it rolled back.
pub(crate) const TOLD_LIMIT: Duration = Duration::from_secs(60);
/// The other slot. No release of these stays, so that it is always the same.
const OTHER: &str = "/dev/disk/by-partlabel/root-b";

/// Fails if the kernel has its argument.
const OWN_CHECK: &str =
    "#!/bin/sh\n! grep -q e2e.unwell /proc/cmdline || { echo this release is unwell; exit 1; }\n";

/// A release that is tried.
struct Trial<'a> {
    name: &'a str,
    /// The kernel arguments that break it.
    arguments: &'a [&'a str],
    /// Run on the node once it is staged.
    damage: Option<&'a str>,
    reason: &'a str,
}

/// A node that runs the release under test, and the server that it gets releases from.
struct Node<'a> {
    vm: Vm,
    ssh: Ssh,
    identity: &'a Identity,
    artifacts: &'a Artifacts,
    server: Server,
    served: PathBuf,
    checks: Checks,
    tried: u32,
}

impl<'a> Node<'a> {
    fn install(
        firmware: Firmware,
        identity: &'a Identity,
        artifacts: &'a Artifacts,
        media: &[(&str, &nqrust_tests::medium::Medium)],
    ) -> Result<Self> {
        let disk = steps::installed_disk(identity, artifacts)?;
        let served = artifacts.disk("www");
        for (name, medium) in media {
            serve(medium, &served, name)?;
        }
        let server = Server::start(&served, 0)?;
        let machine = Machine::new("node", firmware).network(MAC).disk(&disk).reboots().watchdog();
        let (vm, ssh) = steps::boot(&machine, identity, artifacts)?;
        settled(&ssh)?;
        Ok(Self { vm, ssh, identity, artifacts, server, served, checks: Checks::default(), tried: 0 })
    }

    fn from(&self, name: &str) -> Result<String> {
        from_served(&self.served, self.server.port(), name)
    }

    /// Lets the node try a release that is not good.
    fn leaves(&mut self, trial: &Trial) -> Result<()> {
        self.tried += 1;
        let apply = format!("sudo -n installer update apply {}", self.from(trial.name)?);
        self.ssh.attempt(&format!("{apply} --no-reboot"), UPDATE_LIMIT)?.success("staging")?;
        if let Some(damage) = trial.damage {
            self.ssh.run(damage)?;
        }
        let (tools, wanted) = ((self.identity, self.artifacts), ("the release before", TRIAL_LIMIT));
        let reboot = "sudo -n systemctl reboot";
        self.ssh =
            restarted_where(&mut self.vm, &self.ssh, reboot, tools, wanted, |ssh| Ok(running(ssh)? == "a"))?;
        let told = "the verdict on the broken release";
        let status = awaited(&self.ssh, TOLD_LIMIT, told, |told| told["state"] == "rolled-back")?;
        let (name, checks) = (trial.name, &mut self.checks);
        checks.equal(&format!("{name}: the release before runs"), status["running"].as_str(), Some("a"));
        checks.equal(&format!("{name}: it is bad"), slot(&status, "b").1, "bad".to_owned());
        let reason = status["reason"].as_str().unwrap_or_default();
        self.artifacts.append("reasons.txt", &format!("{name}: {reason}\n"))?;
        checks.contains(&format!("{name}: the reason"), reason, trial.reason);
        let journal = self.ssh.run("sudo -n journalctl --boot --unit nqrust-good --output cat")?;
        checks.contains(&format!("{name}: the reason in the journal"), &journal, trial.reason);
        let again = self.ssh.attempt(&apply, TOLD_LIMIT)?;
        checks.equal(&format!("{name}: it is not tried again by itself"), again.code, 9);
        // The next one is staged beside a release that is known to be good.
        awaited(&self.ssh, UPDATE_LIMIT, "the release before is good", |told| slot(told, "a").1 == "good")?;
        Ok(())
    }
}

/// The time after which a release on trial without a verdict is restarted.
fn deadline(seconds: u32) -> String {
    drop_in("nqrust-trial.timer", &format!("[Timer]\nOnBootSec=\nOnBootSec={seconds}s\n"))
}

/// Lets systemd crash when it starts a unit, after the time in which the watchdog's driver has come: then it does nothing any more
/// (systemd-system.conf(5), `CrashAction=`).
fn hangs(unit: &str) -> String {
    drop_in(unit, "[Service]\nExecStartPre=/bin/sh -c 'sleep 30; kill -SEGV 1'\n")
}

/// A kernel argument that adds to a unit what the image does not say (systemd.system-credentials(7)).
pub(crate) fn drop_in(unit: &str, text: &str) -> String {
    let text = BASE64_STANDARD.encode(text);
    format!("systemd.set_credential_binary=systemd.unit-dropin.{unit}:{text}")
}

#[test]
#[ignore = "an install and two releases that are damaged on the disk: `make soak` runs it"]
fn releases_that_are_damaged_give_way_to_the_one_before() {
    scenario("broken-bits", |artifacts| {
        let identity = Identity::load()?;
        // Its file is in every image, and nobody reads it while a node starts.
        let flipped_image = flip(
            "sudo -n env LC_ALL=C grep --byte-offset --only-matching --text --max-count 1 'Everyone is permitted to copy' DEVICE | head -n 1",
            0,
        );
        let kernel = flip(
            &format!(
                "start=$(($(sudo -n blockdev --getsize64 DEVICE) / 1048576 - {})); \
                 found=$(sudo -n dd if=DEVICE bs=1M skip=$start status=none | \
                 LC_ALL=C grep --byte-offset --only-matching --text --max-count 1 HdrS | head -n 1); \
                 echo $((start * 1048576 + ${{found%%:*}}))",
                BOOT_ROOM.get() >> 20
            ),
            1 << 20,
        );
        let trials = [
            Trial { name: "kernel", arguments: &[], damage: Some(&kernel), reason: "GRUB could not load it" },
            Trial {
                name: "image",
                arguments: &[],
                damage: Some(&flipped_image),
                reason: "does not read back",
            },
        ];
        // The firmware's keys are what tells GRUB that the kernel is not whole.
        tried(Firmware::SecureBoot, &trials, &identity, artifacts)
    })
}

#[test]
#[ignore = "tries five releases, each of them three times: `make soak` runs it"]
fn releases_that_do_not_start_give_way_to_the_one_before() {
    scenario("broken-start", |artifacts| {
        let identity = Identity::load()?;
        let late = deadline(100);
        let trials = [
            Trial {
                name: "no-root",
                arguments: &["rd.systemd.mask=nqrust-root.service"],
                damage: None,
                reason: "started 3 times",
            },
            // systemd crashes, stands still, and answers no watchdog: in the initrd, and in the system.
            Trial {
                name: "hangs-early",
                arguments: &[&hangs("dracut-initqueue.service")],
                damage: None,
                reason: "started 3 times",
            },
            Trial {
                name: "hangs",
                arguments: &[&hangs("systemd-user-sessions.service")],
                damage: None,
                reason: "started 3 times",
            },
            Trial {
                name: "waits-early",
                arguments: &["rd.systemd.unit=sysinit.target", &late],
                damage: None,
                reason: "started 3 times",
            },
            // systemd answers the watchdog, and starts nothing more.
            Trial {
                name: "waits",
                arguments: &["systemd.unit=sysinit.target", &late],
                damage: None,
                reason: "started 3 times",
            },
        ];
        tried(Firmware::SecureBoot, &trials, &identity, artifacts)
    })
}

#[test]
#[ignore = "waits twice for the 15 minutes that a release has: `make soak` runs it"]
fn releases_that_do_not_get_healthy_give_way_to_the_one_before() {
    scenario("broken-health", |artifacts| {
        let identity = Identity::load()?;
        let trials = [
            Trial {
                name: "no-network",
                arguments: &["module_blacklist=virtio_net"],
                damage: None,
                reason: "address",
            },
            Trial {
                name: "own-check",
                arguments: &["e2e.unwell"],
                damage: None,
                reason: "this release is unwell",
            },
        ];
        tried(Firmware::Bios, &trials, &identity, artifacts)
    })
}

fn tried(firmware: Firmware, trials: &[Trial], identity: &Identity, artifacts: &Artifacts) -> Result<()> {
    let media: Vec<_> = trials
        .iter()
        .enumerate()
        .map(|(index, trial)| {
            let name = format!("broken-{}", trial.name);
            Ok((trial.name, release(identity, &name, &format!("0.3.{index}"), trial.arguments)?))
        })
        .collect::<Result<_>>()?;
    let media: Vec<_> = media.iter().map(|(name, medium)| (*name, medium)).collect();
    let mut node = Node::install(firmware, identity, artifacts, &media)?;
    node.ssh.run("sudo -n mkdir --parents --mode=700 /oem/health.d/required")?;
    node.ssh.write_as_root("/oem/health.d/required/unwell", OWN_CHECK.as_bytes())?;
    node.ssh.run("sudo -n chmod 700 /oem/health.d/required/unwell")?;
    for trial in trials {
        node.leaves(trial).with_context(|| format!("the release {:?}", trial.name))?;
    }
    steps::collect_journal(&node.ssh, artifacts, "after")?;
    node.checks.finish("the broken releases")?;
    node.vm.power_off(steps::SHUTDOWN_LIMIT)
}

/// A command that changes one bit of the other slot, `further` bytes behind the place that `find` prints before a colon.
fn flip(find: &str, further: u64) -> String {
    let find = find.replace("DEVICE", OTHER);
    format!(
        "set -e; place=$({find}); place=$((${{place%%:*}} + {further})); \
         byte=$(sudo -n dd if={OTHER} bs=1 skip=$place count=1 status=none | od -An -tu1); \
         printf \"\\\\$(printf %o $((byte ^ 1)))\" | \
         sudo -n dd of={OTHER} bs=1 seek=$place count=1 conv=notrunc,fsync status=none"
    )
}

#[test]
#[ignore = "an install and a node for what goes wrong before a restart: `make soak` runs it"]
fn an_update_that_cannot_be_made_leaves_the_node_as_it_was() {
    scenario("broken-update", |artifacts| {
        let identity = Identity::load()?;
        let next = release(&identity, "update-next", NEXT, &[])?;
        let size = std::fs::metadata(&next.full)?.len();
        let mut node = Node::install(Firmware::Uefi, &identity, artifacts, &[("next", &next)])?;
        let Node { ssh, checks, server, served, .. } = &mut node;
        let relay = Relay::start(server.port())?;
        let from = from_served(served, relay.port(), "next")?;
        let fetch = format!("sudo -n installer update fetch {from}");

        // /var is full.
        ssh.run(
            "sudo -n fallocate --length $(($(stat -f --format '%a * %S' /var) - 33554432)) /var/full || true",
        )?;
        let full = ssh.attempt(&fetch, UPDATE_LIMIT)?;
        artifacts.append("errors.txt", &full.stderr)?;
        checks.equal("a full /var is told as such", full.code, 6);
        ssh.run("sudo -n rm /var/full")?;

        // No network at all.
        relay.always(Some(Fault::Cut(0)));
        let cut = ssh.attempt(&fetch, UPDATE_LIMIT)?;
        artifacts.append("errors.txt", &cut.stderr)?;
        checks.equal("a server that answers nothing is told as such", cut.code, 5);

        // Each connection is cut off after a tenth of the release.
        relay.sent();
        relay.always(Some(Fault::Cut(size / 10)));
        let mut ended = ssh.attempt(&fetch, UPDATE_LIMIT)?;
        for _ in 0..10 {
            if ended.code == 0 {
                break;
            }
            checks.equal("a transfer that is cut off is told as such", ended.code, 5);
            ended = ssh.attempt(&fetch, UPDATE_LIMIT)?;
        }
        checks.equal("it ends although the network is cut at many places", ended.code, 0);
        let sent = relay.sent();
        checks.that(&format!("{sent} bytes were sent for {size}"), sent <= size + size / 10);
        relay.always(None);

        // It is a source for other nodes, as whole as it came.
        let digest = updates::status(ssh)?["fetched"]["digest"].as_str().unwrap_or_default().to_owned();
        ssh.run("sudo -n systemd-run --quiet --collect --unit=serving installer update serve")?;
        let from = format!("--from http://127.0.0.1:7480 --sha256 {digest}");
        let offered = Deadline::after(TOLD_LIMIT).poll("the node as a source", || {
            let ended = ssh.attempt(&format!("sudo -n installer update check {from}"), TOLD_LIMIT)?;
            Ok((ended.code != 5).then_some(ended))
        })?;
        checks.contains(
            "what another node is offered",
            &offered.stdout,
            &format!("{NEXT} in place of {CURRENT}"),
        );
        let image = "curl -sf http://127.0.0.1:7480/rootfs.squashfs | sha256sum | cut -d' ' -f1";
        let kept =
            "sudo -n sh -c 'sha256sum /var/lib/nqrust/update/fetched/*/rootfs.squashfs' | cut -d' ' -f1";
        checks.equal("the image that is served", ssh.run(image)?, ssh.run(kept)?);
        let secret = ssh.run(
            "curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:7480/../../oem/node.yaml --path-as-is",
        )?;
        checks.equal("nothing else is served", secret, "404".to_owned());
        ssh.run("sudo -n systemctl stop serving")?;

        // Two at once.
        ssh.attempt("sudo -n sh -c 'installer update stage > /dev/null 2>&1 &'", TOLD_LIMIT)?;
        Deadline::after(TOLD_LIMIT).poll("the first at work", || {
            Ok(ssh.succeeds("systemctl is-active --quiet installer-update")?.then_some(()))
        })?;
        let second = ssh.attempt("sudo -n installer update stage", TOLD_LIMIT)?;
        artifacts.append("errors.txt", &second.stderr)?;
        checks.equal("a second update is told to wait", second.code, 8);
        awaited(ssh, UPDATE_LIMIT, "the first is staged", |told| told["state"] == "staged")?;
        let second = ssh.attempt("sudo -n installer update stage --wait 600", UPDATE_LIMIT)?;
        checks.equal("there is nothing to do twice", second.code, 0);

        checks.equal("the release of before runs", running(ssh)?, "a".to_owned());
        let status = updates::status(ssh)?;
        checks.equal("and is good", slot(&status, "a"), (CURRENT.into(), "good".into()));
        steps::collect_journal(ssh, artifacts, "after")?;
        node.checks.finish("the updates that could not be made")?;
        node.vm.power_off(steps::SHUTDOWN_LIMIT)
    })
}
