//! The routes to the pods of other nodes, for `installer pod-network`.

use std::path::Path;

use anyhow::Result;

use crate::node::pod_network;
use base::command::SystemRunner;
use base::program::print;

/// Keeps the pod network of the node at `root`; the journal has the lines that it prints.
pub(crate) fn keep(root: &Path) -> Result<()> {
    // A reader that has gone away changes nothing.
    pod_network::run(root, &SystemRunner, &mut |line| drop(print(line)))
}
