//! Trials on a directory, with programs that only record their calls.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::run::PREVIOUS;
use super::*;
use crate::apply::apply;
use crate::apply::tests::image;
use base::failure::{Class, class_of, render};
use machine::paths::below;
use testing::runner::ScriptedRunner;

const DOCUMENT: &str = "# kept by hand\nserver_url: https://192.0.2.10\ntoken: MARK-and-random-shared-text\n\
    os: {hostname: node-2, dns_nameservers: [192.0.2.53], sysctls: {kernel.panic: 5}}\n\
    install:\n  mode: join\n  role: worker\n  management_interface:\n    interfaces: [{name: a}]\n    method: static\n    \
    ip: 192.0.2.12\n    subnet_mask: 255.255.255.0\n    gateway: 192.0.2.1\n";
const MOVED: &str = "install:\n  management_interface: {interfaces: [{name: a}], method: static, ip: 192.0.2.13, \
    subnet_mask: 255.255.255.0, gateway: 192.0.2.1}\n  networks: [{name: store, interfaces: [{name: b}]}]\n";

struct Node {
    root: tempfile::TempDir,
    programs: ScriptedRunner,
}

impl Node {
    /// A node whose document is applied, 100 seconds after its start.
    fn new(document: &str) -> Self {
        let root = image();
        for directory in ["oem", "proc", "run"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        fs::write(root.path().join("oem/machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        let programs = ScriptedRunner::silent().answer("IP4.ADDRESS", "192.0.2.13/24\n");
        let node = Self { root, programs };
        node.at(100);
        apply(&node.document(), node.root.path()).unwrap();
        node
    }

    fn at(&self, seconds: u64) {
        fs::write(self.root.path().join("proc/uptime"), format!("{seconds}.25 7.00\n")).unwrap();
    }

    fn document(&self) -> PathBuf {
        self.root.path().join("oem/node.yaml")
    }

    fn trials(&self) -> Trials<'_> {
        Trials::new(self.root.path(), &self.programs)
    }

    fn begin(&self, part: &str) -> Result<()> {
        let change = self.trials().change(part, "new.yaml")?;
        self.trials().begin(&change, TrialSpan::USUAL, false)
    }

    /// Every file below `/etc` and `/oem`.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let trees = ["etc", "oem"].map(|tree| walkdir::WalkDir::new(self.root.path().join(tree)));
        let files = trees.into_iter().flatten().map(|entry| entry.unwrap());
        files
            .filter(|entry| entry.file_type().is_file())
            .map(|entry| {
                let name = entry.path().strip_prefix(self.root.path()).unwrap().to_owned();
                (name, fs::read(entry.path()).unwrap())
            })
            .collect()
    }

    fn profile(&self, name: &str) -> Option<String> {
        let path = format!("etc/NetworkManager/system-connections/nqrust-{name}.nmconnection");
        fs::read_to_string(self.root.path().join(path)).ok()
    }

    fn trial_status(&self) -> TrialStatus {
        trial_status(self.root.path()).unwrap()
    }

    fn now(&self) -> CurrentTrial {
        match self.trial_status() {
            TrialStatus::Now(now) => now,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_way_back_is_prepared_before_anything_changes_and_outlives_the_session() {
    let node = Node::new(DOCUMENT);
    let before = node.files();
    node.begin(MOVED).unwrap();
    assert_eq!(node.files(), before, "the service changes things, not the session");
    let asked: Vec<_> =
        node.programs.take_commands().into_iter().filter(|line| line.contains("systemd-run")).collect();
    let [back, forth] = &asked[..] else { panic!("{asked:?}") };
    assert!(back.contains("--unit=nqrust-network-trial ") && back.contains("--on-active=120s"), "{back}");
    assert!(back.contains("AccuracySec=1s") && back.contains("Restart=on-failure"), "{back}");
    assert!(back.ends_with("/usr/bin/installer network revert --expired"), "{back}");
    assert!(forth.contains("RuntimeMaxSec=120s") && forth.ends_with("installer network set-up"), "{forth}");
    let now = node.now();
    assert_eq!((now.left, now.state), (120, TrialState::SettingUp));
    assert_eq!(now.differences[0].to_string(), "install.management_interface.ip: 192.0.2.12 -> 192.0.2.13");
}

#[test]
fn a_trial_nobody_confirms_leaves_everything_as_it_was() {
    let node = Node::new(DOCUMENT);
    let before = node.files();
    node.begin(MOVED).unwrap();
    node.at(103);
    node.trials().set_up().unwrap();
    assert!(node.profile("mgmt-bridge").unwrap().contains("192.0.2.13/24"));
    assert!(node.profile("store-bridge").is_some());
    assert_eq!(fs::read_to_string(node.document()).unwrap(), DOCUMENT, "only confirming replaces it");
    let now = node.now();
    assert_eq!((now.left, now.state), (117, TrialState::Running));
    assert_eq!(now.notes, ["mgmt-br has the address 192.0.2.13/24"]);
    node.programs.take_commands();
    node.at(220);
    let ended = node.trials().revert(true).unwrap();
    assert_eq!(ended.how, TrialEnding::Expired);
    assert_eq!(node.files(), before);
    let asked = node.programs.take_commands();
    let place = |command: &str| asked.iter().position(|line| line == command).unwrap();
    assert!(place("nmcli connection reload") < place("nmcli device reapply mgmt-br"), "{asked:?}");
    assert_eq!(node.trial_status(), TrialStatus::Ended(ended));
}

#[test]
fn the_timer_of_an_earlier_trial_changes_nothing() {
    let node = Node::new(DOCUMENT);
    assert!(node.trials().revert(true).is_ok(), "none is under way");
    node.begin(MOVED).unwrap();
    node.trials().set_up().unwrap();
    node.at(150);
    node.trials().revert(true).unwrap();
    assert_eq!(node.now().left, 70);
    assert!(node.profile("mgmt-bridge").unwrap().contains("192.0.2.13/24"));
}

#[test]
fn a_confirmed_network_is_the_document_s_and_what_was_there_is_kept() {
    let node = Node::new(DOCUMENT);
    node.begin(MOVED).unwrap();
    let early = node.trials().confirm().unwrap_err();
    assert!(render(&early).contains("still being set up"), "{early:#}");
    node.trials().set_up().unwrap();
    let outcome = node.trials().confirm().unwrap();
    assert!(outcome.warnings[0].ends_with("systemctl restart rke2-agent.service"), "{outcome:?}");
    let config = node.trials().config().unwrap();
    assert_eq!(config.install.management_interface.unwrap().ip, Some([192, 0, 2, 13].into()));
    assert_eq!(config.os.hostname.as_deref(), Some("node-2"));
    assert_eq!(fs::read_to_string(below(node.root.path(), PREVIOUS)).unwrap(), DOCUMENT);
    for path in ["oem/node.yaml", "oem/node.previous.yaml"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(node.root.path().join(path)).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600, "{path}");
    }
    assert!(node.programs.take_commands().contains(&"systemctl stop nqrust-network-trial.timer".to_owned()));
    let TrialStatus::Ended(EndedTrial { how: TrialEnding::Confirmed, .. }) = node.trial_status() else {
        panic!()
    };
    let files = node.files();
    assert_eq!(
        apply(&node.document(), node.root.path()).unwrap().written,
        [""; 0],
        "it is applied as a whole"
    );
    node.at(300);
    node.trials().revert(true).unwrap();
    assert_eq!(node.files(), files, "a timer that comes too late changes nothing");
}

#[test]
fn confirming_that_was_cut_short_after_the_document_was_replaced_stays_confirmed() {
    let node = Node::new(DOCUMENT);
    node.begin(MOVED).unwrap();
    node.trials().set_up().unwrap();
    let record = node.root.path().join("run/nqrust/network-trial.json");
    let kept = fs::read(&record).unwrap();
    node.trials().confirm().unwrap();
    let files = node.files();
    fs::write(&record, kept).unwrap();
    node.at(230);
    assert_eq!(node.trials().revert(true).unwrap().how, TrialEnding::Confirmed);
    assert_eq!(node.files(), files);
}

#[test]
fn what_a_session_that_was_cut_off_left_half_done_is_put_back() {
    let node = Node::new(DOCUMENT);
    let before = node.files();
    node.begin(MOVED).unwrap();
    // The profiles that were written before the machine's service was killed.
    let profiles = node.root.path().join("etc/NetworkManager/system-connections");
    fs::write(profiles.join("nqrust-mgmt-bridge.nmconnection"), "half").unwrap();
    fs::write(profiles.join("nqrust-store-bond.nmconnection"), "half").unwrap();
    node.at(221);
    assert_eq!(node.trials().revert(true).unwrap().how, TrialEnding::Expired);
    assert_eq!(node.files(), before);
}

#[test]
fn a_machine_that_restarts_has_its_old_network_and_knows_of_no_trial() {
    let node = Node::new(DOCUMENT);
    let before = node.files();
    node.begin(MOVED).unwrap();
    node.trials().set_up().unwrap();
    // Like a boot: nothing in memory, a new /etc, the document applied.
    fs::remove_dir_all(node.root.path().join("run")).unwrap();
    fs::remove_dir_all(node.root.path().join("etc")).unwrap();
    let fresh = image();
    fs::rename(fresh.path().join("etc"), node.root.path().join("etc")).unwrap();
    apply(&node.document(), node.root.path()).unwrap();
    assert_eq!(node.files(), before);
    assert_eq!(node.trial_status(), TrialStatus::None);
}

#[test]
fn a_second_trial_and_an_apply_are_refused_while_one_is_under_way() {
    let node = Node::new(DOCUMENT);
    node.begin(MOVED).unwrap();
    node.at(110);
    let error = node.begin("install: {networks: []}").unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("on trial, for another 110 seconds"), "{error:#}");
    assert!(run::refuse_during(node.root.path()).is_err());
    assert_eq!(node.trials().revert(false).unwrap().how, TrialEnding::Reverted);
    run::refuse_during(node.root.path()).unwrap();
    assert!(
        render(&node.trials().revert(false).unwrap_err()).contains("no change of the network is on trial")
    );
    assert!(render(&node.trials().confirm().unwrap_err()).contains("The old network is back"));
}

#[test]
fn nothing_changes_where_the_way_back_cannot_be_prepared() {
    let node = Node::new(DOCUMENT);
    let before = node.files();
    for refused in ["revert --expired", "network set-up"] {
        node.programs.set_failure(refused, "refused");
        assert!(node.begin(MOVED).is_err(), "{refused}");
        assert_eq!(node.trial_status(), TrialStatus::None);
        assert_eq!(node.files(), before);
    }
    let asked = node.programs.take_commands();
    assert_eq!(asked.last().unwrap(), "systemctl stop nqrust-network-trial.timer");
}

#[test]
fn a_network_that_cannot_be_set_up_is_taken_back_at_once() {
    let node = Node::new(DOCUMENT);
    let before = node.files();
    node.begin(MOVED).unwrap();
    node.programs.set_failure("connection reload", "refused");
    assert!(node.trials().set_up().is_err());
    assert!(matches!(node.trial_status(), TrialStatus::Now(_)), "the timer tries again");
    assert_eq!(node.files(), before);
    node.programs.set_answer("connection reload", "");
    node.at(220);
    assert_eq!(node.trials().revert(true).unwrap().how, TrialEnding::Expired);
}

#[test]
fn a_trial_needs_a_document_that_is_applied_and_a_change() {
    let node = Node::new(DOCUMENT);
    let same = node.begin("os: {dns_nameservers: [192.0.2.53]}").unwrap_err();
    assert!(render(&same).contains("has these networks already"), "{same:#}");
    fs::write(node.document(), DOCUMENT.replace("kernel.panic: 5", "kernel.panic: 6")).unwrap();
    let error = node.begin(MOVED).unwrap_err();
    assert!(render(&error).contains("changes that are not applied"), "{error:#}");
    assert_eq!(node.trial_status(), TrialStatus::None);
}

#[test]
fn a_document_that_changes_meanwhile_is_not_overwritten() {
    let node = Node::new(DOCUMENT);
    node.begin(MOVED).unwrap();
    node.trials().set_up().unwrap();
    let other = DOCUMENT.replace("kernel.panic: 5", "kernel.panic: 6");
    fs::write(node.document(), &other).unwrap();
    let error = node.trials().confirm().unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert_eq!(fs::read_to_string(node.document()).unwrap(), other);
    assert_eq!(node.now().state, TrialState::Running, "the trial goes on, and ends with the old network");
}

#[test]
fn the_address_of_a_server_needs_a_word() {
    let node = Node::new(&DOCUMENT.replace("worker", "management"));
    let error = node.begin(MOVED).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("--accept-address-change"), "{error:#}");
    assert_eq!(node.trial_status(), TrialStatus::None);
    let change = node.trials().change(MOVED, "new.yaml").unwrap();
    node.trials().begin(&change, "30".parse().unwrap(), true).unwrap();
    assert_eq!(node.now().left, 30);
}

#[test]
fn what_is_known_of_a_trial_holds_no_secrets_and_is_for_root_alone() {
    let node = Node::new(DOCUMENT);
    node.begin(MOVED).unwrap();
    let record = Path::new("run/nqrust/network-trial.json");
    let path = node.root.path().join(record);
    assert!(!fs::read_to_string(&path).unwrap().contains("MARK"));
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777,
        0o600
    );
    assert!(node.programs.take_commands().iter().all(|line| !line.contains("MARK")));
}

#[test]
fn a_trial_lasts_no_longer_than_somebody_can_wait() {
    for (text, valid) in
        [("30", true), ("3600", true), ("29", false), ("3601", false), ("x", false), ("-1", false)]
    {
        assert_eq!(text.parse::<TrialSpan>().is_ok(), valid, "{text}");
    }
}
