//! Updates of this node, for `installer update`: a file for each command, and what several of them share.
//!
//! | Shared | What it knows |
//! |---|---|
//! | `arguments`, `cluster_arguments` | the command lines |
//! | `source`, `offer` | where a release comes from; the release, judged and compared with what runs |
//! | `rollout`, `pod` | leaving the cluster and coming back; the access of a pod that runs the update |
//! | `unit`, `restart`, `report` | work that goes on without its terminal; restarts; reports to the fleet |

mod apply;
mod arguments;
mod check;
mod cluster_arguments;
mod fetch;
mod kubernetes;
mod offer;
mod pod;
mod repair;
mod report;
mod reset;
mod restart;
mod rollout;
mod serve;
mod source;
mod stage;
mod start;
mod status;
mod unit;

pub(crate) use arguments::{OfferArgs, UpdateArgs};

use std::path::Path;

use anyhow::Result;

use base::program::Context;
use base::progress::Progress;
use machine::installed_node::InstalledNode;
use node::update::UpdatedNode;

pub(crate) use self::kubernetes::move_kubernetes;
pub(crate) use apply::apply;
pub(crate) use check::check;
pub(crate) use fetch::fetch;
pub(crate) use offer::UpdateRequest;
pub(crate) use pod::{PodAccess, check_from_pod, from_pod};
pub(crate) use repair::repair_node;
pub(crate) use report::tell_fleet;
pub(crate) use reset::{ResetRequest, cancel_reset, reset};
pub(crate) use restart::reboot;
pub(crate) use rollout::{Announcement, ClusterRequest, PATIENCE, come_back};
pub(crate) use serve::{ServeRequest, serve_release};
pub(crate) use stage::stage;
pub(crate) use start::{roll_back, start};
pub(crate) use status::status;
pub(crate) use unit::{at_work, in_unit};

/// Opens this node. Mistakes of its document are only reported: an update must be possible in spite of them.
fn this_node(progress: &Progress) -> Result<InstalledNode> {
    let node = InstalledNode::open(Path::new("/"))?;
    node.warn(&mut |line| progress.note("update", line));
    Ok(node)
}

/// This node, with a verdict on the update before.
fn settled(context: &Context) -> Result<UpdatedNode> {
    let mut node = UpdatedNode::read(Path::new("/"))?;
    if let Some(reason) = node.settle()? {
        context.progress.warn("update", &format!("the update before was taken back: {reason}"));
    }
    node.unwritten.iter().for_each(|trouble| context.progress.warn("update", trouble));
    Ok(node)
}
