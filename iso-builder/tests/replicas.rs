//! Several processes of `iso-builder serve` that share a PostgreSQL database, while processes are killed and the database is
//! stopped: every machine gets its configuration once, and nothing that was acknowledged is lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use model::release::MediumKind;
use serde_json::{Value, json};
use testing::medium::SampleMedium;
use testing::postgres::PostgresServer;
use uuid::Uuid;

const MACHINES: u8 = 32;
const REPLICAS: usize = 3;
/// How long a machine may take, with everything that happens to the servers.
const LIMIT: Duration = Duration::from_secs(60);
/// What is between two requests of a machine, in place of the seconds that a loader waits.
const PAUSE: Duration = Duration::from_millis(60);

/// A server on a port of its own, with a directory of its own.
struct Replica {
    words: Vec<String>,
    address: SocketAddr,
    directory: PathBuf,
    running: Option<Child>,
}

impl Replica {
    fn new(number: usize, directory: &Path, medium: &Path, database: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let own = directory.join(format!("replica-{number}"));
        fs::create_dir(&own).unwrap();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let words = [
            "serve".into(),
            "--allow-unsigned".into(),
            "--progress".into(),
            "plain".into(),
            path(medium),
            "--configs".into(),
            path(&directory.join("nodes")),
            "--loaders".into(),
            path(&directory.join("nodes")),
            "--state".into(),
            database.into(),
            "--state-directory".into(),
            path(&own.join("state")),
            "--listen".into(),
            address.to_string(),
        ];
        let mut replica = Self { words: words.into(), address, directory: own, running: None };
        replica.start();
        replica
    }

    fn start(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(self.directory.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
        command.args(&self.words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running = Some(command.spawn().unwrap());
        let since = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            assert!(since.elapsed() < Duration::from_secs(30), "the server does not start: {}", self.log());
            sleep(Duration::from_millis(20));
        }
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let mut running = self.running.take().unwrap();
        running.kill().unwrap();
        running.wait().unwrap();
    }

    /// Waits until the server, if it runs, answers a question that needs the database with this status.
    fn answers(&self, bearer: &str, status: u16) {
        let since = Instant::now();
        while self.running.is_some() {
            if ask(self.address, "GET", "/v1/fleet", bearer, "").is_ok_and(|(answer, _)| answer == status) {
                return;
            }
            assert!(since.elapsed() < LIMIT, "no answer {status}: {}", self.log());
            sleep(PAUSE);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    /// The token of the fleet page.
    fn token(&self) -> String {
        let url = fs::read_to_string(self.directory.join("state/fleet-url")).unwrap();
        url.trim().split_once("token=").unwrap().1.to_owned()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(running) = &mut self.running {
            let _ = running.kill();
            let _ = running.wait();
        }
    }
}

/// A request to one server: the status and the body, or an error where the answer is not whole.
fn ask(to: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{fields}");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let broken = || std::io::Error::other("the answer is not whole");
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    assert!(status != 503 || head.to_lowercase().contains("\r\nretry-after: 10"), "{head}");
    let length =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    if length.is_some_and(|length: usize| length != body.len()) {
        return Err(broken());
    }
    Ok((status, body.to_owned()))
}

/// What a load balancer sends each request to.
struct Balancer {
    addresses: Vec<SocketAddr>,
    requests: AtomicUsize,
}

impl Balancer {
    /// Asks one server after the other until one answers with something else than "try again".
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let since = Instant::now();
        loop {
            assert!(since.elapsed() < LIMIT, "no server answers {method} {path}");
            let number = self.requests.fetch_add(1, Ordering::Relaxed) % self.addresses.len();
            match ask(self.addresses[number], method, path, "", body) {
                Ok((503, text)) => assert!(text.contains("does not answer; ask again"), "{text}"),
                Ok((200, script)) if script.contains("database of the server does not answer") => {
                    assert!(!script.contains("nqrust.mode=install"), "{script}");
                }
                Ok(answer) => return answer,
                Err(_) => {}
            }
            sleep(PAUSE);
        }
    }
}

/// A machine from its loader to the end of its install.
struct Machine<'a> {
    number: u8,
    balancer: &'a Balancer,
    /// How often it got its configuration.
    given: &'a AtomicUsize,
}

impl Machine<'_> {
    /// Returns whether it was installed. It was not, where its configuration counts as taken and it never got it: only the
    /// answer was lost, with the server that was killed.
    fn install(&self) -> bool {
        loop {
            let path = format!("/v1/boot?mac=52:54:00:00:00:{:02x}", self.number);
            let (status, script) = self.balancer.ask("GET", &path, "");
            assert_eq!(status, 200, "{script}");
            if script.contains("its install was started before") {
                return false;
            }
            let word = |name: &str| {
                let word = script.split_whitespace().find_map(|word| word.strip_prefix(name));
                let word =
                    word.unwrap_or_else(|| panic!("machine {} does not install: {script}", self.number));
                word.split('/').skip(3).fold(String::new(), |path, part| path + "/" + part)
            };
            let (configuration, report) = (word("nqrust.install.config_url="), word("nqrust.report="));
            sleep(PAUSE);
            match self.balancer.ask("GET", &configuration, "") {
                (200, text) => {
                    assert!(text.contains(&format!("hostname: node-{},", self.number)), "{text}");
                    self.given.fetch_add(1, Ordering::Relaxed);
                    self.report(&report);
                    return true;
                }
                (410, _) => {}
                (status, text) => panic!("the configuration of machine {}: {status} {text}", self.number),
            }
        }
    }

    fn report(&self, path: &str) {
        let machine = json!({ "macs": [format!("52:54:00:00:00:{:02x}", self.number)], "serial": null, "uuid": null, "asset_tag": null });
        let run = Uuid::from_u128(self.number.into());
        let hello = json!({ "hello": { "v": 1, "run": run, "machine": machine } });
        for (seq, step, state, code) in
            [(1, "image", "started", None), (2, "images", "started", None), (3, "run", "done", Some(0))]
        {
            let event = json!({ "event": {
                "v": 1, "seq": seq, "time": "2026-11-21T10:00:00Z", "step": step, "state": state,
                "bytes": null, "total": null, "message": format!("doing {step}"), "exit_code": code,
            }});
            let (status, text) = self.balancer.ask("POST", path, &format!("{hello}\n{event}\n"));
            assert_eq!(status, 204, "machine {}: {text}", self.number);
            sleep(PAUSE);
        }
    }
}

#[test]
fn every_machine_is_installed_once_while_servers_are_killed_and_the_database_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let sample = SampleMedium::bootable(MediumKind::Full);
    let nodes = directory.path().join("nodes");
    fs::create_dir(&nodes).unwrap();
    for number in 0..MACHINES {
        let text = format!(
            "token: 9f2c4e6a8b0d1357924680acebdf1357\n\
             os: {{hostname: node-{number}, password: a-very-secret-password, ntp_servers: [192.0.2.123]}}\n\
             install: {{mode: create, vip: 192.0.2.10, device: /dev/vda}}\n"
        );
        fs::write(nodes.join(format!("mac-52-54-00-00-00-{number:02x}.yaml")), text).unwrap();
    }
    let mut database = PostgresServer::start();
    let url = database.database();
    let mut replicas: Vec<_> =
        (0..REPLICAS).map(|number| Replica::new(number, directory.path(), &sample.tree(), &url)).collect();
    let addresses = replicas.iter().map(|replica| replica.address).collect();
    let balancer = Balancer { addresses, requests: AtomicUsize::new(0) };
    let given: Vec<_> = (0..MACHINES).map(|_| AtomicUsize::new(0)).collect();
    let machine = |number: u8| Machine { number, balancer: &balancer, given: &given[usize::from(number)] };
    let bearer = format!("Authorization: Bearer {}\r\n", replicas[0].token());
    let mut tokens = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
    tokens.args(["tokens", "new", "prometheus", "--role", "read", "--state", &url]);
    let scraper = tokens.output().unwrap();
    assert!(scraper.status.success(), "{scraper:?}");
    let scraper = format!("Authorization: Bearer {}\r\n", String::from_utf8(scraper.stdout).unwrap().trim());
    let scrape = |replica: &Replica, up: u8| {
        let (status, text) = ask(replica.address, "GET", "/metrics", &scraper, "").unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(text.contains(&format!("\nnqrust_state_up {up}\n")), "{text}");
    };
    let outages = AtomicUsize::new(0);
    let installed: Vec<bool> = scope(|scope| {
        let outages = &outages;
        // Half of the machines are there at each outage, however long the one before took.
        let install = |number: u8| {
            let (group, place) = (number / (MACHINES / 2), number % (MACHINES / 2));
            while outages.load(Ordering::Relaxed) < group.into() {
                sleep(PAUSE);
            }
            sleep(Duration::from_millis(140) * place.into());
            machine(number).install()
        };
        let machines: Vec<_> = (0..MACHINES).map(|number| scope.spawn(move || install(number))).collect();
        for killed in 0..2 {
            sleep(Duration::from_millis(500));
            replicas.iter().for_each(|replica| scrape(replica, 1));
            replicas[killed].kill();
            sleep(Duration::from_millis(300));
            database.stop();
            replicas.iter().for_each(|replica| replica.answers(&bearer, 503));
            for replica in replicas.iter().filter(|replica| replica.running.is_some()) {
                // Whether the token is still valid is in the database.
                scrape(replica, 0);
                let (status, text) = ask(replica.address, "GET", "/readyz", "", "").unwrap();
                let expected = "not ready\nstate: the database of the fleet does not answer\nmedium: ok\n";
                assert_eq!((status, &*text), (503, expected));
                // What load balancers are asked that have no other server left.
                let (status, text) = ask(replica.address, "GET", "/readyz?exclude=state", "", "").unwrap();
                assert_eq!((status, &*text), (200, "ready\nmedium: ok\n"));
            }
            database.start_again();
            replicas.iter().for_each(|replica| replica.answers(&bearer, 200));
            replicas[killed].start();
            outages.fetch_add(1, Ordering::Relaxed);
        }
        machines.into_iter().map(|machine| machine.join().unwrap()).collect()
    });
    let fleet = |replica: &Replica| -> Value {
        let (status, text) = ask(replica.address, "GET", "/v1/fleet", &bearer, "").unwrap();
        assert_eq!(status, 200, "the token of one server opens the page of each: {text}");
        serde_json::from_str(&text).unwrap()
    };
    let ids = fleet(&replicas[0]);
    for (number, installed) in (0..MACHINES).zip(installed) {
        let given = given[usize::from(number)].load(Ordering::Relaxed);
        assert_eq!(given, usize::from(installed), "machine {number}");
        if !installed {
            // An operator has to decide about it.
            let row = ids["machines"]
                .as_array()
                .unwrap()
                .iter()
                .find(|row| row["name"] == format!("node-{number}"));
            let path = format!("/fleet/machines/{}/redeploy", row.unwrap()["id"].as_str().unwrap());
            let (status, text) =
                ask(replicas[1].address, "POST", &path, &format!("{bearer}Accept: application/json\r\n"), "")
                    .unwrap();
            assert_eq!(status, 200, "{text}");
            assert!(machine(number).install());
        }
    }
    // Every server shows the same, and the database has nothing else.
    let rows = |replica: &Replica| {
        let mut rows = fleet(replica)["machines"].as_array().unwrap().clone();
        rows.iter_mut().for_each(|row| row["seen"] = Value::Null);
        rows
    };
    let all = rows(&replicas[0]);
    assert_eq!(all.len(), usize::from(MACHINES));
    assert!(all.iter().all(|row| row["stage"] == "rebooting"), "{all:?}");
    for replica in &replicas[1..] {
        assert_eq!(rows(replica), all);
    }
    let sql = "SELECT state || ' ' || count(*) || ' ' || count(DISTINCT assigned) FROM nqrust.machines GROUP BY state";
    assert_eq!(database.run(&url, sql), format!("installed {MACHINES} {MACHINES}"));
    // Each outage is told once by each server that was there. The first two were not, once each.
    for (number, replica) in replicas.iter().enumerate() {
        let log = replica.log();
        let count = |text: &str| log.matches(text).count();
        let seen = if number < 2 { 1 } else { 2 };
        assert_eq!((count("does not answer"), count("answers again")), (seen, seen), "{log}");
        assert!(!log.contains("a-very-secret-password") && !log.contains(": error: "), "{log}");
    }
}
