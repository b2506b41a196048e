//! The cost of a request to boot at `iso-builder serve`, over HTTP: how it grows with the number of machines that the
//! server knows, and how long the slowest requests take.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nqrust_tests::artifacts::Artifacts;
use serde_json::{Value, json};

use crate::figure::{Figure, RatioLimit};
use crate::scale::Scale;
use crate::serve::{BenchServer, medium};

/// How many machines a small and a large server know.
const FEW_MACHINES: u32 = 100;
const MANY_MACHINES: u32 = 100_000;
/// The limit of the large server's time, in times of the small one's.
const GROWTH_LIMIT: f64 = 1.5;
/// Requests to each of the two servers, in turns of [`TURN_REQUESTS`].
const REQUESTS: u32 = 4000;
const TURN_REQUESTS: u32 = 100;
/// Machines of the server whose slowest answers are measured, each with a configuration of its own.
const CONFIGURED_MACHINES: u32 = 10_000;
/// The time within which 99 of 100 requests have to be answered.
const LIMIT_MS: f64 = 20.0;
/// Clients that send requests at the same time.
const CLIENTS: u32 = 4;
/// A server reads and checks all configurations before it answers.
const START_LIMIT: Duration = Duration::from_secs(600);
/// A configuration with which a machine could be installed.
const CONFIGURATION: &str = "token: 9f2c4e6a8b0d1357924680acebdf1357\n\
     os: {hostname: node-1, password: a-very-secret-password, ntp_servers: [192.0.2.123]}\n\
     install: {mode: create, vip: 192.0.2.10, device: /dev/disk/by-id/virtio-1}\n";

pub(crate) fn measure(artifacts: &Artifacts, scale: Scale) -> Result<Vec<Figure>> {
    let (many, configured) = (scale.pick(MANY_MACHINES, 1000), scale.pick(CONFIGURED_MACHINES, 200));
    let medium = medium(&artifacts.disk("booted"), 1 << 20)?;
    let growth = growth(&medium, many, artifacts).context("requests to boot with few and many machines")?;
    let slowest = slowest(&medium, configured, artifacts).context("requests to boot of many machines")?;
    Ok(vec![growth, slowest])
}

/// The mean time of a request to a server that knows many machines, beside one that knows few. Each request changes the
/// state.
fn growth(medium: &Path, many: u32, artifacts: &Artifacts) -> Result<Figure> {
    let nodes = nodes(&artifacts.disk("few-nodes"), FEW_MACHINES)?;
    let start = |count: u32| {
        let state = artifacts.disk(&format!("state-of-{count}"));
        known(&state, count)?;
        BenchServer::with_state(medium, &state, Some(&nodes), START_LIMIT)
    };
    let servers = [start(FEW_MACHINES)?, start(many)?];
    let mut clients = [BootClient::connect(servers[0].port)?, BootClient::connect(servers[1].port)?];
    let mut spent = [Duration::ZERO; 2];
    for turn in 0..=REQUESTS / TURN_REQUESTS {
        for (client, spent) in clients.iter_mut().zip(&mut spent) {
            let begun = Instant::now();
            for request in 0..TURN_REQUESTS {
                ensure!(
                    client.boots((turn * TURN_REQUESTS + request) % FEW_MACHINES)?,
                    "a machine was not told to install"
                );
            }
            // The first turn only creates the records of the machines.
            if turn > 0 {
                *spent += begun.elapsed();
            }
        }
    }
    let mean = spent.map(|spent| spent.as_secs_f64() * 1e3 / f64::from(REQUESTS));
    let name = format!("a request to boot, {many} machines");
    let figure = Figure::new(&name, mean[1], "ms", (&format!("{FEW_MACHINES} machines"), mean[0]));
    Ok(figure.limit(RatioLimit::AtMost(GROWTH_LIMIT)))
}

/// The time of the 99th percentile of many machines' second requests.
fn slowest(medium: &Path, configured: u32, artifacts: &Artifacts) -> Result<Figure> {
    let nodes = nodes(&artifacts.disk("many-nodes"), configured)?;
    let server =
        BenchServer::with_state(medium, &artifacts.disk("state-of-nodes"), Some(&nodes), START_LIMIT)?;
    ask_all(server.port, configured)?;
    let mut times = ask_all(server.port, configured)?;
    times.sort_unstable();
    let place = times.len() * 99 / 100;
    let time = times.get(place).context("no request was answered")?.as_secs_f64() * 1e3;
    let name = format!("99 % of requests to boot, {configured} machines");
    Ok(Figure::new(&name, time, "ms", ("limit", LIMIT_MS)).limit(RatioLimit::AtMost(1.0)))
}

/// Sends one request for every machine; returns how long each answer took.
fn ask_all(port: u16, machines: u32) -> Result<Vec<Duration>> {
    let ask = move |first: u32| -> Result<Vec<Duration>> {
        let mut client = BootClient::connect(port)?;
        let mut times = Vec::new();
        for machine in (first..machines).step_by(CLIENTS as usize) {
            let begun = Instant::now();
            ensure!(client.boots(machine)?, "a machine was not told to install");
            times.push(begun.elapsed());
        }
        Ok(times)
    };
    let clients: Vec<_> = (0..CLIENTS).map(|first| thread::spawn(move || ask(first))).collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
    }
    Ok(times)
}

/// The address of the card of a machine that has a configuration or, with `known`, of one that the server only knows.
fn mac(machine: u32, known: bool) -> String {
    let [_, a, b, c] = machine.to_be_bytes();
    format!("52-54-{:02x}-{a:02x}-{b:02x}-{c:02x}", u8::from(known))
}

/// A directory with a configuration for each of `count` machines.
fn nodes(directory: &Path, count: u32) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    for machine in 0..count {
        fs::write(directory.join(format!("mac-{}.yaml", mac(machine, false))), CONFIGURATION)?;
    }
    Ok(directory.to_owned())
}

/// A state with `count` installed machines, in the format of earlier versions, which the server imports.
fn known(state: &Path, count: u32) -> Result<()> {
    let machine = |number: u32| -> Value {
        json!({
            "id": format!("{number:032x}"),
            "identity": {"macs": [mac(number, true)], "serial": format!("CZ{number}"), "uuid": null, "asset_tag": null},
            "state": "installed", "permission": "unsaid", "configuration": format!("node-{number}.yaml"),
            "first_seen": 1_700_000_000, "last_seen": 1_700_000_000, "since": 1_700_000_000,
        })
    };
    let machines: Vec<_> = (0..count).map(machine).collect();
    fs::create_dir_all(state)?;
    let content = serde_json::to_vec(&json!({"format": 1, "machines": machines}))?;
    fs::write(state.join("machines.json"), content).context("writing a state")
}

/// A connection for successive requests.
struct BootClient {
    stream: BufReader<TcpStream>,
    port: u16,
}

impl BootClient {
    fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), port })
    }

    /// True if the server tells a machine with a configuration to install.
    fn boots(&mut self, machine: u32) -> Result<bool> {
        let (mac, port) = (mac(machine, false), self.port);
        let request =
            format!("GET /v1/boot?mac={mac}&serial=N{machine} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut length = None;
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.stream.read_line(&mut line)? > 0, "the server closed the connection");
            let (name, value) = match line.trim().split_once(": ") {
                Some(field) => field,
                None if line.trim().is_empty() => break,
                None if line.starts_with("HTTP/1.1 200 ") => continue,
                None => bail!("the server answered {}", line.trim()),
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse()?);
            }
        }
        let mut body = vec![0; length.context("an answer without its length")?];
        self.stream.read_exact(&mut body)?;
        Ok(String::from_utf8(body)?.contains("nqrust.mode=install"))
    }
}
