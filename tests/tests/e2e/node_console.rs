//! The screen of a machine: an install by keyboard with a screenshot of every step, and then the console of the node,
//! from the first boot until the node is ready in its cluster, with what an administrator does there.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario_alone};
use nqrust_tests::console::{ESCAPE, SCREEN_LIMIT, picture, press};
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::{Identity, USER};
use nqrust_tests::node::{Checks, MAC, NODE_DOCUMENT};
use nqrust_tests::qemu::{Firmware, Machine, Vm};
use nqrust_tests::ssh::Ssh;
use nqrust_tests::{medium, secrets, steps};
use serde_json::json;
use testing::supervisor::{Authorities, Supervisor, SupervisorBehavior, node};

use crate::console::{cluster, manner};
use crate::questions::AnsweredMachine;

/// Prints the text of the first virtual console (vcs(4)).
const SHOWN: &str = "sudo -n fold -w $(sudo -n stty -F /dev/tty1 size | cut -d' ' -f2) /dev/vcs1";
/// The directory of the kubelet's credentials for the API under K3s.
const AGENT: &str = "/var/lib/rancher/k3s/agent";
/// How long the cost of the console is measured.
const MEASURED: Duration = Duration::from_secs(180);
/// How long the first network is on trial.
const TRIAL: Duration = Duration::from_secs(60);

#[test]
#[ignore = "an install and a boot, with pictures: `make soak` runs it"]
fn a_node_is_installed_by_the_keyboard_and_its_screen_tells_how_it_gets_ready() {
    // The share of an emulated processor that the console takes grows with what the host does beside it.
    scenario_alone("console-screen", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_with_distribution()?;
        let authorities = Authorities::make(&artifacts.disk("authorities"))?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let machine = |purpose: &str| Machine::new(purpose, Firmware::Uefi).network(MAC).disk(&disk);
        let first = cluster(&authorities, &manner(&identity))?;
        install(&machine("install").cdrom(&medium.full), &identity, artifacts)?;
        let (mut vm, ssh) = steps::boot(&machine("node"), &identity, artifacts)?;
        let mut checks = Checks::default();
        shows(&ssh, "NOT READY")?;
        let waits = shows(&ssh, "node-v: worker (mode join)")?;
        vm.qmp.screendump(&artifacts.path("node-waits.png"))?;
        checks.contains("the node's page", &waits, "https://10.0.2.2:6443");
        checks.that("the kernel writes nothing over the page", !waits.contains("mgmt-br: port 1"));
        drop(first);
        let _cluster = get_ready(&ssh, &authorities, &identity, artifacts)?;
        // An address without a page on it gets no code.
        let _page = page(&authorities, artifacts)?;
        let ready = shows(&ssh, "[x] ready")?;
        picture(&mut vm, "node-ready", artifacts)?;
        checks.that("a node that is ready is not told to be otherwise", !ready.contains("NOT READY"));
        on_the_serial_line(&mut vm, &mut checks, artifacts)?;
        administer(&mut vm, &ssh, &identity, &mut checks, artifacts)?;
        networks_on_trial(&ssh, &mut checks)?;
        cost(&ssh, &mut checks, artifacts)?;
        without_the_console(&ssh, &mut checks)?;
        steps::collect_logs(&ssh, artifacts, "first-boot")?;
        checks.finish("the console of the node")?;
        drop(ssh);
        vm.power_off(steps::SHUTDOWN_LIMIT)?;
        secrets::search(&medium::logs("cluster"), &identity)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

/// Answers every question with the keyboard, and takes a screenshot of each screen.
fn install(live: &Machine, identity: &Identity, artifacts: &Artifacts) -> Result<()> {
    let mut vm = live.start(artifacts)?;
    // Every console shows the first question until it is answered on one of them; the others then say where.
    vm.serial.wait_for_screen(&["what this machine becomes"], steps::INSTALL_LIMIT)?;
    let screens = AnsweredMachine::joining("node-v", "10.0.2.2", &identity.token).screens(identity);
    for (number, (title, keys)) in screens.into_iter().enumerate() {
        let title = match title {
            "is erased" => "the plan",
            "Type yes" => "the last question",
            title => title.trim_start_matches("Install: "),
        };
        if number > 0 {
            vm.serial.wait_for_screen(&[&format!("answered: {title}.")], SCREEN_LIMIT)?;
        }
        picture(&mut vm, &format!("screen-{number}"), artifacts)?;
        press(&mut vm, &keys)?;
    }
    vm.serial.wait_for_screen(&["The installation goes on"], SCREEN_LIMIT)?;
    thread::sleep(Duration::from_secs(4));
    vm.qmp.screendump(&artifacts.path("screen-progress.png"))?;
    let ends = ["The installation is complete", "The installation has failed"];
    let end = vm.serial.wait_for_screen(&ends, steps::INSTALL_LIMIT)?;
    picture(&mut vm, "screen-end", artifacts)?;
    ensure!(end == 0, "the install failed; the picture shows why");
    press(&mut vm, "\r")?;
    vm.wait_for_exit(steps::SHUTDOWN_LIMIT).context("waiting for the reboot after the install")?;
    Ok(())
}

/// Waits until the screen shows these words; returns its whole text.
fn shows(ssh: &Ssh, words: &str) -> Result<String> {
    let mut last = String::new();
    let shown = Deadline::after(steps::COMMAND_LIMIT).poll("the screen of the node", || {
        // A terminal that is being hung up for the next program cannot be read.
        last = ssh.attempt(SHOWN, steps::COMMAND_LIMIT)?.said();
        Ok(last.contains(words).then(|| last.clone()))
    });
    shown.with_context(|| format!("the screen does not show {words:?}:\n{last}"))
}

/// Does what a kubelet does when it has joined, since the stand-in program for K3s does not: the node gets its
/// credentials, and the cluster reports that it is ready.
fn get_ready(
    ssh: &Ssh,
    authorities: &Authorities,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<Supervisor> {
    let mut member = node("node-v", &[], "10.0.2.15", "");
    member["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
    let cluster = cluster(authorities, &SupervisorBehavior { nodes: vec![member], ..manner(identity) })?;
    for (name, file) in [
        ("server-ca.pem", "server-ca.crt"),
        ("kube-proxy.pem", "kubelet.crt"),
        ("kube-proxy.key", "kubelet.key"),
    ] {
        ssh.write_as_root(&format!("{AGENT}/{file}"), &authorities.read(name)?)?;
    }
    let kubeconfig = json!({
        "clusters": [{ "cluster": {
            "server": "https://10.0.2.2:6443", "certificate-authority": format!("{AGENT}/server-ca.crt"),
        } }],
        "users": [{ "user": {
            "client-certificate": format!("{AGENT}/kubelet.crt"), "client-key": format!("{AGENT}/kubelet.key"),
        } }],
    });
    ssh.write_as_root(&format!("{AGENT}/kubelet.kubeconfig"), kubeconfig.to_string().as_bytes())?;
    artifacts.append("status.txt", &ssh.run("sudo -n installer status")?)?;
    Ok(cluster)
}

/// A web page at the cluster's address. Its port requires root; without it there is no code on the screen.
fn page(authorities: &Authorities, artifacts: &Artifacts) -> Result<Option<Supervisor>> {
    let manner =
        SupervisorBehavior { statuses: [("/".to_owned(), 302)].into(), ..SupervisorBehavior::default() };
    match Supervisor::start_on(([127, 0, 0, 1], 443).into(), authorities, manner) {
        Ok(page) => Ok(Some(page)),
        Err(error) => {
            artifacts
                .append("skipped.txt", &format!("the QR code of the management URL: port 443: {error}\n"))?;
            Ok(None)
        }
    }
}

/// The user name `console` shows the page on a line that normally has a login; leaving the page leads back to the
/// login.
fn on_the_serial_line(vm: &mut Vm, checks: &mut Checks, artifacts: &Artifacts) -> Result<()> {
    vm.serial.send("")?;
    vm.serial.wait_for("login: ", steps::COMMAND_LIMIT)?;
    vm.serial.send("console")?;
    vm.serial.wait_for_screen(&["L log in"], steps::COMMAND_LIMIT)?;
    // The disks are drawn last.
    vm.serial.wait_for_screen(&["Disks     /dev/vda"], steps::COMMAND_LIMIT)?;
    vm.serial.wait_for_screen(&["[x] ready"], steps::COMMAND_LIMIT)?;
    let shown = vm.serial.screen();
    artifacts.append("node-serial.txt", &shown)?;
    for words in ["node-v: worker (mode join)", "https://10.0.2.2:6443", "Manage at", "a runs"] {
        checks.contains("the page on the serial line", &shown, words);
    }
    vm.serial.keys("l")?;
    vm.serial.wait_for("login: ", steps::COMMAND_LIMIT).map(drop)
}

/// Logs in on the screen, opens the console there, and uses it.
fn administer(
    vm: &mut Vm,
    ssh: &Ssh,
    identity: &Identity,
    checks: &mut Checks,
    artifacts: &Artifacts,
) -> Result<()> {
    press(vm, "l")?;
    shows(ssh, "login:")?;
    press(vm, &format!("{USER}\r"))?;
    shows(ssh, "Password:")?;
    thread::sleep(Duration::from_secs(2));
    press(vm, &format!("{}\r", identity.password))?;
    shows(ssh, "$")?;
    press(vm, "clear\r")?;
    press(vm, "sudo installer console\r")?;
    shows(ssh, "J journal")?;
    picture(vm, "node-administrator", artifacts)?;
    press(vm, "j")?;
    shows(ssh, "Journal of this boot")?;
    picture(vm, "node-journal", artifacts)?;
    press(vm, &format!("{ESCAPE}n"))?;
    shows(ssh, MAC)?;
    picture(vm, "node-network", artifacts)?;
    press(vm, &format!("{ESCAPE}s"))?;
    shows(ssh, "readable by root only")?;
    let bundles = ssh.run("sudo -n sh -c 'ls -l /var/lib/nqrust/support'")?;
    checks.contains("the support bundle", &bundles, "-rw-------");
    press(vm, "q")?;
    shows(ssh, "$")?;
    press(vm, "exit\r")?;
    shows(ssh, "L log in").map(drop)
}

/// A network on trial is reverted by itself; the next one is confirmed, and stays.
fn networks_on_trial(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    let address = |address: &str| {
        let interface = json!({
            "interfaces": [{ "hw_addr": MAC }], "method": "static", "ip": address,
            "subnet_mask": "255.255.255.0", "gateway": "10.0.2.2",
        });
        let servers = json!({ "dns_nameservers": ["192.0.2.53"] });
        json!({ "os": servers, "install": { "management_interface": interface } }).to_string()
    };
    // The session ends with the address; the trial does not.
    let begin = |document: &str, length: Duration| {
        ssh.write_as_root("/run/e2e-network.yaml", document.as_bytes())?;
        ssh.run(&format!(
            "sudo -n systemd-run --quiet --collect installer network try /run/e2e-network.yaml --seconds {}",
            length.as_secs()
        ))
    };
    begin(&address("10.0.2.99"), TRIAL)?;
    let bridge = "ip -4 -brief address show dev mgmt-br";
    let lost = Deadline::after(TRIAL).every(MACHINE_INTERVAL).poll("silence at the old address", || {
        let answered = ssh.attempt(bridge, Duration::from_secs(20));
        Ok(answered.map_or(true, |ended| ended.code != 0).then_some(()))
    });
    checks.that("nobody answers at the old address during the trial", lost.is_ok());
    let back = Deadline::after(Duration::from_secs(240)).poll("the old network", || {
        let ended = ssh.attempt(bridge, Duration::from_secs(30));
        Ok(ended.ok().filter(|ended| ended.code == 0).map(|ended| ended.stdout))
    })?;
    checks.contains("the address after the trial", &back, "10.0.2.15/24");
    let document = ssh.run(&format!("sudo -n cat {NODE_DOCUMENT} | grep -c 10.0.2.99 || true"))?;
    checks.equal("what the document has of the trial", document.trim(), "0");
    begin(&address("10.0.2.15"), 10 * TRIAL)?;
    let seen = Deadline::after(steps::COMMAND_LIMIT).poll("the second trial", || {
        let shown = ssh.attempt("sudo -n installer network show", steps::COMMAND_LIMIT)?;
        Ok(shown.said().contains("trial").then(|| shown.said()))
    });
    checks.that(&format!("the trial is told: {seen:?}"), seen.is_ok());
    shows(ssh, "other networks are on trial")?;
    // Refused until the new network is set up.
    Deadline::after(steps::COMMAND_LIMIT).poll("the confirmation of the trial", || {
        let ended = ssh.attempt("sudo -n installer network confirm", steps::COMMAND_LIMIT)?;
        Ok((ended.code == 0).then_some(()))
    })?;
    let method = ssh.run(&format!("sudo -n grep -c 'method: static' {NODE_DOCUMENT} || true"))?;
    checks.equal("the confirmed network in the document", method.trim(), "1");
    Ok(())
}

/// Notes what the console costs, in `cost.txt`. On a busy host an emulated processor counts more time than it works, so only a
/// console that never sleeps fails here.
fn cost(ssh: &Ssh, checks: &mut Checks, artifacts: &Artifacts) -> Result<()> {
    let used = || -> Result<Duration> {
        let text = ssh.run("systemctl show --value --property CPUUsageNSec getty@tty1.service")?;
        Ok(Duration::from_nanos(text.trim().parse().with_context(|| format!("the time used: {text:?}"))?))
    };
    let before = used()?;
    thread::sleep(MEASURED);
    let share = (used()? - before).as_secs_f64() / MEASURED.as_secs_f64() * 100.0;
    artifacts.append("cost.txt", &format!("{share:.3} % of a processor\n"))?;
    checks.that(&format!("the console takes {share:.3} % of a processor"), share < 10.0);
    Ok(())
}

/// If the installer does not run, the screen has a plain login.
fn without_the_console(ssh: &Ssh, checks: &mut Checks) -> Result<()> {
    ssh.run(
        "sudo -n mount --bind /bin/false /usr/bin/installer && sudo -n systemctl restart getty@tty1 || true",
    )?;
    let login = shows(ssh, " login:");
    checks.that(&format!("a plain login is on the screen: {login:?}"), login.is_ok());
    ssh.run("sudo -n umount /usr/bin/installer")?;
    ssh.run("sudo -n systemctl reset-failed getty@tty1; sudo -n systemctl restart getty@tty1")?;
    let page = shows(ssh, "L log in");
    checks.that(&format!("the console is there again: {page:?}"), page.is_ok());
    if page.is_err() {
        bail!("the console does not come back");
    }
    Ok(())
}
