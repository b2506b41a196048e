//! Joining a cluster by kubeadm, for `installer kubeadm`.

use std::path::Path;

use anyhow::Result;

use base::command::SystemRunner;
use base::program::Context;
use cluster::kubeadm;

/// Makes the node at `root` a member of its cluster; the journal has the lines that it prints.
pub(crate) fn join(root: &Path, context: &Context) -> Result<()> {
    kubeadm::run(root, &SystemRunner, &mut |line| context.tell("kubeadm", line))
}
