//! `installer update`.

use std::time::Duration;

use anyhow::Result;

use super::update_cluster::{ClusterArgs, FromPodArgs};
use crate::app::root_only;
use crate::app::update::{self, UpdateRequest};
use crate::update::Allowed;
use base::digest::Digest;
use base::program::Context;

/// Update this node: write a release into the slot that does not run, try it, keep it or go back.
#[derive(Debug, clap::Args)]
pub(super) struct UpdateArgs {
    #[command(subcommand)]
    command: UpdateCommand,
}

#[derive(Debug, clap::Subcommand)]
enum UpdateCommand {
    /// Show what an update to a release would do, and change nothing.
    Check(OfferArgs),
    /// Write a release into the slot that does not run, and read it back; it starts only when `apply` says so.
    Stage {
        #[command(flatten)]
        offer: OfferArgs,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Stage a release, or take the one that is staged, and restart into it: three tries, then the release before.
    Apply(Box<ApplyArgs>),
    /// Update the node that this pod is on: run `installer update apply` there, with the access of the pod's service account.
    FromPod(FromPodArgs),
    /// Show the slots, which release each has, and what became of the last updates; exit code 9 if the last one was taken back.
    Status,
    /// Go back to the release before, from now on; or call off one that is staged.
    Rollback {
        /// Go back for one start only.
        #[arg(long)]
        once: bool,
        /// Leave the restart to somebody else.
        #[arg(long)]
        no_reboot: bool,
        #[command(flatten)]
        run: RunArgs,
    },
}

#[derive(Debug, clap::Args)]
struct ApplyArgs {
    /// The release: an ISO, a drive that holds one, a directory with release.json, the URL of an ISO or of such a directory,
    /// oci:DIRECTORY, or registry/name:tag; by default the one that is staged.
    #[arg(long, value_name = "MEDIUM")]
    from: Option<String>,
    #[command(flatten)]
    allow: AllowArgs,
    /// Leave the restart to somebody else: the next one, whenever it comes, tries the release.
    #[arg(long)]
    no_reboot: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// Which release, and what is allowed.
#[derive(Debug, clap::Args)]
struct OfferArgs {
    /// The release: an ISO, a drive that holds one, a directory with release.json, the URL of an ISO or of such a directory,
    /// oci:DIRECTORY, or registry/name:tag.
    #[arg(long, value_name = "MEDIUM")]
    from: String,
    #[command(flatten)]
    allow: AllowArgs,
}

#[derive(Debug, clap::Args)]
struct AllowArgs {
    /// Take a version that is lower than the one that runs.
    #[arg(long)]
    allow_downgrade: bool,
    /// Take a release that was tried on this node before and rolled back.
    #[arg(long)]
    retry: bool,
    /// Refuse any other release than the one whose release.json has this SHA-256.
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<Digest>,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Wait so many seconds for another update that is at work.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// Do the work in this process, not in a unit of its own that goes on when this terminal goes away.
    #[arg(long)]
    foreground: bool,
}

impl UpdateArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        // Also what only looks reads disks.
        root_only::require("`installer update`", "update")?;
        match self.command {
            UpdateCommand::Check(offer) => update::check(&offer.request(), context),
            UpdateCommand::Stage { offer, run } => {
                run.in_unit(|wait| update::stage(&offer.request(), wait, context))
            }
            UpdateCommand::Apply(args) => {
                let ApplyArgs { from, allow, no_reboot, cluster, run } = *args;
                let cluster = cluster.request(allow.retry);
                let request = from.map(|from| OfferArgs { from, allow }.request());
                run.in_unit(|wait| update::apply(request.as_ref(), &cluster, !no_reboot, wait, context))
            }
            UpdateCommand::FromPod(args) => args.run(),
            UpdateCommand::Status => update::status(context),
            UpdateCommand::Rollback { once, no_reboot, run } => {
                run.in_unit(|wait| update::roll_back(once, !no_reboot, wait, context))
            }
        }
    }
}

impl OfferArgs {
    fn request(self) -> UpdateRequest {
        let AllowArgs { allow_downgrade, retry, sha256 } = self.allow;
        UpdateRequest { from: self.from, allowed: Allowed { downgrade: allow_downgrade, retry }, sha256 }
    }
}

impl RunArgs {
    /// Does `work` here, or asks the service manager for a unit that runs this command again and does it there.
    fn in_unit(self, work: impl FnOnce(Duration) -> Result<()>) -> Result<()> {
        let wait = Duration::from_secs(self.wait);
        if self.foreground { work(wait) } else { update::in_unit(wait, || work(wait)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::update_cluster::DrainArg;
    use super::*;
    use crate::rollout::seen::selects;
    use clap::Parser;
    use serde_json::{Value, json};

    /// `installer update apply` as far as it is about clusters, and `from-pod`.
    #[derive(Debug, Parser)]
    enum Parsed {
        Apply(Box<ApplyArgs>),
        FromPod(FromPodArgs),
    }

    fn plans() -> Vec<Value> {
        let text = include_str!("../../../configs/rollouts/plans.yaml");
        text.split("\n---\n").map(|plan| serde_saphyr::from_str(plan).unwrap()).collect()
    }

    /// The jobs of the plans in the repository start what there is, on every node once.
    #[test]
    fn the_plans_of_the_repository_are_arguments_of_this_program() {
        let plans = plans();
        assert_eq!(plans.len(), 3);
        for plan in &plans {
            let spec = &plan["spec"];
            assert_eq!(
                (&spec["concurrency"], &spec["drain"], &spec["cordon"]),
                (&json!(1), &Value::Null, &Value::Null)
            );
            let args: Vec<_> =
                spec["upgrade"]["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
            let parsed = Parsed::try_parse_from(["installer", "from-pod"].iter().chain(&args)).unwrap();
            let Parsed::FromPod(FromPodArgs { host, arguments }) = parsed else { panic!("{parsed:?}") };
            assert_eq!(host.to_str(), Some("/host"));
            let arguments = arguments.iter().map(|argument| argument.to_str().unwrap());
            let all = ["installer", "apply", "--kubeconfig", "/run/x"].into_iter().chain(arguments);
            let Parsed::Apply(apply) = Parsed::try_parse_from(all).unwrap() else { panic!("{args:?}") };
            assert_eq!(apply.cluster.drain, DrainArg::Own);
            let image = spec["upgrade"]["image"].as_str().unwrap();
            assert_eq!(image, format!("localhost/nqrust/update-runner:{}", env!("CARGO_PKG_VERSION")));
        }
        let control_plane = "node-role.kubernetes.io/control-plane";
        let etcd = "node-role.kubernetes.io/etcd";
        for (labels, expected) in [
            (json!({ control_plane: "" }), "nqrust-os-server"),
            (json!({ control_plane: "true", etcd: "true" }), "nqrust-os-server"),
            (json!({ etcd: "true" }), "nqrust-os-witness"),
            (json!({}), "nqrust-os-worker"),
        ] {
            let of = |plan: &&Value| selects(&plan["spec"]["nodeSelector"], &labels);
            let names: Vec<_> =
                plans.iter().filter(of).map(|plan| plan["metadata"]["name"].clone()).collect();
            assert_eq!(names, [expected], "{labels}");
        }
    }
}
