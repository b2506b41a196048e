//! Joining a cluster by kubeadm, for `installer kubeadm`.

use std::path::Path;

use anyhow::Result;

use crate::node::kubeadm;
use base::command::SystemRunner;
use base::program::print;

/// Makes the node at `root` a member of its cluster; the journal has the lines that it prints.
pub(crate) fn join(root: &Path) -> Result<()> {
    // A reader that has gone away changes nothing.
    kubeadm::run(root, &SystemRunner, &mut |line| drop(print(line)))
}
