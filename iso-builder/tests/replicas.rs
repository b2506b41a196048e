//! Several processes of `iso-builder serve` that share a PostgreSQL database, while processes are killed, lines are cut and the
//! database is stopped: every machine gets its configuration once, and nothing that was acknowledged is lost.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends where it cannot go on, helpers included"
)]

use std::collections::BTreeMap;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use model::release::MediumKind;
use nqrust_load::boot_server::{BootServer, BootServerPlan};
use nqrust_load::line::{Line, LineState};
use nqrust_load::prepare;
use nqrust_load::report::LoadReport;
use nqrust_load::run::{Goal, LoadPlan, LoadResult, MachineOutcome, RetryLimits};
use nqrust_load::servers::Servers;
use serde_json::Value;
use testing::medium::SampleMedium;
use testing::numbers::Numbers;
use testing::postgres::PostgresServer;

const MACHINES: u32 = 32;
const REPLICAS: usize = 3;
/// How long a machine may take, with everything that happens to the servers.
const LIMIT: Duration = Duration::from_secs(60);
/// What is between two requests of a machine, in place of the seconds that a loader waits.
const PAUSE: Duration = Duration::from_millis(60);

/// Servers with one database, each behind a line of its own.
struct Fleet {
    replicas: Vec<BootServer>,
    lines: Vec<Line>,
    database: PostgresServer,
    url: String,
    _medium: SampleMedium,
}

impl Fleet {
    fn start(directory: &Path, machines: u32) -> Self {
        let sample = SampleMedium::bootable(MediumKind::Full);
        let nodes = directory.join("nodes");
        prepare::configurations(&nodes, machines, 1).unwrap();
        let database = PostgresServer::start();
        let url = database.database();
        let plan = BootServerPlan {
            program: Path::new(env!("CARGO_BIN_EXE_iso-builder")),
            medium: &sample.tree(),
            nodes: &nodes,
            database: Some(&url),
            // All machines come from the address of the line.
            further: &["--connections-per-address", "1000"],
        };
        let start = |number| BootServer::start(&directory.join(format!("replica-{number}")), plan).unwrap();
        let replicas: Vec<_> = (0..REPLICAS).map(start).collect();
        let lines = replicas.iter().map(|replica| Line::to(replica.address).unwrap()).collect();
        Self { replicas, lines, database, url, _medium: sample }
    }

    /// What a load balancer sends requests to.
    fn addresses(&self) -> Vec<SocketAddr> {
        self.lines.iter().map(|line| line.address).collect()
    }

    fn bearer(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.replicas[0].token().unwrap())
    }

    /// Lets machines install again whose configuration was lost with its server, as an operator does.
    fn redeploy(&self, lost: &[u32]) {
        let (bearer, list) = (self.bearer(), self.list(0));
        for number in lost {
            let row = list.iter().find(|row| row["name"] == format!("node-{number}")).unwrap();
            let path = format!("/fleet/machines/{}/redeploy", row["id"].as_str().unwrap());
            let fields = format!("{bearer}Accept: application/json\r\n");
            let (status, text) = ask(self.replicas[1].address, "POST", &path, &fields).unwrap();
            assert_eq!(status, 200, "{text}");
        }
    }

    /// The list of machines of one server, without the moments at which they were heard.
    fn list(&self, replica: usize) -> Vec<Value> {
        let (status, text) = ask(self.replicas[replica].address, "GET", "/v1/fleet", &self.bearer()).unwrap();
        assert_eq!(status, 200, "the token of one server opens the page of each: {text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        let mut rows = list["machines"].as_array().unwrap().clone();
        rows.iter_mut().for_each(|row| row["seen"] = Value::Null);
        rows
    }

    /// Every server shows the same machines, all of them joined, and the database has each configuration assigned once.
    fn all_joined(&self, machines: u32) {
        let all = self.list(0);
        assert_eq!(all.len(), machines as usize);
        assert!(all.iter().all(|row| row["stage"] == "joined"), "{all:?}");
        for replica in 1..REPLICAS {
            assert_eq!(self.list(replica), all);
        }
        let sql = "SELECT state || ' ' || count(*) || ' ' || count(DISTINCT assigned) FROM nqrust.machines GROUP BY state";
        assert_eq!(self.database.run(&self.url, sql), format!("joined {machines} {machines}"));
    }

    /// How often the configuration of each machine has come from any server, counted on the lines.
    fn crossed(&self) -> BTreeMap<u32, u32> {
        let mut all = BTreeMap::new();
        for (number, count) in self.lines.iter().flat_map(Line::configurations) {
            *all.entry(number).or_default() += count;
        }
        all
    }
}

/// Waits until the server, if it runs, answers a question that needs the database with this status.
fn answers(replica: &BootServer, bearer: &str, status: u16) {
    let since = Instant::now();
    while replica.is_running() {
        if let Ok((answer, text)) = ask(replica.address, "GET", "/v1/fleet", bearer)
            && answer == status
        {
            assert!(status != 503 || text.contains("does not answer; ask again"), "{text}");
            return;
        }
        assert!(since.elapsed() < LIMIT, "no answer {status}: {}", replica.log().unwrap());
        sleep(PAUSE);
    }
}

/// A request to one server: the status and the body, or an error where the answer is not whole.
fn ask(to: SocketAddr, method: &str, path: &str, fields: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{fields}");
    stream.write_all(format!("{head}Content-Length: 0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let broken = || std::io::Error::other("the answer is not whole");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    if status == 503 {
        assert!(head.to_lowercase().contains("\r\nretry-after: 10"), "{head}");
    }
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    if length.is_some_and(|length: usize| length != body.len()) {
        return Err(broken());
    }
    Ok((status, body.to_owned()))
}

/// Machines that go on through outages of this length.
fn plan(first: u32, machines: u32, patience: Duration) -> LoadPlan {
    let mut plan = LoadPlan { first, machines, at_once: 500, ..LoadPlan::default() };
    plan.install.retry = RetryLimits { patience, pause: PAUSE };
    plan.install.goal = Goal::Joined;
    // The lines are the clients of the servers.
    plan.install.own_addresses = false;
    plan
}

/// The machines whose configurations were lost; all others have to have reached their goal with one of their own.
fn lost(plan: &LoadPlan, result: &LoadResult) -> Vec<u32> {
    let report = LoadReport::new(plan, result, &[], &[]);
    assert!(report.violations.is_empty() && report.failed == 0, "{}", report.table());
    let mut lost = Vec::new();
    for machine in &result.machines {
        let reached = machine.outcome == MachineOutcome::Reached;
        assert_eq!(machine.given, u32::from(reached), "{machine:?}");
        if !reached {
            lost.push(machine.machine.number);
        }
    }
    lost
}

#[test]
fn every_machine_is_installed_once_while_servers_are_killed_and_the_database_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(directory.path(), MACHINES);
    let (addresses, bearer) = (fleet.addresses(), fleet.bearer());
    let mut tokens = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
    tokens.args(["tokens", "new", "prometheus", "--role", "read", "--state", &fleet.url]);
    let scraper = tokens.output().unwrap();
    assert!(scraper.status.success(), "{scraper:?}");
    let scraper = format!("Authorization: Bearer {}\r\n", String::from_utf8(scraper.stdout).unwrap().trim());
    let scrape = |replica: &BootServer, up: u8| {
        let (status, text) = ask(replica.address, "GET", "/metrics", &scraper).unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(&format!("\nnqrust_state_up {up}\n")), "{text}");
    };
    let mut all_lost = Vec::new();
    for killed in 0..2 {
        let half = MACHINES / 2;
        let mut plan = plan(half * u32::try_from(killed).unwrap(), half, LIMIT);
        // Some machines begin during the outage, and each sends several requests during it.
        plan.per_hour = Some(3600.0 / 0.14);
        plan.install.duration = Duration::from_secs(1);
        let result = scope(|scope| {
            let machines = scope.spawn(|| plan.run(Servers::new(addresses.clone()).unwrap()).unwrap());
            sleep(Duration::from_millis(500));
            fleet.replicas.iter().for_each(|replica| scrape(replica, 1));
            fleet.replicas[killed].kill().unwrap();
            sleep(Duration::from_millis(300));
            fleet.database.stop();
            fleet.replicas.iter().for_each(|replica| answers(replica, &bearer, 503));
            for replica in fleet.replicas.iter().filter(|replica| replica.is_running()) {
                // Whether the token is still valid is in the database.
                scrape(replica, 0);
                let (status, text) = ask(replica.address, "GET", "/readyz", "").unwrap();
                let expected = "not ready\nstate: the database of the fleet does not answer\nmedium: ok\n";
                assert_eq!((status, &*text), (503, expected));
                // What load balancers are asked that have no other server left.
                let (status, text) = ask(replica.address, "GET", "/readyz?exclude=state", "").unwrap();
                assert_eq!((status, &*text), (200, "ready\nmedium: ok\n"));
            }
            fleet.database.start_again();
            fleet.replicas.iter().for_each(|replica| answers(replica, &bearer, 200));
            fleet.replicas[killed].start_again().unwrap();
            machines.join().unwrap()
        });
        all_lost.extend(lost(&plan, &result));
    }
    fleet.redeploy(&all_lost);
    for number in all_lost {
        let plan = plan(number, 1, LIMIT);
        let result = plan.run(Servers::new(addresses.clone()).unwrap()).unwrap();
        assert!(lost(&plan, &result).is_empty());
    }
    fleet.all_joined(MACHINES);
    // Each outage is told once by each server that was there. The first two were not, once each.
    for (number, replica) in fleet.replicas.iter().enumerate() {
        let log = replica.log().unwrap();
        let count = |text: &str| log.matches(text).count();
        let seen = if number < 2 { 1 } else { 2 };
        assert_eq!((count("does not answer"), count("answers again")), (seen, seen), "{log}");
        assert!(!log.contains("the-password-of-") && !log.contains(": error: "), "{log}");
    }
}

/// What happens during the chaos.
const MISHAPS: [&str; 5] =
    ["a server is killed", "the database stops", "lines are cut", "a line is down", "a line is slow"];
/// Machines that begin in a minute of the chaos.
const BEGIN: u32 = 120;

impl Fleet {
    /// Lets one thing fail, for some moments.
    fn mishap(&mut self, numbers: &mut Numbers) -> &'static str {
        let (place, moment) =
            (numbers.below(REPLICAS), Duration::from_millis(500 + numbers.below(4000) as u64));
        let mishap = numbers.below(MISHAPS.len());
        match mishap {
            0 => {
                self.replicas[place].kill().unwrap();
                sleep(moment);
                self.replicas[place].start_again().unwrap();
            }
            1 => {
                self.database.stop();
                sleep(moment);
                self.database.start_again();
            }
            2 => self.lines.iter().for_each(Line::cut),
            3 => {
                self.lines[place].set(LineState::Down);
                sleep(moment);
                self.lines[place].set(LineState::Open);
            }
            _ => {
                self.lines[place].set(LineState::Slow(4096));
                sleep(moment);
                self.lines[place].set(LineState::Open);
            }
        }
        MISHAPS[mishap]
    }
}

#[test]
#[ignore = "half an hour, or the minutes of NQRUST_CHAOS_MINUTES"]
fn every_machine_is_installed_once_in_half_an_hour_of_chaos() {
    let number = |name: &str, default: u32| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let minutes = number("NQRUST_CHAOS_MINUTES", 30);
    let seed = number("NQRUST_SEED", std::process::id());
    println!("seed {seed}");
    let machines = minutes * BEGIN;
    let directory = tempfile::tempdir().unwrap();
    let mut fleet = Fleet::start(directory.path(), machines);
    let mut plan = plan(0, machines, Duration::from_secs(300));
    plan.per_hour = Some(f64::from(BEGIN) * 60.0);
    plan.install.duration = Duration::from_secs(10);
    let (servers, over) = (Servers::new(fleet.addresses()).unwrap(), AtomicBool::new(false));
    let mut numbers = Numbers(u64::from(seed) + 1);
    let mut counts = BTreeMap::<_, u32>::new();
    let result = scope(|scope| {
        let running = scope.spawn(|| {
            let result = plan.run(servers);
            over.store(true, Ordering::Relaxed);
            result.unwrap()
        });
        while !over.load(Ordering::Relaxed) {
            *counts.entry(fleet.mishap(&mut numbers)).or_default() += 1;
            sleep(Duration::from_millis(numbers.below(5000) as u64));
        }
        running.join().unwrap()
    });
    println!("{counts:?}\n{}", LoadReport::new(&plan, &result, &[], &[]).table());
    let lost = lost(&plan, &result);
    // What crossed the lines is counted by nobody who takes part.
    let crossed = fleet.crossed();
    assert!(crossed.values().all(|count| *count == 1), "{crossed:?}");
    let got = (0..machines).filter(|number| !lost.contains(number));
    assert!(got.clone().all(|number| crossed.contains_key(&number)), "a configuration that crossed no line");
    fleet.redeploy(&lost);
    for number in &lost {
        let again = LoadPlan { first: *number, machines: 1, per_hour: None, ..plan };
        let result = again.run(Servers::new(fleet.addresses()).unwrap()).unwrap();
        assert!(self::lost(&again, &result).is_empty());
    }
    let after = fleet.crossed();
    assert!(got.clone().all(|number| after[&number] == 1), "a redeployment gave away what was not its own");
    assert_eq!(after.len(), machines as usize);
    fleet.all_joined(machines);
    for replica in &fleet.replicas {
        let log = replica.log().unwrap();
        assert!(
            !log.contains("the-password-of-") && !log.contains(": error: "),
            "a secret or an error in a log"
        );
    }
}
