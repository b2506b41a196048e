//! Which stages follow from which facts, and the questions to a cluster, which a TLS server of these tests answers.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::api::{Registration, node, ping};
use super::neighbours::RivalMachine;
use super::*;
use crate::configuration::ClusterMember;
use crate::images::BlobCount;
use machine::nics::MissingCards;
use machine::nics::RememberedCards;
use model::config::{Distribution, parse};

use testing::http::{AUTHORITY, CERTIFICATE as SERVER, KEY};

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

fn running() -> ServiceFacts {
    ServiceFacts {
        unit: "rke2-server.service",
        load: "loaded".into(),
        active: "active".into(),
        sub: "running".into(),
        ..ServiceFacts::default()
    }
}

/// A healthy node.
fn good() -> NodeFacts {
    NodeFacts {
        network: Ok("mgmt-br has 192.0.2.11/24".into()),
        missing: None,
        rival: None,
        server: Ok("https://192.0.2.10:9345".into()),
        service: Some(running()),
        room: None,
        images: BlobCount { expected: 3, present: 3, deferred: false },
        node: Registration::Ready { name: "node-1".into() },
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

fn saying(mut service: ServiceFacts, message: &str) -> Option<ServiceFacts> {
    service.said = vec![format!("time=\"t\" level=error msg={message:?}")];
    Some(service)
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
    let starting = ServiceFacts { active: "activating".into(), sub: "start".into(), ..running() };
    let again = ServiceFacts {
        sub: "auto-restart".into(),
        result: "exit-code".into(),
        restarts: 4,
        ..starting.clone()
    };
    let gone = ServiceFacts { load: "not-found".into(), active: "inactive".into(), ..running() };
    let failed = ServiceFacts { active: "failed".into(), sub: "failed".into(), ..running() };
    let absent = Registration::Absent("node-1".into());
    let not_ready = |why: &str| Registration::NotReady { name: "node-1".into(), why: why.into() };
    let rejected = "Node password rejected, duplicate hostname";
    let facts = |change: &dyn Fn(&mut NodeFacts)| {
        let mut facts = good();
        change(&mut facts);
        facts
    };
    use StageName as N;
    use StageState as S;
    let cases: [(NodeFacts, N, S, &str); 13] = [
        (facts(&|f| f.network = Err("no link".into())), N::Network, S::Waiting, "no link"),
        (facts(&|f| f.server = Err("refused".into())), N::Server, S::Waiting, "refused"),
        (facts(&|f| f.service = None), N::Service, S::Waiting, "systemd does not report"),
        (facts(&|f| f.service = Some(gone.clone())), N::Service, S::Failed, "not in the OS image"),
        (facts(&|f| f.service = Some(starting.clone())), N::Service, S::Waiting, "activating (start)"),
        (
            facts(&|f| f.service = Some(again.clone())),
            N::Service,
            S::Waiting,
            "ended with exit-code, started again 4 times",
        ),
        (facts(&|f| f.service = saying(again.clone(), rejected)), N::Service, S::Failed, "of this name"),
        (facts(&|f| f.service = saying(failed.clone(), "odd")), N::Service, S::Failed, "odd; rke2"),
        (facts(&|f| f.images.present = 2), N::Images, S::Failed, "2 of 3 blobs"),
        (facts(&|f| f.node = Registration::NoCredentials), N::Registered, S::Waiting, "no credentials"),
        (
            facts(&|f| {
                f.node = absent.clone();
                f.service = saying(running(), rejected);
            }),
            N::Registered,
            S::Failed,
            "of this name",
        ),
        (facts(&|f| f.node = not_ready("cni plugin not initialized")), N::Ready, S::Waiting, "of the pods"),
        (facts(&|f| f.node = not_ready("odd")), N::Ready, S::Waiting, "odd"),
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
        let said = said.iter().map(|line| (*line).to_owned()).collect();
        let unit = "nqrust-kubeadm.service";
        let service =
            ServiceFacts { unit, active: "activating".into(), sub: "start".into(), said, ..running() };
        stages(&kubeadm(), &NodeFacts { service: Some(service), node: Registration::NoCredentials, ..good() })
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
        room: Some(5 << 20),
        node: Registration::Unknown("the API at https://192.0.2.10:6443 does not answer".into()),
        service: saying(running(), "connection refused"),
        ..good()
    };
    let all = stages(&kubeadm(), &facts);
    let stage = current(&all).unwrap();
    assert_eq!((stage.name, stage.state), (StageName::Service, StageState::Failed));
    assert_eq!(stage.detail, "the persistent partition is full: 5 MiB are left for etcd in /var/lib/etcd");
    assert!(stage.next.as_deref().unwrap().contains("du -xh"));
    assert!(all_done(&stages(&kubeadm(), &NodeFacts { room: Some(1 << 30), ..good() })));
}

#[test]
fn a_missing_card_is_told_before_a_service_that_is_not_in_the_image() {
    let config =
        parse("install: {mode: install, management_interface: {interfaces: [{name: ens3}]}}", "f").unwrap();
    let mut facts = good();
    facts.network = Err("there is no device mgmt-br".into());
    facts.service = Some(ServiceFacts { load: "not-found".into(), active: "inactive".into(), ..running() });
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
    facts.service = saying(running(), "Node password rejected, duplicate hostname");
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

/// A server that gives every request the same answer; its URL.
fn serve(status: &'static str, body: String) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let chain = CertificateDer::pem_slice_iter(SERVER.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let config = Arc::new(config.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            let mut stream = BufReader::new(rustls::StreamOwned::new(connection, stream.unwrap()));
            let mut line = String::new();
            // A client that rejects the certificate closes the connection.
            while stream.read_line(&mut line).is_ok_and(|count| count > 2) {
                line.clear();
            }
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.get_mut().write_all((head + &body).as_bytes());
            let _ = stream.get_mut().flush();
        }
    });
    url
}

/// A root with the kubelet's files of a distribution.
fn credentials(server: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("agent/ca.crt", AUTHORITY);
    put("agent/kubelet.crt", SERVER);
    put("agent/kubelet.key", KEY);
    put(
        "agent/kubelet.kubeconfig",
        &format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    server: {server}\n    certificate-authority: /agent/ca.crt\n  name: local\n\
             contexts:\n- context:\n    cluster: local\n    user: user\n  name: Default\ncurrent-context: Default\nkind: Config\n\
             preferences: {{}}\nusers:\n- name: user\n  user:\n    client-certificate: /agent/kubelet.crt\n    client-key: /agent/kubelet.key\n"
        ),
    );
    root
}

fn ask(status: &'static str, body: &str) -> Registration {
    let root = credentials(&serve(status, body.to_owned()));
    node(root.path(), "/agent/kubelet.kubeconfig", "node-1")
}

fn condition(status: &str) -> String {
    format!(
        "{{\"kind\": \"Node\", \"metadata\": {{\"name\": \"node-1\"}}, \"status\": {{\"conditions\": [{{\"type\": \"MemoryPressure\", \"status\": \"False\"}}, \
         {{\"type\": \"Ready\", \"status\": \"{status}\", \"message\": \"the reason\"}}]}}}}"
    )
}

#[test]
fn the_kubelets_credentials_are_enough_to_ask_for_the_node() {
    let name = || "node-1".to_owned();
    assert_eq!(ask("200 OK", &condition("True")), Registration::Ready { name: name() });
    let not = Registration::NotReady { name: name(), why: "the reason".into() };
    assert_eq!(ask("200 OK", &condition("Unknown")), not);
    assert_eq!(ask("404 Not Found", "{}"), Registration::Absent(name()));
    let bare = ask("200 OK", "{\"metadata\": {\"name\": \"node-1\"}, \"status\": {}}");
    assert!(matches!(bare, Registration::NotReady { why, .. } if why.contains("has not reported")));
    for (status, body, text) in
        [("403 Forbidden", "{}", "answers 403"), ("200 OK", "<html>", "something other than a node")]
    {
        assert!(matches!(ask(status, body), Registration::Unknown(why) if why.contains(text)), "{text}");
    }
}

#[test]
fn credentials_that_are_not_there_or_not_usable_are_told_apart() {
    let root = credentials("https://127.0.0.1:1");
    let ask = |root: &Path| node(root, "/agent/kubelet.kubeconfig", "node-1");
    assert!(matches!(ask(root.path()), Registration::Unknown(why) if why.contains("does not answer")));
    fs::write(root.path().join("agent/kubelet.key"), "no key").unwrap();
    assert!(matches!(ask(root.path()), Registration::Unknown(why) if why.contains("cannot be used")));
    fs::remove_file(root.path().join("agent/kubelet.kubeconfig")).unwrap();
    assert_eq!(ask(root.path()), Registration::NoCredentials);
}

#[test]
fn a_server_answers_its_ping_whoever_vouches_for_it() {
    assert_eq!(ping(&serve("200 OK", "pong".into()), "/ping"), Ok(()));
    assert!(ping(&serve("404 Not Found", String::new()), "/readyz").unwrap_err().contains("404 Not Found"));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", nobody.local_addr().unwrap());
    drop(nobody);
    assert!(ping(&url, "/ping").unwrap_err().contains("does not answer"));
}
