//! The registry as a whole: what is run, what is left out, what stops an install, and the report.

use super::*;
use crate::checks::CHECKS;
use crate::planned_node::{AddressClaim, Proxy};
use crate::{PreflightReport, Severity, report, run};
use base::failure::{Class, render};
use base::progress::Progress;
use model::checks::NAMES;
use model::config::{InstallConfig, Role};
use testing::progress::Recorder;

/// A small machine that lacks everything, in profile trial or production.
fn small(node: &PlannedNode) -> PreflightReport {
    let machine = Machine::fit();
    machine.file("sys/devices/system/cpu/online", "0-1\n");
    machine.remove("sys/firmware/dmi");
    machine.remove("sys/firmware/efi");
    machine.remove("sys/class/dmi/id/product_uuid");
    machine.remove("dev/kvm");
    machine.file("proc/meminfo", "MemTotal: 2014000 kB\n");
    machine.file("proc/cpuinfo", "flags: hypervisor\n");
    let mut facts = machine.facts();
    facts.inventory.nics = vec![nic("ens3", 3, Some(true), None)];
    facts.inventory.disks = vec![disk("vda", ByteSize::gib(24))];
    facts.inventory.disks[0].rotational = true;
    run(&facts, node, &Answers::default())
}

fn words(report: &PreflightReport) -> Vec<String> {
    report.checks.iter().map(|verdict| format!("{} {}", verdict.check, verdict.word())).collect()
}

fn stops(report: &PreflightReport) -> Vec<&str> {
    report.stops().map(|verdict| verdict.check).collect()
}

#[test]
fn names_are_unique_and_stable_in_form() {
    let all: Vec<_> = CHECKS.iter().map(|check| check.name).collect();
    assert_eq!(all, NAMES, "configurations skip checks by these names");
    for (index, name) in all.iter().enumerate() {
        assert!(!all[index + 1..].contains(name), "{name}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
    }
    assert_eq!(all.len(), 33);
}

#[test]
fn a_small_virtual_machine_passes_as_a_trial_with_warnings_and_never_in_production() {
    let trial = small(&trial());
    assert_eq!(stops(&trial), [""; 0]);
    assert!(trial.verdict().is_ok());
    assert_eq!(
        words(&trial),
        [
            "cpu warning",
            "memory warning",
            "kvm warning",
            "virtualisation skipped",
            "firmware skipped",
            "dmi-uuid warning",
            "drivers passed",
            "module-signatures passed",
            "host-settings skipped",
            "passthrough skipped",
            "disk-size passed",
            "disk-speed skipped",
            "disk-paths passed",
            "network-disks passed",
            "nic-link passed",
            "nic-speed could not run",
            "clock could not run",
            "dns skipped",
            "ntp skipped",
            "proxy skipped",
            "address-conflict skipped",
            "cluster-networks skipped",
            "etcd-address skipped",
            "join-server skipped",
            "join-authority skipped",
            "join-token skipped",
            "join-clock skipped",
            "join-hostname skipped",
            "join-witness skipped",
            "join-vip skipped",
            "join-version skipped",
            "join-latency skipped",
            "join-mtu skipped",
        ]
    );
    let production = small(&PlannedNode::default());
    assert_eq!(stops(&production), ["cpu", "memory", "kvm", "dmi-uuid", "disk-size"]);
    let told = words(&production);
    for word in ["virtualisation warning", "firmware warning", "disk-speed warning"] {
        assert!(told.contains(&word.to_owned()), "{told:?}");
    }
}

#[test]
fn the_error_tells_every_check_that_stops_and_how_to_leave_them_out() {
    let report = small(&PlannedNode::default());
    let failure = report.verdict_in_full().unwrap_err();
    assert_eq!(failure.class(), Class::Hardware);
    let text = render(&failure.into());
    let beginning =
        "error: this machine does not pass 5 checks for role default in profile production\n  cpu: 2 proc";
    assert!(
        text.starts_with(beginning) && text.contains("\n    Use a machine with more memory.\n"),
        "{text}"
    );
    // A disk that is too small stays too small.
    assert!(text.ends_with("install.skip_checks: [cpu, memory, kvm, dmi-uuid].\n"), "{text}");
    let text = render(&report.verdict().unwrap_err().into());
    assert!(text.contains("production: cpu, memory, kvm, dmi-uuid, disk-size\n"), "{text}");
}

#[test]
fn a_check_that_is_named_is_left_out_and_only_that() {
    let skip = vec!["cpu".to_owned(), "kvm".to_owned()];
    let report = small(&PlannedNode { skip, ..PlannedNode::default() });
    assert_eq!(stops(&report), ["memory", "dmi-uuid", "disk-size"]);
    assert!(words(&report).contains(&"cpu skipped".to_owned()));
}

#[test]
fn the_reference_s_skipchecks_tells_everything_and_stops_for_nothing() {
    let report = small(&PlannedNode { stop_for_nothing: true, ..PlannedNode::default() });
    assert_eq!(stops(&report), [""; 0]);
    assert!(words(&report).contains(&"memory warning".to_owned()));
}

#[test]
fn a_witness_needs_no_kvm() {
    let report = small(&PlannedNode { role: Role::Witness, ..PlannedNode::default() });
    assert!(words(&report).contains(&"kvm skipped".to_owned()), "{:?}", words(&report));
}

#[test]
fn without_a_link_nothing_is_asked() {
    let mut facts = Machine::fit().facts();
    facts.inventory.nics[0].carrier = Some(false);
    let claim = AddressClaim {
        address: [192, 0, 2, 1].into(),
        key: "install.vip".into(),
        cards: vec![],
        vlan: 0,
        device: "mgmt-br".into(),
    };
    let name_servers = vec![[192, 0, 2, 53].into()];
    let node = PlannedNode { claims: vec![claim], name_servers, ..PlannedNode::default() };
    let network = Answers::default();
    let report = run(&facts, &node, &network);
    let told = words(&report);
    for name in ["clock", "dns", "ntp", "proxy", "address-conflict"] {
        assert!(told.contains(&format!("{name} could not run")), "{told:?}");
    }
    assert!(network.asked.lock().unwrap().is_empty());
}

#[test]
fn a_mild_finding_is_a_warning_where_the_check_is_an_error() {
    let mut facts = Machine::fit().facts();
    facts.inventory.disks[0].size = ByteSize::gib(300);
    let report = run(&facts, &PlannedNode::default(), &Answers::default());
    assert_eq!(check("disk-size").severity(Role::Default, Profile::Production), Severity::Error);
    assert!(words(&report).contains(&"disk-size warning".to_owned()) && report.verdict().is_ok());
}

#[test]
fn progress_hears_of_findings_and_of_what_is_not_known() {
    let recorder = Recorder::default();
    small(&trial()).tell(&Progress::new(vec![Box::new(recorder.clone())]));
    let events = recorder.0.lock().unwrap();
    assert!(events.iter().all(|event| event.step == "preflight"));
    let told: Vec<_> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(told[0].starts_with("warning: cpu: 2 processors, and a node for a trial"), "{told:?}");
    assert!(told.contains(&"could not run: nic-speed: ens3 does not report its speed"), "{told:?}");
}

#[test]
fn a_report_reads_the_same_for_people_and_programs() {
    let report = small(&trial());
    let text = report.to_text();
    assert!(text.contains("could not run  nic-speed         ens3 does not report its speed\n"), "{text}");
    assert!(
        text.contains("                                next: Use a machine with more memory.\n"),
        "{text}"
    );
    let json = serde_json::to_value(&report).unwrap();
    let of = |name: &str| {
        json["checks"].as_array().unwrap().iter().find(|check| check["check"] == name).unwrap().clone()
    };
    assert_eq!((&json["role"], &json["profile"]), (&"default".into(), &"trial".into()));
    let cpu = of("cpu");
    assert_eq!((&cpu["outcome"], &cpu["severity"]), (&"found".into(), &"warning".into()));
    assert!(cpu["message"].is_string() && cpu["next"].is_string());
    assert_eq!(of("nic-speed")["outcome"], "could-not-run");
    assert_eq!(of("disk-size")["outcome"], "passed");
}

#[test]
fn the_list_has_every_check_with_its_severities() {
    let (text, json) = (report::list_text(), report::list_json());
    for (name, check) in NAMES.into_iter().zip(json.as_array().unwrap()) {
        assert_eq!(check["name"], name);
        assert!(text.lines().any(|line| line.split(' ').next() == Some(name)), "{text}");
    }
    assert_eq!(json[2]["severity"]["witness"]["production"], "off");
    assert_eq!(json[2]["severity"]["worker"]["production"], "error");
    assert!(
        text.contains("kvm               error       warning     virtual machines can run (not of witness)")
    );
}

#[test]
fn a_card_that_has_just_come_up_gets_time_for_its_link() {
    let machine = Machine::new();
    machine.file("sys/block/.keep", "");
    machine.file("proc/self/mountinfo", "");
    for (file, text) in [("device/vendor", "1"), ("address", "52:54:00:00:00:03"), ("carrier", "0")] {
        machine.file(&format!("sys/class/net/ens3/{file}"), text);
    }
    let look = |cards: &[&str], millis| {
        let node = PlannedNode { cards: named(cards), ..PlannedNode::default() };
        let begun = Instant::now();
        let nics = crate::inventory(&machine.roots(), &node, Duration::from_millis(millis)).unwrap().nics;
        (nics[0].carrier, begun.elapsed())
    };
    let (carrier, took) = look(&["ens3"], 300);
    assert!(carrier == Some(false) && took >= Duration::from_millis(300), "{took:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            machine.file("sys/class/net/ens3/carrier", "1");
        });
        assert_eq!(look(&[], 20_000).0, Some(true));
    });
    for card in ["ens3", "absent"] {
        let (_, took) = look(&[card], 20_000);
        assert!(took < Duration::from_secs(10), "{card}: {took:?}");
    }
}

fn node(text: &str) -> PlannedNode {
    PlannedNode::of(&model::config::parse(text, "node.yaml").unwrap())
}

#[test]
fn an_intent_is_what_the_configuration_asks_for() {
    let node = node(
        "os:
  dns_nameservers: [192.0.2.53]
  ntp_servers: [ntp.example.org]
  environment:
    HTTPS_PROXY: http://user:hush@proxy.example.org:3128
    http_proxy: proxy.example.org:3128
    NO_PROXY: example.org
install:
  mode: create
  profile: trial
  skip_checks: [nic-speed]
  skipchecks: true
  vip: 192.0.2.100
  vip_mode: static
  management_interface:
    interfaces: [{ name: ens3 }]
    method: static
    ip: 192.0.2.10
    subnet_mask: 255.255.255.0
    gateway: 192.0.2.1
    vlan_id: 7
",
    );
    assert_eq!((node.role, node.profile, node.dhcp), (Role::Management, Profile::Trial, false));
    let claims: Vec<_> =
        node.claims.iter().map(|c| (c.address.octets()[3], c.key.as_str(), c.vlan)).collect();
    assert_eq!(claims, [(10, "install.management_interface.ip", 7), (100, "install.vip", 7)]);
    assert_eq!(node.claims[0].cards, named(&["ens3"]));
    assert_eq!(node.time_servers, ["ntp.example.org"]);
    assert_eq!(node.proxies, [Proxy { host: "proxy.example.org".into(), port: 3128, tls: false }]);
    assert_eq!(node.skip, ["nic-speed"]);
    assert!(node.stop_for_nothing && !format!("{node:?}").contains("hush"));
}

#[test]
fn a_node_that_joins_looks_for_its_cluster_and_leaves_the_cluster_s_address_alone() {
    let mut config = InstallConfig::default();
    config.install.mode = model::config::Mode::Join;
    config.install.vip = Some([192, 0, 2, 100].into());
    config.install.management_interface = Some(model::config::ManagementInterface::default());
    config.server_url = Some("https://cluster.example.org:443".parse().unwrap());
    let node = PlannedNode::of(&config);
    assert!(node.claims.is_empty() && node.dhcp);
    assert_eq!(node.names, ["cluster.example.org"]);
}

#[test]
fn a_node_that_joins_brings_the_token_of_its_role() {
    let of_distribution = |distribution: &str, role: &str, more: &str| {
        let servers = ["management", "witness"].contains(&role);
        let token = if servers { "token: hush-of-servers-0123\n" } else { "" };
        let text = format!(
            "server_url: cluster.example.org\n{token}os: {{hostname: node-2}}\n\
             kubernetes: {{distribution: {distribution}, agent_token: hush-of-agents-0123}}\n\
             install: {{mode: join, role: {role}{more}}}\n"
        );
        let node = node(&text);
        assert_eq!(node.names, ["cluster.example.org"]);
        assert!(!format!("{node:?}").contains("hush"));
        node.join.unwrap()
    };
    let of = |role: &str, more: &str| of_distribution("k3s", role, more);
    let text = |token: Option<model::config::Secret>| token.map(|token| token.expose().to_owned());
    for (role, token, agent_token) in [
        ("management", "hush-of-servers-0123", Some("hush-of-agents-0123")),
        ("witness", "hush-of-servers-0123", Some("hush-of-agents-0123")),
        ("worker", "hush-of-agents-0123", None),
        ("default", "hush-of-agents-0123", None),
    ] {
        let join = of(role, "");
        assert_eq!(
            (&*join.host, join.ports.supervisor, join.ports.other),
            ("cluster.example.org", 6443, 9345)
        );
        assert_eq!(join.name.as_deref(), Some("node-2"));
        assert_eq!(text(join.token).as_deref(), Some(token), "{role}");
        assert_eq!(text(join.agent_token).as_deref(), agent_token, "{role}");
        assert_eq!(join.carries_address, role == "management");
    }
    assert!(!of("management", ", vip_mode: dhcp").carries_address);
    assert!(
        !of_distribution("kubeadm", "management", "").carries_address,
        "the cluster tells it the address"
    );
    let create = node("token: hush-of-servers-0123\ninstall: {mode: create, profile: trial}\n");
    assert!(create.join.is_none());
}

#[test]
fn an_unknown_check_is_a_mistake_with_a_suggestion() {
    let error = model::config::parse("install:\n  skip_checks: [nic-sped]\n", "node.yaml").unwrap_err();
    let text = render(&error);
    assert!(text.contains("[unknown-check]") && text.contains("nic-speed"), "{text}");
}
