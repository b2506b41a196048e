//! Cluster files: what is accepted, what is refused and where, and which documents come of it.

mod output;
mod whole;

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::document::shape;
use super::*;
use crate::config::{Mode, Severity, parse};
use base::failure::render as told;

/// Three management machines, every rule met.
const THREE: &str = "\
cluster:
  name: east
  token: 9f8e7d6c5b4a39281706f5e4d3c2b1a0
  os:
    ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g admin]
    dns_nameservers: [192.0.2.53]
    ntp_servers: [a.example.org, b.example.org]
  install:
    automatic: true
    vip: 192.0.2.10
    management_interface: {subnet_mask: 255.255.255.0, gateway: 192.0.2.1}
templates:
  large:
    install: {device: /dev/disk/by-id/a}
pools:
  - name: control
    role: management
    template: large
    machines:
      - {hostname: n1, ip: 192.0.2.11, macs: ['52:54:00:00:00:11']}
      - {hostname: n2, ip: 192.0.2.12, macs: ['52:54:00:00:00:12']}
      - {hostname: n3, ip: 192.0.2.13, macs: ['52:54:00:00:00:13']}
";

/// `code line path` of everything that is told; warnings begin with `~`.
fn findings(text: &str) -> Vec<String> {
    let all = match check(text, "c.yaml") {
        Ok(checked) => checked.warnings,
        Err(invalid) => invalid.0,
    };
    let sign = |severity| if severity == Severity::Warning { "~" } else { "" };
    all.iter().map(|d| format!("{}{} {} {}", sign(d.severity), d.code, d.line, d.path)).collect()
}

fn three(changes: &[(&str, &str)]) -> String {
    changes.iter().fold(THREE.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

fn with(pools: &str) -> String {
    format!("{THREE}{pools}")
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/clusters")
}

#[test]
fn a_whole_cluster_passes_in_silence() {
    assert_eq!(findings(THREE), [""; 0]);
    let checked = check(THREE, "c.yaml").unwrap();
    assert_eq!(checked.counts, NodeCounts { management: 3, witness: 0, worker: 0 });
    let modes: Vec<_> = checked.documents.iter().map(|document| document.entry.mode).collect();
    assert_eq!(modes, [Mode::Create, Mode::Join, Mode::Join]);
}

#[test]
fn mistakes_of_form_come_all_at_once_and_lead_to_the_right_key() {
    let text = "\
scheme_version: 2
cluster:
  name: East
  token: 9f8e7d6c5b4a39281706f5e4d3c2b1a0
  hostname: x
  install: {vip: 192.0.2.10, mode: join, no_format: true}
templates:
  large:
    token: hunter2hunter2hunter2
    install: {vip: 192.0.2.10, devise: /dev/sda}
    os: {hostname: a}
token: hunter2hunter2hunter2
pools:
  - name: control
    role: manager
    machines:
      - {hostname: n1, vlan_id: 2, overrides: {install: {management_interface: {ip: 192.0.2.11}}}}
";
    let invalid = check(text, "c.yaml").unwrap_err();
    let rows: Vec<_> = invalid
        .0
        .iter()
        .map(|d| (d.line, d.code, d.path.as_str(), d.suggestion.as_deref().unwrap_or_default()))
        .collect();
    let expected = [
        (1, "unsupported-scheme-version", "scheme_version", "1"),
        (3, "invalid-group-name", "cluster.name", ""),
        (5, "unknown-key", "cluster.hostname", "hostname"),
        (6, "misplaced-key", "cluster.install.mode", "create: true"),
        (6, "retired-key", "cluster.install.no_format", ""),
        (9, "unknown-key", "templates.large.token", "cluster.token"),
        (10, "misplaced-key", "templates.large.install.vip", "cluster.install.vip"),
        (10, "unknown-key", "templates.large.install.devise", "device"),
        (11, "misplaced-key", "templates.large.os.hostname", "hostname"),
        (12, "unknown-key", "token", "cluster.token"),
        (15, "unknown-value", "pools[0].role", ""),
        (17, "unknown-key", "pools[0].machines[0].vlan_id", "cluster.install.management_interface.vlan_id"),
        (17, "misplaced-key", "pools[0].machines[0].overrides.install.management_interface.ip", "ip"),
    ];
    assert_eq!(rows, expected);
    assert!(!invalid.to_string().contains("hunter2"), "{invalid}");
}

#[test]
fn what_holds_for_several_machines_is_told_once_where_they_have_it_from() {
    let warned = three(&[("install: {device: /dev/disk/by-id/a}", "install: {device: /dev/sda}")]);
    assert_eq!(findings(&warned), ["~device-by-name 14 templates.large.install.device"]);
    // A value that all could have is reported missing at the shared place.
    let unnamed = three(&[("    dns_nameservers: [192.0.2.53]\n", "")]);
    assert_eq!(findings(&unnamed), ["missing-value 5 cluster.os.dns_nameservers"]);
    let closed = three(&[(
        "    ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g admin]\n",
        "",
    )]);
    assert_eq!(findings(&closed), ["no-login 5 cluster.os"]);
    let bare = three(&[(
        "{hostname: n2, ip: 192.0.2.12, macs: ['52:54:00:00:00:12']}",
        "{hostname: n2, ip: 192.0.2.12}",
    )]);
    let only = "missing-value 21 pools[0].machines[1].overrides.install.management_interface.interfaces";
    assert_eq!(findings(&bare), [only]);
    // A mistake elsewhere in the machine does not hide it.
    let colour = bare.replace("hostname: n2,", "hostname: n2, colour: red,");
    assert_eq!(findings(&colour), [only, "unknown-key 21 pools[0].machines[1].colour"]);
    // A mistake that concerns some of the nodes names them.
    let workers = with(
        "  - {name: w, role: witness, template: large, machines: [{hostname: w1, ip: 192.0.2.21, \
                        macs: ['52:54:00:00:00:21']}]}\n",
    );
    let workers = workers
        .replace("device: /dev/disk/by-id/a", "device: /dev/disk/by-id/a, data_disk: /dev/disk/by-id/b");
    let invalid = check(&workers, "c.yaml").unwrap_err();
    let disk = invalid.0.iter().find(|d| d.path == "templates.large.install.data_disk").unwrap();
    assert!(disk.code == "wrong-role" && disk.message.ends_with("(on w1)"), "{disk}");
}

#[test]
fn a_machine_is_stronger_than_its_template_and_the_template_than_the_cluster() {
    let text = three(&[
        (
            "    automatic: true\n",
            "    automatic: true\n    poweroff: true\n    tty: ttyS0\n    debug: true\n",
        ),
        ("{device: /dev/disk/by-id/a}", "{device: /dev/disk/by-id/a, poweroff: false, tty: ttyS1}"),
        ("ip: 192.0.2.12,", "ip: 192.0.2.12, overrides: {install: {tty: ttyS2}},"),
    ]);
    let checked = check(&text, "c.yaml").unwrap();
    let install = |index: usize| parse(&checked.documents[index].text, "n").unwrap().install;
    let tty = |index| install(index).tty.unwrap().to_string();
    assert_eq!((tty(0), tty(1)), ("ttyS1".to_owned(), "ttyS2".to_owned()));
    assert!(install(0).debug && !install(0).poweroff);
}

#[test]
fn each_shared_key_goes_to_the_nodes_on_which_it_works() {
    let text = three(&[
        (
            "  os:\n",
            "  sans: [c.example.org]\n  system_settings: {log-level: info, containerd-registry: '{}'}\n  os:\n",
        ),
        ("    vip: 192.0.2.10\n", "    vip: 192.0.2.10\n    cluster_pod_cidr: 10.60.0.0/16\n"),
    ]) + "  - {name: w, role: worker, machines: [{hostname: w1, ip: 192.0.2.21, macs: ['52:54:00:00:00:21']}]}\n";
    let checked = check(&text, "c.yaml").unwrap();
    let configs: Vec<_> = checked.documents.iter().map(|d| parse(&d.text, "n").unwrap()).collect();
    let (create, join, worker) = (&configs[0], &configs[1], &configs[3]);
    assert!(create.install.vip.is_some() && create.system_settings.len() == 2 && create.server_url.is_none());
    assert!(join.install.vip.is_none() && join.system_settings.len() == 1 && !join.sans.is_empty());
    assert_eq!(join.server_url.as_deref(), Some("https://192.0.2.10"));
    assert!(join.install.cluster_pod_cidr.is_some() && worker.install.cluster_pod_cidr.is_none());
    assert!(worker.sans.is_empty() && worker.token.is_none() && join.token == create.token);
    assert_eq!(worker.kubernetes.agent_token, create.kubernetes.agent_token);
}

#[test]
fn a_workers_own_networks_do_not_overlap_those_of_the_cluster() {
    let worker = "  - {name: w, role: worker, machines: [{hostname: w1, ip: 192.0.2.21, macs: ['52:54:00:00:00:21'], \
                  overrides: {install: {networks: [{name: x, interfaces: [{name: e}], method: static, ip: 10.9.0.5, \
                  subnet_mask: 255.255.255.0}]}}}]}\n";
    assert_eq!(findings(&with(worker)), [""; 0]);
    let text = three(&[("    vip", "    cluster_pod_cidr: 10.9.0.0/16\n    vip")]) + worker;
    assert_eq!(
        findings(&text),
        ["overlapping-networks 24 pools[1].machines[0].overrides.install.networks[0].ip"]
    );
    // The usual range of pods is free where the cluster's are elsewhere, and the worker's document is not told.
    let elsewhere = ["10.60.0.0/16", "10.61.0.0/16"];
    let ranges = format!(
        "    cluster_pod_cidr: {}\n    cluster_service_cidr: {}\n    vip",
        elsewhere[0], elsewhere[1]
    );
    let text = three(&[("    vip", &ranges)]) + &worker.replace("10.9.0.5", "10.52.0.5");
    let document = check(&text, "c").unwrap().documents.remove(3);
    assert!(parse(&document.text, "n").is_ok());
}

#[test]
fn the_schema_and_the_shape_know_the_same_keys() {
    let schema: Value = serde_json::from_str(&json_schema()).unwrap();
    assert!(schema["$defs"]["Part"]["properties"].get("token").is_none());
    assert_eq!(schema["$defs"]["Shared"]["required"][0], "name");
    assert!(shape().at("cluster").unwrap().at("token").is_some());
    assert!(shape().at("cluster").unwrap().at("scheme_version").is_none());
}

#[test]
fn every_example_passes_and_gives_documents_that_pass() {
    let mut count = 0;
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        let checked = load(&path).unwrap_or_else(|error| panic!("{}", told(&error)));
        let unexpected: Vec<_> =
            checked.warnings.iter().filter(|warning| warning.code != "weak-token").collect();
        assert!(unexpected.is_empty(), "{}: {unexpected:?}", path.display());
        let mut golden = String::new();
        for document in &checked.documents {
            let name = &document.entry.hostname;
            let read = parse(&document.text, name).unwrap_or_else(|error| panic!("{}", told(&error)));
            assert_eq!(read, serde_json::from_value(document.value.clone()).unwrap(), "{name}");
            golden += &format!("==> {}\n{}", document.entry.file, document.text);
        }
        drift(&path.file_stem().unwrap().to_string_lossy(), &golden);
        count += 1;
    }
    assert_eq!(count, 4);
}

#[test]
fn the_example_of_the_manual_passes() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/clusters.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let (_, rest) = manual.split_once("```yaml\n").unwrap();
    assert_eq!(findings(rest.split_once("```").unwrap().0), [""; 0]);
}

/// Compares with the file of this name in `golden/`; with `UPDATE_GOLDEN` set, writes it.
fn drift(name: &str, text: &str) {
    let path = format!("{}/src/cluster_file/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    testing::golden::compare(path, text);
}

proptest::proptest! {
    #[test]
    fn no_document_makes_the_reader_panic(
        text in "(cluster|templates|pools|machines|overrides|install|os|name|role|a|: |\n|  |- |\\[|\\]|\\{|\\}|,){0,60}"
    ) {
        let _ = check(&text, "f");
    }

    #[test]
    fn no_change_of_a_line_makes_the_reader_panic(at in 0_usize..22, with in "[ -~]{0,30}", drop in 0_usize..3) {
        let mut lines: Vec<_> = THREE.lines().collect();
        lines.splice(at..(at + drop).min(lines.len()), [with.as_str()]);
        let _ = check(&lines.join("\n"), "f");
    }
}
