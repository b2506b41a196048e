//! `installer disk`: the disks of this machine.

mod connect;
mod keep;
mod latency;
mod replace;

use anyhow::Result;

use base::program::Context;

/// Measure a disk of this machine, or replace one of a mirror.
#[derive(Debug, clap::Args)]
pub(super) struct DiskArgs {
    #[command(subcommand)]
    command: DiskCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DiskCommand {
    /// Log in to the targets of disks over the network, in the initrd of a node.
    #[command(hide = true)]
    Connect(connect::ConnectArgs),
    /// Keep the logins to disks over the network that the initrd of this node has made.
    #[command(hide = true)]
    Keep(keep::KeepArgs),
    /// Measure how long flushed writes take, as etcd makes them; for up to 5 seconds.
    Latency(latency::LatencyArgs),
    /// Make the mirror of this node whole again, on a new disk or on the one that was away.
    ///
    /// The disk gets the partitions of the one that is left, its boot files and its half of each array. It is in use when the machine
    /// can start from it; arrays with data may be filled for hours then, and `installer status` shows how far they are. The node keeps
    /// running. A run that was cut off, also by a power cut, is completed by the same command. It works in the recovery system too.
    Replace(replace::ReplaceArgs),
}

impl DiskArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        match self.command {
            DiskCommand::Connect(args) => args.run(context),
            DiskCommand::Keep(args) => args.run(context),
            DiskCommand::Latency(args) => args.run(context),
            DiskCommand::Replace(args) => args.run(context),
        }
    }
}
