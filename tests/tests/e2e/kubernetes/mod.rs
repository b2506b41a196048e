//! A whole cluster of upstream Kubernetes, made by `installer render`, `apply`, `kubeadm` and `pod-network`: with the programs, the
//! images and the units that nodes have, on nodes that are namespaces of this machine.
//!
//! Two management nodes, a witness and a worker. [`members`] looks at what they are, [`traffic`] at what pods reach, [`contested`] at an
//! address that is taken, [`refusals`] at what the cluster does not take in, [`failures`] at what is left when a node is gone, and at its
//! return. A second cluster has management nodes that were workers before ([`promotion`]), and a disk that is full ([`full_disk`]); in a third one
//! nodes leave for an update ([`rollout`]); a fourth one moves to another minor version ([`versions`]); a fifth one is updated by
//! system-upgrade-controller ([`controller`]), after all its nodes were asked whether they could take the release ([`rollout_check`]); in the pods of a sixth one images are built
//! ([`builders`]), and in a seventh one boot servers run ([`boot_servers`]). How long each part took and how
//! much memory the nodes' processes have is in `figures.txt` of the artifacts.

mod boot_servers;
mod builders;
mod contested;
mod controller;
mod failures;
mod figures;
mod full_disk;
mod members;
mod promotion;
mod refusals;
mod rolling;
mod rollout;
mod rollout_check;
mod traffic;
mod versions;
mod writes;

use anyhow::Result;
use model::config::Role;
use nix::unistd::geteuid;
use nqrust_tests::artifacts::{Artifacts, scenario, scenario_alone};
use nqrust_tests::native_cluster::{ClusterNode, KubernetesRelease, TestCluster};
use serde_json::json;

use self::figures::Figures;

/// A label that the worker has by its document, beside those of its role.
const LABEL: (&str, &str) = ("example.org/rack", "r1");
/// A taint that the worker has by its document.
const TAINT: &str = "example.org/kept=true:PreferNoSchedule";

fn nodes() -> Vec<ClusterNode> {
    let own = json!({ "os": { "labels": { LABEL.0: LABEL.1 } }, "kubernetes": { "node_taints": [TAINT] } });
    vec![
        ClusterNode::new("node-1", Role::Management, 11),
        ClusterNode::new("node-2", Role::Management, 12),
        ClusterNode::new("node-3", Role::Witness, 13),
        ClusterNode::new("node-4", Role::Worker, 21).with(own),
    ]
}

#[test]
fn nodes_join_a_cluster_that_goes_on_without_one_of_them() {
    if may_run() {
        scenario("kubernetes", |artifacts| {
            in_namespaces(artifacts, nodes(), KubernetesRelease::built()?, whole_life)
        });
    }
}

#[test]
#[ignore = "a second cluster, which takes minutes: `make soak` runs it"]
fn default_nodes_take_the_place_of_management_nodes() {
    if may_run() {
        let check = promotion::check;
        scenario_alone("kubernetes-promotion", |artifacts| {
            in_namespaces(artifacts, promotion::nodes(), KubernetesRelease::built()?, check)
        });
    }
}

#[test]
#[ignore = "a third cluster, which takes minutes: `make soak` runs it"]
fn nodes_leave_a_cluster_for_an_update_one_after_the_other() {
    if may_run() {
        scenario_alone("kubernetes-rollout", |artifacts| {
            in_namespaces(artifacts, rollout::nodes(), KubernetesRelease::built()?, rollout::check)
        });
    }
}

#[test]
#[ignore = "a fourth cluster, and another release of Kubernetes, whose build takes minutes: `make soak` runs it"]
fn a_cluster_moves_to_the_next_minor_version_after_its_os() {
    if may_run() {
        scenario_alone("kubernetes-versions", |artifacts| {
            in_namespaces(artifacts, nodes(), KubernetesRelease::built_before()?, versions::check)
        });
    }
}

#[test]
#[ignore = "a fifth cluster, and a build of system-upgrade-controller: `make soak` runs it"]
fn a_controller_updates_all_nodes_and_stops_at_the_first_that_goes_back() {
    if may_run() {
        scenario_alone("kubernetes-controller", |artifacts| {
            let directory = artifacts.disk("releases");
            in_namespaces(artifacts, rollout::nodes(), KubernetesRelease::built()?, |cluster, figures| {
                controller::check(cluster, &directory, figures)
            })
        });
    }
}

#[test]
#[ignore = "a sixth cluster, and builds in it, which take minutes: `make soak` runs it"]
fn the_pods_of_an_indexed_job_build_variants_and_share_their_steps() {
    if may_run() {
        scenario_alone("kubernetes-builders", |artifacts| {
            let directory = artifacts.disk("builds");
            in_namespaces(artifacts, builders::nodes(), KubernetesRelease::built()?, |cluster, figures| {
                builders::check(cluster, &directory, figures)
            })
        });
    }
}

#[test]
#[ignore = "a seventh cluster, with a database and boot servers in it, which takes minutes: `make soak` runs it"]
fn boot_servers_of_the_chart_install_each_machine_once_while_pods_and_the_database_go() {
    if may_run() {
        scenario_alone("kubernetes-boot-servers", |artifacts| {
            let directory = artifacts.disk("servers");
            in_namespaces(
                artifacts,
                boot_servers::nodes(),
                KubernetesRelease::built()?,
                |cluster, figures| boot_servers::check(cluster, &directory, figures),
            )
        });
    }
}

fn may_run() -> bool {
    let root = geteuid().is_root();
    if !root {
        testing::programs::leave_out(
            "the cluster of namespaces",
            "it needs root, for control groups and devices",
        );
    }
    root
}

/// Runs `check` with a cluster of these nodes with the OS that has `release`, none of which is installed yet.
fn in_namespaces(
    artifacts: &Artifacts,
    nodes: Vec<ClusterNode>,
    release: KubernetesRelease,
    check: impl FnOnce(&mut TestCluster, &mut Figures<'_>) -> Result<()>,
) -> Result<()> {
    let mut figures = Figures::new(artifacts);
    let mut cluster = TestCluster::lay(&artifacts.disk("cluster"), nodes, release)?;
    figures.done("packages, programs and network")?;
    let outcome = check(&mut cluster, &mut figures);
    if outcome.is_err() {
        figures.say("the test has failed")?;
        cluster.keep_logs(&artifacts.path("logs"))?;
    }
    outcome
}

fn whole_life(cluster: &mut TestCluster, figures: &mut Figures<'_>) -> Result<()> {
    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&["node-4", "node-2", "node-3"], &mut |part| figures.done(part))?;
    members::check(cluster)?;
    figures.done("what the nodes are")?;
    traffic::check(cluster)?;
    figures.done("pods and their service reach each other")?;
    figures.memory(cluster)?;
    contested::check(cluster)?;
    figures.done("a stranger at the virtual address")?;
    let lost = failures::lose_holder(cluster, figures)?;
    refusals::check(cluster)?;
    figures.done("what the cluster refuses")?;
    failures::install_again(cluster, &lost, figures)?;
    members::check(cluster)?;
    traffic::check(cluster)?;
    figures.done("the cluster is whole again")?;
    failures::restart_all(cluster, figures)
}
