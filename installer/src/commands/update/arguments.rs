//! `installer update`.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::cluster_arguments::{ClusterArgs, FromPodArgs};
use crate::app::gather::UnsignedArgs;
use crate::app::root_only;
use crate::commands::update::{self, PodAccess, ResetRequest, ServeRequest, UpdateRequest};
use base::digest::Digest;
use base::listen;
use base::program::Context;
use model::boot::Slot;
use node::pending_reset::ResetLevel;
use node::update::UpdatePermissions;

/// Update this node: write a release into the slot that does not run, try it, keep it or go back; repair it, or make it new.
#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    #[command(subcommand)]
    command: UpdateCommand,
}

#[derive(Debug, clap::Subcommand)]
enum UpdateCommand {
    /// Show what an update to a release would do, and change nothing.
    Check(OfferArgs),
    /// Keep a release on this node, and give it the container images that it lacks; a transfer that was cut off goes on.
    Fetch {
        #[command(flatten)]
        offer: OfferArgs,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Serve the release that was fetched, else the one that runs, to other nodes and to machines without a system, until it is
    /// interrupted.
    ///
    /// Nodes name this node's URL with `--from`; machines boot from its `/boot.ipxe` or `/grub/grub.cfg`, and `iso-builder serve` takes
    /// its URL as a medium. The files of the release and the container images that this node has are served over http to whoever asks,
    /// and nothing else. Readers check every byte by the digests of the release, and the release by its signatures; the digest of an
    /// unsigned one is printed for `--sha256`.
    Serve {
        /// Address and port to listen on.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7480", value_parser = |text: &str| listen::address(text, 7480))]
        listen: SocketAddr,
        /// Where the installer of a machine that boots from this node gets its configuration: every machine reads this URL in its boot
        /// script. Without it the installer asks on its console.
        #[arg(long, value_name = "URL")]
        config_url: Option<String>,
        #[command(flatten)]
        unsigned: UnsignedArgs,
    },
    /// Write a release into the slot that does not run, and read it back; it starts only when `apply` says so.
    Stage {
        /// The release, named as for `check`; by default the one that was fetched.
        #[arg(long, value_name = "MEDIUM")]
        from: Option<String>,
        #[command(flatten)]
        allow: AllowArgs,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Stage a release, or take the one that is staged, and restart into it: three tries, then the release before.
    Apply(Box<ApplyArgs>),
    /// Update the node that this pod is on: run `installer update apply` there, with the access of the pod's service account.
    FromPod(FromPodArgs),
    /// Show the slots, which release each has, and what became of the last updates; exit code 9 if the last one was taken back.
    Status,
    /// Move this node to the Kubernetes that its OS brings, once the OS is good; or go on with that.
    ///
    /// An update of the OS changes no Kubernetes: the version that ran before goes on, also when the OS goes back. This command
    /// moves it, on one node after the other: each server, then the witness, then the workers. It saves the datastore first, and
    /// refuses (exit code 3) while that would break the rules of versions: no minor version is skipped, servers differ by one minor
    /// version at most, no kubelet is newer than an API server or more than three minor versions older, all other servers work, and
    /// this node is healthy. Kubernetes does not go back.
    ///
    /// One server is moved at a time, and none while another node is away for an update: a server takes the lock of the cluster's
    /// updates, and where another node has it, the command ends with exit code 8, or waits (--wait).
    ///
    /// A command that was cut off goes on where it was when it is started again. `installer update status` tells how far it is.
    Kubernetes {
        #[command(flatten)]
        run: RunArgs,
    },
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
    /// Start a slot at the next restart, once: a, b, or recovery, the system that can mend the node or make it new.
    Start {
        #[arg(value_parser = slot)]
        slot: Slot,
        /// Leave the restart to somebody else.
        #[arg(long)]
        no_reboot: bool,
    },
    /// Check everything that a start of this node needs, byte by byte, and write the boot record anew; nothing is lost by it.
    Repair {
        /// Repair file systems that are not in use, where nothing is lost by it.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Make this node new, by its recovery system: what is told is erased. The node has to leave its cluster before.
    Reset {
        /// What is made new.
        #[arg(long, value_enum, required_unless_present = "cancel")]
        level: Option<ResetLevel>,
        /// Although the node is a member of its cluster, or the cluster cannot be asked.
        #[arg(long)]
        force: bool,
        /// Do not ask for the name of the node.
        #[arg(long)]
        yes: bool,
        /// Leave the restart to somebody else: the next one, whenever it comes, makes the reset.
        #[arg(long)]
        no_reboot: bool,
        /// Call off a reset that has not begun.
        #[arg(long, conflicts_with_all = ["level", "force", "yes", "no_reboot"])]
        cancel: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ApplyArgs {
    /// The release, named as for `check`; by default the one that is staged, then the one that was fetched.
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
pub(crate) struct OfferArgs {
    /// The release: an ISO, a drive that holds one, a directory with release.json, the URL of an ISO or of such a directory,
    /// oci:DIRECTORY, or registry/name:tag. Over http, and from a registry without TLS, an unsigned one is written only
    /// with --sha256.
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
    /// Take a release although a device of this node would lose its driver, its firmware or its name, a module of the node document is
    /// missing, or a certificate without which the node does not come back to its cluster has ended.
    #[arg(long)]
    accept_hardware: bool,
    /// Refuse any other release than the one whose release.json has this SHA-256.
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<Digest>,
    #[command(flatten)]
    unsigned: UnsignedArgs,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Wait so many seconds for what may pass: another update that is at work, and with a cluster, its lock, its other nodes,
    /// and its API while that does not answer.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    wait: u64,
    /// Do the work in this process, not in a unit of its own that goes on when this terminal goes away.
    #[arg(long)]
    foreground: bool,
}

fn slot(text: &str) -> Result<Slot, String> {
    Slot::of_name(text).ok_or_else(|| "a slot is a, b or recovery".to_owned())
}

impl UpdateArgs {
    pub(crate) fn run(self, context: &Context) -> Result<()> {
        // Commands that change nothing read disks, too.
        root_only::require("`installer update`", "update")?;
        match self.command {
            UpdateCommand::Check(offer) => update::check(&offer.request(), context),
            UpdateCommand::Fetch { offer, run } => {
                run.in_unit(|wait| update::fetch(&offer.request(), wait, context))
            }
            UpdateCommand::Serve { listen, config_url, unsigned } => {
                let request = ServeRequest { listen, allow_unsigned: unsigned.allow_unsigned, config_url };
                update::serve_release(request, context)
            }
            UpdateCommand::Stage { from, allow, run } => {
                run.in_unit(|wait| update::stage(&allow.request(from), wait, context))
            }
            UpdateCommand::Apply(args) => {
                let ApplyArgs { from, allow, no_reboot, cluster, run } = *args;
                let cluster = cluster.request(allow.retry);
                let _access = PodAccess::claim(Path::new("/"), cluster.kubeconfig.as_deref());
                let request = allow.request(from);
                run.in_unit(|wait| update::apply(&request, &cluster, !no_reboot, wait, context))
            }
            UpdateCommand::FromPod(args) => args.run(),
            UpdateCommand::Status => update::status(context),
            UpdateCommand::Start { slot, no_reboot } => update::start(slot, !no_reboot, context),
            UpdateCommand::Repair { yes, run } => run.in_unit(|wait| update::repair_node(yes, wait, context)),
            UpdateCommand::Reset { level: Some(level), force, yes, no_reboot, .. } => {
                update::reset(ResetRequest { level, force, yes, reboot: !no_reboot }, context)
            }
            UpdateCommand::Reset { level: None, .. } => update::cancel_reset(context),
            UpdateCommand::Kubernetes { run } => run.in_unit(|wait| update::move_kubernetes(wait, context)),
            UpdateCommand::Rollback { once, no_reboot, run } => {
                run.in_unit(|wait| update::roll_back(once, !no_reboot, wait, context))
            }
        }
    }
}

impl OfferArgs {
    fn request(self) -> UpdateRequest {
        self.allow.request(Some(self.from))
    }

    /// The same arguments for the installer of another node.
    pub(crate) fn words(&self) -> Vec<String> {
        let AllowArgs { allow_downgrade, retry, accept_hardware, sha256, unsigned } = &self.allow;
        let flags = [
            ("--allow-downgrade", *allow_downgrade),
            ("--retry", *retry),
            ("--accept-hardware", *accept_hardware),
            ("--allow-unsigned", unsigned.allow_unsigned),
        ];
        let flags = flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.to_owned());
        let digest = sha256.iter().map(|digest| format!("--sha256={digest}"));
        [format!("--from={}", self.from)].into_iter().chain(digest).chain(flags).collect()
    }

    /// Whether to go on where the release was taken back on another node.
    pub(crate) fn retry(&self) -> bool {
        self.allow.retry
    }
}

impl AllowArgs {
    fn request(self, from: Option<String>) -> UpdateRequest {
        let Self { allow_downgrade, retry, accept_hardware, sha256, unsigned } = self;
        let allowed = UpdatePermissions { downgrade: allow_downgrade, retry, hardware: accept_hardware };
        UpdateRequest { from, allowed, sha256, allow_unsigned: unsigned.allow_unsigned }
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
    use super::super::cluster_arguments::DrainArg;
    use super::*;
    use clap::Parser;
    use cluster::rollout::api_objects::selects;
    use serde_json::{Value, json};

    /// `installer update apply` as far as it is about clusters, `from-pod` and `check`.
    #[derive(Debug, Parser)]
    enum Parsed {
        Apply(Box<ApplyArgs>),
        FromPod(FromPodArgs),
        Check(OfferArgs),
    }

    #[test]
    fn a_release_is_named_to_another_node_as_it_was_named_here() {
        let parsed = |words: &[String]| {
            let all = ["installer", "check"].into_iter().chain(words.iter().map(String::as_str));
            match Parsed::try_parse_from(all).unwrap() {
                Parsed::Check(offer) => offer,
                other => panic!("{other:?}"),
            }
        };
        let digest = "0".repeat(64);
        let digest = format!("--sha256={digest}");
        let allowed =
            ["--allow-downgrade", "--retry", "--accept-hardware", "--allow-unsigned"].map(str::to_owned);
        for words in [
            vec!["--from=registry.example.com/nqrust/release:1.3.0".to_owned()],
            vec!["--from=/media/a b.iso".to_owned(), digest.clone()],
            ["--from=x".to_owned(), digest].into_iter().chain(allowed).collect(),
        ] {
            assert_eq!(parsed(&words).words(), words);
        }
    }

    fn plans() -> Vec<Value> {
        let text = include_str!("../../../../configs/rollouts/plans.yaml");
        text.split("\n---\n").map(|plan| serde_saphyr::from_str(plan).unwrap()).collect()
    }

    #[test]
    fn a_pod_gives_its_arguments_in_one_text_or_one_by_one() {
        let parsed = |args: &[&str]| {
            let parsed = Parsed::try_parse_from(["installer", "from-pod"].iter().chain(args));
            parsed.map(|parsed| match parsed {
                Parsed::FromPod(pod) => pod.arguments(),
                Parsed::Apply(_) | Parsed::Check(_) => panic!("{args:?}"),
            })
        };
        let expected = ["--from=a b", "--retry"];
        assert_eq!(parsed(&["--apply= '--from=a b'  --retry "]).unwrap(), expected);
        assert_eq!(parsed(&["--", "--from=a b", "--retry"]).unwrap(), expected);
        assert_eq!(parsed(&["--check", "--", "--from=a b"]).unwrap(), ["--from=a b"]);
        for wrong in [
            &[][..],
            &["--check"],
            &["--check", "--apply=--retry"],
            &["--apply="],
            &["--apply='--from=a"],
            &["--apply=--retry", "--", "--retry"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
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
            let Parsed::FromPod(pod) = parsed else { panic!("{parsed:?}") };
            assert_eq!(pod.host.to_str(), Some("/host"));
            // system-upgrade-controller v0.20.1 hashes the first element of a list alone (wrangler `data/convert`, ToString).
            assert_eq!(plan["metadata"]["annotations"]["upgrade.cattle.io/digest"], "spec.upgrade.args");
            assert_eq!(args.len(), 1, "what is in no other element is what makes a plan a new one");
            let arguments = pod.arguments();
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
