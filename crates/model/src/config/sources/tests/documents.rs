//! Several documents to one configuration.

use serde_json::json;

use super::*;

#[test]
fn a_later_source_replaces_values_and_lists_and_merges_groups() {
    let documents = [
        yaml(SourceKind::Defaults, "os:\n  ntp_servers: [a.example.org]\n  sysctls: {vm.a: 1, vm.b: 1}\n"),
        yaml(SourceKind::Embedded, "os:\n  hostname: embedded\n  sysctls: {vm.b: 2}\n"),
        line("nqrust.os.hostname=kernel nqrust.os.ntpServers=b.example.org"),
    ];
    let combined = combine(&documents).unwrap();
    let os = serde_json::to_value(&combined.config.os).unwrap();
    assert_eq!(os["hostname"], "kernel");
    assert_eq!(os["ntp_servers"], json!(["b.example.org"]));
    assert_eq!(os["sysctls"], json!({"vm.a": "1", "vm.b": "2"}));
    let places: Vec<_> = combined
        .entries
        .iter()
        .map(|entry| (entry.path.as_str(), entry.source, entry.line, entry.column))
        .collect();
    assert_eq!(
        places,
        [
            ("os.hostname", SourceKind::KernelParameters, 1, 20),
            ("os.ntp_servers[0]", SourceKind::KernelParameters, 1, 48),
            ("os.sysctls.vm.a", SourceKind::Defaults, 3, 19),
            ("os.sysctls.vm.b", SourceKind::Embedded, 3, 19),
        ]
    );
}

#[test]
fn mistakes_of_every_source_come_at_once_each_in_its_own_document() {
    let documents = [
        yaml(SourceKind::Defaults, "os:\n  hostnam: x\n"),
        yaml(SourceKind::Volume, "os: [\n"),
        yaml(SourceKind::Url, "install:\n  mode: creat\n"),
        line("nqrust.os.hostname=A"),
    ];
    let found: Vec<_> = mistakes(&documents).into_iter().map(|d| (d.file, d.line, d.code)).collect();
    let file = |kind: SourceKind| kind.to_string();
    assert_eq!(
        found,
        [
            (file(SourceKind::Defaults), 2, "unknown-key"),
            (file(SourceKind::Volume), 1, "yaml-syntax"),
            (file(SourceKind::Url), 2, "unknown-value"),
            ("kernel command line".to_owned(), 1, "invalid-hostname"),
        ]
    );
}

#[test]
fn a_rule_sees_the_whole_and_its_finding_stands_where_the_value_came_from() {
    let network = "install:\n  management_interface:\n    interfaces: [{name: ens3}]\n    method: static\n    \
                   ip: 192.0.2.2\n    subnet_mask: 255.255.255.0\nos: {dns_nameservers: [192.0.2.53]}\n";
    let gateway = "nqrust.install.management_interface.gateway";
    let whole = [yaml(SourceKind::Embedded, network), line(&format!("{gateway}=192.0.2.1"))];
    assert_eq!(rows(&whole), []);
    let apart = [yaml(SourceKind::Embedded, network), line(&format!("{gateway}=198.51.100.1"))];
    let found = mistakes(&apart);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].file.as_str(), &found[0].path[..]), ("kernel command line", &gateway[7..]));
    assert_eq!(found[0].column, gateway.len() + 2);
}

#[test]
fn a_finding_about_what_is_missing_stands_at_the_group_that_lacks_it() {
    let defaults = || yaml(SourceKind::Defaults, "token: 7f3c1f0c5bd04a6e\nos:\n  ntp_servers: [a, b]\n");
    let install = "install: {automatic: true, vip: 192.0.2.10}\n";
    let documents = [defaults(), yaml(SourceKind::Embedded, install), line("nqrust.os.hostname=x")];
    assert_eq!(rows(&documents), [("kernel command line".to_owned(), 8, "no-login", "os".to_owned())]);
    // The boot loader adds parameters of its own; the incomplete document is the one that somebody wrote.
    let written = format!("{install}os: {{labels: {{a: b}}}}\n");
    let documents = [defaults(), yaml(SourceKind::Url, &written), line("nqrust.os.hostname=x")];
    assert_eq!(rows(&documents), [(SourceKind::Url.to_string(), 5, "no-login", "os".to_owned())]);
}

#[test]
fn a_value_with_a_mistake_of_its_own_is_not_told_of_twice() {
    let documents = [
        yaml(
            SourceKind::Defaults,
            "{token: 7f3c1f0c5bd04a6e, os: {ntp_servers: [a, b]}, install: {automatic: true, vip: 192.0.2.10}}",
        ),
        yaml(SourceKind::Embedded, "os: {password: $1$a$b}\n"),
    ];
    let found: Vec<_> = rows(&documents).into_iter().map(|(_, _, code, _)| code).collect();
    assert_eq!(found, ["invalid-password"]);
}

#[test]
fn a_listing_never_shows_a_secret() {
    let documents = [
        yaml(SourceKind::Embedded, "token: hunter2\nos:\n  password: hunter2\n  hostname: a\n"),
        line("nqrust.os.password=hunter2"),
    ];
    let combined = combine(&documents).unwrap();
    let (text, json) = (combined.listing(), combined.sources());
    assert!(!text.contains("hunter2") && !json.to_string().contains("hunter2"), "{text}");
    assert!(
        text.contains("token = [hidden]\n    embedded configuration, embedded configuration:1:8\n"),
        "{text}"
    );
    assert_eq!(json["os.password"]["value"], serde_json::Value::Null);
    assert_eq!(json["os.hostname"]["value"], "a");
    assert_eq!(json["os.password"]["source"], "kernel-parameters");
}

#[test]
fn no_document_at_all_is_an_empty_configuration() {
    assert_eq!(combine(&[]).unwrap().config, crate::config::InstallConfig::default());
    assert!(combine(&[yaml(SourceKind::Defaults, "# nothing\n"), line("quiet")]).unwrap().entries.is_empty());
}

#[test]
fn answers_are_the_strongest() {
    let answers = Document::answers(&json!({ "os": { "hostname": "no" } }));
    let combined = combine(&[line("nqrust.os.hostname=kernel"), answers]).unwrap();
    assert_eq!(combined.config.os.hostname.as_deref(), Some("no"));
    assert_eq!(combined.entries[0].source, SourceKind::Console);
}

#[test]
fn a_part_replaces_its_groups_as_a_whole_and_has_no_other_keys() {
    let whole = "os: {hostname: a}\ninstall: {management_interface: {interfaces: [{name: a}], mtu: 9000}, device: /dev/sda}\n";
    let part = |text: &str| {
        let part = yaml(SourceKind::File, text).part(&["install.management_interface"], "this stays");
        combine(&[yaml(SourceKind::File, whole), part])
    };
    let config = part("install: {management_interface: {interfaces: [{name: b}]}}\n").unwrap().config;
    let management = config.install.management_interface.unwrap();
    assert_eq!((management.mtu, management.interfaces[0].name.as_deref()), (0, Some("b")));
    assert!(config.os.hostname.is_some() && config.install.device.is_some());
    let invalid = part("os: {hostname: b, sysctls: {vm.a: 1}}\ninstall: {mode: join}\n").unwrap_err();
    let others = invalid.0.iter().filter(|said| said.code == "other-key").map(|said| said.path.as_str());
    assert_eq!(others.collect::<Vec<_>>(), ["os", "install.mode"], "the outermost of what is too much");
}
