//! The arguments of `installer update` that are about the node's cluster.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::commands::update::{self, ClusterRequest};
use cluster::rollout::Drain;

/// How a node leaves its cluster for the restart.
#[derive(Debug, clap::Args)]
pub(super) struct ClusterArgs {
    /// Who empties the node before the restart: `self`, this command, which also asks whether the node may leave its cluster, and lets
    /// pods in again once the release is good; `external`, whoever calls, and this command only asks; `none`, nobody, and nothing is
    /// asked.
    #[arg(long, value_enum, default_value_t = DrainArg::None, value_name = "WHO")]
    pub(super) drain: DrainArg,
    /// Give pods, volumes and virtual machines so many seconds to leave.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    drain_timeout: u64,
    /// The access to the cluster for `--drain`; by default that of administrators, which servers have.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where the release runs already and is on trial: wait so many seconds for the verdict.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait_good: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DrainArg {
    #[value(name = "self")]
    Own,
    External,
    None,
}

impl ClusterArgs {
    pub(super) fn request(self, retry: bool) -> ClusterRequest {
        let drain = match self.drain {
            DrainArg::Own => Some(Drain::Own),
            DrainArg::External => Some(Drain::External),
            DrainArg::None => None,
        };
        ClusterRequest {
            drain,
            kubeconfig: self.kubeconfig,
            drain_timeout: Duration::from_secs(self.drain_timeout),
            wait_good: Duration::from_secs(self.wait_good),
            retry,
        }
    }
}

/// From a pod of a controller, or of `installer rollout check`.
#[derive(Debug, clap::Args)]
pub(super) struct FromPodArgs {
    /// Where the pod has the root of its node.
    #[arg(long, value_name = "DIRECTORY", default_value = "/host")]
    pub(super) host: PathBuf,
    /// The arguments of `installer update apply` on the node, in one text as for a shell; `--kubeconfig` is added.
    ///
    /// A controller that compares plans by their first argument only, as system-upgrade-controller does, sees every change of it.
    #[arg(long, value_name = "TEXT", required_unless_present = "arguments", value_parser = words)]
    pub(super) apply: Option<ShellWords>,
    /// Run `installer update check` in place of `apply`, with the arguments behind `--`, and print its result as JSON: `installer
    /// rollout check` asks nodes so. The service account is not used.
    #[arg(long, conflicts_with = "apply")]
    pub(super) check: bool,
    /// The same behind `--`, one by one.
    #[arg(last = true, conflicts_with = "apply", value_name = "ARGUMENTS")]
    pub(super) arguments: Vec<OsString>,
}

/// The words of a text.
#[derive(Clone, Debug)]
pub(super) struct ShellWords(Vec<OsString>);

fn words(text: &str) -> Result<ShellWords, String> {
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(ShellWords(words.into_iter().map(OsString::from).collect())),
        Some(_) => Err("it is empty".to_owned()),
        None => Err("a quotation mark is not closed".to_owned()),
    }
}

impl FromPodArgs {
    /// The arguments, however they were given.
    pub(super) fn arguments(self) -> Vec<OsString> {
        self.apply.map_or(self.arguments, |ShellWords(words)| words)
    }

    pub(super) fn run(self) -> Result<()> {
        let (host, check) = (self.host.clone(), self.check);
        match check {
            true => update::check_from_pod(&host, self.arguments()),
            false => update::from_pod(&host, self.arguments()),
        }
    }
}
