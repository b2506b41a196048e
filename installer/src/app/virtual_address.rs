//! Whether other servers could take the virtual address, for `installer virtual-address`.

use std::path::Path;

use anyhow::Result;

use base::command::SystemRunner;
use base::program::Context;
use cluster::kubeadm::servers;

/// Keeps keepalived's configuration what the servers of the cluster ask for; the journal has the lines that it prints.
pub(crate) fn keep(root: &Path, context: &Context) -> Result<()> {
    servers::keep(root, &SystemRunner, &mut |line| context.tell("virtual-address", line))
}
