//! `nqrust-load`: prepares a medium and configurations for virtual machines, and runs the machines against servers.

use std::io::{Write, stderr, stdout};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use base::encode::json_text;
use base::files;
use base::size::ByteSize;
use clap::{Args, Parser, Subcommand, ValueEnum};
use nqrust_load::fleet_check;
use nqrust_load::prepare::{self, MediumSizes};
use nqrust_load::process::ProcessUsage;
use nqrust_load::report::LoadReport;
use nqrust_load::run::{Content, Goal, InstallPlan, LoadPlan, RetryLimits};
use nqrust_load::servers::Servers;

/// Boots, installs and joins many virtual machines against running boot servers, and says what that costs.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: LoadCommand,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    /// Make a medium with sparse files in DIR/medium and configurations in DIR/nodes.
    Prepare(PrepareArguments),
    /// Run machines against servers that serve them.
    Run(RunArguments),
}

#[derive(Debug, Args)]
struct PrepareArguments {
    directory: PathBuf,
    #[arg(long, default_value_t = 500)]
    machines: u32,
    /// Machines of each cluster; the first one creates it and the others join.
    #[arg(long, default_value_t = 1)]
    cluster_size: u32,
    #[arg(long, default_value = "16MiB")]
    kernel: ByteSize,
    #[arg(long, default_value = "64MiB")]
    initrd: ByteSize,
    #[arg(long, default_value = "300MiB")]
    os_image: ByteSize,
    /// The number of blobs of container images.
    #[arg(long, default_value_t = 40)]
    blobs: u32,
    #[arg(long, default_value = "32MiB")]
    blob: ByteSize,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// The address of a server; repeat it for replicas, to which connections go in turns.
    #[arg(long, value_name = "ADDRESS:PORT", required = true)]
    server: Vec<SocketAddr>,
    /// Speak HTTPS, with certificates of the authorities in this file (PEM).
    #[arg(long, value_name = "FILE")]
    tls: Option<PathBuf>,
    #[arg(long, default_value_t = 500)]
    machines: u32,
    /// The number of the first machine; those before it are not run.
    #[arg(long, default_value_t = 0)]
    first: u32,
    /// As `prepare` was told.
    #[arg(long, default_value_t = 1)]
    cluster_size: u32,
    /// The most machines that run at a time.
    #[arg(long, default_value_t = 200)]
    at_once: usize,
    /// Machines that begin in an hour; without it as many as run at once.
    #[arg(long, value_name = "NUMBER")]
    per_hour: Option<f64>,
    /// How far machines go.
    #[arg(long, value_enum, default_value_t = GoalArgument::Joined)]
    until: GoalArgument,
    /// What is fetched of OS image and blobs.
    #[arg(long, value_enum, default_value_t = ContentArgument::Sampled)]
    content: ContentArgument,
    /// How long an install lasts at least, in seconds; it reports every second.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    install_time: u64,
    /// How long a machine repeats a request that fails, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
    /// The pause before a request is repeated, in milliseconds.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    retry_pause: u64,
    /// Send all requests from one address. Otherwise each machine has an address of its own in 127.0.0.0/8, and the servers have
    /// to be on this host.
    #[arg(long)]
    one_address: bool,
    /// The process of a server on this host, whose memory and CPU time are reported; repeatable.
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// The file fleet-url of a server: its list of machines is compared with the goal at the end.
    #[arg(long, value_name = "FILE")]
    fleet_url: Option<PathBuf>,
    /// Write the report there as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GoalArgument {
    /// To the boot script.
    Boot,
    /// To an install that fails while it partitions the disk.
    Failed,
    /// To the end of the install.
    Installed,
    /// To a node that is ready in its cluster.
    Joined,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ContentArgument {
    /// Begin, middle and end of each file.
    Sampled,
    /// All bytes; their number is checked.
    Whole,
    /// All bytes; their digests are checked.
    Digests,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        LoadCommand::Prepare(arguments) => arguments.run().map(|()| true),
        LoadCommand::Run(arguments) => arguments.run(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // If standard error is gone, there is nowhere left to report to.
            let _ = writeln!(stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl PrepareArguments {
    fn run(self) -> Result<()> {
        let Self { kernel, initrd, os_image, blobs, blob, .. } = self;
        prepare::configurations(&self.directory.join("nodes"), self.machines, self.cluster_size)?;
        prepare::medium(&self.directory.join("medium"), MediumSizes { kernel, initrd, os_image, blobs, blob })
    }
}

impl RunArguments {
    fn servers(&self) -> Result<Servers> {
        let servers = Servers::new(self.server.clone())?;
        match &self.tls {
            Some(authorities) => servers.with_tls(authorities),
            None => Ok(servers),
        }
    }

    fn plan(&self) -> LoadPlan {
        let install = InstallPlan {
            goal: match self.until {
                GoalArgument::Boot => Goal::Boot,
                GoalArgument::Failed => Goal::Failed,
                GoalArgument::Installed => Goal::Installed,
                GoalArgument::Joined => Goal::Joined,
            },
            content: match self.content {
                ContentArgument::Sampled => Content::Sampled,
                ContentArgument::Whole => Content::Whole { digests: false },
                ContentArgument::Digests => Content::Whole { digests: true },
            },
            cluster_size: self.cluster_size,
            duration: Duration::from_secs(self.install_time),
            retry: RetryLimits {
                patience: Duration::from_secs(self.patience),
                pause: Duration::from_millis(self.retry_pause),
            },
            own_addresses: !self.one_address,
            asks_again: true,
        };
        let &Self { first, machines, at_once, per_hour, .. } = self;
        LoadPlan { install, first, machines, at_once, per_hour }
    }

    /// Runs the machines; returns whether all of them reached the goal.
    fn run(self) -> Result<bool> {
        let usage = || self.pid.iter().map(|pid| ProcessUsage::of(*pid)).collect::<Result<Vec<_>>>();
        let (plan, before) = (self.plan(), usage()?);
        let result = plan.run(self.servers()?)?;
        let mut report = LoadReport::new(&plan, &result, &before, &usage()?);
        if let Some(file) = &self.fleet_url {
            let stage = match plan.install.goal {
                Goal::Boot => "booting",
                Goal::Failed => "failed",
                Goal::Installed => "rebooting",
                Goal::Joined => "joined",
            };
            let url = files::read_text(file)?;
            let token = fleet_check::token(&url)?;
            report.violations.extend(fleet_check::not_in_stage(&plan, self.servers()?, token, stage)?);
        }
        if let Some(file) = &self.json {
            files::write_atomically(file, format!("{}\n", json_text(&report)).as_bytes(), 0o644)?;
        }
        stdout().write_all(report.table().as_bytes()).context("printing the report")?;
        Ok(report.is_good())
    }
}
