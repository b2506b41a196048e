//! `installer update apply`: stages a release, lets the boot loader try it, and restarts.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use base::cancel::Cancel;
use base::command::SystemRunner;
use base::program::Context;
use cluster::health::NodeProbe;
use machine::update_state::ReleaseId;
use node::update::{UpdateLock, fetched};

use super::offer::UpdateRequest;
use super::restart::{await_end, restart};
use super::rollout::{self, ClusterRequest};
use super::settled;
use super::stage::stage_on;

/// Stages the requested or fetched release unless one is staged, lets the boot loader try it, and restarts.
pub(crate) fn apply(
    request: &UpdateRequest,
    cluster: &ClusterRequest,
    reboot: bool,
    wait: Duration,
    context: &Context,
) -> Result<()> {
    let lock = UpdateLock::take(Path::new("/"), wait)?;
    let mut node = settled(context)?;
    rollout::resume(&node, cluster, context);
    let tell = |line: &str| context.tell("update", line);
    // Missing access, or a node that may not leave, has to be reported before staging, which takes minutes.
    let node_departure = cluster.node_departure(&tell)?;
    let allow = |release: &ReleaseId| rollout::may_leave(release, cluster, node_departure.as_ref());
    let wanted = request.from.is_some() || node.memory.staged.is_none() && fetched(Path::new("/")).is_some();
    if wanted
        && !rollout::telling(&mut node, request.sha256, context, |node| {
            stage_on(node, request, &allow, context)
        })?
    {
        drop(lock);
        return rollout::await_good(cluster, context);
    }
    rollout::telling(&mut node, None, context, |node| {
        rollout::leave(node, cluster, node_departure.as_ref(), wait)?;
        let armed = node.arm(&NodeProbe::new(Path::new("/"), &SystemRunner));
        armed.inspect_err(|_| rollout::resume(node, cluster, context))
    })?;
    if let Some(why) = &node.lost_memory {
        let text = format!("the node will not remember this update: {why}");
        context.progress.warn("update", &text);
    }
    context.tell("update", "The next restart tries it.");
    restart(reboot, context)?;
    if reboot && cluster.is_of_pod() { await_end(&Cancel::on_signals()) } else { Ok(()) }
}
