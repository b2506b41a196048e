//! `installer disk connect`: run by a unit in the initrd of an installed node, not by people.

use std::path::Path;

use anyhow::Result;

use crate::app::gather::kernel_command_line;
use base::command::SystemRunner;
use base::program::Context;
use machine::network_disks::connect::SystemPace;
use node::network_disks::reach_disks;

#[derive(Debug, clap::Args)]
pub(super) struct ConnectArgs {}

impl ConnectArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let (line, mut pace) = (kernel_command_line()?, SystemPace::default());
        let missing = reach_disks(Path::new("/"), &line, &SystemRunner, &mut pace, &context.progress)?;
        context.tell(
            "network-disks",
            &match missing.is_empty() {
                true => "The disks over the network are there.".to_owned(),
                false => format!("The disks over the network are there, but: {}.", missing.join("; ")),
            },
        );
        Ok(())
    }
}
