//! A node that updates itself: into a release that is good, and into one that does not start.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::deadline::Deadline;
use nqrust_tests::disk::Disk;
use nqrust_tests::http::Server;
use nqrust_tests::identity::{Identity, USER};
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{Checks, Document, MAC};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use serde_json::Value;

/// For a whole update: writing, reading back, a restart, and the minute for which a boot has to be good; or three starts that fail.
const UPDATE_LIMIT: Duration = Duration::from_secs(900);

#[test]
fn a_node_updates_itself_and_leaves_a_release_that_does_not_start() {
    scenario("update", |artifacts| {
        let identity = Identity::load()?;
        let now = steps::medium(&identity)?;
        let next = release(&identity, "update-next", "0.2.0", &[])?;
        // PID 1 ends at once, so that the kernel panics.
        let broken = release(&identity, "update-broken", "0.3.0", &["init=/bin/false"])?;
        let served = artifacts.disk("www");
        fs::create_dir_all(&served)?;
        for (name, medium) in [("now", &now), ("next", &next), ("broken", &broken)] {
            fs::hard_link(&medium.full, served.join(format!("{name}.iso")))
                .or_else(|_| fs::copy(&medium.full, served.join(format!("{name}.iso"))).map(drop))?;
        }
        let server = Server::start(&served, 0)?;
        let from = |name: &str| format!("--from http://10.0.2.2:{}/{name}.iso", server.port());

        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(24))?;
        steps::install(
            &Machine::new("install", Firmware::Bios).cdrom(&now.full).network(MAC).disk(&disk),
            artifacts,
        )?;
        let machine = Machine::new("node", Firmware::Bios).network(MAC).disk(&disk).reboots();
        let (mut vm, ssh) = steps::boot(&machine, &identity, artifacts)?;
        let mut checks = Checks::default();

        let status = settled(&ssh)?;
        checks.equal(
            "the slot of the install is good",
            &slot(&status, "a"),
            &("0.1.0".into(), "good".into()),
        );
        checks.equal("the other slot is empty", &slot(&status, "b").1, &"empty".to_owned());
        let told = ssh.run(&format!("sudo -n installer update check {}", from("next")))?;
        checks.that("the plan names both versions", told.contains("0.2.0 in place of 0.1.0"));
        let old = ssh.run("cat /proc/sys/kernel/random/boot_id")?;

        // A release that is good: fetched and staged ahead, then tried.
        ssh.run(&format!("sudo -n installer update fetch {}", from("next")))?;
        let status = update_status(&ssh)?;
        checks.equal("it is kept", status["fetched"]["version"].as_str(), Some("0.2.0"));
        checks.equal("no slot is touched by that", &slot(&status, "b").1, &"empty".to_owned());
        // The server is not asked again.
        ssh.run("sudo -n installer update stage")?;
        let kept = ssh.run("sudo -n ls -A /var/lib/nqrust/update")?;
        checks.that("what was fetched is gone", !kept.contains("fetched"));
        checks.equal("it is staged", &update_state(&ssh)?, &"staged".to_owned());
        checks.equal("nothing restarts by that", &ssh.run("cat /proc/sys/kernel/random/boot_id")?, &old);
        let ssh = restarted(&mut vm, &ssh, "sudo -n installer update apply", &identity, artifacts)?;
        let status = settled(&ssh)?;
        checks.equal("the new release runs", status["running"].as_str(), Some("b"));
        checks.equal("it is good", &slot(&status, "b"), &("0.2.0".into(), "good".into()));
        checks.equal("the old one stays", &slot(&status, "a"), &("0.1.0".into(), "good".into()));
        let told = ssh.run("sudo -n installer status")?;
        checks.that("the node tells its version", told.contains(" 0.2.0\n") && told.contains("slot      b"));
        // Once both slots are good, the recovery system becomes the release that runs; an update waits for that.
        let again = format!("sudo -n installer update apply --wait 600 {}", from("next"));
        let again = ssh.attempt(&again, UPDATE_LIMIT)?;
        checks
            .that("there is nothing to do twice", again.code == 0 && again.stdout.contains("nothing to do"));
        let older = ssh.attempt(&format!("sudo -n installer update apply {}", from("now")), UPDATE_LIMIT)?;
        checks.equal("an older release needs a word", &older.code, &2);
        checks.equal(
            "the recovery system is the new release",
            &slot(&update_status(&ssh)?, "recovery").0,
            &"0.2.0".to_owned(),
        );

        // One that does not start: three tries, then the release before, which says so.
        let apply = format!("sudo -n installer update apply {}", from("broken"));
        let ssh = restarted(&mut vm, &ssh, &apply, &identity, artifacts)?;
        let status: Value =
            Deadline::after(Duration::from_secs(60)).poll("the verdict on the broken release", || {
                let status = update_status(&ssh)?;
                Ok((status["state"] == "rolled-back").then_some(status))
            })?;
        checks.equal("the release before runs", status["running"].as_str(), Some("b"));
        checks.equal("the broken one is bad", &slot(&status, "a").1, &"bad".to_owned());
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        checks.that("its three starts are told", reason.contains("started 3 times"));
        checks.equal(
            "it is told by an exit code",
            &ssh.attempt("sudo -n installer update status", UPDATE_LIMIT)?.code,
            &9,
        );
        let again = ssh.attempt(&apply, Duration::from_secs(30))?;
        checks.equal("it is not tried again by itself", &again.code, &9);
        let back = ssh.attempt("sudo -n installer update rollback", UPDATE_LIMIT)?;
        checks.equal("nobody can go back to it", &back.code, &3);
        steps::collect_journal(&ssh, artifacts, "after")?;
        checks.finish("the updates")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// How often the power fails, for `make soak`; each time costs two starts.
const CUTS: u64 = 6;

#[test]
#[ignore = "starts a node a dozen times: `make soak` runs it"]
fn a_node_whose_power_fails_in_an_update_runs_the_release_before_or_the_new_one() {
    scenario("update-cuts", |artifacts| {
        let identity = Identity::load()?;
        let now = steps::medium(&identity)?;
        let next = release(&identity, "update-next", "0.2.0", &[])?;
        let served = artifacts.disk("www");
        fs::create_dir_all(&served)?;
        fs::copy(&next.full, served.join("next.iso"))?;
        let server = Server::start(&served, 0)?;
        let apply =
            format!("sudo -n installer update apply --from http://10.0.2.2:{}/next.iso", server.port());
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(24))?;
        steps::install(
            &Machine::new("install", Firmware::Uefi).cdrom(&now.full).network(MAC).disk(&disk),
            artifacts,
        )?;
        let machine = |number: u64| {
            Machine::new(&format!("cut-{number}"), Firmware::Uefi).network(MAC).disk(&disk).reboots()
        };
        // The slot of the install has to be good first.
        let (vm, ssh) = steps::boot(&machine(0), &identity, artifacts)?;
        settled(&ssh)?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        for number in 1..=CUTS {
            let (vm, ssh) = steps::boot(&machine(number), &identity, artifacts)?;
            if update_status(&ssh)?["running"] == "b" {
                break;
            }
            // The command goes on in its unit; what it has come to by then is another place each time.
            ssh.attempt(&format!("nohup {apply} > /dev/null 2>&1 &"), Duration::from_secs(60))?;
            std::thread::sleep(Duration::from_secs(7 + 17 * number));
            drop(ssh);
            vm.kill()?;
        }
        let (mut vm, ssh) = steps::boot(&machine(CUTS + 1), &identity, artifacts)?;
        let mut checks = Checks::default();
        let status = update_status(&ssh)?;
        checks.that(
            "nothing was taken back",
            status["verdicts"].as_array().is_none_or(|all| all.iter().all(|one| one["good"] == true)),
        );
        let ssh = match status["running"] == "b" {
            true => ssh,
            false => {
                settled_or_staged(&ssh)?;
                restarted(&mut vm, &ssh, &apply, &identity, artifacts)?
            }
        };
        let status = settled(&ssh)?;
        checks.equal(
            "the new release is good in the end",
            &slot(&status, "b"),
            &("0.2.0".into(), "good".into()),
        );
        checks.equal("the old one is what it was", &slot(&status, "a"), &("0.1.0".into(), "good".into()));
        checks.finish("the updates that were cut off")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// Waits until the release that runs is good, whatever is staged beside it.
fn settled_or_staged(ssh: &Ssh) -> Result<Value> {
    Deadline::after(UPDATE_LIMIT).poll("a boot that is known to be good", || {
        let status = update_status(ssh)?;
        Ok((slot(&status, "a").1 == "good").then_some(status))
    })
}

/// The medium of another version, with these kernel arguments for every boot of it.
fn release(identity: &Identity, name: &str, version: &str, arguments: &[&str]) -> Result<Medium> {
    Medium::built(name, |directory| {
        let definition = medium::stage(directory, &Document::new("node-a").to_json(identity))?;
        let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
        value["version"] = version.into();
        if !arguments.is_empty() {
            value["kernel"] = serde_yaml::to_value(serde_json::json!({ "arguments": arguments }))?;
        }
        fs::write(&definition, serde_yaml::to_string(&value)?)?;
        Ok(definition)
    })
}

fn update_status(ssh: &Ssh) -> Result<Value> {
    let told = ssh.attempt("sudo -n installer --format json update status", Duration::from_secs(60))?;
    if ![0, 9].contains(&told.code) {
        bail!("installer update status ended with exit code {}: {}", told.code, told.stderr);
    }
    serde_json::from_str(&told.stdout).context("the status of updates")
}

fn update_state(ssh: &Ssh) -> Result<String> {
    Ok(update_status(ssh)?["state"].as_str().unwrap_or_default().to_owned())
}

/// The version and the state of a slot.
fn slot(status: &Value, name: &str) -> (String, String) {
    let slots = status["slots"].as_array().cloned().unwrap_or_default();
    let found = slots.into_iter().find(|slot| slot["slot"] == name).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&found["release"]["version"]), text(&found["state"]))
}

/// Waits until this boot is known to be good.
fn settled(ssh: &Ssh) -> Result<Value> {
    Deadline::after(UPDATE_LIMIT).poll("a boot that is known to be good", || {
        let status = update_status(ssh)?;
        Ok((status["state"] == "idle").then_some(status))
    })
}

/// Runs a command that ends in a restart, and waits for the system after it.
fn restarted(
    vm: &mut Vm,
    ssh: &Ssh,
    command: &str,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<Ssh> {
    let ended = ssh.attempt(command, UPDATE_LIMIT)?;
    // The connection may break before the command has ended: 255.
    if ![0, 255].contains(&ended.code) {
        bail!("`{command}` ended with exit code {}: {}", ended.code, ended.stderr);
    }
    vm.serial.wait_for(" login: ", UPDATE_LIMIT).context("the system after the restart")?;
    Ssh::connect(vm.ssh_port()?, USER, identity, artifacts, UPDATE_LIMIT)
}
