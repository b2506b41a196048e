//! A node whose kernel crashes, with Secure Boot: it writes a dump, comes back, and does so too where there is no room for one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{Checks, Document};
use nqrust_tests::qemu::{Firmware, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::steps;
use nqrust_tests::updates::{boot_id, logged_in_where, running, settled};
use serde_json::Value;

/// From the login of a node to its crash kernel, whose initrd is packed at idle priority.
const LOAD_LIMIT: Duration = Duration::from_secs(600);
/// From the crash to the written dump: the start of a kernel and its initrd, and all pages of the kernel.
const DUMP_LIMIT: Duration = Duration::from_secs(900);
/// From the restart to a login.
const RETURN_LIMIT: Duration = Duration::from_secs(900);

#[test]
#[ignore = "a build, an install and three boots: `make soak` runs it"]
fn a_node_whose_kernel_crashes_writes_a_dump_and_comes_back_with_and_without_room_for_it() {
    scenario("crash", |artifacts| {
        let identity = Identity::load()?;
        let mut document = Document::new("node-k").to_json(&identity);
        document["os"]["host"] = serde_json::json!({ "crash_kernel": true });
        let medium = Medium::built_apart("crash", |directory| stage(directory, &document))?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let machine = |purpose: &str| {
            steps::node(purpose, Firmware::SecureBoot, "").memory(ByteSize::gib(3)).disk(&disk)
        };
        steps::install(&machine("install").cdrom(&medium.full), artifacts)?;
        let mut checks = Checks::default();

        let (mut vm, ssh) = steps::boot(&machine("node").reboots(), &identity, artifacts)?;
        settled(&ssh)?;
        checks.contains("the kernel's log", &ssh.run("sudo -n dmesg")?, "Secure boot enabled");
        loaded(&ssh, artifacts)?;
        checks.contains(
            "the status",
            &ssh.run("sudo -n installer status")?,
            "crash_kernel: loaded, 320 MiB reserved\n",
        );
        let ssh = crash(&mut vm, &ssh, "The dump is written", &identity, artifacts)?;
        written(&ssh, &mut checks)?;
        checks.equal("the slot that runs", running(&ssh)?, "a");
        steps::collect_logs(&ssh, artifacts, "dump")?;

        // The next one while the partition is nearly full.
        loaded(&ssh, artifacts)?;
        let fill = "sudo -n sh -euc 'cd /var; free=$(df --output=avail -k . | tail -n 1); \
                    fallocate -l $((free * 9 / 10))K filler; sync'";
        ssh.run(fill)?;
        let ssh = crash(&mut vm, &ssh, "Only messages are written", &identity, artifacts)?;
        let status = settled(&ssh)?;
        checks.equal("the slot that runs afterwards", status["running"].as_str(), Some("a"));
        let crashes = crashes(&ssh)?;
        checks.equal("the crashes", crashes.len(), 2);
        checks.that(&format!("the newest has no dump: {crashes:?}"), crashes[0]["dump_bytes"].is_null());
        checks.contains("why it has none", &crashes[0]["lacking"].to_string(), "stay free");
        checks.that("both ends are explained", status["unexplained_end"].is_null());
        checks.that("the older one has its dump", crashes[1]["dump_bytes"].is_u64());
        let failed = ssh.run("systemctl list-units --failed --no-legend --plain")?;
        checks.equal("units that failed", failed.trim(), "");
        ssh.run("sudo -n sh -c 'touch /var/tried && sync /var/tried'")
            .context("writing to the full partition")?;
        steps::collect_logs(&ssh, artifacts, "full")?;
        drop(ssh);
        checks.finish("a node whose kernel crashes")?;
        vm.power_off(steps::SHUTDOWN_LIMIT)
    });
}

/// The definition of the shared media with what writes dumps.
fn stage(directory: &Path, config: &Value) -> Result<PathBuf> {
    let definition = medium::stage(directory, config)?;
    let mut value: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
    let include = value["base"]["debian"]["include"].as_sequence_mut().context("a list of packages")?;
    include.push("makedumpfile".into());
    fs::write(&definition, serde_yaml::to_string(&value)?)?;
    Ok(definition)
}

/// Waits until the crash kernel is loaded.
fn loaded(ssh: &Ssh, artifacts: &Artifacts) -> Result<()> {
    let found = Deadline::after(LOAD_LIMIT).every(MACHINE_INTERVAL).poll("the crash kernel", || {
        Ok((ssh.run("cat /sys/kernel/kexec_crash_loaded")?.trim() == "1").then_some(()))
    });
    if found.is_err() {
        steps::collect_logs(ssh, artifacts, "not-loaded")?;
    }
    found
}

/// Lets the kernel crash, waits until its dump says `said` on the console, and logs in to the system that starts afterwards.
fn crash(vm: &mut Vm, ssh: &Ssh, said: &str, identity: &Identity, artifacts: &Artifacts) -> Result<Ssh> {
    let before = boot_id(ssh)?;
    ssh.run("sudo -n sh -c 'sync; (sleep 3; echo c >/proc/sysrq-trigger) >/dev/null 2>&1 &'")?;
    vm.serial.wait_for(said, DUMP_LIMIT).context("writing the dump")?;
    let wanted = ("the system after the crash", RETURN_LIMIT);
    logged_in_where(vm, (identity, artifacts), wanted, |ssh| Ok(boot_id(ssh)? != before))
}

/// What the status says of crashes, from the newest.
fn crashes(ssh: &Ssh) -> Result<Vec<Value>> {
    let status: Value = serde_json::from_str(&ssh.run("sudo -n installer --format json status")?)?;
    Ok(status["crashes"].as_array().cloned().unwrap_or_default())
}

/// Checks the dump of the first crash: makedumpfile reads it, and finds the kernel's messages in it.
fn written(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let crashes = crashes(ssh)?;
    checks.equal("the crashes", crashes.len(), 1);
    let crash = &crashes[0];
    checks.equal("the reason", crash["reason"].as_str(), Some("sysrq triggered crash"));
    let bytes = crash["dump_bytes"].as_u64().context("a dump")?;
    checks.that(&format!("a dump of {bytes} bytes"), (4 << 20..2 << 30).contains(&bytes));
    let available = crash["memory_available"].as_u64().context("the memory of the crash kernel")?;
    checks.that(&format!("{available} bytes of the crash kernel's memory were free"), available > 32 << 20);
    let directory = crash["directory"].as_str().context("the directory of the dump")?;
    let told = ssh.run("sudo -n installer status")?;
    checks.contains("the status", &told, &format!(" in {directory})"));
    let read = format!(
        "sudo -n sh -euc 'cd {directory}; stat -c %s:%a vmcore; head -c 8 vmcore; echo; \
         makedumpfile --dump-dmesg vmcore /run/read.txt >/dev/null; grep -c sysrq /run/read.txt dmesg.txt; stat -c %a .'"
    );
    let found = ssh.run(&read)?;
    checks.contains("its size", &found, &format!("{bytes}:600"));
    checks.contains("its format", &found, "KDUMP");
    for file in ["/run/read.txt", "dmesg.txt"] {
        checks.that(&format!("{file} has the messages: {found}"), !found.contains(&format!("{file}:0")));
    }
    checks.that(&format!("only root reads it: {found}"), found.trim_end().ends_with("700"));
    Ok(())
}
