//! Reaching the disks of a machine over the network: its cards, then a login or a connection on each way to each target, tried again
//! until it works.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::Refusal;
use super::cards;
use super::fabrics::Host;
use super::login::Initiator;
use super::sessions::{SessionState, Sessions, remember};
use crate::inventory::nics;
use crate::node_files::write;
use base::command::{Invocation, Runner};
use base::files::Root;
use base::progress::Progress;
use model::network_disks::{DiskProtocol, NetworkDiskAccess, TargetPortal};

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(3);
/// Targets and switches may start later than this machine: before this nobody is told.
const QUIET: Duration = Duration::from_secs(12);
/// Between two messages about the same.
const REPEAT: Duration = Duration::from_secs(30);
/// How long the further ways to a target are tried where one works, and how long an install waits for any.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// For programs that set up the network.
const LIMIT: Duration = Duration::from_secs(30);

/// How a machine waits for its targets.
#[derive(Clone, Copy, Debug)]
pub struct ConnectPolicy {
    /// Whether a target that no other way leads to is tried without end: an install that nobody watches, and a node. The install gives up on
    /// one that refuses this machine, as by a wrong password.
    pub forever: bool,
    /// How long the kernel holds back what is read and written while a connection is lost, before it fails.
    pub hold: Duration,
    /// Whether a whole system runs, whose NetworkManager has to let go of the cards and whose iscsid may have another name.
    pub in_system: bool,
}

/// Time, which tests have their own of.
pub trait Pace {
    /// Since the begin.
    fn elapsed(&self) -> Duration;
    fn pause(&mut self, time: Duration);
}

/// The time of this machine.
#[derive(Debug)]
pub struct SystemPace(Instant);

impl Default for SystemPace {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Pace for SystemPace {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn pause(&mut self, time: Duration) {
        thread::sleep(time);
    }
}

/// A way that does not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedWay {
    /// The way and the reason, a clause.
    pub words: String,
    /// Whether no other way leads to the same target.
    pub only: bool,
}

/// Sets up the cards, and logs in or connects to the targets. Returns the ways that do not work.
///
/// # Errors
/// A file cannot be written.
pub fn connect(
    access: &NetworkDiskAccess,
    root: &Path,
    policy: ConnectPolicy,
    runner: &dyn Runner,
    pace: &mut dyn Pace,
    progress: &Progress,
) -> Result<Vec<FailedWay>> {
    if access.is_empty() {
        return Ok(Vec::new());
    }
    remember(root, access)?;
    set_up_cards(access, root, policy, runner, progress)?;
    let (hold, restarts) = (policy.hold, policy.in_system);
    let initiator = Initiator { root, name: access.initiator.as_deref(), restarts, hold, runner };
    let host = Host { root, name: access.host.as_deref(), hold };
    // udev loads the modules only for devices. What is missing the attempts below say.
    let load = |name: &str| runner.run(&Invocation::new("modprobe").arg(name).limit(LIMIT)).map(drop).ok();
    if access.uses(DiskProtocol::Iscsi) {
        load("iscsi_tcp");
        initiator.prepare()?;
    }
    if access.uses(DiskProtocol::NvmeTcp) {
        load("nvme-tcp");
    }
    let reach = |way: &TargetPortal| match way.protocol {
        DiskProtocol::Iscsi => initiator.log_in(way),
        DiskProtocol::NvmeTcp => host.connect(way),
    };
    let step = progress.step("network-disks", awaited(&missing(root, access), policy), None);
    let mut told: Option<Duration> = None;
    let failed = loop {
        let failed: Vec<_> = missing(root, access)
            .into_iter()
            .filter_map(|way| Some((way, reach(way).err()?)))
            .map(|(way, error)| {
                let final_word = policy.in_system && error.is::<Refusal>();
                let only = !has_another(root, access, way);
                (FailedWay { words: words(way, &error), only }, final_word)
            })
            .collect();
        let endless = policy.forever && failed.iter().any(|(way, final_word)| way.only && !final_word);
        let waits = !failed.is_empty() && (pace.elapsed() < PATIENCE || endless);
        let due = told.map_or(QUIET, |told| told + REPEAT);
        if !failed.is_empty() && (pace.elapsed() >= due || !waits) {
            for (way, _) in &failed {
                let further = if waits { "; trying again" } else { "" };
                progress.warn("network-disks", &format!("{}{further}", way.words));
            }
            told = Some(pace.elapsed());
        }
        if !waits {
            break failed.into_iter().map(|(way, _)| way).collect();
        }
        pace.pause(PAUSE);
    };
    let settle = Invocation::new("udevadm").args(["settle", "--timeout=30"]).limit(LIMIT * 2);
    if let Err(error) = runner.run(&settle) {
        progress.warn("network-disks", &format!("{error:#}"));
    }
    step.done();
    Ok(failed)
}

/// The ways without a login or a connection. One that is lost is for iscsid or the kernel to bring back.
fn missing<'a>(root: &Path, access: &'a NetworkDiskAccess) -> Vec<&'a TargetPortal> {
    let there = Sessions::read(&root.join("sys"));
    let absent =
        |way: &&TargetPortal| there.state(way.protocol, &way.target, way.portal) == SessionState::Absent;
    access.targets.iter().filter(absent).collect()
}

/// What is tried on which ways, and how long.
fn awaited(ways: &[&TargetPortal], policy: ConnectPolicy) -> String {
    let text = "Reaching disks over the network";
    if ways.is_empty() {
        return text.to_owned();
    }
    let limit = match policy.forever {
        true => "tried until each target answers".to_owned(),
        false => format!("tried for {} s", PATIENCE.as_secs()),
    };
    let named =
        |way: &&TargetPortal| format!("the {} {} at {}", way.protocol.group(), way.target, way.portal);
    let ways: Vec<_> = ways.iter().map(named).collect();
    format!("{text}: {}; {limit}", ways.join(", "))
}

/// Whether the same target is reached on another way.
fn has_another(root: &Path, access: &NetworkDiskAccess, way: &TargetPortal) -> bool {
    let missing = missing(root, access);
    let same = |other: &&TargetPortal| other.target == way.target && other.protocol == way.protocol;
    access.targets.iter().filter(same).any(|other| !missing.contains(&other))
}

fn words(way: &TargetPortal, error: &anyhow::Error) -> String {
    match way.protocol {
        DiskProtocol::Iscsi => {
            format!("no login to the iSCSI target {} at {}: {error:#}", way.target, way.portal)
        }
        DiskProtocol::NvmeTcp => {
            format!("no connection to the NVMe subsystem {} at {}: {error:#}", way.target, way.portal)
        }
    }
}

fn set_up_cards(
    access: &NetworkDiskAccess,
    root: &Path,
    policy: ConnectPolicy,
    runner: &dyn Runner,
    progress: &Progress,
) -> Result<()> {
    let tree = Root::open(root)?;
    let mut changed = false;
    for file in cards::files(access) {
        changed |= write(&tree, &file)?;
    }
    // An address that is in use already is not touched.
    if !changed {
        return Ok(());
    }
    let mut commands = Vec::new();
    if policy.in_system {
        commands.push(Invocation::new("nmcli").args(["general", "reload", "conf"]));
        let cards = nics::scan(&root.join("sys"));
        let own = cards.iter().filter(|nic| access.cards.iter().any(|card| nic.mac.parse() == Ok(card.mac)));
        commands.extend(
            own.map(|nic| Invocation::new("nmcli").args(["device", "set", &nic.name, "managed", "no"])),
        );
    }
    commands.push(Invocation::new("systemctl").args(["restart", "systemd-networkd.service"]));
    for command in commands {
        if let Err(error) = runner.run(&command.limit(LIMIT)) {
            progress.warn("network-disks", &format!("setting up the network card: {error:#}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::iscsi::tests::log_in;
    use crate::network_disks::firmware;
    use model::network_disks::{CardAddress, CardSetup};
    use testing::machine::MachineTree;
    use testing::progress::Recorder;
    use testing::runner::ScriptedRunner;

    #[derive(Default)]
    struct TestPace(Duration);

    impl Pace for TestPace {
        fn elapsed(&self) -> Duration {
            assert!(self.0 < Duration::from_secs(600), "it never ends");
            self.0
        }

        fn pause(&mut self, time: Duration) {
            self.0 += time;
        }
    }

    const TARGET: &str = "iqn.2026-01.com.example:a";

    fn access(portals: &[&str]) -> NetworkDiskAccess {
        let way = |portal: &&str| TargetPortal {
            protocol: DiskProtocol::Iscsi,
            target: TARGET.into(),
            portal: portal.parse().unwrap(),
            chap: None,
        };
        let mac = "52:54:00:12:34:56".parse().unwrap();
        NetworkDiskAccess {
            initiator: Some("iqn.2026-01.com.example:node-1".into()),
            host: None,
            cards: vec![CardSetup { mac, address: CardAddress::Dhcp, gateway: None, vlan: None, mtu: None }],
            system_targets: Default::default(),
            targets: portals.iter().map(way).collect(),
        }
    }

    fn machine() -> MachineTree {
        let machine = MachineTree::new("");
        machine.file("etc/x", "");
        machine.file("run/x", "");
        machine.file("sys/devices/card/x", "");
        machine.link("sys/class/net/ens4/device", "../../../devices/card");
        machine.file("sys/class/net/ens4/address", "52:54:00:12:34:56\n");
        machine
    }

    /// A target that answers the login from this attempt on.
    fn target(
        machine: &MachineTree,
        portal: &'static str,
        attempt: usize,
        runner: ScriptedRunner,
    ) -> ScriptedRunner {
        let (root, count) = (machine.path().to_owned(), std::sync::Mutex::new(0));
        runner.reply(&format!("-p {portal} --login"), move |_| {
            let mut count = count.lock().unwrap();
            *count += 1;
            anyhow::ensure!(*count >= attempt, "initiator reported error (8 - connection timed out)");
            // The digit in which the addresses differ.
            let number = u32::from(portal.as_bytes()[6]);
            log_in(&root, number, TARGET, portal, "LOGGED_IN");
            Ok(Vec::new())
        })
    }

    fn run(
        machine: &MachineTree,
        runner: &ScriptedRunner,
        portals: &[&str],
        forever: bool,
    ) -> (Vec<String>, Vec<String>, Duration) {
        let recorder = Recorder::default();
        let progress = Progress::new(vec![Box::new(recorder.clone())]);
        let policy = ConnectPolicy { forever, hold: PATIENCE, in_system: true };
        let mut pace = TestPace::default();
        let failed = connect(&access(portals), machine.path(), policy, runner, &mut pace, &progress).unwrap();
        let told = recorder.0.lock().unwrap().iter().map(|event| event.message.clone()).collect();
        (failed.into_iter().map(|way| way.words).collect(), told, pace.0)
    }

    #[test]
    fn the_card_is_taken_from_networkmanager_once_and_the_disk_is_awaited() {
        let machine = machine();
        let runner = target(&machine, "192.0.2.9:3260", 2, ScriptedRunner::silent());
        let (failed, told, _) = run(&machine, &runner, &["192.0.2.9:3260"], true);
        assert_eq!(failed, Vec::<String>::new());
        assert!(!told.iter().any(|text| text.contains("no login")), "{told:?}");
        assert_eq!(
            told[0],
            "Reaching disks over the network: the iSCSI target iqn.2026-01.com.example:a at 192.0.2.9:3260; \
             tried until each target answers"
        );
        let commands = runner.commands();
        assert_eq!(
            commands[..3],
            [
                "nmcli general reload conf",
                "nmcli device set ens4 managed no",
                "systemctl restart systemd-networkd.service"
            ]
        );
        assert_eq!(commands.last().unwrap(), "udevadm settle --timeout=30");
        // A second time nothing is done to a card in use, and nobody logs in again.
        let before = commands.len();
        run(&machine, &runner, &["192.0.2.9:3260"], true);
        assert_eq!(runner.commands()[before..], ["modprobe iscsi_tcp", "udevadm settle --timeout=30"]);
    }

    #[test]
    fn a_target_that_does_not_answer_is_told_within_half_a_minute_and_tried_again_until_it_does() {
        let machine = machine();
        let runner = target(&machine, "192.0.2.9:3260", 60, ScriptedRunner::silent());
        let (failed, told, time) = run(&machine, &runner, &["192.0.2.9:3260"], true);
        assert_eq!((failed, time), (Vec::new(), PAUSE * 59));
        let told: Vec<_> = told.into_iter().filter(|text| text.contains("no login")).collect();
        assert!((4..=7).contains(&told.len()), "{told:?}");
        assert!(
            told[0].ends_with("no login to the iSCSI target iqn.2026-01.com.example:a at 192.0.2.9:3260: it does not answer; trying again"),
            "{told:?}"
        );
    }

    #[test]
    fn a_machine_starts_on_the_way_that_works_after_it_has_waited_for_the_other() {
        let machine = machine();
        let runner = target(&machine, "192.0.2.9:3260", 1, ScriptedRunner::silent());
        let runner = target(&machine, "192.0.3.9:3260", 1000, runner);
        let (failed, _, time) = run(&machine, &runner, &["192.0.2.9:3260", "192.0.3.9:3260"], true);
        assert_eq!((failed.len(), time), (1, PATIENCE));
        assert!(failed[0].contains("192.0.3.9:3260"), "{failed:?}");
    }

    #[test]
    fn an_automatic_install_ends_at_a_wrong_password_and_not_at_a_target_that_is_away() {
        let refusing = || ScriptedRunner::silent().fail("--login", "(24 - no)");
        let (failed, _, time) = run(&machine(), &refusing(), &["192.0.2.9:3260"], true);
        assert_eq!((failed.len(), time), (1, PATIENCE));
        // One of two targets' addresses may still come.
        let machine = machine();
        let runner = target(&machine, "192.0.2.9:3260", 60, ScriptedRunner::silent());
        let runner = runner.fail("-p 192.0.3.9:3260 --login", "(24 - no)");
        let (failed, _, time) = run(&machine, &runner, &["192.0.2.9:3260", "192.0.3.9:3260"], true);
        assert_eq!(failed.len(), 1);
        assert_eq!(time, PAUSE * 59);
    }

    #[test]
    fn an_install_does_not_wait_without_end() {
        let (machine, runner) = (machine(), ScriptedRunner::silent().fail("--login", "(24 - no)"));
        let (failed, told, time) = run(&machine, &runner, &["192.0.2.9:3260"], false);
        assert_eq!((failed.len(), time), (1, PATIENCE));
        assert!(told[0].ends_with(" at 192.0.2.9:3260; tried for 60 s"), "{told:?}");
        assert!(
            told.iter().any(|text| text.ends_with("it refuses the name and password of this machine")),
            "{told:?}"
        );
    }

    #[test]
    fn an_nvme_subsystem_is_the_kernels_to_connect_to_and_needs_no_iscsid() {
        let (machine, runner) = (machine(), ScriptedRunner::silent());
        let ways = NetworkDiskAccess {
            initiator: None,
            host: Some("nqn.2026-01.com.example:node-1".into()),
            targets: access(&["192.0.2.9:4420"])
                .targets
                .into_iter()
                .map(|way| TargetPortal { protocol: DiskProtocol::NvmeTcp, ..way })
                .collect(),
            ..access(&[])
        };
        let reached = || {
            let policy = ConnectPolicy { forever: false, hold: PATIENCE, in_system: false };
            let (mut pace, root) = (TestPace::default(), machine.path());
            let failed = connect(&ways, root, policy, &runner, &mut pace, &Progress::silent()).unwrap();
            (failed.into_iter().map(|way| way.words).collect::<Vec<_>>(), pace.0)
        };
        let (failed, time) = reached();
        assert_eq!(
            (failed, time),
            (
                vec![format!(
                    "no connection to the NVMe subsystem {TARGET} at 192.0.2.9:4420: the kernel of this system has no NVMe over TCP \
                     (module nvme-tcp)"
                )],
                PATIENCE
            )
        );
        machine.file("dev/nvme-fabrics", "");
        assert_eq!(reached(), (Vec::new(), Duration::ZERO));
        let asked = || std::fs::read_to_string(machine.path().join("dev/nvme-fabrics")).unwrap();
        assert!(asked().contains(&format!("traddr=192.0.2.9,trsvcid=4420,nqn={TARGET}")), "{}", asked());
        // One that is there already is left to the kernel, also while it is lost.
        machine.file("dev/nvme-fabrics", "");
        crate::inventory::nvme::tests::connect(machine.path(), 1, TARGET, "192.0.2.9:4420", "connecting");
        assert_eq!(reached(), (Vec::new(), Duration::ZERO));
        assert_eq!(asked(), "");
        assert!(!machine.path().join("etc/iscsi").exists());
        assert!(runner.commands().contains(&"modprobe nvme-tcp".to_owned()));
        assert!(
            !runner.commands().iter().any(|command| command.contains("iscsi")),
            "{:?}",
            runner.commands()
        );
    }

    #[test]
    fn a_machine_without_such_disks_runs_nothing() {
        let (machine, runner) = (machine(), ScriptedRunner::new());
        let (mut pace, policy) =
            (TestPace::default(), ConnectPolicy { forever: true, hold: PATIENCE, in_system: true });
        let access = firmware::read(&machine.path().join("sys"));
        let failed =
            connect(&access, machine.path(), policy, &runner, &mut pace, &Progress::silent()).unwrap();
        assert!(failed.is_empty() && runner.commands().is_empty());
    }
}
