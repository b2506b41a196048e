//! A cluster of twenty machines: whatever their order, and whatever happens to the server and to the one that creates the
//! cluster, every machine gets its installer and its configuration, and all are installed in the end.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::tests::{Bench, installs, router_of};
use super::*;
use crate::fleet::routes::{FleetReply, FleetRequest, FleetSources, JSON};
use crate::machines::configurations::ConfigurationSource;
use crate::machines::machine::DeploymentState;
use crate::test_support::medium;
use model::fleet::CreatorStatus;
use model::release::MediumKind;

const NOW: Moment = Moment(1_700_000_000);
const MACHINES: usize = 20;
/// The machine that creates the cluster.
const CREATOR: usize = 0;
const TOKEN: &str = "token-of-the-fleet";

fn cluster_file() -> String {
    let mut text = "cluster: {name: dc1, token: 3f9a77c10b5e4d2c8e11a2b3c4d5e6f7, install: {vip: 192.0.2.250, automatic: true, \
                    device: /dev/vda, management_interface: {subnet_mask: 255.255.255.0, gateway: 192.0.2.1}}, \
                    os: {password: a-very-secret-password, dns_nameservers: [192.0.2.53], \
                    ntp_servers: [192.0.2.123]}}\npools:\n"
        .to_owned();
    for (pool, role, machines) in [("control", "management", 0..3), ("workers", "worker", 3..MACHINES)] {
        let _ = writeln!(text, "- name: {pool}\n  role: {role}\n  machines:");
        for machine in machines {
            let ip = machine + 10;
            let _ = writeln!(
                text,
                "  - {{hostname: dc1-{machine}, ip: 192.0.2.{ip}, macs: ['52:54:00:00:00:{machine:02x}']}}"
            );
        }
    }
    text
}

fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cluster.yaml");
    std::fs::write(&file, cluster_file()).unwrap();
    let files = MediumFiles::open(&medium(MediumKind::Full).tree()).unwrap();
    let system = BootSystem::of(&files, &[]).unwrap();
    let store = crate::test_support::registry(&directory.path().join("state"));
    let configurations = Configurations::load(&ConfigurationSource::Cluster(file), &[]).unwrap();
    let mut router = router_of(files, system, store, configurations);
    router.fleet = Fleet::new(&Secret::new(TOKEN), false);
    Bench { router, directory }
}

/// A machine that runs the installer.
#[derive(Clone, Debug)]
struct Install {
    machine: usize,
    run: Uuid,
    report: String,
    seq: u64,
    now: Moment,
}

impl Install {
    /// Switches a machine on, which has to get the installer and its configuration.
    fn begin(bench: &Bench, machine: usize) -> Self {
        Self::begin_at(bench, machine, NOW)
    }

    /// A machine that is switched on at a moment, and whose installer runs some time later.
    fn begin_at(bench: &Bench, machine: usize, on: Moment) -> Self {
        let script = bench.boot(&format!("mac=52:54:00:00:00:{machine:02x}"), on);
        assert!(installs(&script), "{script}");
        let now = if on == NOW { NOW } else { on.plus(30) };
        let taken = bench.ask(&Bench::configuration(&script), "", now);
        assert!(matches!(taken, ServedReply::Configuration(_)), "{taken:?}");
        let report = script.split_whitespace().find_map(|word| word.strip_prefix("nqrust.report=")).unwrap();
        let report = report.strip_prefix("http://192.0.2.1:8080").unwrap().to_owned();
        Self { machine, run: Uuid::new_v4(), report, seq: 0, now }
    }

    fn tell(&mut self, bench: &Bench, step: &str, state: &str, message: &str, exit_code: Option<u8>) {
        let event = self.event(step, state, message, exit_code);
        assert_eq!(self.send(bench, &[event]).status, 204);
    }

    fn event(&mut self, step: &str, state: &str, message: &str, exit_code: Option<u8>) -> Value {
        self.seq += 1;
        json!({ "event": {
            "v": 1, "seq": self.seq, "time": "2026-11-21T10:00:00Z", "step": step, "state": state,
            "bytes": null, "total": null, "message": message, "exit_code": exit_code,
        }})
    }

    fn send(&self, bench: &Bench, lines: &[Value]) -> FleetReply {
        let macs = [format!("52:54:00:00:00:{:02x}", self.machine)];
        let hello = json!({ "hello": {
            "v": 1, "run": self.run,
            "machine": { "macs": macs, "serial": null, "uuid": null, "asset_tag": null },
        }});
        let lines: String = [&hello].into_iter().chain(lines).map(|line| format!("{line}\n")).collect();
        let request = FleetRequest {
            method: "POST",
            path: &self.report,
            body: lines.as_bytes(),
            ..FleetRequest::default()
        };
        answer_at(bench, &request, self.now)
    }

    /// Returns what the server says of the creator.
    fn waits(&mut self, bench: &Bench) -> String {
        // The first report of a wait may have been lost with the server; what follows is a reminder.
        let state = if self.seq == 0 { "started" } else { "progress" };
        let event = self.event("cluster-wait", state, "Waiting for the cluster: nobody answers", None);
        let reply = self.send(bench, &[event, json!({ "wait": {} })]);
        assert_eq!(reply.status, 200);
        let status: CreatorStatus = serde_json::from_slice(&reply.body).unwrap();
        status.text
    }

    fn fails(&mut self, bench: &Bench, causes: &[&str]) {
        let run = self.event("run", "failed", "Installation failed", Some(6));
        let failure = json!({ "failure": { "causes": causes, "hints": ["Replace it."], "exit_code": 6 } });
        assert_eq!(self.send(bench, &[run, failure]).status, 204);
    }
}

fn answer(bench: &Bench, request: &FleetRequest<'_>) -> FleetReply {
    answer_at(bench, request, NOW)
}

fn answer_at(bench: &Bench, request: &FleetRequest<'_>, now: Moment) -> FleetReply {
    let (router, configurations) = (&bench.router, bench.router.configurations());
    let known = FleetSources { store: &router.store, configurations: &configurations, note: &|_| {} };
    router.fleet.answer(request, known, now).unwrap()
}

fn page(bench: &Bench, target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let authorization = Some("Bearer token-of-the-fleet");
    let request = FleetRequest { method: "GET", path, query, authorization, ..FleetRequest::default() };
    String::from_utf8(answer(bench, &request).body).unwrap()
}

fn fleet(bench: &Bench) -> Value {
    serde_json::from_str(&page(bench, JSON)).unwrap()
}

/// Every machine that waits is shown so, under its name, with the state of the one that it waits for.
fn assert_waits_are_told(bench: &Bench, waiting: &mut [Install], told: &str) {
    let answers: Vec<_> = waiting.iter_mut().map(|install| install.waits(bench)).collect();
    let view = fleet(bench);
    let rows = view["machines"].as_array().unwrap();
    for (install, answer) in waiting.iter().zip(answers) {
        let name = format!("dc1-{}", install.machine);
        let row = rows.iter().find(|row| row["name"] == name.as_str()).unwrap();
        assert_eq!(row["stage"], "waiting-for-cluster", "{row}");
        let next = row["next"].as_str().unwrap();
        assert!(next.starts_with("dc1-0, which creates the cluster") && next.contains(told), "{next}");
        assert_eq!(answer, next, "the machine hears what its row says");
    }
    let heard = rows.len() + view["not_heard_of"].as_array().unwrap().len();
    assert_eq!(heard, MACHINES, "every machine is either a row or not heard of");
}

fn row(bench: &Bench, machine: usize) -> Value {
    let view = fleet(bench);
    let name = format!("dc1-{machine}");
    view["machines"].as_array().unwrap().iter().find(|row| row["name"] == name.as_str()).unwrap().clone()
}

#[test]
fn the_failure_of_the_creator_reaches_machines_that_wait_and_goes_with_its_next_attempt() {
    let bench = bench();
    let mut joiner = Install::begin(&bench, 5);
    assert!(joiner.waits(&bench).contains("dc1-0, which creates the cluster, has not asked to boot yet."));
    let mut creator = Install::begin(&bench, CREATOR);
    creator.tell(&bench, "image", "started", "Writing the OS image", None);
    assert!(joiner.waits(&bench).contains("is not ready yet (writing)"));
    creator.fails(
        &bench,
        &[
            "installing, step image",
            "writing to /dev/vda for 3f9a77c10b5e4d2c8e11a2b3c4d5e6f7\nmore",
            "I/O error.",
        ],
    );
    let told = joiner.waits(&bench);
    assert_eq!(
        told,
        "dc1-0, which creates the cluster, has failed in stage writing (disk-io): installing, step image: writing to /dev/vda \
         for [hidden]: I/O error. Correct this and start dc1-0 again; this install then goes on by itself."
    );
    // The page of the machine says the same, once, although the machine repeats it in its own step.
    let event =
        joiner.event("cluster-wait", "started", &format!("Waiting for the cluster: no answer. {told}"), None);
    joiner.send(&bench, &[event]);
    let waiting = row(&bench, 5);
    assert_eq!(
        (waiting["next"].as_str(), waiting["message"].as_str()),
        (Some(&*told), Some("Waiting for the cluster: no answer."))
    );
    let path = format!("/fleet/machines/{}", waiting["id"].as_str().unwrap());
    assert!(page(&bench, &path).contains("has failed in stage writing (disk-io)"));
    // Also where the server was started again.
    let bench = restarted(bench);
    assert_eq!(joiner.waits(&bench), told);
    let mut creator = Install::begin(&bench, CREATOR);
    assert!(joiner.waits(&bench).contains("is not ready yet (preparing)"));
    assert!(!row(&bench, 5)["next"].as_str().unwrap().contains("has failed"));
    creator.tell(&bench, "run", "done", "Done", Some(0));
    assert!(joiner.waits(&bench).contains("is not ready yet (rebooting)"));
    joiner.tell(&bench, "run", "done", "Done", Some(0));
}

/// The word of a script with which an install goes over a node once.
fn deployment(script: &str) -> String {
    let word = script.split_whitespace().find_map(|word| word.strip_prefix("nqrust.install.reinstall=once:"));
    word.unwrap().to_owned()
}

fn state(bench: &Bench, machine: usize) -> DeploymentState {
    let name = format!("52:54:00:00:00:{machine:02x}");
    bench.machines().into_iter().find(|one| one.identity.macs[0].to_string() == name).unwrap().state
}

#[test]
fn a_machine_that_loses_power_while_it_waits_gets_its_installer_again_at_once() {
    let bench = bench();
    let query = "mac=52:54:00:00:00:05";
    let first = bench.boot(query, NOW);
    let mut joiner = Install::begin(&bench, 5);
    joiner.waits(&bench);
    // Twice, the second time before it takes its configuration, with a restart of the server between.
    let again = [bench.boot(query, NOW), bench.boot(query, NOW)];
    let bench = restarted(bench);
    let last = bench.boot(query, NOW);
    for script in again.iter().chain([&last]) {
        assert!(installs(script), "{script}");
    }
    assert_eq!(row(&bench, 5)["group"], "installing");
    let mut next = Install::begin_at(&bench, 5, NOW.plus(60));
    // The first run is over.
    let event = joiner.event("run", "failed", "Failed", Some(6));
    assert_eq!(joiner.send(&bench, &[event]).status, 403);
    next.waits(&bench);
    assert_eq!(row(&bench, 5)["stage"], "waiting-for-cluster");
    // Its installs are one deployment: should the end of one not be reported, the next finds the node and leaves it.
    let script = bench.boot(query, NOW);
    assert_eq!(
        [&again[0], &again[1], &last].map(|script| deployment(script)),
        [(); 3].map(|()| deployment(&script))
    );
    assert_ne!(
        deployment(&first),
        deployment(&script),
        "a token that was not taken is none of its deployment"
    );
    // From the first step that writes on, it is held until an operator decides.
    next.tell(&bench, "wipe", "started", "Erasing the disk", None);
    assert!(bench.boot(query, NOW).contains("started before"));
    next.tell(&bench, "run", "done", "Done", Some(0));
    assert_eq!(state(&bench, 5), DeploymentState::Installed);
}

#[test]
fn a_machine_that_boots_while_another_waits_in_its_name_does_not_install_beside_it() {
    let bench = bench();
    let mut joiner = Install::begin(&bench, 5);
    joiner.waits(&bench);
    let other = Bench::configuration(&bench.boot("mac=52:54:00:00:00:05", NOW));
    // At first nobody can know whether the one that waits is still there.
    assert!(matches!(bench.ask(&other, "", NOW.plus(2)), ServedReply::Early(10)));
    joiner.now = NOW.plus(5);
    joiner.waits(&bench);
    assert!(matches!(bench.ask(&other, "", NOW.plus(30)), ServedReply::Gone));
    assert_eq!(state(&bench, 5), DeploymentState::WaitingForCluster);
    // The one that waits goes on first.
    joiner.tell(&bench, "wipe", "started", "Erasing the disk", None);
    assert!(matches!(bench.ask(&other, "", NOW.plus(30)), ServedReply::Gone));
    joiner.tell(&bench, "run", "done", "Done", Some(0));
    assert_eq!(state(&bench, 5), DeploymentState::Installed);
}

#[test]
fn only_a_machine_that_waits_is_told_of_the_creator() {
    let bench = bench();
    let mut joiner = Install::begin(&bench, 5);
    // An installer of an earlier version waits without the line.
    joiner.tell(&bench, "cluster-wait", "started", "Waiting for the cluster: nobody answers", None);
    assert_eq!(row(&bench, 5)["stage"], "waiting-for-cluster");
    // A newer one may send lines that this server does not know.
    let event = joiner.event("wipe", "started", "Erasing", None);
    assert_eq!(joiner.send(&bench, &[event, json!({ "later": {} })]).status, 204);
    let reply = joiner.send(&bench, &[json!({ "wait": {} })]);
    let status: CreatorStatus = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(status.text, "", "it writes already");
    // A client that asked as this machine and has not taken its configuration hears nothing.
    let script = bench.boot("mac=52:54:00:00:00:06", NOW);
    let report = script.split_whitespace().find_map(|word| word.strip_prefix("nqrust.report=")).unwrap();
    let report = report.strip_prefix("http://192.0.2.1:8080").unwrap().to_owned();
    let mut other = Install { machine: 6, run: Uuid::new_v4(), report, seq: 0, now: NOW };
    let event = other.event("cluster-wait", "started", "Waiting for the cluster: nobody answers", None);
    assert_eq!(other.send(&bench, &[event, json!({ "wait": {} })]).status, 204);
}

#[test]
fn the_fleet_is_listed_by_role() {
    let bench = bench();
    for machine in [CREATOR, 1, 3, 4, 5] {
        Install::begin(&bench, machine);
    }
    let names = |query: &str| -> Vec<String> {
        let view: Value = serde_json::from_str(&page(&bench, &format!("{JSON}?{query}"))).unwrap();
        let rows = view["machines"].as_array().unwrap();
        let mut names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names("role=management"), ["dc1-0", "dc1-1"]);
    assert_eq!(names("role=worker"), ["dc1-3", "dc1-4", "dc1-5"]);
    assert_eq!(names("role=worker&role=management&text=dc1-1"), ["dc1-1"]);
    assert!(names("role=witness").is_empty());
    assert_eq!(row(&bench, 3)["role"], "worker");
}

#[test]
fn a_long_wait_with_many_reasons_leaves_room_for_the_steps_after_it() {
    let bench = bench();
    let mut joiner = Install::begin(&bench, 5);
    for reason in 0..100 {
        joiner.tell(
            &bench,
            "cluster-wait",
            "started",
            &format!("Waiting for the cluster: reason {reason}"),
            None,
        );
        joiner.tell(
            &bench,
            "cluster-wait",
            "done",
            &format!("Waiting for the cluster: reason {reason}"),
            None,
        );
    }
    joiner.tell(&bench, "wipe", "started", "Erasing the disk", None);
    let path = format!("/fleet/machines/{}", row(&bench, 5)["id"].as_str().unwrap());
    let page = page(&bench, &path);
    assert!(
        page.contains("reason 99") && !page.contains("reason 98") && page.contains("Erasing the disk"),
        "{page}"
    );
}

fn restarted(bench: Bench) -> Bench {
    let mut bench = bench.restarted();
    bench.router.fleet = Fleet::new(&Secret::new(TOKEN), false);
    bench
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn machines_in_any_order_are_all_installed_once_the_cluster_is_up(
        order in Just((0..MACHINES).collect::<Vec<_>>()).prop_shuffle(),
        restarts in proptest::collection::btree_set(0..MACHINES, 0..4),
        lost in proptest::collection::btree_set(0..MACHINES, 0..5),
        without_power in proptest::collection::btree_set(0..MACHINES, 0..5),
        failures in 0..3_usize,
    ) {
        let mut bench = bench();
        let (mut waiting, mut is_up, mut waited) = (Vec::new(), false, BTreeSet::new());
        let end = |bench: &Bench, mut install: Install| {
            if !lost.contains(&install.machine) {
                install.tell(bench, "run", "done", "Done", Some(0));
            }
        };
        for (place, machine) in order.into_iter().enumerate() {
            if restarts.contains(&place) {
                bench = restarted(bench);
            }
            let mut install = Install::begin(&bench, machine);
            if machine == CREATOR {
                for _ in 0..failures {
                    install.tell(&bench, "image", "started", "Writing", None);
                    install.tell(&bench, "run", "failed", "Failed", Some(6));
                    assert_waits_are_told(&bench, &mut waiting, "has failed");
                    install = Install::begin(&bench, machine);
                }
                assert_waits_are_told(&bench, &mut waiting, "is not ready yet");
                end(&bench, install);
                // The cluster answers, whether the server has heard of it or not.
                is_up = true;
                waiting.drain(..).for_each(|install| end(&bench, install));
            } else if is_up {
                end(&bench, install);
            } else {
                waiting.push(install);
                waited.insert(machine);
                assert_waits_are_told(&bench, &mut waiting, "has not asked to boot yet");
                if without_power.contains(&machine) {
                    waiting.pop();
                    waiting.push(Install::begin_at(&bench, machine, NOW.plus(60)));
                    assert_waits_are_told(&bench, &mut waiting, "has not asked to boot yet");
                }
            }
        }
        prop_assert!(waiting.is_empty());
        for machine in bench.machines() {
            let is = |number: &usize| {
                machine.identity.macs[0].to_string() == format!("52:54:00:00:00:{number:02x}")
            };
            let expected = match (lost.iter().any(is), waited.iter().any(is)) {
                (false, _) => DeploymentState::Installed,
                // Nothing was heard of it since.
                (true, true) => DeploymentState::WaitingForCluster,
                (true, false) => DeploymentState::Installing,
            };
            prop_assert_eq!(machine.state, expected);
        }
        prop_assert_eq!(bench.machines().len(), MACHINES);
    }
}
