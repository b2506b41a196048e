//! Boot servers under many virtual machines: the goals of an hour in which a rack or a site is installed, measured in minutes.
//!
//! The machines fetch samples of their files, and share the processors with the servers.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::size::ByteSize;
use nqrust_load::boot_server::{BootServer, BootServerPlan};
use nqrust_load::measurements::RequestKind;
use nqrust_load::prepare::{self, MediumSizes};
use nqrust_load::process::ProcessUsage;
use nqrust_load::report::LoadReport;
use nqrust_load::run::{Goal, LoadPlan};
use nqrust_load::servers::Servers;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::paths;
use testing::postgres::PostgresServer;

use crate::figure::{Figure, RatioLimit};
use crate::scale::Scale;

/// The time within which 99 of 100 scripts and reports have to be answered, in milliseconds.
const ANSWER_LIMIT: f64 = 50.0;
/// The most memory of a server, in MiB.
const MEMORY_LIMIT: f64 = 300.0;
/// The processor time for each of many machines, in times of that for each of a few.
const GROWTH_LIMIT: f64 = 1.25;
/// Seven times 500, the goal.
const INSTALLS_AN_HOUR: f64 = 3600.0;
/// An install lasts as long at least, with a report each second.
const INSTALL_TIME: Duration = Duration::from_secs(30);
const REPLICAS: usize = 3;

/// How many machines do what.
#[derive(Clone, Copy)]
struct LoadSizes {
    /// Machines that ask for their boot script within a minute.
    booting: u32,
    /// Machines that are installed at the rate.
    installed: u32,
    /// Machines whose cost is compared.
    few: u32,
    many: u32,
}

const FULL_LOAD: LoadSizes = LoadSizes { booting: 10_000, installed: 120, few: 100, many: 10_000 };
const SHORT_LOAD: LoadSizes = LoadSizes { booting: 100, installed: 2, few: 5, many: 20 };

/// What all servers serve.
struct LoadMedium {
    root: PathBuf,
    program: PathBuf,
}

pub(crate) fn measure(artifacts: &Artifacts, scale: Scale) -> Result<Vec<Figure>> {
    let sizes = scale.pick(FULL_LOAD, SHORT_LOAD);
    let medium = LoadMedium::prepare(artifacts.disk("load"), sizes.booting.max(sizes.many))?;
    let mut figures = booting(&medium, sizes.booting, scale).context("a minute of requests to boot")?;
    figures.extend(installing(&medium, sizes.installed, 1, scale).context("installs from one server")?);
    figures.extend(installing(&medium, sizes.installed, REPLICAS, scale).context("installs from replicas")?);
    figures.push(growth(&medium, sizes).context("the cost of few and many machines")?);
    fs::remove_dir_all(medium.root)?;
    Ok(figures)
}

/// All machines ask for their boot script, within a minute.
fn booting(medium: &LoadMedium, machines: u32, scale: Scale) -> Result<Vec<Figure>> {
    let per_hour = Some(f64::from(machines) * scale.pick(60.0, 3600.0));
    let mut plan = LoadPlan { machines, per_hour, ..LoadPlan::default() };
    plan.install.goal = Goal::Boot;
    let servers = medium.servers("booting", 1, None)?;
    let report = run(&plan, &servers)?;
    Ok(vec![
        answers(&report, RequestKind::BootScript, &format!("{machines} requests to boot in a minute"))?,
        memory(&report, "memory of the server after that"),
    ])
}

/// Installs at the rate, by servers that share a database if there are several.
fn installing(medium: &LoadMedium, machines: u32, replicas: usize, scale: Scale) -> Result<Vec<Figure>> {
    let mut plan = LoadPlan { machines, per_hour: Some(INSTALLS_AN_HOUR), ..LoadPlan::default() };
    plan.install.duration = scale.pick(INSTALL_TIME, Duration::from_secs(1));
    let database = (replicas > 1).then(PostgresServer::start);
    let url = database.as_ref().map(PostgresServer::database);
    let servers = medium.servers(&format!("installing-{replicas}"), replicas, url.as_deref())?;
    let report = run(&plan, &servers)?;
    let by =
        if replicas > 1 { format!("{replicas} servers with PostgreSQL") } else { "one server".to_owned() };
    Ok(vec![
        answers(
            &report,
            RequestKind::BootScript,
            &format!("boot scripts at {INSTALLS_AN_HOUR} installs an hour, {by}"),
        )?,
        answers(&report, RequestKind::Report, "reports of these installs")?,
        memory(&report, "memory of a server after that"),
    ])
}

/// The processor time for each machine, as fast as the server answers.
fn growth(medium: &LoadMedium, sizes: LoadSizes) -> Result<Figure> {
    let mut costs = [0.0; 2];
    for (cost, machines) in costs.iter_mut().zip([sizes.few, sizes.many]) {
        let plan = LoadPlan { machines, ..LoadPlan::default() };
        let servers = medium.servers(&format!("cost-{machines}"), 1, None)?;
        let report = run(&plan, &servers)?;
        *cost = report.servers.first().context("a server without a cost")?.cpu_ms_per_machine;
    }
    let name = format!("processor time of an install, {} machines", sizes.many);
    let baseline = (&*format!("{} machines", sizes.few), costs[0]);
    Ok(Figure::new(&name, costs[1], "ms", baseline).limit(RatioLimit::AtMost(GROWTH_LIMIT)))
}

/// Runs machines that all have to reach their goal.
fn run(plan: &LoadPlan, servers: &[BootServer]) -> Result<LoadReport> {
    let usage = || -> Result<Vec<_>> {
        let pids = servers.iter().map(|server| server.pid().context("a server that does not run"));
        pids.map(|pid| ProcessUsage::of(pid?)).collect()
    };
    let before = usage()?;
    let result = plan.run(Servers::new(servers.iter().map(|server| server.address).collect())?)?;
    let report = LoadReport::new(plan, &result, &before, &usage()?);
    ensure!(report.is_good(), "not all machines reached their goal:\n{}", report.table());
    Ok(report)
}

/// The time within which 99 of 100 requests of a kind were answered.
fn answers(report: &LoadReport, kind: RequestKind, name: &str) -> Result<Figure> {
    let found = report.requests.iter().find(|summary| summary.kind == kind);
    let time = found.with_context(|| format!("no request of the kind {}", kind.name()))?.p99_ms;
    let figure = Figure::new(&format!("99 % of {name}"), time, "ms", ("limit", ANSWER_LIMIT));
    Ok(figure.limit(RatioLimit::AtMost(1.0)))
}

/// The most that a server had.
fn memory(report: &LoadReport, name: &str) -> Figure {
    let most = report.servers.iter().map(|server| server.peak_mib).fold(0.0, f64::max);
    Figure::new(name, most, "MiB", ("limit", MEMORY_LIMIT)).limit(RatioLimit::AtMost(1.0))
}

impl LoadMedium {
    /// A medium, and configurations for so many machines, in `root`.
    fn prepare(root: PathBuf, machines: u32) -> Result<Self> {
        prepare::configurations(&root.join("nodes"), machines, 1)?;
        let size = ByteSize::mib(1);
        let sizes = MediumSizes { kernel: size, initrd: size, os_image: size, blobs: 10, blob: size };
        prepare::medium(&root.join("medium"), sizes)?;
        Ok(Self { root, program: paths::iso_builder()? })
    }

    /// Starts so many servers, with one database if there is one.
    fn servers(&self, name: &str, count: usize, database: Option<&str>) -> Result<Vec<BootServer>> {
        let plan = BootServerPlan {
            program: &self.program,
            medium: &self.root.join("medium"),
            nodes: &self.root.join("nodes"),
            database,
            further: &[],
        };
        let start = |number| BootServer::start(&self.root.join(format!("{name}-{number}")), plan);
        (0..count).map(start).collect()
    }
}
