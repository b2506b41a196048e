//! Whether this machine is fit to be installed: the checks of [`preflight`] on the machine that this process runs on.
//!
//! `installer preflight`, the questions and the install call it.

use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::gather::{self, ReleasePolicy};
use super::inventory_file::read_inventory;
use base::command::SystemRunner;
use base::progress::Progress;
use cluster::join_query::version;
use machine::inventory::Roots;
use medium::payload_sources::BOOT_MEDIUM;
use medium::payload_sources::is_medium;
use model::config::sources::Gathering;
use model::config::{self, InstallConfig};
use preflight::network::Offline;
use preflight::wait::ClusterWait;
use preflight::{
    LINK_TIMEOUT, MachineFacts, PlannedNode, PreflightReport, SystemNetwork, cluster_is_awaited, inventory,
    run,
};
use transfer::download::RetryPolicy;

/// Judges this machine, or the one whose disks and network cards are in `file`.
pub(crate) fn judge(node: PlannedNode, file: Option<&Path>) -> Result<PreflightReport> {
    let Some(path) = file else { return check(node) };
    Ok(run(&MachineFacts::of_inventory(read_inventory(path)?), &node, &Offline))
}

/// The step of an install: reports every finding, and is an error if the install must not begin. `creator` is that of
/// [`ClusterWait`].
pub(crate) fn step(
    node: PlannedNode,
    creator: &dyn Fn() -> Option<String>,
    progress: &Progress,
) -> Result<PreflightReport> {
    progress.within("preflight", "Checking the machine", || {
        let report = once_cluster_is_up(&node, creator, progress)?;
        report.tell(progress);
        report.verdict_in_full()?;
        Ok(report)
    })
}

/// Checks the machine, again after each wait for the cluster to join. Whatever else stops the install is not waited for.
fn once_cluster_is_up(
    node: &PlannedNode,
    creator: &dyn Fn() -> Option<String>,
    progress: &Progress,
) -> Result<PreflightReport> {
    let begun = Instant::now();
    loop {
        let report = check(node.clone())?;
        let Some(reason) = report.awaited() else { return Ok(report) };
        let facts = facts(node)?;
        let network = SystemNetwork::default();
        let ask = || cluster_is_awaited(&facts, node, &network);
        let wait = ClusterWait { ask: &ask, creator, pause: &thread::sleep, clock: &|| begun.elapsed() };
        wait.wait(reason, progress);
    }
}

/// Gathers the facts about this machine, its network and the cluster to join, and judges them.
pub(crate) fn check(mut node: PlannedNode) -> Result<PreflightReport> {
    if let Some(join) = &mut node.join {
        join.version = version::of_program(&SystemRunner, join.distribution);
    }
    Ok(run(&facts(&node)?, &node, &SystemNetwork::default()))
}

fn facts(node: &PlannedNode) -> Result<MachineFacts> {
    let roots = Roots::default();
    Ok(MachineFacts::scan(&roots, inventory(&roots, node, LINK_TIMEOUT)?))
}

/// The configuration of a file, or else the one on the medium, or else an empty one. The distribution that it does not name is
/// that of the medium: the one that is named, or the one that this system runs from.
pub(crate) fn configuration(
    file: Option<&Path>,
    medium: Option<&str>,
    policy: ReleasePolicy,
    progress: &Progress,
) -> Result<InstallConfig> {
    if medium.is_none() && !is_medium(Path::new(BOOT_MEDIUM)) {
        let config = file.map(config::load).transpose()?.unwrap_or_default();
        if config.kubernetes.distribution.is_none() {
            let name = config.kubernetes.distribution().name();
            progress.warn(
                "preflight",
                &format!("the distribution is not known, so {name} is assumed: set kubernetes.distribution, or name --medium"),
            );
        }
        return Ok(config);
    }
    let gathering =
        Gathering { file: gather::file(file)?, ignore_command_line: file.is_some(), ..Gathering::default() };
    let media = gather::prepare(medium, gathering, policy, RetryPolicy::default(), progress, &mut |_| {})?;
    Ok(media.combined.config)
}
