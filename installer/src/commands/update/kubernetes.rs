//! Moves this node to the Kubernetes that its OS brings, for `installer update kubernetes`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::{Context, Format};
use cluster::removed_apis::RemovedApi;
use cluster::rollout::move_alone;
use model::boot::record::SlotState;
use model::kubernetes::KubernetesVersion;
use node::update::{UpdateLock, UpdatedNode};

#[derive(Debug, Serialize)]
struct KubernetesMove {
    moved: bool,
    version: KubernetesVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<KubernetesVersion>,
    /// The saved datastore.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<String>,
}

/// Moves the node, or goes on with that.
pub(crate) fn move_kubernetes(wait: Duration, context: &Context) -> Result<()> {
    let root = Path::new("/");
    let _lock = UpdateLock::take(root, wait)?;
    let node = UpdatedNode::read(root)?;
    let Some(runs) = node.kubernetes.clone() else {
        let what = "the OS of this node has no Kubernetes";
        return Err(Failure::new(Class::Hardware, what)
            .hint("Update the OS to a release that brings one.")
            .into());
    };
    if node.running_state() != Some(SlotState::Good) {
        let what = "the running release has not passed its health check yet, and may be rolled back";
        return Err(Failure::new(Class::Hardware, what)
            .hint("See `installer health` and `installer update status`; wait until it is good.")
            .into());
    }
    if let Some(brought) = &node.release.kubernetes {
        match RemovedApi::in_use(root, runs.distribution(), &runs, brought) {
            Ok(removed) => removed.iter().for_each(|api| {
                context.progress.warn("kubernetes", &format!("{api}. {}", RemovedApi::HINT));
            }),
            Err(why) => context.progress.note("kubernetes", format!("The APIs in use are not known: {why}")),
        }
    }
    let record = move_alone(root, &SystemRunner, wait, &mut |text| context.tell("kubernetes", text))?;
    let result = match record {
        Some(record) => KubernetesMove {
            moved: true,
            version: record.to,
            from: Some(record.from),
            snapshot: record.snapshot,
        },
        None => KubernetesMove { moved: false, version: runs, from: None, snapshot: None },
    };
    if context.format == Format::Text && result.moved {
        context.tell("kubernetes", &format!("This node runs Kubernetes {} and is healthy.", result.version));
        return Ok(());
    }
    context.show(&result, || format!("Kubernetes {} runs already; there is nothing to do.\n", result.version))
}
