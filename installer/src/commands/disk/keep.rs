//! `installer disk keep`: run by a unit of a node with disks over the network, not by people.

use std::path::Path;

use anyhow::Result;

use crate::app::gather::kernel_command_line;
use base::command::SystemRunner;
use base::program::Context;
use node::network_disks::keep_disks;

#[derive(Debug, clap::Args)]
pub(super) struct KeepArgs {}

impl KeepArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        keep_disks(Path::new("/"), &kernel_command_line()?, &SystemRunner, &context.progress)
    }
}
