//! The routes to the pods of other nodes, for `installer pod-network`.

use std::path::Path;

use anyhow::Result;

use base::command::SystemRunner;
use base::program::Context;
use cluster::pod_network;

/// Keeps the pod network of the node at `root`; the journal has the lines that it prints.
pub(crate) fn keep(root: &Path, context: &Context) -> Result<()> {
    pod_network::run(root, &SystemRunner, &mut |line| context.tell("pod-network", line))
}
