//! Kernel parameters.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::cmdline::parse;
use super::super::print::parameters;
use super::*;
use crate::config::InstallConfig;
use crate::config::harvester::InstallDialect;
use crate::config::password::{PasswordKind, kind};
use document::shape_check::ShapeCheck;

fn read(text: &str) -> InstallConfig {
    combine(&[line(text)]).unwrap_or_else(|invalid| panic!("{invalid}")).config
}

/// `code path` of every mistake.
fn codes(text: &str) -> Vec<String> {
    mistakes(&[line(text)]).into_iter().map(|d| format!("{} {}", d.code, d.path)).collect()
}

#[test]
fn parameters_name_nested_keys_in_both_spellings_and_with_both_prefixes() {
    let config = read(
        "BOOT_IMAGE=/vmlinuz quiet nqrust.mode=install nqrust.release=00 nqrust.custom=00 nqrust.rootfs=00 \
         harvester.installer.disable=true \
         nqrust.os.hostname=node-1 harvester.os.ntpServers=a.example.org harvester.os.ntpServers=b.example.org \
         \"nqrust.os.password=correct horse\" nqrust.install.poweroff nqrust.install.mode=install \
         nqrust.os.sysctls.net.ipv4.ip_forward=1 nqrust.os.sysctls.vm.swappiness=\"10\" nqrust.os.modules=[kvm,nbd]",
    );
    assert_eq!(config.os.hostname.as_deref(), Some("node-1"));
    let servers: Vec<_> = config.os.ntp_servers.iter().map(|server| &**server).collect();
    assert_eq!(servers, ["a.example.org", "b.example.org"]);
    assert_eq!(config.os.password.unwrap().expose(), "correct horse");
    assert!(config.install.poweroff);
    assert_eq!(&*config.os.sysctls["net.ipv4.ip_forward"], "1");
    assert_eq!(config.os.modules.len(), 2);
}

#[test]
fn a_text_is_what_was_typed() {
    let config = read("nqrust.os.hostname=null nqrust.os.password=[x] nqrust.os.sysctls.a=010");
    assert_eq!(config.os.hostname.as_deref(), Some("null"));
    assert_eq!(config.os.password.unwrap().expose(), "[x]");
    assert_eq!(&*config.os.sysctls["a"], "010");
}

#[test]
fn a_card_is_named_in_every_way_that_the_reference_knows() {
    let mac = "52:54:00:12:34:56";
    for (value, expected) in [
        (format!("hwAddr: {mac}"), json!({ "hw_addr": mac })),
        (format!("hw_addr:{mac}"), json!({ "hw_addr": mac })),
        ("name: ens3".into(), json!({ "name": "ens3" })),
        (mac.into(), json!({ "hw_addr": mac })),
        ("ens3".into(), json!({ "name": "ens3" })),
        (format!("{mac},name:ens3"), json!({ "name": "ens3", "hw_addr": mac })),
        ("{name: ens3}".into(), json!({ "name": "ens3" })),
    ] {
        let config = read(&format!("\"harvester.install.management_interface.interfaces={value}\""));
        let network = serde_json::to_value(config.install.management_interface).unwrap();
        assert_eq!(network["interfaces"], json!([expected]), "{value}");
    }
    let key = "nqrust.install.management_interface.interfaces";
    assert_eq!(
        codes(&format!("{key}=52:54:00 {key}[1].name=ens3")),
        [
            format!("conflicting-parameter {}", &key[7..]),
            format!("invalid-hardware-address {}[0].hw_addr", &key[7..])
        ]
        .into_iter()
        .rev()
        .collect::<Vec<_>>()
    );
    assert_eq!(codes(&format!("{key}=ens3,ens4")), [format!("duplicate-key {}[0].name", &key[7..])]);
}

#[test]
fn objects_in_lists_and_maps_are_given_key_by_key() {
    let config = read(
        "harvester.install.webhooks[1].event=FAILED harvester.install.webhooks[1].method=GET \
         harvester.install.webhooks[1].url=http://b/ nqrust.install.webhooks[0].event=STARTED \
         nqrust.install.webhooks[0].method=POST nqrust.install.webhooks[0].url=http://a/ \
         nqrust.install.webhooks[0].headers.X-Key=one nqrust.install.webhooks[0].headers.X-Key=two \
         nqrust.install.webhooks[0].basicAuth.user=u nqrust.install.webhooks[0].basicAuth.password=hunter2 \
         nqrust.install.addons.rancher_monitoring.enabled=true nqrust.install.wipeDisksList=/dev/sda \
         nqrust.install.wipeDisksList=/dev/sdb nqrust.install.device.serial=[x] \
         nqrust.install.data_disk=\"{serial: S 2, rotational: false}\" nqrust.os.labels.example.org/zone=a",
    );
    let install = serde_json::to_value(&config.install).unwrap();
    assert_eq!(install["webhooks"][0]["headers"]["X-Key"], json!(["one", "two"]));
    assert_eq!(install["webhooks"][1]["url"], "http://b/");
    assert_eq!(install["addons"]["rancher_monitoring"]["enabled"], true);
    assert_eq!(install["wipe_disks_list"], json!(["/dev/sda", "/dev/sdb"]));
    assert_eq!(install["device"], json!({ "serial": "[x]" }));
    assert_eq!(install["data_disk"], json!({ "serial": "S 2", "rotational": false }));
    assert_eq!(serde_json::to_value(&config.os.labels).unwrap(), json!({ "example.org/zone": "a" }));
    assert_eq!(
        codes("nqrust.install.device=/dev/sda nqrust.install.device.serial=x"),
        ["conflicting-parameter install.device"]
    );
}

#[test]
fn elements_of_a_list_are_given_by_their_place() {
    let key = "nqrust.install.management_interface.interfaces";
    let config = read(&format!("{key}[0].name=ens3 {key}[0].hwAddr=52:54:00:12:34:56"));
    let network = config.install.management_interface.unwrap();
    assert_eq!((network.interfaces.len(), network.interfaces[0].name.as_deref()), (1, Some("ens3")));
    assert_eq!(codes(&format!("{key}[1].name=ens3")), [format!("missing-index {}", &key[7..])]);
}

#[test]
fn all_mistakes_come_at_once_and_drop_nothing_else() {
    let text = "quiet nqrust.os.hostnam=x nqrust.os..y=1 nqrust.install.automatic=maybe nqrust.os.modules[999]=a \
                harvester.os.hostname=a nqrust.os.hostname=b nqrust.os.password=xy nqrust.os.password=yz \
                nqrust.os.dnsNameservers=192.0.2.1 nqrust.os.dns_nameservers=192.0.2.2 nqrust.install=1 \
                nqrust.install.role=management nqrust.os.modules=[a nqrust.os.sysctls={a nqrust.os.ntp_servers={a}";
    let found = codes(text);
    let expected = [
        "unknown-key os.hostnam",
        "invalid-parameter ?",
        "wrong-type install.automatic",
        "invalid-parameter ?",
        "both-prefixes os.hostname",
        "duplicate-key os.password",
        "both-spellings os.dns_nameservers",
        "conflicting-parameter install",
        "invalid-module os.modules[0]",
        "wrong-type os.sysctls",
        "invalid-time-server os.ntp_servers[0]",
    ];
    assert_eq!(found, expected);
    let at = text.find("nqrust.os.hostname").unwrap() + 1;
    let both: Vec<_> = mistakes(&[line(text)]).into_iter().filter(|d| d.code == "both-prefixes").collect();
    assert_eq!((both[0].file.as_str(), both[0].line, both[0].column), ("kernel command line", 1, at));
}

#[test]
fn yaml_in_brackets_keeps_its_places() {
    let text = "nqrust.os.ntp_servers=\"[a.example.org, -x]\" \"nqrust.os.sysctls={vm.x: 1, : \"";
    assert_eq!(rows(&[line(text)])[0].1, text.find("-x").unwrap() + 1);
    let text = "nqrust.os.ntp_servers=\"[a.example.org, {]\"";
    let found = mistakes(&[line(text)]);
    assert_eq!((found[0].code, found[0].path.as_str()), ("yaml-syntax", "os.ntp_servers"));
}

#[test]
fn a_person_reads_the_parameter_and_nothing_that_is_not_for_the_screen() {
    let found = mistakes(&[line(
        "root=live:x other.key=hunter2 nqrust.os.hostname=A nqrust.token=hunter2 x=hunter2",
    )]);
    assert_eq!(
        found[0].to_string(),
        "kernel command line:1:50: the value is not a host name: labels of lower-case letters, digits and inner '-', \
         joined by '.', at most 64 characters in all [invalid-hostname]\n\
        \x20 1 | [hidden] nqrust.os.hostname=A nqrust.token=[hidden] [hidden]\n\
        \x20   |                             ^\n\
        \x20 try: a"
    );
}

#[test]
fn what_the_kernel_cannot_say_is_not_printed() {
    let shape = shape::install_config();
    for text in ["a\"b", "two\nlines", "\" \""] {
        let value = json!({ "os": { "password": text } });
        assert_eq!(parameters(&value, shape).unwrap_err().path, "os.password", "{text:?}");
    }
    let words = parameters(&json!({ "os": { "modules": [], "password": "a b" } }), shape).unwrap();
    assert_eq!(words, ["nqrust.os.modules=[]", "nqrust.os.password=\"a b\""]);
}

/// The part of a configuration that kernel parameters say, with canonical keys.
fn value(text: &str) -> Value {
    let shape = shape::install_config();
    let read = parse(text, shape);
    let mut walk = ShapeCheck::new(&InstallDialect);
    let value = read.root.and_then(|root| walk.value(&root, shape, ""));
    assert!(read.problems.is_empty() && walk.problems.is_empty(), "{:?} {:?}", read.problems, walk.problems);
    value.unwrap_or_else(|| json!({}))
}

fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = Value> {
    prop::collection::vec(item, 0..4).prop_map(Value::from)
}

prop_compose! {
    fn network()(
        interfaces in prop::collection::vec(("[a-z]{2}[0-9]{1,3}", any::<bool>()), 0..3),
        mtu in 0..9000_u32,
    ) -> Value {
        let card = |(name, address): (String, bool)| match address {
            true => json!({ "name": name, "hw_addr": "52:54:00:12:34:56" }),
            false => json!({ "name": name }),
        };
        json!({ "interfaces": interfaces.into_iter().map(card).collect::<Vec<_>>(), "mtu": mtu })
    }
}

fn device() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-z]{1,5}".prop_map(|name| json!(format!("/dev/{name}"))),
        ("[!#-~][ !#-~]{0,6}[!#-~]", any::<bool>())
            .prop_map(|(serial, rotational)| json!({ "serial": serial, "rotational": rotational })),
    ]
}

prop_compose! {
    fn webhook()(
        url in "http://[a-z]{1,8}/[a-z0-9?=&]{0,8}",
        payload in "[\\[{]?[ !#-~]{0,12}[\\]}]?".prop_filter("a placeholder", |text| !text.contains("{{")),
        headers in prop::collection::btree_map("X-[A-Z]{1,4}", prop::collection::vec("[!#-~]{1,8}", 1..3), 0..3),
    ) -> Value {
        json!({ "event": "STEP", "method": "PUT", "url": url, "payload": payload, "headers": headers })
    }
}

prop_compose! {
    fn configuration()(
        hostname in "[a-z][a-z0-9-]{0,8}[a-z]",
        password in "[!#-~][ -!#-~]{0,20}".prop_filter("a hash or no password", |text| kind(text) == PasswordKind::Clear),
        modules in list("[a-z][a-z_]{0,7}"),
        servers in list("[a-z]{1,8}\\.[a-z]{2,4}"),
        sysctls in prop::collection::btree_map("[a-z]{1,4}(\\.[a-z0-9_]{1,5}){1,3}", "[0-9a-z]( ?[0-9a-z]){0,4}", 0..3),
        automatic in any::<bool>(),
        network in network(),
        device in device(),
        webhooks in prop::collection::vec(webhook(), 0..3),
    ) -> Value {
        json!({
            "os": {
                "hostname": hostname, "password": password, "modules": modules, "ntp_servers": servers,
                "sysctls": sysctls,
            },
            "install": {
                "automatic": automatic, "role": "worker", "management_interface": network, "device": device,
                "webhooks": webhooks, "addons": { "rancher_logging": { "enabled": true } },
            },
        })
    }
}

#[test]
fn a_text_in_a_list_is_what_was_typed() {
    let words = "nqrust.install.webhooks[0].event=FAILED nqrust.install.webhooks[0].method=GET \
                 nqrust.install.webhooks[0].url=http://h/ nqrust.install.webhooks[0].headers.X=~ \
                 nqrust.install.webhooks[0].headers.X=null";
    assert_eq!(value(words)["install"]["webhooks"][0]["headers"]["X"], serde_json::json!(["~", "null"]));
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(config in configuration()) {
        let words = parameters(&config, shape::install_config()).unwrap();
        prop_assert_eq!(value(&format!("quiet {} root=x", words.join(" "))), config);
    }

    #[test]
    fn no_command_line_makes_the_reader_panic(text in "((nqrust|harvester)\\.[a-zA-Z0-9.=\\[\\]{}:, \"]{0,40} ?){0,4}") {
        let _ = combine(&[line(&text)]);
    }

    #[test]
    fn no_secret_of_a_command_line_gets_out(
        secret in "[A-Z]{12}",
        mistake in prop::sample::select(vec!["os.hostnam=x", "os.hostname=A", "os..x=", "install.mtu=[", "token.x=", "os=1"]),
        key in prop::sample::select(vec!["token", "os.password", "os.pasword", "os.password.x", "nonsense", "os..y", "token[0]"]),
    ) {
        for text in [
            format!("nqrust.{key}={secret} nqrust.{mistake}"),
            format!("nqrust.{mistake}{secret} nqrust.{key}=\"{secret} {secret}\""),
            format!("nqrust.{key}={secret} harvester.{key}={secret} nqrust.{mistake}"),
        ] {
            // An invalid host name is shown.
            if mistake.contains("hostname=") && text.contains(&format!("A{secret}")) { continue }
            let found = mistakes(&[line(&text)]);
            prop_assert!(!found.is_empty(), "{}", text);
            for diagnostic in found {
                prop_assert!(!diagnostic.to_string().contains(&secret), "{}\n{}", text, diagnostic);
            }
        }
    }
}
