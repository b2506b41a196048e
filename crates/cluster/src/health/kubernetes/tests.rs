use super::*;
use crate::kubernetes::node::Node;
use model::config::parse;
use serde_json::json;
use std::fs;
use testing::runner::ScriptedRunner;

fn node(ready: &str, boot: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": { "name": "n" },
        "status": { "nodeInfo": { "bootID": boot, "systemUUID": "u" },
            "conditions": [{ "type": "Ready", "status": ready, "message": "no network plugin" }] },
    }))
    .unwrap()
}

fn good(distribution: Distribution, etcd: Option<EtcdState>) -> KubernetesFacts {
    let api = etcd.as_ref().map(|_| Ok(()));
    KubernetesFacts {
        distribution,
        components: Components { containerd: Ok(()), kubelet: Ok(()), api, etcd, boot: "this".into() },
        cluster: ClusterView { server: Ok(String::new()), node: Ok(Some(node("True", "this"))) },
    }
}

/// The findings of containerd, kubelet, API server, etcd and node, each by its first letter.
fn letters(facts: &KubernetesFacts) -> String {
    results(facts).iter().map(|result| result.finding.word().chars().next().unwrap()).collect()
}

const VOTER: Option<EtcdState> = Some(EtcdState::Voter { alone: false });

fn no<T>() -> Result<T, String> {
    Err("it does not answer".into())
}

#[test]
fn a_node_that_works_is_healthy_with_every_distribution() {
    for distribution in Distribution::ALL {
        assert_eq!(letters(&good(distribution, VOTER)), "hhhhh");
        assert_eq!(letters(&good(distribution, None)), "hhnnh", "an agent has no API server and no etcd");
    }
}

#[test]
fn what_waits_for_the_cluster_cannot_say_while_the_cluster_is_away() {
    let away = |distribution| {
        let mut facts = good(distribution, None);
        facts.components = Components { containerd: no(), kubelet: no(), ..facts.components };
        facts.cluster = ClusterView { server: no(), node: no() };
        facts
    };
    assert_eq!(letters(&away(Distribution::Rke2)), "ccnnc");
    assert_eq!(letters(&away(Distribution::K3s)), "ccnnc");
    assert_eq!(letters(&away(Distribution::Kubeadm)), "ffnnc", "its kubelet starts without a cluster");
    let mut answers = away(Distribution::Rke2);
    answers.cluster.server = Ok(String::new());
    assert_eq!(letters(&answers), "ffnnc", "the cluster is there");
}

#[test]
fn a_server_without_a_quorum_tells_it_from_a_fault_of_its_own() {
    let no_quorum = |distribution| {
        let mut facts = good(distribution, Some(EtcdState::NoLeader));
        facts.components =
            Components { containerd: no(), kubelet: no(), api: Some(no()), ..facts.components };
        facts.cluster = ClusterView { server: no(), node: no() };
        facts
    };
    assert_eq!(letters(&no_quorum(Distribution::K3s)), "ccccc");
    assert_eq!(letters(&no_quorum(Distribution::Rke2)), "ffccc");
    assert_eq!(letters(&no_quorum(Distribution::Kubeadm)), "ffccc");
    let mut silent = no_quorum(Distribution::K3s);
    silent.components.etcd = Some(EtcdState::Silent("refused".into()));
    assert_eq!(letters(&silent), "ffffc");
}

#[test]
fn a_learner_and_a_node_of_an_earlier_boot_are_not_healthy() {
    let learner = good(Distribution::K3s, Some(EtcdState::Learner));
    assert_eq!(letters(&learner), "hhhfh");
    for node in
        [Some(node("True", "earlier")), Some(node("False", "this")), Some(node("Unknown", "this")), None]
    {
        let mut facts = good(Distribution::K3s, None);
        facts.cluster.node = Ok(node.clone());
        assert_eq!(letters(&facts), "hhnnf", "{node:?}");
    }
}

#[test]
fn a_node_without_a_cluster_has_no_checks_of_it() {
    let root = tempfile::tempdir().unwrap();
    let config = parse("install: {mode: install}", "f").unwrap();
    let (results, alone) = look(root.path(), &ScriptedRunner::new(), &config, Some("n"));
    assert!(results.iter().all(|result| result.finding == Finding::NotApplicable) && results.len() == 6);
    assert!(!alone);
}

#[test]
fn an_os_image_without_kubernetes_has_nothing_to_check_but_on_a_node_that_is_in_a_cluster() {
    let root = tempfile::tempdir().unwrap();
    let config = parse("install: {mode: create}", "f").unwrap();
    let applicable = |state| {
        let systemd = ScriptedRunner::new().answer("systemctl show", format!("LoadState={state}\n"));
        let (results, _) = look(root.path(), &systemd, &config, Some("n"));
        assert_eq!(results.len(), 6);
        results.into_iter().filter(|result| result.finding != Finding::NotApplicable).collect::<Vec<_>>()
    };
    assert!(applicable("not-found").is_empty());
    assert!(!applicable("loaded").is_empty());
    // RKE2 and K3s keep it on /var; that of kubeadm is in a directory that only an image with Kubernetes mounts.
    let member = ClusterMember::of(&config).unwrap();
    for access in [member.kubeconfig(), KUBELET_CERTIFICATE.to_owned()] {
        let access = below(root.path(), &access);
        fs::create_dir_all(access.parent().unwrap()).unwrap();
        fs::write(&access, "").unwrap();
        let [kubelet] = applicable("not-found").try_into().unwrap();
        assert_eq!(kubelet.check.id, KUBELET.id);
        assert_eq!(
            kubelet.finding.reason(),
            Some("rke2-server.service is not in the OS image, and this node is in a cluster")
        );
        fs::remove_file(access).unwrap();
    }
}

#[test]
fn a_certificate_is_told_thirty_days_before_its_end_and_condemns_nothing() {
    use crate::certificates::tests::{put, until};
    let root = tempfile::tempdir().unwrap();
    let at = |day: &str| {
        let now = format!("{day}T00:00:00Z").parse().unwrap();
        certificates(root.path(), Distribution::Rke2, now)
    };
    assert_eq!(at("2030-01-01").word(), "cannot say", "before the node has joined");
    put(root.path(), "/var/lib/rancher/rke2/agent/client-kubelet.crt", &until(31));
    assert_eq!(at("2029-12-31"), Finding::Healthy);
    for day in ["2030-01-01", "2030-01-31", "2040-01-01"] {
        let found = at(day);
        assert!(found.reason().is_some_and(|reason| reason.contains("client-kubelet.crt")), "{found:?}");
    }
    assert_eq!(CERTIFICATES.class, crate::health::CheckClass::Wanted);
}
