//! Whole documents: what is accepted, what is refused, and that no secret gets out.

use super::*;
use base::failure::{Class, class_of, render};
use proptest::prelude::*;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8g admin";

/// `code` at `line:column`, `path` and suggestion of every mistake.
fn mistakes(text: &str) -> Vec<(usize, usize, String, String, Option<String>)> {
    let invalid = match check(text, "node.yaml") {
        Ok(_) => return Vec::new(),
        Err(invalid) => invalid,
    };
    let row = |d: Diagnostic| (d.line, d.column, d.code.to_owned(), d.path, d.suggestion);
    invalid.0.into_iter().filter(|d| d.severity == Severity::Error).map(row).collect()
}

fn codes(text: &str) -> Vec<String> {
    mistakes(text).into_iter().map(|(_, _, code, path, _)| format!("{code} {path}")).collect()
}

fn network(lines: &str) -> String {
    format!("install:\n  management_interface:\n    interfaces: [{{name: ens3}}]\n{lines}")
}

#[test]
fn both_spellings_give_the_same_configuration() {
    let snake = format!(
        "scheme_version: 1\nos:\n  ssh_authorized_keys: ['{KEY}']\n  dns_nameservers: [192.0.2.53]\n\
         install:\n  persistent_partition_size: 200Gi\n  management_interface:\n    interfaces:\n    \
         - hw_addr: 52:54:00:12:34:56\n    method: static\n    ip: 192.0.2.2\n    subnet_mask: 255.255.255.0\n    \
         gateway: 192.0.2.1\n"
    );
    let camel =
        ["scheme_version", "ssh_authorized_keys", "dns_nameservers", "persistent_partition_size", "hw_addr"]
            .iter()
            .chain(&["management_interface", "subnet_mask"])
            .fold(snake.clone(), |text, name| text.replace(name, &document::shape::camel(name)));
    assert_ne!(snake, camel);
    let config = parse(&snake, "a").unwrap();
    assert_eq!(config, parse(&camel, "b").unwrap());
    assert_eq!(config.install.management_interface.unwrap().gateway, Some([192, 0, 2, 1].into()));
}

#[test]
fn values_mean_what_was_typed_whatever_yaml_makes_of_them() {
    let config =
        parse("os:\n  hostname: no\n  password: 12345678\n  sysctls: {vm.swappiness: 010}\n", "f").unwrap();
    assert_eq!(config.os.hostname.as_deref(), Some("no"));
    assert_eq!(config.os.password.unwrap().expose(), "12345678");
    assert_eq!(&*config.os.sysctls["vm.swappiness"], "010");
}

#[test]
fn all_mistakes_come_at_once_each_with_its_place() {
    let text = "\
scheme_version: 2
os:
  hostnam: x
  sshAuthorizedKeys: []
  ssh_authorized_keys: []
  password: secret
  password: secret
  modules: {kvm: 1}
install:
  automatic: perhaps
  mode: creat
  management_interface:
    interfaces:
      - hw_addr: 52-54-00-12-34-56
    mtu: nine
hostname: x
";
    let expected: Vec<(usize, usize, &str, &str, Option<&str>)> = vec![
        (1, 17, "unsupported-scheme-version", "scheme_version", Some("1")),
        (3, 3, "unknown-key", "os.hostnam", Some("hostname")),
        (5, 3, "both-spellings", "os.ssh_authorized_keys", None),
        (7, 3, "duplicate-key", "os.password", None),
        (8, 12, "wrong-type", "os.modules", None),
        (10, 14, "wrong-type", "install.automatic", None),
        (11, 9, "unknown-value", "install.mode", Some("create")),
        (
            14,
            18,
            "invalid-hardware-address",
            "install.management_interface.interfaces[0].hw_addr",
            Some("52:54:00:12:34:56"),
        ),
        (15, 10, "wrong-type", "install.management_interface.mtu", None),
        (16, 1, "unknown-key", "hostname", Some("os.hostname")),
    ];
    let found = mistakes(text);
    let found: Vec<_> = found
        .iter()
        .map(|(l, c, code, path, s)| (*l, *c, code.as_str(), path.as_str(), s.as_deref()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_person_reads_the_line_underlined_and_a_suggestion() {
    let error = parse("os:\n  hostnam: node-1 # mine\n", "node.yaml").unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert_eq!(
        render(&error),
        "error: the configuration node.yaml has a mistake\n\
         node.yaml:2:3: unknown key `hostnam` in `os` [unknown-key]\n\
        \x20 2 |   hostnam: [hidden]\n\
        \x20   |   ^^^^^^^\n\
        \x20 try: hostname\n"
    );
}

#[test]
fn programs_read_the_same_as_json() {
    let invalid = check("os:\n  mtu: 1\n", "f.yaml").unwrap_err();
    let json = serde_json::to_value(&invalid.0).unwrap();
    assert_eq!(
        json,
        serde_json::json!([{
            "severity": "error", "file": "f.yaml", "line": 2, "column": 3, "path": "os.mtu", "code": "unknown-key",
            "message": "unknown key `mtu` in `os`; it belongs to `install.management_interface`", "suggestion": "install.management_interface.mtu",
        }])
    );
}

#[test]
fn a_static_network_must_be_one() {
    let full = "    method: static\n    ip: 192.0.2.2\n    subnet_mask: 255.255.255.0\n    \
                gateway: 192.0.2.1\nos: {dns_nameservers: [192.0.2.53]}\n";
    assert_eq!(codes(&network(full)), [""; 0]);
    let path = "install.management_interface";
    for (from, to, expected) in [
        ("    ip: 192.0.2.2\n", "", vec!["missing-value P.ip"]),
        ("ip: 192.0.2.2", "ip: 192.0.2", vec!["invalid-address P.ip"]),
        ("192.0.2.2", "192.0.2.0", vec!["unusable-address P.ip"]),
        ("192.0.2.2", "192.0.2.255", vec!["unusable-address P.ip"]),
        ("192.0.2.2", "127.0.0.1", vec!["unusable-address P.ip", "gateway-unreachable P.gateway"]),
        ("255.255.255.0", "255.0.255.0", vec!["invalid-mask P.subnet_mask"]),
        ("192.0.2.1\n", "192.0.3.1\n", vec!["gateway-unreachable P.gateway"]),
        ("192.0.2.1\n", "192.0.2.2\n", vec!["gateway-unreachable P.gateway"]),
        ("192.0.2.1\n", "192.0.2.255\n", vec!["gateway-unreachable P.gateway"]),
        ("static", "dhcp", vec!["needs-static P.ip", "needs-static P.subnet_mask", "needs-static P.gateway"]),
    ] {
        let expected: Vec<_> = expected.iter().map(|code| code.replace('P', path)).collect();
        assert_eq!(codes(&network(&full.replace(from, to))), expected, "{from} -> {to}");
    }
    let pair = full.replace("255.255.255.0", "255.255.255.254").replace("192.0.2.2", "192.0.2.0");
    assert_eq!(codes(&network(&pair)), [""; 0], "a point-to-point link has no network address");
}

#[test]
fn packets_have_a_size_that_cards_can_send() {
    for (mtu, good) in [(0, true), (575, false), (576, true), (1500, true), (9000, true), (9001, false)] {
        assert_eq!(codes(&network(&format!("    mtu: {mtu}\n"))).is_empty(), good, "{mtu}");
    }
}

#[test]
fn the_management_network_has_named_cards() {
    let with = |cards: &str| codes(&format!("install: {{management_interface: {{interfaces: {cards}}}}}"));
    let at = "install.management_interface.interfaces";
    assert_eq!(with("[]"), [format!("missing-value {at}")]);
    assert_eq!(with("[{}]"), [format!("missing-value {at}[0]")]);
    assert_eq!(with("[{name: lo}]"), [format!("invalid-interface-name {at}[0].name")]);
}

#[test]
fn an_automatic_installation_leaves_a_way_in() {
    let alone = "token: 7f3c1f0c5bd04a6e\ninstall: {automatic: true, profile: trial}\n";
    assert_eq!(codes(alone), ["no-login os"]);
    let joins = "token: 7f3c1f0c5bd04a6e\nserver_url: https://a\ninstall: {automatic: true, mode: join}";
    assert_eq!(codes(joins), ["no-login os"]);
    assert_eq!(codes("install: {automatic: true, mode: install}"), [""; 0]);
    assert_eq!(codes(&format!("{alone}os: {{password: abc}}")), [""; 0]);
    assert_eq!(codes(&format!("{alone}os: {{password_file: /run/x}}")), [""; 0]);
    assert_eq!(codes(&format!("{alone}os: {{ssh_authorized_keys: ['{KEY}']}}")), [""; 0]);
    let bad = codes(&format!("{alone}os: {{password: $1$salt$hash}}"));
    assert_eq!(bad, ["invalid-password os.password"], "no echo of a mistake already told");
}

#[test]
fn what_is_missing_is_told_where_nobody_can_be_asked() {
    assert_eq!(codes("install: {mode: join}"), [""; 0], "the console asks for the rest");
    assert_eq!(
        codes("install: {mode: join, automatic: true}"),
        ["no-login os", "missing-value token", "missing-value server_url"]
    );
    assert_eq!(codes("install: {automatic: true, mode: install}"), [""; 0]);
}

#[test]
fn an_element_without_what_it_needs_is_told_at_its_place() {
    assert_eq!(
        codes("os: {users: [{sudo: true}, {name: Bad Name}]}"),
        ["missing-value os.users[0].name", "invalid-user-name os.users[1].name"]
    );
    let hook = codes("install: {webhooks: [{event: STARTED}]}");
    assert_eq!(hook, ["missing-value install.webhooks[0].method", "missing-value install.webhooks[0].url"]);
    let others = codes("scheme_version: 2\nos: {users: [{sudo: true}]}");
    assert_eq!(others.len(), 2, "rules see the rest of the document: {others:?}");
}

#[test]
fn the_persistent_partition_has_a_size_that_can_be_meant() {
    for (size, profile, good) in [
        ("150Gi", "production", true),
        ("149Gi", "production", false),
        ("2Gi", "trial", true),
        ("0", "trial", false),
        ("5000000Ti", "trial", false),
        ("150GB", "production", false),
    ] {
        let text = format!("install: {{profile: {profile}, persistent_partition_size: {size}}}");
        assert_eq!(codes(&text).is_empty(), good, "{text}");
    }
}

#[test]
fn both_keys_for_images_mean_the_same_and_may_not_contradict_each_other() {
    for (keys, images) in [
        ("", Some(Images::Preload)),
        ("images: preload", Some(Images::Preload)),
        ("images: defer", Some(Images::Defer)),
        ("with_net_images: true", Some(Images::Defer)),
        ("withNetImages: false", Some(Images::Preload)),
        ("images: defer, with_net_images: true", Some(Images::Defer)),
        ("images: defer, with_net_images: false", None),
        ("images: preload, with_net_images: true", None),
    ] {
        let text = format!("install: {{{keys}}}");
        assert_eq!(parse(&text, "f").ok().map(|config| config.install.images()), images, "{text}");
        let expected: &[&str] =
            if images.is_none() { &["conflicting-keys install.with_net_images"] } else { &[] };
        assert_eq!(codes(&text), expected, "{text}");
    }
    assert_eq!(codes("install: {images: later}"), ["unknown-value install.images"]);
}

#[test]
fn empty_groups_and_keys_ask_for_nothing_and_an_empty_document_is_none() {
    for text in
        ["{}\n", "os:\ninstall:\n", "os: {ssh_authorized_keys: }\n", "os: {hostname: }", "token: ''\n"]
    {
        assert_eq!(parse(text, "f").unwrap(), InstallConfig::default(), "{text:?}");
    }
    for text in ["", "---\n", "# nothing\n"] {
        assert_eq!(codes(text), ["empty-document "], "{text:?}");
    }
    assert_eq!(codes("os: {modules: ['']}"), ["invalid-module os.modules[0]"]);
    assert_eq!(codes("- a\n"), ["wrong-type "]);
}

#[test]
fn a_missing_file_is_an_invalid_use() {
    let error = load(std::path::Path::new("/nonexistent/node.yaml")).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("/nonexistent/node.yaml"));
}

/// Documents that are wrong around a secret, which stands for `MARK`.
const LEAKY: &[&str] = &[
    "token: \"MARK \"",
    "token: [MARK]",
    "token: {MARK: 1}",
    "token: MARK\ntoken: MARK",
    "tokn: MARK",
    "os: {pasword: MARK, hostname: Bad_Name}",
    "os: {password: MARK, hostname: Bad_Name} # MARK",
    "os:\n  password: [MARK]\n",
    "os:\n  password: |\n    MARK\n    MARK\n",
    "os:\n  password: \"MARK\n",
    "os: {password: MARK\n",
    "os:\n  password: MARK\n bad: indent\n",
    "os: {password MARK}",
    "os: {? MARK x : 1}",
    "os: MARK",
    "MARK",
    "token: &MARK x",
    "token: *MARK",
    "token: !MARK x",
    "os:\n  password: $1$MARK$x\n",
    "install:\n  medium: https://user:MARK@example.org/\n",
    "token: \"MARK\\q\"",
    "%MARK\n---\ntoken: ' a'",
    "system_settings: {http-proxy: '{\"httpProxy\": \"MARK\"}'}",
    "system_settings: {overcommit-config: MARK}",
    "os: {write_files: [{path: /etc/a, encoding: b64, content: MARK!}]}",
    "os: {users: [{name: root, password: MARK}]}",
    "kubernetes: {manifests: [{name: a, content: MARK}]}",
    "install: {addons: {rancher_logging: {values_content: MARK}}}",
    "install: {webhooks: [{event: FAILED, method: PUT, url: https://a, payload: 'MARK{{'}]}",
];

#[test]
fn no_message_shows_a_secret() {
    for template in LEAKY {
        let text = template.replace("MARK", "Hunter2Marked");
        let invalid = check(&text, "f").expect_err(template);
        let error = parse(&text, "f").unwrap_err();
        let json = serde_json::to_string(&invalid.0).unwrap();
        for shown in [invalid.to_string(), json, render(&error), format!("{error:?}")] {
            assert!(!shown.contains("Hunter2Marked"), "{template}:\n{shown}");
        }
    }
}

#[test]
fn no_warning_shows_a_secret() {
    let text = "{token: Hunter2Mark, kubernetes: {agent_token: Hunter2Mark}, os: {password: Hunter2Mark, \
                users: [{name: a, password: Hunter2Mark}]}, install: {addons: {rancher_logging: \
                {values_content: 'a: Hunter2Mark'}}}}";
    let warnings = check(text, "f").unwrap().warnings;
    assert_eq!(warnings.len(), 6, "{warnings:?}");
    for warning in warnings {
        let json = serde_json::to_string(&warning).unwrap();
        assert!(!format!("{warning}{json}").contains("Hunter2"), "{warning}");
    }
}

#[test]
fn only_the_value_of_an_accepted_document_leaves_debug_output() {
    let config = parse("token: Hunter2Marked\nos: {password: Hunter2Marked}", "f").unwrap();
    assert!(!format!("{config:?}").contains("Hunter2Marked"));
}

#[test]
fn a_node_keeps_hashes_and_never_clear_text() {
    let mut config = parse("os: {password: hunter2, hostname: a}", "f").unwrap();
    let node = config.for_node().unwrap();
    assert_eq!(password::kind(node.os.password.as_ref().unwrap().expose()), password::PasswordKind::Hash);
    assert!(!node.to_yaml().contains("hunter2"));
    assert_eq!(node.for_node().unwrap(), node, "hashes are kept");
    config.os.password = Some(Secret::new("$1$salt$qJH7.N4xYta3aEG/dfqo/0"));
    assert_eq!(class_of(&config.for_node().unwrap_err()), Class::Invalid);
}

#[test]
fn every_example_in_configs_validates_and_warns_of_its_public_token_only() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/nodes");
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        if let Err(error) = load(&path) {
            panic!("{}", render(&error));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let warnings = check(&text, "example").unwrap().warnings;
        let unexpected: Vec<_> = warnings.iter().filter(|warning| warning.code != "weak-token").collect();
        assert!(unexpected.is_empty(), "{}: {unexpected:?}", path.display());
        count += 1;
    }
    assert_eq!(count, 5);
}

#[test]
fn what_a_node_chose_once_is_a_warning_on_the_node() {
    let node = "token: password\nos: {password: correct horse battery}\ninstall: {automatic: true, profile: trial}\n";
    for text in [node.to_owned(), node.replace("token: password", "token: ${TOKEN}")] {
        let refused = check(&text, "f").unwrap_err();
        assert_eq!(refused.errors(), 1, "{refused}");
        assert!(parse(&text, "f").is_ok(), "a node starts with the token that its cluster has");
    }
}

proptest! {
    #[test]
    fn a_written_document_reads_back_the_same(
        hostname in "[a-z][a-z0-9]{0,10}",
        password in "[!-~][ -~é]{0,20}",
        token in "[!-~]{1,30}",
        value in "[!-~]([ -~]{0,10}[!-~])?",
        mtu in prop_oneof![Just(0_u32), 576_u32..=9000],
        automatic: bool,
    ) {
        use password::PasswordKind::{Lock, Unsupported};
        prop_assume!(!matches!(password::kind(&password), Unsupported(_) | Lock));
        let mut config = InstallConfig { token: Some(Secret::new(token)), ..InstallConfig::default() };
        config.os.hostname = Some(hostname.parse().unwrap());
        config.os.password = Some(Secret::new(password));
        config.os.sysctls.insert("kernel.core_pattern".into(), value.parse().unwrap());
        config.install.automatic = automatic;
        config.install.vip = Some([192, 0, 2, 10].into());
        config.install.management_interface = Some(ManagementInterface {
            interfaces: vec![Interface { name: Some("ens3".parse().unwrap()), hw_addr: None }],
            mtu,
            ..ManagementInterface::default()
        });
        let text = config.to_yaml();
        prop_assert_eq!(parse(&text, "f").unwrap(), config, "{}", text);
    }

    #[test]
    fn no_document_makes_the_reader_panic(text in "(os|install|token|: |\n|  |- |\\[|\\]|\\{|\\}|\"|a|#|&|\\*|,){0,60}") {
        let _ = check(&text, "f");
    }
}

#[test]
fn a_slip_in_one_value_is_one_mistake() {
    for (path, install) in [
        ("install.mode", "automatic: true, device: /dev/disk/by-id/a, mode: isntall"),
        ("install.mode", "mode: jion, vip: 192.0.2.10"),
        ("install.role", "mode: create, role: woker"),
        ("install.automatic", "automatic: maybe, mode: join"),
        ("install.cluster_pod_cidr", "cluster_pod_cidr: 10.60.0.0/160, cluster_service_cidr: 10.52.0.0/16"),
        ("install.cluster_service_cidr", "cluster_service_cidr: 10.60.0.0/160, cluster_dns: 10.60.0.10"),
        ("install", "[automatic]"),
    ] {
        let (open, close) = if install.starts_with('[') { ("", "") } else { ("{", "}") };
        let text = format!("install: {open}{install}{close}\n");
        let told = check(&text, "node.yaml").unwrap_err().0;
        let told: Vec<_> = told.iter().map(|told| (told.path.as_str(), told.message.as_str())).collect();
        assert!(told.len() == 1 && told[0].0 == path, "{text}: {told:?}");
    }
}

#[test]
fn what_is_wrong_whatever_was_meant_is_told_beside_the_slip() {
    let text = "install: {mode: isntall, device: /dev/disk/by-id/a, mirror: /dev/disk/by-id/a}\n";
    let told = check(text, "node.yaml").unwrap_err().0;
    let codes: Vec<_> = told.iter().map(|told| told.path.as_str()).collect();
    assert_eq!(codes, ["install.mode", "install.mirror"]);
}

#[test]
fn servers_of_a_cluster_get_etcd_with_their_install_and_no_other_nodes() {
    let join = "server_url: https://192.0.2.10\ntoken: 5b1f0e6c2d9a48f7b3c0d1e2\n";
    for (text, has) in [
        ("install: {mode: create, role: default}".to_owned(), true),
        (format!("{join}install: {{mode: join, role: management}}"), true),
        (format!("{join}install: {{mode: join, role: witness}}"), true),
        (format!("{join}install: {{mode: join, role: worker}}"), false),
        (format!("{join}install: {{mode: join, role: default}}"), false),
        ("install: {mode: install}".to_owned(), false),
    ] {
        let config: InstallConfig = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(config.install.has_etcd(), has, "{text}");
    }
}
