//! The fleet page of ten thousand machines at `iso-builder serve`: how long a person waits for it, what its updates cost, and
//! how much memory the server has then.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::size::ByteSize;
use nqrust_load::fleet_check::token;
use nqrust_load::prepare::{self, MediumSizes};
use nqrust_load::process::ProcessUsage;
use nqrust_load::run::{InstallPlan, LoadPlan, MachineOutcome};
use nqrust_load::servers::Servers;
use nqrust_load::virtual_machine::VirtualMachine;
use nqrust_tests::artifacts::Artifacts;

use crate::figure::{Figure, RatioLimit, median};
use crate::scale::Scale;
use crate::serve::BenchServer;

const MACHINES: u32 = 10_000;
/// The machines of each cluster.
const CLUSTER: u32 = 100;
/// From the request of a browser to the page, by a server that has just started.
const FIRST_LIMIT_MS: f64 = 1000.0;
/// An update of an open page after one machine has changed.
const UPDATE_LIMIT_MS: f64 = 100.0;
const PEAK_LIMIT_MIB: f64 = 300.0;
const UPDATES: u32 = 50;
const BROWSER_ROUNDS: usize = 5;
/// A server reads and checks all configurations before it answers.
const START_LIMIT: Duration = Duration::from_secs(600);

pub(crate) fn measure(artifacts: &Artifacts, scale: Scale) -> Result<Vec<Figure>> {
    let machines = scale.pick(MACHINES, 200);
    let fleet =
        MeasuredFleet::make(&artifacts.disk("fleet-page"), machines).context("a fleet of machines")?;
    let server = fleet.start()?;
    let token = fleet.token()?;
    let first = ask(server.port, "/fleet", Some(&token))?;
    ensure!(first.body.contains(&format!("of {machines} machines")), "the page is another: {}", first.body);
    let limit = |name: String, value: f64, unit, limit| {
        Figure::new(&name, value, unit, ("limit", limit)).limit(RatioLimit::AtMost(1.0))
    };
    let mut figures = vec![limit(
        format!("the first fleet page of {machines} machines"),
        first.milliseconds(),
        "ms",
        FIRST_LIMIT_MS,
    )];
    figures.push(limit(
        format!("an update of it, {machines} machines"),
        updates(&server, &token, machines)?,
        "ms",
        UPDATE_LIMIT_MS,
    ));
    let peak = ProcessUsage::of(server.id())?.peak_kib;
    #[allow(clippy::cast_precision_loss)]
    figures.push(limit(
        "peak memory of serve with its fleet page".to_owned(),
        peak as f64 / 1024.0,
        "MiB",
        PEAK_LIMIT_MIB,
    ));
    drop(server);
    // The short form runs where only tests run, which is no place to time a browser.
    if scale == Scale::Full {
        let chromium =
            testing::programs::find("chromium").context("chromium is missing; `make setup` installs it")?;
        let view = fleet.first_view(&chromium)?;
        figures.push(limit(
            format!("first view of it in a browser, {machines} machines"),
            view,
            "ms",
            FIRST_LIMIT_MS,
        ));
    }
    Ok(figures)
}

/// A server's medium, configurations and state, with all machines in it.
struct MeasuredFleet {
    directory: PathBuf,
}

impl MeasuredFleet {
    /// Installs all machines from a server until they have joined.
    fn make(directory: &Path, machines: u32) -> Result<Self> {
        let small = ByteSize::mib(1);
        let sizes = MediumSizes { kernel: small, initrd: small, os_image: small, blobs: 1, blob: small };
        prepare::medium(&directory.join("medium"), sizes)?;
        prepare::configurations(&directory.join("nodes"), machines, CLUSTER)?;
        let fleet = Self { directory: directory.to_owned() };
        let server = fleet.start()?;
        let plan = LoadPlan::default();
        let install = InstallPlan { cluster_size: CLUSTER, ..plan.install };
        let plan = LoadPlan { install, machines, ..plan };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port));
        let result = plan.run(Servers::new(vec![address])?)?;
        for machine in &result.machines {
            let outcome = &machine.outcome;
            ensure!(*outcome == MachineOutcome::Reached, "machine {}: {outcome:?}", machine.machine.number);
        }
        Ok(fleet)
    }

    fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    fn start(&self) -> Result<BenchServer> {
        let (medium, nodes) = (self.directory.join("medium"), self.directory.join("nodes"));
        BenchServer::with_state(&medium, &self.state(), Some(&nodes), START_LIMIT)
    }

    /// The token of the server that runs.
    fn token(&self) -> Result<String> {
        let url =
            fs::read_to_string(self.state().join("fleet-url")).context("reading the address of the page")?;
        token(&url).map(str::to_owned)
    }

    /// The median time in which a browser shows the page of a server that has just started, without the start of the browser.
    fn first_view(&self, chromium: &Path) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..BROWSER_ROUNDS {
            let server = self.start()?;
            let (blank, _) = show(chromium, "about:blank")?;
            let url = format!("http://127.0.0.1:{}/fleet?token={}", server.port, self.token()?);
            let (page, content) = show(chromium, &url)?;
            ensure!(content.contains(r#"class="machine is-"#), "the browser shows {content}");
            times.push((page.as_secs_f64() - blank.as_secs_f64()).max(0.0) * 1e3);
        }
        Ok(median(times))
    }
}

/// The time of a browser from its start to its end with a page, and what it shows.
fn show(chromium: &Path, url: &str) -> Result<(Duration, String)> {
    let home = tempfile::tempdir()?;
    let mut command = Command::new(chromium);
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--dump-dom"])
        .arg(format!("--user-data-dir={}", home.path().display()))
        .arg(url)
        .env("HOME", home.path())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let begun = Instant::now();
    let out = command.output().context("starting chromium")?;
    let took = begun.elapsed();
    ensure!(out.status.success(), "chromium ended with {}", out.status);
    Ok((took, String::from_utf8(out.stdout)?))
}

/// The median time of an update, each after another machine has asked to boot, in milliseconds.
fn updates(server: &BenchServer, token: &str, machines: u32) -> Result<f64> {
    let mut version = version(&ask(server.port, "/fleet", Some(token))?.body)?;
    let mut times = Vec::new();
    for number in 0..UPDATES {
        let machine = VirtualMachine::new(number % machines, CLUSTER);
        let mac = machine.mac().context("a machine without the address of its card")?;
        ask(server.port, &format!("/v1/boot?mac={mac}&serial={}", machine.serial()), None)?;
        let update = ask(server.port, &format!("/fleet/live?since={version}"), Some(token))?;
        let next = self::version(&update.body)?;
        ensure!(next != version, "a machine that asked has changed nothing");
        ensure!(update.body.contains("data-same"), "an update has everything: {}", update.body);
        version = next;
        times.push(update.milliseconds());
    }
    Ok(median(times))
}

/// The version of the list that a page has.
fn version(page: &str) -> Result<String> {
    let rest = page.split_once(r#"data-version=""#).context("a page without its version")?.1;
    Ok(rest.split('"').next().unwrap_or_default().to_owned())
}

struct PageAnswer {
    time: Duration,
    body: String,
}

impl PageAnswer {
    fn milliseconds(&self) -> f64 {
        self.time.as_secs_f64() * 1e3
    }
}

fn ask(port: u16, path: &str, token: Option<&str>) -> Result<PageAnswer> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{token}Connection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("reading {path}"))?;
    let time = begun.elapsed();
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    let body = answer.split_once("\r\n\r\n").context("an answer without an end of its head")?.1.to_owned();
    Ok(PageAnswer { time, body })
}
