//! `installer rollout`: the updates of all nodes of a cluster.

mod verdict;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use base::cancel::Cancel;
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::program::Context;
use cluster::rollout::admin::AdminAccess;
use cluster::rollout::ask_nodes;

use self::verdict::RolloutVerdict;
use super::update::OfferArgs;

/// Prepare the update of every node of a cluster.
#[derive(Debug, clap::Args)]
pub(super) struct RolloutArgs {
    #[command(subcommand)]
    command: RolloutCommand,
}

#[derive(Debug, clap::Subcommand)]
enum RolloutCommand {
    /// Ask every node of the cluster whether it could take a release, before the first one restarts; exit code 3 unless all could.
    ///
    /// A pod on each node starts the node's own `installer update check`, with the same arguments, and is removed afterwards. So each
    /// node has to reach the release at the same place. A node that cannot be asked counts as unknown. Nothing is changed.
    Check(CheckArgs),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    #[command(flatten)]
    offer: OfferArgs,
    /// The access of an administrator to the cluster; by default that of this node, which servers have.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Give the nodes so many seconds to answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

impl RolloutArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let RolloutCommand::Check(args) = self.command;
        args.run(context)
    }
}

impl CheckArgs {
    fn run(self, context: &Context) -> Result<()> {
        let admin = AdminAccess::of_administrator(Path::new("/"), &SystemRunner, self.kubeconfig.as_deref())?;
        let limit = Duration::from_secs(self.timeout);
        let nodes = context
            .progress
            .within("rollout", "Asking the nodes", || {
                ask_nodes(&admin, arguments(&self.offer), limit, &Cancel::on_signals())
            })
            .map_err(not_asked)?;
        let lock = admin.lock().map_err(not_asked)?;
        let verdict = RolloutVerdict::of(&nodes, &lock, self.offer.retry(), Timestamp::now());
        context.show(&verdict, || verdict.text())?;
        verdict.require().map_err(Into::into)
    }
}

/// The arguments of the installer in a pod.
fn arguments(offer: &OfferArgs) -> Vec<String> {
    let words = ["--format", "json", "--quiet", "update", "from-pod", "--check", "--"];
    words.map(str::to_owned).into_iter().chain(offer.words()).collect()
}

fn not_asked(error: anyhow::Error) -> anyhow::Error {
    if base::failure::class_of(&error) == Class::Cancelled {
        return error;
    }
    Failure::new(Class::Hardware, "the nodes cannot be asked: the cluster does not answer")
        .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
        .hint("Try again when its API answers: kubectl get nodes")
        .into()
}
