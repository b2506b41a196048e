//! Complete sets of files, for each part of a node.

use std::collections::BTreeSet;

use super::*;
use machine::node_files::FileKind;
use model::config::Mode;
use model::config::parse;
use model::config::registries::Registries;
use serde_json::Value;

const FACTS: MachineSize = MachineSize { cpus: 16, memory: 64 * 1024 };

/// What the documents below have in common: the node's own settings.
const NODE: &str = "\
token: golden-token
os:
  labels: {topology.kubernetes.io/zone: one}
  dns_nameservers: [192.0.2.53]
  ntp_servers: [ntp.example.org]
install:
  management_interface:
    interfaces: [{name: ens3}]
    method: static
    ip: 192.0.2.11
    subnet_mask: 255.255.255.0
    gateway: 192.0.2.1
    vlan_id: 100
";

/// The settings that create a cluster.
const CLUSTER: &str = r#"  mode: create
  role: management
  vip: 192.0.2.10
  vip_mode: static
  cluster_pod_cidr: 10.62.0.0/16
  cluster_service_cidr: 10.63.0.0/16
  addons:
    rancher_logging: {enabled: true, values_content: "disablePvc: true\n"}
    harvester_seeder: {enabled: false}
  harvester:
    storage_class: {replica_count: 2}
    longhorn:
      default_settings:
        guaranteed_instance_manager_cpu: 10
        storage_reserved_percentage_for_default_disk: 20
sans: [cluster.example.org]
system_settings:
  cluster-registration-url: '{"url":"https://rancher.example.org/v3/import/golden.yaml","insecureSkipTLSVerify":false}'
  containerd-registry: '{"Mirrors":{"docker.io":{"Endpoints":["https://mirror.example.org"]}},"Configs":{"mirror.example.org":{"Auth":{"Username":"golden","Password":"golden-password"}}}}'
kubernetes:
  agent_token: golden-agent-token
  kubelet_args: [max-pods=100, log-flush-frequency=10s]
  node_taints: ['example.org/busy=:PreferNoSchedule']
  manifests:
    - name: greeting
      content: |
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: greeting, namespace: default}
"#;

fn document(case: &str) -> String {
    let (part, distribution) = case.rsplit_once('-').unwrap();
    let distribution = format!("  distribution: {distribution}\n");
    let joins = |role: &str| {
        format!(
            "{NODE}  mode: join\n  role: {role}\nserver_url: https://192.0.2.10\nkubernetes:\n{distribution}"
        )
    };
    match part {
        "create" => format!("{NODE}{CLUSTER}{distribution}"),
        "create-dhcp" => format!(
            "token: golden-token\ninstall:\n  mode: create\n  vip: 192.0.2.10\n  vip_mode: dhcp\n  \
             vip_hw_addr: 52:54:00:AA:BB:CC\nkubernetes:\n{distribution}"
        ),
        "create-bare" => format!("token: golden-token\nkubernetes:\n{distribution}"),
        "create-relaxed" => format!("{NODE}{CLUSTER}{distribution}  timing: relaxed\n"),
        "management-dhcp" => {
            joins("management").replace("  mode: join\n", "  mode: join\n  vip_mode: dhcp\n")
        }
        "worker" => {
            joins("worker")
                .replace("  mode: join\n", "  mode: join\n  cordoned: true\n")
                .replace("token: golden-token\n", "")
                + "  agent_token: golden-agent-token\n"
        }
        role => joins(role),
    }
}

fn rendered(document: &str) -> Vec<NodeFile> {
    files(&parse(document, "f").unwrap(), Some("node-1"), FACTS, false)
}

#[test]
fn what_only_the_hypervisor_acts_on_is_there_where_it_is_or_where_the_document_counts_on_it() {
    let base = "token: golden-token\nos: {ntp_servers: [a.example.org, b.example.org]}\n";
    let settings = "system_settings: {containerd-registry: '{}'}\n";
    for (document, hypervisor, told) in [
        (base.to_owned(), false, false),
        (format!("{base}{settings}"), false, false),
        (base.to_owned(), true, true),
        (format!("{base}install: {{addons: {{harvester_seeder: {{enabled: true}}}}}}\n"), false, true),
        (format!("{base}system_settings: {{log-level: info}}\n"), false, true),
    ] {
        for distribution in ["rke2", "k3s"] {
            let text = format!("{document}kubernetes: {{distribution: {distribution}}}\n");
            let files = files(&parse(&text, "f").unwrap(), Some("node-1"), FACTS, hypervisor);
            let has = |name: &str| files.iter().any(|file| file.path.contains(name));
            assert_eq!(has("nqrust-chart-harvester"), told, "{text}");
            assert_eq!(has("nqrust-setting-ntp-servers"), told, "{text}");
        }
    }
}

#[test]
fn the_hypervisor_is_told_of_the_registries_of_the_node() {
    let text = "token: golden-token\nkubernetes: {distribution: rke2}\nregistries: {mirrors: {docker.io: {endpoint: [https://a]}}}\n";
    let files = files(&parse(text, "f").unwrap(), Some("node-1"), FACTS, true);
    let setting =
        files.iter().find(|file| file.path.ends_with("/nqrust-setting-containerd-registry.yaml")).unwrap();
    let object: serde_json::Value = serde_json::from_slice(&setting.bytes).unwrap();
    let value = Registries::parse(object["value"].as_str().unwrap()).unwrap();
    assert_eq!(value.mirrors["docker.io"].endpoints, ["https://a"]);
}

#[test]
fn snapshots_of_volumes_have_one_controller_with_the_hypervisor_and_without() {
    for hypervisor in [false, true] {
        for case in ["create-rke2", "management-rke2", "witness-rke2"] {
            let files = files(&parse(&document(case), "f").unwrap(), Some("node-1"), FACTS, hypervisor);
            let disabled = content(&files, "90-nqrust-cluster.yaml").contains("rke2-snapshot-controller");
            assert_eq!(disabled, hypervisor, "{case}");
        }
    }
}

#[test]
fn a_cordoned_node_takes_no_work_when_it_registers() {
    for (case, hypervisor, tainted) in [
        ("worker-rke2", false, true),
        ("worker-k3s", false, true),
        ("worker-rke2", true, false),
        ("default-rke2", false, false),
    ] {
        let files = files(&parse(&document(case), "f").unwrap(), Some("node-1"), FACTS, hypervisor);
        let settings = content(&files, "91-nqrust-node.yaml");
        assert_eq!(settings.contains("nqrust.io/install-cordoned=true:NoSchedule"), tainted, "{case}");
    }
    let join = rendered(&document("worker-kubeadm"));
    assert!(!content(&join, "join.yaml").contains("install-cordoned"), "it is cordoned when it has joined");
}

/// The parts of nodes of RKE2 and K3s.
fn rancher_cases() -> impl Iterator<Item = String> {
    let parts = [
        "create",
        "create-bare",
        "create-dhcp",
        "default",
        "management",
        "management-dhcp",
        "worker",
        "witness",
    ];
    parts.into_iter().flat_map(|part| ["rke2", "k3s"].map(|distribution| format!("{part}-{distribution}")))
}

fn cases() -> impl Iterator<Item = String> {
    let parts = ["create", "create-bare", "create-relaxed", "default", "management", "worker", "witness"];
    rancher_cases().chain(parts.map(|part| format!("{part}-kubeadm")))
}

fn content<'a>(files: &'a [NodeFile], end: &str) -> &'a str {
    let file = files.iter().find(|file| file.path.ends_with(end)).unwrap_or_else(|| panic!("no {end}"));
    std::str::from_utf8(&file.bytes).unwrap()
}

#[test]
fn each_part_has_its_golden_files() {
    for case in cases() {
        let text: String = rendered(&document(&case))
            .iter()
            .map(|file| match (String::from_utf8_lossy(&file.bytes), file.kind) {
                (text, FileKind::File) => format!("==> {} {:04o}\n{text}", file.path, file.mode),
                (target, FileKind::Link) => format!("==> {} -> {target}\n", file.path),
            })
            .collect();
        let path = format!("{}/src/configuration/golden/{case}.txt", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&path).unwrap(), "{path}");
    }
}

#[test]
fn every_key_is_a_flag_that_the_distribution_knows() {
    for case in rancher_cases() {
        let agent = case.starts_with("default") || case.starts_with("worker");
        let flags = match (case.ends_with("k3s"), agent) {
            (false, false) => include_str!("flags/rke2-server.txt"),
            (false, true) => include_str!("flags/rke2-agent.txt"),
            (true, false) => include_str!("flags/k3s-server.txt"),
            (true, true) => include_str!("flags/k3s-agent.txt"),
        };
        let flags: BTreeSet<&str> = flags.lines().filter(|line| !line.starts_with('#')).collect();
        let files = rendered(&document(&case));
        let parts: Vec<_> = files.iter().filter(|file| file.path.contains("config.yaml.d")).collect();
        assert_eq!(parts.len(), 2);
        for part in parts {
            let keys: serde_json::Map<String, Value> = serde_json::from_slice(&part.bytes).unwrap();
            for key in keys.keys() {
                assert!(flags.contains(key.as_str()), "{case}: {key}");
            }
        }
    }
}

#[test]
fn an_agent_has_no_key_that_only_servers_know() {
    let flags =
        |text: &'static str| text.lines().filter(|line| !line.starts_with('#')).collect::<BTreeSet<_>>();
    let servers = [flags(include_str!("flags/rke2-server.txt")), flags(include_str!("flags/k3s-server.txt"))];
    let agents = [flags(include_str!("flags/rke2-agent.txt")), flags(include_str!("flags/k3s-agent.txt"))];
    let only: BTreeSet<&str> = servers
        .iter()
        .zip(&agents)
        .flat_map(|(servers, agents)| servers.difference(agents))
        .copied()
        .collect();
    assert!(only.contains("tls-san") && only.contains("cluster-cidr") && !only.contains("server"));
    for case in rancher_cases().filter(|case| case.starts_with("default") || case.starts_with("worker")) {
        let text: String = rendered(&document(&case))
            .iter()
            .filter(|file| file.path.contains("config.yaml.d"))
            .map(|file| String::from_utf8_lossy(&file.bytes).into_owned())
            .collect();
        for key in &only {
            assert!(!text.contains(&format!("\"{key}\":")), "{case}: {key}");
        }
    }
}

#[test]
fn files_with_secrets_are_for_root_only_and_no_path_is_told_twice() {
    for case in cases() {
        let files = rendered(&document(&case));
        let paths: BTreeSet<&str> = files.iter().map(|file| &*file.path).collect();
        assert_eq!(paths.len(), files.len(), "{case}");
        for file in files {
            let secret = String::from_utf8_lossy(&file.bytes).contains("golden-");
            assert!(!secret || file.mode == 0o600, "{case}: {}", file.path);
        }
    }
}

#[test]
fn a_node_that_has_no_cluster_gets_nothing() {
    assert!(rendered("install: {mode: install}").is_empty());
    let lost = InstallConfig {
        install: model::config::Install { mode: Mode::Join, ..Default::default() },
        ..InstallConfig::default()
    };
    assert!(
        files(&lost, None, FACTS, false).is_empty(),
        "a server without a cluster to join would start one"
    );
}

#[test]
fn an_agent_uses_the_secret_that_cannot_make_it_a_server() {
    let worker = rendered(&document("worker-rke2"));
    let all: String = worker.iter().map(|file| String::from_utf8_lossy(&file.bytes).into_owned()).collect();
    assert!(all.contains("golden-agent-token") && !all.contains("golden-token"));
}

#[test]
fn the_cluster_is_found_at_the_port_of_its_distribution() {
    for (distribution, url) in
        [("rke2", "https://vip.example.org:9345"), ("k3s", "https://vip.example.org:6443")]
    {
        for given in ["https://vip.example.org", "vip.example.org", "https://vip.example.org:443"] {
            let text = format!(
                "server_url: {given}\ninstall: {{mode: join, role: management}}\n\
                 kubernetes: {{distribution: {distribution}}}\ntoken: a\n"
            );
            let files = rendered(&text);
            let config: Value = serde_json::from_str(content(&files, "90-nqrust-cluster.yaml")).unwrap();
            assert_eq!((&config["server"], &config["tls-san"][0]), (&url.into(), &"vip.example.org".into()));
        }
    }
}

#[test]
fn arguments_of_the_document_replace_those_that_are_worked_out() {
    let text = "kubernetes: {kubelet_args: [system-reserved=cpu=1, v=4]}";
    let files = rendered(text);
    let config: Value = serde_json::from_str(content(&files, "91-nqrust-node.yaml")).unwrap();
    let arguments: Vec<&str> =
        config["kubelet-arg"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()).collect();
    let expected = ["max-pods=200", "kube-reserved=cpu=612m,memory=3367Mi", "system-reserved=cpu=1", "v=4"];
    assert_eq!(arguments, expected);
}

#[test]
fn only_a_promotable_node_leaves_the_server_unmasked() {
    let masked = |case: &str| {
        let files = rendered(&document(case));
        files.iter().any(|file| file.path == "etc/systemd/system/rke2-server.service")
    };
    assert!(masked("worker-rke2") && masked("default-k3s") && !masked("default-rke2"));
}
