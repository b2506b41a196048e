//! The journal of `iso-builder serve`, as text on standard error and as JSON lines on standard output.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use model::release::MediumKind;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use testing::medium::SampleMedium;
use uuid::Uuid;

const SECRET: &str = "9f2c4e6a8b0d1357924680acebdf1357";

struct Server {
    child: Child,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Server {
    /// A server with configurations for two machines, of which the first creates a cluster and the second joins it, and with no
    /// loaders for TFTP.
    fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let sample = SampleMedium::bootable(MediumKind::Full);
        fs::create_dir(path("nodes")).unwrap();
        let node = |name: &str, install: &str| {
            format!(
                "token: {SECRET}\nos: {{hostname: {name}, password: a-very-secret-password, ntp_servers: [192.0.2.123]}}\n\
                 install: {{device: /dev/vda, {install}}}\n"
            )
        };
        let creates = node("node-1", "mode: create, vip: 192.0.2.10");
        fs::write(path("nodes").join("mac-52-54-00-00-00-01.yaml"), creates).unwrap();
        let joins = node("node-2", "mode: join") + "server_url: https://192.0.2.10\n";
        fs::write(path("nodes").join("mac-52-54-00-00-00-02.yaml"), joins).unwrap();
        fs::create_dir(path("loaders")).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
        command
            .args(["serve", "--allow-unsigned"])
            .arg(sample.tree())
            .args(options)
            .args(["--listen", &address.to_string()]);
        command.arg("--configs").arg(path("nodes")).arg("--state").arg(path("state"));
        command.arg("--loaders").arg(path("loaders")).stdin(Stdio::null());
        command.stdout(File::create(path("stdout")).unwrap()).stderr(File::create(path("stderr")).unwrap());
        let server = Self { child: command.spawn().unwrap(), address, directory };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let told = server.output("stderr");
            assert!(began.elapsed() < Duration::from_secs(30), "the server does not start: {told}");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn output(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap()
    }

    /// The answer to a request with these header fields.
    fn request(&self, method: &str, path: &str, fields: &str, body: &str) -> String {
        let mut client = TcpStream::connect(self.address).unwrap();
        let (host, length) = (self.address, body.len());
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}");
        write!(client, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let answer = self.request(method, path, "", body);
        assert!(answer.starts_with("HTTP/1.1 2"), "{method} {path}: {answer}");
        answer
    }

    /// Boots the machine `number`, which takes its configuration and reports these events and lines, each on its own.
    fn install(&self, number: u8, lines: &[Value]) {
        let script = self.ask("GET", &format!("/v1/boot?mac=52:54:00:00:00:{number:02x}"), "");
        let word = |name: &str| {
            let word = script.split_whitespace().find_map(|word| word.strip_prefix(name)).unwrap();
            word.strip_prefix(&format!("http://{}", self.address)).unwrap().to_owned()
        };
        self.ask("GET", &word("nqrust.install.config_url="), "");
        let machine = json!({ "macs": [format!("52:54:00:00:00:{number:02x}")], "serial": null, "uuid": null, "asset_tag": null });
        let hello = json!({ "hello": { "v": 1, "run": Uuid::from_u128(number.into()), "machine": machine } });
        for line in lines {
            self.ask("POST", &word("nqrust.report="), &format!("{hello}\n{line}\n"));
        }
    }

    /// `iso-builder tokens` with these words and the state of this server: its standard output.
    fn tokens(&self, words: &[&str], code: i32) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
        command.arg("tokens").args(words).arg("--state").arg(self.directory.path().join("state"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends the server, and returns its directory.
    fn end(mut self) -> tempfile::TempDir {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.output("stderr"));
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn event(seq: u64, step: &str, state: &str, message: &str, exit_code: Option<u8>) -> Value {
    json!({ "event": {
        "v": 1, "seq": seq, "time": "2026-11-21T10:00:00Z", "step": step, "state": state,
        "bytes": null, "total": null, "message": message, "exit_code": exit_code,
    }})
}

/// The output of a server whose first machine is installed, and whose second one waits and fails: standard output and standard error.
fn played(options: &[&str]) -> [String; 2] {
    let server = Server::start(options);
    server.install(
        1,
        &[
            event(1, "image", "started", "Writing the OS image", None),
            event(2, "run", "done", "Done", Some(0)),
        ],
    );
    let failure = json!({ "failure": { "causes": ["installing, step image", "I/O error"], "hints": ["Replace it."], "exit_code": 6 } });
    server.install(
        2,
        &[
            event(1, "cluster-wait", "started", "Waiting for the cluster: no route", None),
            event(2, "image", "started", "Writing the OS image", None),
            event(3, "run", "failed", "Installation failed", Some(6)),
            failure,
        ],
    );
    // A machine that no configuration names.
    server.ask("GET", "/v1/boot?mac=52:54:00:00:00:09", "");
    let directory = server.end();
    let outputs = ["stdout", "stderr"].map(|name| fs::read_to_string(directory.path().join(name)).unwrap());
    assert!(outputs.iter().all(|text| !text.contains(SECRET)), "{outputs:?}");
    outputs
}

#[test]
fn the_journal_as_text_has_a_time_on_each_line() {
    let [stdout, stderr] = played(&["--progress", "plain"]);
    assert!(stdout.starts_with("Serving NQRust Hypervisor 1.0 on "), "{stdout}");
    let mut texts = Vec::new();
    for line in stderr.lines() {
        let (time, text) = line.trim().split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok(), "{line}");
        texts.push(text);
    }
    let is_warning = |text: &&str| text.starts_with("warning: ") && text.contains("undionly.kpxe is missing");
    assert!(texts.iter().any(is_warning), "{stderr}");
    for expected in [
        "127.0.0.1: node-1 (machine 52:54:00:00:00:01) boots the installer",
        "127.0.0.1: node-1 (machine 52:54:00:00:00:01) has taken its configuration mac-52-54-00-00-00-01.yaml",
        "node-1 (machine 52:54:00:00:00:01): writing",
        "node-1 (machine 52:54:00:00:00:01) is installed",
        "node-2 (machine 52:54:00:00:00:02): Waiting for the cluster: no route",
        "node-2 (machine 52:54:00:00:00:02) failed in stage writing: installing, step image: I/O error",
        "127.0.0.1: machine 52:54:00:00:00:09 boots from disk: no configuration names this machine",
        "stopping",
    ] {
        assert!(texts.iter().any(|text| text.starts_with(expected)), "{expected} in {stderr}");
    }
}

#[test]
fn the_journal_as_json_is_one_event_a_line_on_standard_output() {
    for options in
        [&["--format", "json"][..], &["--format", "json", "--progress", "json"], &["--format=json", "-q"]]
    {
        let [stdout, _] = played(options);
        let events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (number, event) in events.iter().enumerate() {
            assert_eq!((&event["v"], event["seq"].as_u64()), (&json!(1), Some(number as u64 + 1)), "{event}");
            assert!(event["time"].as_str().unwrap().parse::<Timestamp>().is_ok(), "{event}");
        }
        let of = |kind: &str, name: &str| {
            let mut all = events.iter().filter(|event| event["details"]["event"] == kind);
            let found = all.find(|event| name.is_empty() || event["details"]["machine"]["name"] == name);
            found.unwrap_or_else(|| panic!("{kind} of {name} in {stdout}"))["details"].clone()
        };
        let listening = of("listening", "");
        assert_eq!(
            (&listening["release"], &listening["configurations"]),
            (&json!("NQRust Hypervisor 1.0"), &json!(2))
        );
        of("warning", "");
        let seen = of("machine-seen", "node-1");
        assert_eq!(
            (&seen["boots"], &seen["client"], &seen["reason"]),
            (&json!("installer"), &json!("127.0.0.1"), &Value::Null)
        );
        let stranger = of("machine-seen", "machine 52:54:00:00:00:09");
        assert_eq!((&stranger["boots"], &stranger["reason"]), (&json!("disk"), &json!("unknown")));
        assert_eq!(of("stage", "node-1")["stage"], "writing");
        assert_eq!(of("waiting", "node-2")["reason"], "Waiting for the cluster: no route");
        let finished = of("finished", "node-1");
        assert_eq!((&finished["stage"], &finished["group"]), (&json!("installed"), &json!("installed")));
        assert_eq!(finished["machine"]["identity"]["macs"], json!(["52:54:00:00:00:01"]));
        assert_eq!(finished["machine"]["id"], of("machine-seen", "node-1")["machine"]["id"]);
        // The reason came after the end.
        let failed: Vec<_> = events.iter().filter(|event| event["details"]["event"] == "failed").collect();
        let last = &failed.last().unwrap()["details"];
        assert_eq!(
            (failed.len(), &last["failed_in"], &last["class"]),
            (2, &json!("writing"), &json!("disk-io")),
            "{stdout}"
        );
        assert_eq!(
            (&last["causes"][1], &last["hints"], &last["exit_code"]),
            (&json!("I/O error"), &json!(["Replace it."]), &json!(6))
        );
        let end = events.last().unwrap();
        assert_eq!(
            (&end["step"], &end["result"], &end["exit_code"]),
            (&json!("run"), &json!("done"), &json!(0))
        );
    }
}

#[test]
fn tokens_are_made_and_revoked_while_a_server_runs_and_what_they_do_is_logged() {
    let server = Server::start(&["--format", "json"]);
    server.ask("GET", "/v1/boot?mac=52:54:00:00:00:09", "");
    let file = server.directory.path().join("read.token");
    let read = server.tokens(&["new", "display", "--role", "read", "--output", file.to_str().unwrap()], 0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(read.starts_with("display  read  made ") && !read.contains(text.trim()), "{read}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let operate = server.tokens(&["new", "alice", "--role", "operate", "--expires", "1h"], 0);
    let refused = server.tokens(&["new", "alice", "--role", "read", "--format", "json"], 2);
    assert!(refused.contains("there is a token alice already"), "{refused}");
    let bearer =
        |token: &str| format!("Authorization: Bearer {}\r\nAccept: application/json\r\n", token.trim());
    let (read, operate) = (bearer(&text), bearer(&operate));
    let json =
        |answer: &str| -> Value { serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap() };
    let fleet = json(&server.request("GET", "/v1/fleet", &read, ""));
    let deny = format!("/fleet/machines/{}/deny", fleet["machines"][0]["id"].as_str().unwrap());
    for (fields, status) in [("", "401"), (&*read, "403"), (&*operate, "200")] {
        let answer = server.request("POST", &deny, fields, "");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    let shown: Value = serde_json::from_str(&server.tokens(&["show", "--format", "json"], 0)).unwrap();
    let names: Vec<_> = shown.as_array().unwrap().iter().map(|token| token["name"].clone()).collect();
    assert_eq!(names, ["alice", "display"]);
    // Nothing is revoked where a name is misspelled.
    server.tokens(&["revoke", "alice", "alcie"], 2);
    assert!(server.request("GET", "/v1/fleet", &operate, "").starts_with("HTTP/1.1 200 "));
    assert_eq!(server.tokens(&["revoke", "alice"], 0), "revoked: alice\n");
    assert!(server.request("GET", "/v1/fleet", &operate, "").starts_with("HTTP/1.1 401 "));
    let audit = json(&server.request("GET", "/v1/fleet/audit", &read, ""));
    let told: Vec<_> = audit["entries"].as_array().unwrap().iter().rev().collect();
    let actions: Vec<_> = told.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["make-token", "make-token", "deny", "revoke-token"]);
    assert_eq!((&told[0]["actor"]["kind"], &told[0]["token"]["role"]), (&json!("command"), &json!("read")));
    assert_eq!(
        (&told[2]["actor"]["name"], &told[2]["actor"]["address"]),
        (&json!("alice"), &json!("127.0.0.1"))
    );
    let directory = server.end();
    let stdout = fs::read_to_string(directory.path().join("stdout")).unwrap();
    let events: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let logged: Vec<_> =
        events.iter().filter(|event| event["details"]["event"] == "operator-action").collect();
    assert_eq!(logged.len(), 1, "{stdout}");
    assert_eq!(&logged[0]["details"]["audit"], told[2]);
    assert_eq!(logged[0]["message"], "alice from 127.0.0.1: deny machine 52:54:00:00:00:09");
    // Neither the log nor the state has a token.
    let secrets = [&read, &operate].map(|fields| fields.split("nqrust_").nth(1).unwrap()[9..41].to_owned());
    for name in ["stdout", "stderr", "state/machines.db", "state/machines.db-wal"] {
        let Ok(bytes) = fs::read(directory.path().join(name)) else { continue };
        for secret in &secrets {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{name} has the token {secret}");
        }
    }
}

/// The standard output of a server that cannot start.
fn refused(medium: &Path, listen: &str) -> String {
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
    command
        .args(["serve", "--allow-unsigned", "--format", "json", "--listen", listen, "--loaders"])
        .arg(state.path());
    let output = command.arg("--state").arg(state.path().join("state")).arg(medium).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_error_after_warnings_is_one_more_line() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let told = refused(&sample.tree(), &taken.local_addr().unwrap().to_string());
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["details"]["event"], "warning", "{told}");
    let [end, error] = &lines[lines.len() - 2..] else { panic!("{told}") };
    assert_eq!((&end["result"], &error["error"]["class"]), (&json!("failed"), &json!("network")), "{told}");
}
