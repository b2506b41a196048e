//! A cluster that kubeadm made.

use super::*;
use crate::planned_node::{AddressClaim, PlannedCluster};
use cluster::join_query::{ClusterNetworks, Version, pin};
use model::config::InstallConfig;
use model::config::cluster_secrets::ClusterSecrets;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::sync::LazyLock;
use testing::kubeadm_cluster::{BootstrapToken, KubeadmCluster};
use testing::supervisor::{Fault, node};

static SECRETS: LazyLock<[ClusterSecrets; 2]> =
    LazyLock::new(|| [SERVER, AGENT].map(|token| ClusterSecrets::derive(&Secret::new(token)).unwrap()));

fn bootstrap(secrets: &ClusterSecrets, servers: bool) -> BootstrapToken {
    BootstrapToken::new(secrets.bootstrap_token.expose(), servers)
}

/// A cluster with a token of its own for agents.
pub(super) fn cluster() -> KubeadmCluster {
    let [servers, agents] = &*SECRETS;
    KubeadmCluster {
        tokens: vec![bootstrap(agents, false), bootstrap(servers, true)],
        keeps_keys: true,
        lists_nodes: true,
        ..KubeadmCluster::default()
    }
}

pub(super) fn made(cluster: KubeadmCluster) -> SupervisorBehavior {
    SupervisorBehavior { kubeadm: Some(cluster), version: "v1.37.2".into(), ..SupervisorBehavior::default() }
}

pub(super) fn joins(role: Role, server: &Supervisor, token: &str) -> PlannedNode {
    joins_at(role, server.port(), token)
}

fn joins_at(role: Role, port: u16, token: &str) -> PlannedNode {
    with(joining(role, port, token), |join| {
        join.distribution = Distribution::Kubeadm;
        join.carries_address = false;
    })
}

fn ready(name: &str, address: &str, uuid: &str, status: &str) -> serde_json::Value {
    let mut node = node(name, &[], address, uuid);
    node["status"]["conditions"] = serde_json::json!([{ "type": "Ready", "status": status }]);
    node
}

/// What nobody may be asked before it is known who it is.
fn assert_nobody_saw_the_token(server: &Supervisor) {
    let open = ["GET /version", "GET /api/v1/namespaces/kube-public/configmaps/cluster-info", "GET /ping"];
    let asked = server.asked();
    assert!(asked.iter().all(|line| open.contains(&line.as_str())), "{asked:?}");
}

#[test]
fn a_good_cluster_passes_every_check_and_is_asked_for_nothing_that_changes_it() {
    let keys = Keys::make();
    let server = keys.start(made(cluster()));
    for (role, token) in [
        (Role::Default, AGENT),
        (Role::Management, SERVER),
        (Role::Worker, AGENT),
        (Role::Worker, SERVER),
        (Role::Witness, SERVER),
    ] {
        let talk = Talk::begin(joins(role, &server, token));
        talk.expect("join-authority", "passed", "knows the token, and has the authority");
        for check in
            ["join-server", "join-token", "join-clock", "join-hostname", "join-witness", "join-version"]
        {
            talk.expect(check, "passed", "");
        }
        talk.expect("join-vip", "skipped", "");
    }
    let mut asked = server.asked();
    asked.sort_unstable();
    asked.dedup();
    let expected = [
        "GET /api/v1/namespaces/kube-public/configmaps/cluster-info",
        "GET /api/v1/namespaces/kube-system/configmaps/kubeadm-config",
        "GET /api/v1/namespaces/kube-system/secrets/kubeadm-certs",
        "GET /api/v1/nodes",
        "GET /api/v1/nodes/node-2",
        "GET /version",
    ];
    assert_eq!(asked, expected);
}

#[test]
fn a_wrong_token_is_told_from_an_impostor() {
    let keys = Keys::make();
    let server = keys.start(made(cluster()));
    let talk = Talk::begin(joins(Role::Management, &server, "hushed"));
    talk.expect("join-token", "found", "is not known to the cluster, which has no bootstrap token");
    assert!(talk.next("join-token").contains("`token` in /oem/node.yaml of the first node"));
    talk.expect("join-authority", "could not run", "the cluster does not know the token; see join-token");
    talk.expect("join-version", "could not run", "see join-token");
    assert_nobody_saw_the_token(&server);

    // It has seen the cluster's answer, which anybody can, and has another token.
    let [servers, _] = &*SECRETS;
    let forged = BootstrapToken { signs_with: Some("0123456789abcdef".into()), ..bootstrap(servers, true) };
    let server = keys.start(made(KubeadmCluster { tokens: vec![forged], ..cluster() }));
    let talk = Talk::begin(joins(Role::Management, &server, SERVER));
    talk.expect("join-authority", "found", "with another token of the same id");
    assert!(talk.next("join-authority").contains("Correct server_url"));
    for check in ["join-token", "join-hostname", "join-version"] {
        talk.expect(check, "could not run", "see join-authority");
    }
    assert_nobody_saw_the_token(&server);
}

#[test]
fn who_repeats_what_the_cluster_says_has_no_certificate_for_it() {
    let keys = Keys::make();
    let server = keys.start(SupervisorBehavior { fault: Some(Fault::Liar), ..made(cluster()) });
    let talk = Talk::begin(joins(Role::Management, &server, SERVER));
    talk.expect("join-authority", "found", "a certificate that is not of it");
    talk.expect("join-token", "could not run", "see join-authority");
    assert_nobody_saw_the_token(&server);
}

#[test]
fn a_full_token_names_the_key_of_the_authority() {
    let (keys, others) = (Keys::make(), Keys::make());
    let server = keys.start(made(cluster()));
    let talk = Talk::begin(joins(Role::Management, &server, SERVER));
    let report = crate::run(&talk.facts, &talk.node, &SystemNetwork::default());
    let mut config = InstallConfig { token: Some(Secret::new(SERVER)), ..InstallConfig::default() };
    config.install.role = Role::Management;
    pin(&mut config, &report.authority.unwrap());
    let full = config.token.unwrap();
    let talk = Talk::begin(joins(Role::Management, &server, full.expose()));
    talk.expect("join-authority", "passed", "has the authority that the token names");
    talk.expect("join-token", "passed", "");
    let other = others.start(made(cluster()));
    let talk = Talk::begin(joins(Role::Management, &other, full.expose()));
    talk.expect("join-authority", "found", "has another authority than the token names");
    assert_nobody_saw_the_token(&other);
    let der = CertificateDer::from_pem_slice(&keys.authorities.bundle().unwrap()).unwrap();
    assert_eq!(full.expose(), format!("K10{}::server:{SERVER}", key(&der)));
}

/// SHA-256 of the public key, by openssl.
fn key(certificate: &CertificateDer<'_>) -> String {
    use std::process::Command;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("certificate.der");
    std::fs::write(&path, certificate).unwrap();
    let words = format!(
        "openssl x509 -inform DER -in {} -pubkey -noout | openssl pkey -pubin -outform DER",
        path.display()
    );
    let output = Command::new("sh").args(["-c", &words]).output().unwrap();
    Digest::of(&output.stdout).to_string()
}

#[test]
fn a_server_needs_the_token_of_servers_and_the_keys_that_the_cluster_keeps() {
    let keys = Keys::make();
    let server = keys.start(made(cluster()));
    for role in [Role::Management, Role::Witness] {
        let talk = Talk::begin(joins(role, &server, AGENT));
        talk.expect("join-authority", "passed", "");
        talk.expect("join-token", "found", "is the token of agents, and does not let a server in");
    }
    let server = keys.start(made(KubeadmCluster { keeps_keys: false, ..cluster() }));
    let talk = Talk::begin(joins(Role::Management, &server, SERVER));
    talk.expect("join-token", "found", "no longer keeps the keys that a further server needs");
    Talk::begin(joins(Role::Worker, &server, SERVER)).expect("join-token", "passed", "");
}

#[test]
fn a_token_that_signs_and_is_not_let_in_is_refused() {
    let keys = Keys::make();
    let [servers, _] = &*SECRETS;
    let expired = BootstrapToken { valid: false, ..bootstrap(servers, true) };
    let server = keys.start(made(KubeadmCluster { tokens: vec![expired], ..cluster() }));
    let talk = Talk::begin(joins(Role::Worker, &server, SERVER));
    talk.expect("join-token", "found", "is refused: the server answered 401 Unauthorized to its login");
    let path = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config".to_owned();
    let statuses = [(path, 503)].into();
    let server = keys.start(SupervisorBehavior { statuses, ..made(cluster()) });
    let talk = Talk::begin(joins(Role::Worker, &server, SERVER));
    talk.expect("join-token", "could not run", "503 Service Unavailable, as it does while it starts");
}

#[test]
fn the_agent_token_that_a_server_brings_along_has_to_be_the_cluster_s() {
    let keys = Keys::make();
    let server = keys.start(made(cluster()));
    for (token, word, part) in
        [(AGENT, "passed", ""), ("hushed", "found", "kubernetes.agent_token is not known")]
    {
        let node = joins(Role::Management, &server, SERVER);
        let talk = Talk::begin(with(node, |join| join.agent_token = Some(Secret::new(token))));
        talk.expect("join-token", word, part);
    }
}

#[test]
fn without_a_token_nothing_is_believed() {
    let keys = Keys::make();
    let server = keys.start(made(cluster()));
    let talk = Talk::begin(with(joins(Role::Worker, &server, SERVER), |join| join.token = None));
    talk.expect("join-server", "passed", "");
    talk.expect("join-authority", "could not run", "without the token");
    talk.expect("join-token", "could not run", "does not hold the token itself");
    let talk = Talk::begin(joins(Role::Worker, &server, "K10hush"));
    talk.expect("join-token", "found", "the token begins with K10");
    assert_nobody_saw_the_token(&server);
}

#[test]
fn a_cluster_that_tells_nothing_of_itself_or_nonsense_is_refused() {
    let keys = Keys::make();
    let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    for (status, part) in
        [(404, "404 Not Found: it was not made by kubeadm"), (403, "answers only nodes that have joined")]
    {
        let statuses = [(info.to_owned(), status)].into();
        let server = keys.start(SupervisorBehavior { statuses, ..made(cluster()) });
        Talk::begin(joins(Role::Worker, &server, SERVER)).expect("join-authority", "found", part);
    }
    let server = keys.start(made(KubeadmCluster { tokens: vec![], ..cluster() }));
    let talk = Talk::begin(joins(Role::Worker, &server, SERVER));
    talk.expect("join-authority", "found", "with any token yet, as in the first minute of a cluster");
    for kubeconfig in ["", "clusters: []", "clusters: [{cluster: {certificate-authority-data: aHVo}}]"] {
        let kubeconfig = Some(kubeconfig.to_owned());
        let server = keys.start(made(KubeadmCluster { kubeconfig, ..cluster() }));
        let talk = Talk::begin(joins(Role::Worker, &server, SERVER));
        talk.expect("join-authority", "found", "has signed no certificates");
    }
}

#[test]
fn what_is_no_api_server_of_kubeadm_is_told_as_what_it_is() {
    let keys = Keys::make();
    for (fault, part) in [
        (Fault::Close, "ends its answer early"),
        (Fault::Plain, "does not speak TLS"),
        (Fault::Web, "answers as another service than the Kubernetes API of kubeadm: GET /version gave 404"),
    ] {
        let server = keys.start(SupervisorBehavior { fault: Some(fault), ..made(cluster()) });
        let talk = Talk::begin(joins(Role::Worker, &server, SERVER));
        let (found, text) = (talk.of("join-server"), format!("{:?}", talk.of("join-server")));
        assert!(told(&found).0 == "found" && (text.contains(part) || fault == Fault::Close), "{text}");
        assert!(talk.next("join-server").contains("TCP port"));
    }
    let talk = Talk::begin(joins_at(Role::Worker, closed(), SERVER));
    talk.expect("join-server", "found", "refuses the connection: nothing listens there");
    // Servers of the other distributions.
    let rke2 =
        keys.start(SupervisorBehavior { server_token: SERVER.into(), ..SupervisorBehavior::default() });
    let talk =
        Talk::begin(with(joins_at(Role::Worker, closed(), SERVER), |join| join.ports.other = rke2.port()));
    talk.expect("join-server", "found", &format!("; on port {} a server of rke2 answers", rke2.port()));
    let talk = Talk::begin(joins_at(Role::Worker, rke2.port(), SERVER));
    talk.expect("join-server", "found", &format!("; on port {} a server of k3s answers", rke2.port()));
    let server = keys.start(made(cluster()));
    let talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
    talk.expect("join-server", "found", &format!("; on port {} a server of kubeadm answers", server.port()));
}

#[test]
fn a_clock_before_the_certificates_and_one_beside_the_server_s_are_told() {
    let keys = Keys::make();
    let server = keys.start(made(cluster()));
    for (now, part) in [
        (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000), "not yet valid"),
        (SystemTime::now() + Duration::from_secs(40 * 86_400), "no longer valid"),
    ] {
        let talk = Talk { now, ..Talk::begin(joins(Role::Worker, &server, SERVER)) };
        talk.expect("join-authority", "found", part);
        talk.expect("join-clock", "found", "days");
    }
    let server = keys.start(SupervisorBehavior { ahead: 3630, ..made(cluster()) });
    let talk = Talk::begin(joins(Role::Worker, &server, SERVER));
    talk.expect("join-clock", "found", "the clock is 60 min behind");
    talk.expect("join-token", "passed", "");
}

#[test]
fn a_name_is_taken_by_a_node_that_lives_and_given_back_by_one_that_does_not() {
    let keys = Keys::make();
    for (uuid, status, word, part) in [
        ("other", "True", "found", "node-2 is the name of another node of the cluster (192.0.2.12)"),
        ("other", "Unknown", "mild", "which is not ready; this node would take its place"),
        (UUID, "True", "found", "this machine, as it was installed before"),
        (UUID, "Unknown", "passed", "takes its place in the cluster again"),
    ] {
        let nodes = vec![ready("node-2", "192.0.2.12", uuid, status)];
        let server = keys.start(SupervisorBehavior { nodes, ..made(cluster()) });
        let node = with(joins(Role::Worker, &server, SERVER), |join| join.name = Some("NODE-2".into()));
        let talk = Talk::begin(node);
        if word == "passed" {
            talk.expect("join-hostname", word, part);
            continue;
        }
        talk.expect("join-hostname", word, &part.replace("node-2 is the name", "is the name"));
        let next = talk.next("join-hostname");
        assert!(next.ends_with("kubectl delete node node-2"), "{next}");
    }
    let path = "/api/v1/nodes/node-2".to_owned();
    let server = keys.start(SupervisorBehavior { statuses: [(path, 403)].into(), ..made(cluster()) });
    let talk = Talk::begin(joins(Role::Worker, &server, SERVER));
    talk.expect("join-hostname", "could not run", "/api/v1/nodes/node-2 gave 403 Forbidden");
}

#[test]
fn nodes_that_are_not_listed_are_no_reason_not_to_join() {
    let keys = Keys::make();
    let server = keys.start(made(KubeadmCluster { lists_nodes: false, ..cluster() }));
    let talk = Talk::begin(joins(Role::Witness, &server, SERVER));
    talk.expect("join-witness", "could not run", "/api/v1/nodes gave 403 Forbidden");
    talk.expect("join-hostname", "passed", "");
}

#[test]
fn the_networks_that_count_are_those_of_the_cluster_that_is_joined() {
    let keys = Keys::make();
    let networks = Some(("127.0.0.0/8".to_owned(), "10.61.0.0/16".to_owned()));
    let server = keys.start(made(KubeadmCluster { networks, ..cluster() }));
    let networks =
        ClusterNetworks { pods: "10.52.0.0/16".parse().unwrap(), services: "10.53.0.0/16".parse().unwrap() };
    let distribution = Distribution::Kubeadm;
    let claim = AddressClaim {
        address: [127, 1, 2, 3].into(),
        key: "install.management_interface.ip".into(),
        cards: vec![],
        vlan: 0,
        device: "mgmt-br".into(),
    };
    let node = PlannedNode {
        cluster: Some(PlannedCluster { distribution, networks, keeps_etcd: false }),
        claims: vec![claim],
        ..joins(Role::Worker, &server, SERVER)
    };
    let talk = Talk::begin(node);
    talk.expect("cluster-networks", "found", "the cluster's pods, 127.0.0.0/8, overlaps 127.1.2.3/32");
    assert!(talk.next("cluster-networks").contains("cannot be changed"));
}

#[test]
fn a_node_joins_a_cluster_of_its_own_series() {
    let keys = Keys::make();
    for (running, own, word, part) in [
        ("v1.37.2", Some("v1.37.2"), "passed", "the cluster runs v1.37.2"),
        ("v1.37.2", None, "passed", ""),
        ("v1.37.2", Some("v1.37.4"), "mild", "images of v1.37.2 have to come from a registry"),
        ("v1.37.2", Some("v1.37.1"), "mild", "this node brings v1.37.1"),
        ("v1.36.9", Some("v1.37.2"), "found", "kubeadm joins the same series only"),
        ("v1.38.0", Some("v1.37.2"), "found", "kubeadm joins the same series only"),
        ("v1.38.0+k3s1", Some("v1.37.2"), "found", "which is k3s, and this node is to run kubeadm"),
    ] {
        // The server may have been brought to another version already.
        let server = keys.start(made(KubeadmCluster { version: Some(running.into()), ..cluster() }));
        let own = own.map(|own| Version::read(own).unwrap());
        let talk = Talk::begin(with(joins(Role::Worker, &server, SERVER), |join| join.version = own));
        talk.expect("join-version", word, part);
    }
}
