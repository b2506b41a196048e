//! Somebody at the machine: an install by the keys of a serial terminal, and one by those of the keyboard, with pictures.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use installer::size::ByteSize;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::disk::Disk;
use nqrust_tests::identity::Identity;
use nqrust_tests::node::{Checks, NODE_DOCUMENT};
use nqrust_tests::qemu::{Firmware, Vm};
use nqrust_tests::{secrets, steps};

/// What every terminal has for F8, which ends a screen: Ctrl and N.
const NEXT: char = '\u{e}';
/// Ctrl and F for F6, which makes a token.
const MAKE: char = '\u{6}';
/// Ctrl and R for F5, which tries again.
const RETRY: char = '\u{12}';
/// An arrow, as a terminal sends it.
const DOWN: &str = "\u{1b}[B";
/// From a key to the next screen, where the network or a plan comes between.
const ANSWER: Duration = Duration::from_secs(180);

/// Titles of the screens, and what is typed on each.
fn conversation(name: &str, identity: &Identity) -> Vec<(&'static str, String)> {
    let Identity { password, public_key, .. } = identity;
    [
        ("what this machine becomes", "\r".to_owned()),
        // The only disk that can be taken is taken; the second of the sizes is for small disks.
        ("Install: disks", format!("\t{DOWN} {NEXT}")),
        ("management network", NEXT.to_string()),
        ("names and servers", format!("{name}{NEXT}")),
        // From the kind of address to the address; and a token that nobody has seen.
        ("the new cluster", format!("\t10.0.2.77{MAKE}{NEXT}")),
        ("who may log in", format!("{password}\t{password}\t{public_key}{NEXT}")),
        ("is erased", "\r".to_owned()),
    ]
    .into()
}

#[test]
#[ignore = "an install and a boot: `make soak` runs it"]
fn a_node_is_installed_by_the_keys_of_a_serial_terminal() {
    scenario("console-serial", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = steps::node("install", Firmware::Bios, "").disk(&disk).cdrom(&medium.full);
        let mut vm = live.start(artifacts)?;
        let mut limit = steps::INSTALL;
        for (title, keys) in conversation("node-s", &identity) {
            vm.serial.wait_for_screen(&[title], limit)?;
            keep(&mut vm, artifacts)?;
            limit = ANSWER;
            vm.serial.keys(&keys)?;
        }
        if vm.serial.wait_for_screen(&["Install: progress", "Type yes"], ANSWER)? == 1 {
            keep(&mut vm, artifacts)?;
            vm.serial.keys("yes\r")?;
        }
        let ends = ["The installation is complete", "it has failed"];
        let end = vm.serial.wait_for_screen(&ends, steps::INSTALL)?;
        keep(&mut vm, artifacts)?;
        if end != 0 {
            bail!("the install failed:\n{}", vm.serial.screen());
        }
        vm.serial.keys("\r")?;
        vm.wait_for_exit(steps::SHUTDOWN).context("waiting for the reboot after the install")?;
        check(&disk, "node-s", Firmware::Bios, &identity, artifacts)?;
        secrets::search(artifacts.directory(), &identity)
    });
}

#[test]
#[ignore = "an install and a boot: `make soak` runs it"]
fn a_node_is_installed_by_the_keyboard_on_the_screen() {
    scenario("console-screen", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = steps::node("install", Firmware::Uefi, "").disk(&disk).cdrom(&medium.full);
        let mut vm = live.start(artifacts)?;
        // Every console shows the first question until somebody answers on one of them.
        vm.serial.wait_for_screen(&["what this machine becomes"], steps::INSTALL)?;
        for (number, (_, keys)) in conversation("node-v", &identity).into_iter().enumerate() {
            picture(&mut vm, &format!("screen-{number}"), artifacts)?;
            type_on_keyboard(&mut vm, &keys)?;
        }
        if !vm.serial.screen().contains("The installation goes on") {
            picture(&mut vm, "screen-confirm", artifacts)?;
            type_on_keyboard(&mut vm, "yes\r")?;
        }
        vm.serial.wait_for_screen(&["The installation goes on"], ANSWER)?;
        std::thread::sleep(Duration::from_secs(5));
        vm.qmp.screendump(&artifacts.path("screen-progress.png"))?;
        let ends = ["The installation is complete", "The installation has failed"];
        let end = vm.serial.wait_for_screen(&ends, steps::INSTALL)?;
        picture(&mut vm, "screen-end", artifacts)?;
        if end != 0 {
            bail!("the install failed; the picture shows why");
        }
        type_on_keyboard(&mut vm, "\r")?;
        vm.wait_for_exit(steps::SHUTDOWN).context("waiting for the reboot after the install")?;
        check(&disk, "node-v", Firmware::Uefi, &identity, artifacts)
    });
}

#[test]
#[ignore = "an install that fails and goes on: `make soak` runs it"]
fn an_install_whose_network_was_gone_goes_on_when_it_is_back() {
    scenario("console-retry", |artifacts| {
        let identity = Identity::load()?;
        let medium = steps::medium_without_configuration(&identity)?;
        let disk = Disk::empty(artifacts.disk("node.qcow2"), ByteSize::gib(32))?;
        let live = steps::node("install", Firmware::Bios, "").disk(&disk).cdrom(&medium.full);
        let mut vm = live.start(artifacts)?;
        let screens = conversation("node-r", &identity);
        for (title, keys) in &screens[..2] {
            vm.serial.wait_for_screen(&[title], steps::INSTALL)?;
            vm.serial.keys(keys)?;
        }
        vm.serial.wait_for_screen(&["management network"], ANSWER)?;
        vm.set_link(false)?;
        vm.serial.keys(&RETRY.to_string())?;
        vm.serial.wait_for_screen(&["Check cables"], ANSWER)?;
        keep(&mut vm, artifacts)?;
        vm.set_link(true)?;
        vm.serial.keys(&RETRY.to_string())?;
        vm.serial.wait_for_screen(&["has the address"], ANSWER)?;
        keep(&mut vm, artifacts)?;
        vm.kill()
    });
}

/// What the serial terminal shows, for people.
fn keep(vm: &mut Vm, artifacts: &Artifacts) -> Result<()> {
    // The title comes first; a clock may go on drawing.
    vm.serial.rest(Duration::from_secs(3));
    artifacts.append("screens.txt", &format!("{}\n{}\n", vm.serial.screen(), "=".repeat(80)))
}

/// Starts the node and looks at what was answered.
fn check(
    disk: &Disk,
    name: &str,
    firmware: Firmware,
    identity: &Identity,
    artifacts: &Artifacts,
) -> Result<()> {
    let node = steps::node("first-boot", firmware, "").disk(disk);
    let (mut vm, ssh) = steps::boot(&node, identity, artifacts)?;
    let mut checks = Checks::default();
    checks.equal("the host name", ssh.run("hostname")?, name);
    let document = ssh.run(&format!("sudo -n cat {NODE_DOCUMENT}"))?;
    checks.contains("the node's document", &document, "10.0.2.77");
    let shows = "ps -o comm= -p $(systemctl show --property MainPID --value getty@tty1.service)";
    checks.equal("what has the screen", ssh.run(shows)?, "installer");
    vm.qmp.screendump(&artifacts.path("node.png"))?;
    steps::collect_logs(&ssh, artifacts, "first-boot")?;
    checks.finish("the first boot")?;
    drop(ssh);
    vm.power_off(steps::SHUTDOWN)
}

/// A picture of the screen once it has not changed for a while.
fn picture(vm: &mut Vm, name: &str, artifacts: &Artifacts) -> Result<()> {
    let path = artifacts.path(&format!("{name}.png"));
    let mut dump = || -> Result<Vec<u8>> {
        vm.qmp.screendump(&path)?;
        fs::read(&path).context("reading a picture of the screen")
    };
    let (began, mut before, mut same) = (Instant::now(), Vec::new(), 0);
    while same < 8 && began.elapsed() < ANSWER {
        std::thread::sleep(Duration::from_secs(2));
        let now = dump()?;
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    Ok(())
}

/// Presses the keys of an American keyboard that make `text`.
fn type_on_keyboard(vm: &mut Vm, text: &str) -> Result<()> {
    // One character for each key.
    for character in text.replace(DOWN, "\u{2193}").chars() {
        let (name, shift) = match character {
            '\u{2193}' => ("down".to_owned(), false),
            NEXT => ("f8".into(), false),
            MAKE => ("f6".into(), false),
            '\r' => ("ret".into(), false),
            '\t' => ("tab".into(), false),
            ' ' => ("spc".into(), false),
            '-' => ("minus".into(), false),
            '_' => ("minus".into(), true),
            '.' => ("dot".into(), false),
            '/' => ("slash".into(), false),
            '=' => ("equal".into(), false),
            '+' => ("equal".into(), true),
            '@' => ("2".into(), true),
            '$' => ("4".into(), true),
            _ if character.is_ascii_alphanumeric() => {
                (character.to_ascii_lowercase().to_string(), character.is_ascii_uppercase())
            }
            _ => bail!("no key is known for {character:?}"),
        };
        let keys = if shift { vec!["shift", &name] } else { vec![name.as_str()] };
        vm.qmp.send_key(&keys)?;
        // QEMU holds a key for a tenth of a second.
        std::thread::sleep(Duration::from_millis(150));
    }
    Ok(())
}
