//! Which stages follow from which facts.

use super::facts::NodeFacts;
use super::judge::stages;
use super::*;
use crate::configuration::ClusterMember;
use crate::images::BlobCount;
use crate::kubernetes::node::Node;
use crate::observation::neighbours::RivalMachine;
use crate::observation::{ClusterView, UnitState};
use machine::nics::MissingCards;
use machine::nics::RememberedCards;
use model::config::{Distribution, parse};

fn member(first: bool) -> ClusterMember {
    ClusterMember {
        distribution: Distribution::Rke2,
        unit: if first { "rke2-server.service" } else { "rke2-agent.service" },
        joining_unit: None,
        first,
        server: first,
        host: Some("192.0.2.10".into()),
    }
}

fn running() -> UnitState {
    UnitState {
        unit: "rke2-server.service",
        load: "loaded".into(),
        active: "active".into(),
        sub: "running".into(),
        ..UnitState::default()
    }
}

fn node(ready: &str, message: &str) -> Result<Option<Node>, String> {
    let ready = serde_json::json!({ "type": "Ready", "status": ready, "message": message });
    let node = serde_json::json!({ "metadata": { "name": "node-1" }, "status": { "conditions": [ready] } });
    Ok(Some(serde_json::from_value(node).unwrap()))
}

/// A healthy node.
fn good() -> NodeFacts {
    NodeFacts {
        network: Ok("mgmt-br has 192.0.2.11/24".into()),
        missing: None,
        rival: None,
        name: Some("node-1".into()),
        cluster: ClusterView { server: Ok("https://192.0.2.10:9345".into()), node: node("True", "") },
        service: Some(running()),
        journal: Vec::new(),
        space: None,
        images: BlobCount { expected: 3, present: 3, deferred: false },
    }
}

#[test]
fn a_virtual_address_that_another_machine_answers_for_needs_a_person() {
    let machine = "52:54:00:6e:72:63".to_owned();
    let rival = RivalMachine { address: "192.0.2.10".parse().unwrap(), machine };
    let stages = stages(&member(true), &NodeFacts { rival: Some(rival), ..good() });
    let stage = current(&stages).unwrap();
    assert_eq!((stage.name, stage.state), (StageName::Server, StageState::Failed));
    assert!(stage.detail.contains("52:54:00:6e:72:63 answers for 192.0.2.10 too"), "{stage}");
    assert!(stage.next.as_deref().unwrap().contains("give it another address"), "{stage:?}");
}

fn journal(message: &str) -> Vec<String> {
    vec![format!("time=\"t\" level=error msg={message:?}")]
}

#[test]
fn a_node_for_which_all_is_well_has_every_stage_behind_it() {
    for first in [false, true] {
        let stages = stages(&member(first), &good());
        assert!(all_done(&stages) && current(&stages).is_none() && stages.len() == 6, "{stages:?}");
    }
    let order = |first| stages(&member(first), &good()).iter().map(|stage| stage.name).collect::<Vec<_>>();
    assert_eq!(order(false)[1..3], [StageName::Server, StageName::Service]);
    assert_eq!(
        order(true)[1..3],
        [StageName::Service, StageName::Server],
        "the first server answers for itself"
    );
}

#[test]
fn each_trouble_is_told_in_the_stage_that_it_belongs_to() {
    let starting = UnitState { active: "activating".into(), sub: "start".into(), ..running() };
    let again =
        UnitState { sub: "auto-restart".into(), result: "exit-code".into(), restarts: 4, ..starting.clone() };
    let gone = UnitState { load: "not-found".into(), active: "inactive".into(), ..running() };
    let failed = UnitState { active: "failed".into(), sub: "failed".into(), ..running() };
    let rejected = "Node password rejected, duplicate hostname";
    let facts = |change: &dyn Fn(&mut NodeFacts)| {
        let mut facts = good();
        change(&mut facts);
        facts
    };
    use StageName as N;
    use StageState as S;
    let cases: [(NodeFacts, N, S, &str); 14] = [
        (facts(&|f| f.network = Err("no link".into())), N::Network, S::Waiting, "no link"),
        (facts(&|f| f.cluster.server = Err("refused".into())), N::Server, S::Waiting, "refused"),
        (facts(&|f| f.service = None), N::Service, S::Waiting, "systemd does not report"),
        (facts(&|f| f.service = Some(gone.clone())), N::Service, S::Failed, "not in the OS image"),
        (facts(&|f| f.service = Some(starting.clone())), N::Service, S::Waiting, "activating (start)"),
        (
            facts(&|f| f.service = Some(again.clone())),
            N::Service,
            S::Waiting,
            "ended with exit-code, started again 4 times",
        ),
        (
            facts(&|f| {
                f.service = Some(again.clone());
                f.journal = journal(rejected);
            }),
            N::Service,
            S::Failed,
            "of this name",
        ),
        (
            facts(&|f| {
                f.service = Some(failed.clone());
                f.journal = journal("odd");
            }),
            N::Service,
            S::Failed,
            "odd; rke2",
        ),
        (facts(&|f| f.images.present = 2), N::Images, S::Failed, "2 of 3 blobs"),
        (
            facts(&|f| f.cluster.node = Err("the node has no credentials from its cluster yet".into())),
            N::Registered,
            S::Waiting,
            "no credentials",
        ),
        (
            facts(&|f| f.cluster.node = Ok(None)),
            N::Registered,
            S::Waiting,
            "the cluster has no node node-1 yet",
        ),
        (
            facts(&|f| {
                f.cluster.node = Ok(None);
                f.journal = journal(rejected);
            }),
            N::Registered,
            S::Failed,
            "of this name",
        ),
        (
            facts(&|f| f.cluster.node = node("False", "cni plugin not initialized")),
            N::Ready,
            S::Waiting,
            "of the pods",
        ),
        (facts(&|f| f.cluster.node = node("Unknown", "odd")), N::Ready, S::Waiting, "odd"),
    ];
    for (facts, name, state, text) in cases {
        let stages = stages(&member(false), &facts);
        let stage = current(&stages).unwrap();
        assert_eq!((stage.name, stage.state), (name, state), "{text}: {stages:?}");
        assert!(stage.detail.contains(text), "{text}: {}", stage.detail);
    }
}

/// A node of kubeadm that is to become a server.
fn kubeadm() -> ClusterMember {
    ClusterMember {
        distribution: Distribution::Kubeadm,
        unit: "kubelet.service",
        joining_unit: Some("nqrust-kubeadm.service"),
        server: true,
        ..member(false)
    }
}

#[test]
fn a_node_of_kubeadm_tells_its_step_unless_a_person_is_needed() {
    let joining = |said: &[&str]| {
        let journal = said.iter().map(|line| (*line).to_owned()).collect();
        let unit = "nqrust-kubeadm.service";
        let service = UnitState { unit, active: "activating".into(), sub: "start".into(), ..running() };
        let cluster = ClusterView { node: Err("no credentials".into()), ..good().cluster };
        stages(&kubeadm(), &NodeFacts { service: Some(service), journal, cluster, ..good() })
    };
    let refused =
        "E1123 10:00:00.000000     100 reflector.go:1] \"Failed\" err=\"connect: connection refused\"";
    let step = "Joining etcd (4 of 7)";
    let stage = joining(&["Checking the node (1 of 7)", step, refused]).remove(2);
    assert_eq!(stage.detail, "Joining etcd (4 of 7); nqrust-kubeadm.service is activating (start)");
    assert_eq!(stage.state, StageState::Waiting);
    let full =
        "E1123 10:00:00.000000     100 kubelet.go:1] \"x\" err=\"etcdserver: mvcc: database space exceeded\"";
    let stage = joining(&[step, full]).remove(2);
    assert!(stage.detail.starts_with("etcd is full"), "{stage:?}");
    assert_eq!(stage.state, StageState::Failed);
    // What follows on this node from a server that is away hides it not.
    let ends =
        "E1123 10:00:00.000000     100 pod_workers.go:1] \"Error syncing pod\" err=\"with CrashLoopBackOff\"";
    let away = "error: the member node-1 of etcd does not answer, and etcd takes no further member while one is away";
    let stage = joining(&[ends, ends, step, away, "  next: Start it again."]).remove(2);
    assert!(
        stage.detail.starts_with("another server of the cluster is away (the member node-1"),
        "{stage:?}"
    );
    // The step has failed, and the unit waits for its next try.
    let stage = joining(&[
        step,
        "error: Joining etcd: kubeadm has not done it",
        "  because: odd (1 of us)",
        "  next: Wait.",
    ])
    .remove(2);
    assert!(stage.detail.starts_with("Joining etcd: kubeadm has not done it: odd"), "{stage:?}");
    assert_eq!(stage.next.as_deref(), Some("Wait."));
}

#[test]
fn a_full_disk_under_etcd_is_told_before_what_follows_from_it() {
    let facts = NodeFacts {
        space: Some(5 << 20),
        cluster: ClusterView {
            node: Err("the API at https://192.0.2.10:6443 does not answer".into()),
            ..good().cluster
        },
        journal: journal("connection refused"),
        ..good()
    };
    let all = stages(&kubeadm(), &facts);
    let stage = current(&all).unwrap();
    assert_eq!((stage.name, stage.state), (StageName::Service, StageState::Failed));
    assert_eq!(stage.detail, "the persistent partition is full: 5 MiB are left for etcd in /var/lib/etcd");
    assert!(stage.next.as_deref().unwrap().contains("du -xh"));
    assert!(all_done(&stages(&kubeadm(), &NodeFacts { space: Some(1 << 30), ..good() })));
}

#[test]
fn a_missing_card_is_told_before_a_service_that_is_not_in_the_image() {
    let config =
        parse("install: {mode: install, management_interface: {interfaces: [{name: ens3}]}}", "f").unwrap();
    let mut facts = good();
    facts.network = Err("there is no device mgmt-br".into());
    facts.service = Some(UnitState { load: "not-found".into(), active: "inactive".into(), ..running() });
    let said = |facts: &NodeFacts| {
        let stages = stages(&member(false), facts);
        let stage = current(&stages).unwrap();
        (stage.name, stage.state, stage.detail.clone(), stage.next.is_some())
    };
    let why = "there is no device mgmt-br".to_owned();
    assert_eq!(said(&facts), (StageName::Network, StageState::Waiting, why, false));
    facts.missing = MissingCards::of(&config, &RememberedCards::default(), &[]);
    let why = "a network card is not in this machine: ens3; there is no device mgmt-br".to_owned();
    assert_eq!(said(&facts), (StageName::Network, StageState::Failed, why, true));
    // A bond that has lost one of two cards has an address.
    facts.network = Ok("mgmt-br has 192.0.2.11/24".into());
    assert_eq!(said(&facts).0, StageName::Service);
}

#[test]
fn images_that_are_deferred_hold_nothing_up_and_old_words_of_a_ready_node_are_not_told() {
    let mut facts = good();
    facts.images = BlobCount { expected: 3, present: 0, deferred: true };
    facts.journal = journal("Node password rejected, duplicate hostname");
    assert!(all_done(&stages(&member(false), &facts)));
}

#[test]
fn a_node_is_a_member_by_its_document() {
    let of = |text: &str| ClusterMember::of(&parse(text, "f").unwrap());
    assert_eq!(of("install: {mode: install}"), None);
    let first = of("install: {vip: 192.0.2.10}\ntoken: a").unwrap();
    assert_eq!(
        (first.unit, first.first, first.host.as_deref()),
        ("rke2-server.service", true, Some("192.0.2.10"))
    );
    let joins = "server_url: https://vip.example.org\ntoken: a\ninstall: {mode: join, role: worker}\n\
                 kubernetes: {distribution: k3s}";
    let worker = of(joins).unwrap();
    assert_eq!((worker.unit, worker.first), ("k3s-agent.service", false));
    assert_eq!(worker.supervisor(worker.host.as_deref().unwrap()), "https://vip.example.org:6443");
    assert_eq!(worker.health(), "/ping");
    assert_eq!(worker.kubeconfig(), "/var/lib/rancher/k3s/agent/kubelet.kubeconfig");
    let kubeadm = of(&joins.replace("k3s", "kubeadm")).unwrap();
    assert_eq!((kubeadm.unit, kubeadm.joining_unit), ("kubelet.service", Some("nqrust-kubeadm.service")));
    assert_eq!(kubeadm.health(), "/readyz");
    assert_eq!(kubeadm.kubeconfig(), "/etc/kubernetes/kubelet.conf");
}
