//! What a refusal proposes leads on: the same document with it gives a plan, or another problem, and the chain of problems ends.

use std::collections::BTreeSet;

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::inventory::DiskPath;
use model::config::DiskSelector;

/// The documents that the hint of a refusal asks for: each disk that fits, each clause, each path.
fn followed(config: &InstallConfig, text: &str) -> Vec<InstallConfig> {
    let Some((_, hint)) = text.split_once("next: ") else { return Vec::new() };
    let key = if text.contains("install.data_disk") && !hint.contains("install.device") {
        "data"
    } else {
        "system"
    };
    let set = |selector: DiskSelector| {
        let mut config = config.clone();
        match key {
            "data" => config.install.data_disk = Some(selector),
            _ => (config.install.device, config.install.mirror) = (Some(selector), None),
        }
        config
    };
    let mut all = Vec::new();
    if let Some((_, listed)) = hint.split_once("Disks that fit: ") {
        for found in Regex::new(r"(/dev/[^ ]+): [0-9]").unwrap().captures_iter(listed) {
            all.push(set(found[1].parse().unwrap()));
        }
    }
    for found in Regex::new(r"(/dev/[^ ]+) \([0-9]").unwrap().captures_iter(hint) {
        all.push(set(found[1].parse().unwrap()));
    }
    if let Some(found) = Regex::new(r"such as ([a-z_]+: .*)\.\n").unwrap().captures(&format!("{hint}\n")) {
        let current = if key == "data" { &config.install.data_disk } else { &config.install.device };
        let given = match current {
            Some(DiskSelector::Clauses(clauses)) => serde_json::to_value(clauses).unwrap(),
            _ => serde_json::json!({}),
        };
        all.push(set(merged(given, &format!("{{{}}}", &found[1]))));
    }
    for found in
        Regex::new(r"install\.(?:device|data_disk): (\{[a-z_]+: [^}]*\})").unwrap().captures_iter(hint)
    {
        all.push(set(merged(serde_json::json!({}), &found[1])));
    }
    if let Some(found) = Regex::new(r"set install\.device to (\S+) and install\.mirror to (\S+)")
        .unwrap()
        .captures(&hint.replace("Set ", "set "))
    {
        let mut config = config.clone();
        config.install.device = found[1].parse().ok();
        config.install.mirror = found[2].trim_end_matches([':', ',']).parse().ok();
        config.install.data_disk = None;
        all.push(config);
    }
    all
}

/// The clauses `given` with those of a text of YAML.
fn merged(mut given: serde_json::Value, text: &str) -> DiskSelector {
    let document = format!("install: {{device: {text}}}");
    let parsed = model::config::parse(&document, "f").unwrap_or_else(|error| panic!("{text}: {error}"));
    let added = serde_json::to_value(parsed.install.device).unwrap();
    for (key, value) in added.as_object().unwrap() {
        given[key] = value.clone();
    }
    serde_json::from_value(given).unwrap()
}

/// Follows every hint, and those of the refusals behind it. Fails on a refusal that comes a second time on one way.
fn follow(config: &InstallConfig, disks: &[Disk], seen: &BTreeSet<String>) {
    let text = match try_plan(config, disks) {
        Ok(_) => return,
        Err(error) => render(&error),
    };
    assert!(!seen.contains(&text), "a hint leads back to: {text}after {seen:#?}");
    let mut seen = seen.clone();
    seen.insert(text.clone());
    assert!(seen.len() < 6, "a chain of {seen:#?}");
    // What multipathd does, nobody can do in a document.
    let disks = match text.contains("Start multipathd") {
        true => {
            let mut machine = machine(disks);
            // Disks that report one name without multipathd to hold them are detached.
            if machine.join_paths().is_empty() {
                return;
            }
            machine.disks
        }
        false => disks.to_vec(),
    };
    followed(config, &text).iter().for_each(|next| follow(next, &disks, &seen));
}

fn some_disk() -> impl Strategy<Value = Disk> {
    let names = (
        prop::sample::select(vec![None, Some("S1"), Some("S2"), Some("0000"), Some("12345678")]),
        prop::sample::select(vec![
            None,
            Some("naa.0000000000000000"),
            Some("naa.5000c500a1b2c3d4"),
            Some("naa.5000c500a1b2c3d5"),
            Some("eui.0123456789abcdef"),
        ]),
        prop::sample::select(vec!["SSD A", "SSD B"]),
    );
    let kind = (
        prop::sample::select(vec![2_u64, 16, 16, 32]),
        prop::sample::select(vec![Transport::Scsi, Transport::Scsi, Transport::Nvme, Transport::Ata]),
        prop::sample::select(vec![0_u8, 0, 0, 0, 1, 2, 3, 4]),
        prop::option::of(1_u32..3),
        any::<bool>(),
    );
    (names, kind).prop_map(|((serial, wwn, model), (size, transport, state, namespace, port))| {
        let mut made = disk("sda", ByteSize::gib(size));
        (made.serial, made.wwn) = (serial.map(Into::into), wwn.map(Into::into));
        (made.model, made.transport) = (Some(model.into()), transport);
        made.namespace = namespace.filter(|_| transport == Transport::Nvme);
        made.removable = state == 1;
        made.read_only = state == 2;
        if state == 3 {
            let kind = SignatureKind::ImsmMember;
            made.signatures =
                vec![Signature { kind, label: Some("Volume0".into()), uuid: None, offset: 512 }];
        }
        made.holders = if state == 4 { vec![mounted("/dev/sda1", "/mnt")] } else { vec![] };
        made.links = if port { vec!["/dev/disk/by-path/pci".into()] } else { vec![] };
        made
    })
}

/// A machine of some disks, with the links that udev gives them: the last disk has a link that several could have.
fn machine_of(mut disks: Vec<Disk>) -> Vec<Disk> {
    for (number, disk) in disks.iter_mut().enumerate() {
        disk.name = format!("sd{}", char::from(b'a' + u8::try_from(number).unwrap()));
        disk.path = format!("/dev/{}", disk.name).into();
        disk.holders.iter_mut().for_each(|holder| holder.on = format!("/dev/{}1", disk.name).into());
        disk.links.iter_mut().for_each(|link| *link = format!("/dev/disk/by-path/pci-{number}").into());
    }
    let link = |disk: &Disk| {
        let model = disk.model.as_deref().unwrap_or_default().replace(' ', "_");
        Some(format!("/dev/disk/by-id/scsi-{model}_{}", disk.serial.as_ref()?))
    };
    for number in 0..disks.len() {
        let Some(own) = link(&disks[number]) else { continue };
        if let Some(namespace) = disks[number].namespace {
            disks[number].links.push(format!("{own}_{namespace}").into());
        }
        if disks[number + 1..].iter().all(|later| link(later).as_deref() != Some(&own)) {
            disks[number].links.push(own.into());
        }
    }
    disks
}

fn some_selector() -> impl Strategy<Value = Option<DiskSelector>> {
    let selectors = [
        r#""/dev/sda""#,
        r#""/dev/sdb""#,
        r#""/dev/sdz""#,
        r#""/dev/md126""#,
        r#""/dev/disk/by-id/scsi-SSD_A_S1""#,
        r#""/dev/disk/by-id/scsi-SSD_A_0000""#,
        r#"{"serial": "S1"}"#,
        r#"{"serial": "0000"}"#,
        r#"{"model": "SSD*"}"#,
        r#"{"by_id": "scsi-SSD_A_S1"}"#,
        r#"{"wwn": "0x5000c500a1b2c3d4"}"#,
        r#"{"wwn": "0x0000000000000000"}"#,
        r#"{"by_path": "pci-0"}"#,
        r#"{"transport": "scsi"}"#,
        r#"{"size": ">=10Gi"}"#,
    ];
    prop::option::of(
        prop::sample::select(selectors.to_vec()).prop_map(|text| serde_json::from_str(text).unwrap()),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_hint_of_a_refusal_leads_to_a_plan_or_to_another_problem(
        disks in prop::collection::vec(some_disk(), 0..5),
        device in some_selector(),
        data in some_selector(),
    ) {
        let mut config = trial();
        (config.install.device, config.install.data_disk) = (device, data);
        follow(&config, &machine_of(disks), &BTreeSet::new());
    }
}

#[test]
fn a_disk_that_is_too_small_is_not_proposed() {
    let small = disk("sda", ByteSize::gib(2));
    let large = disk("sdb", ByteSize::gib(16));
    for selector in [r#""/dev/sda""#, r#"{"serial": "serial-sda"}"#, r#""/dev/sdz""#, r#"{"serial": "none"}"#]
    {
        let mut config = trial();
        config.install.device = serde_json::from_str(selector).unwrap();
        let (_, text) = refusal(&config, &[small.clone(), large.clone()]);
        assert!(text.contains("Disks that fit: /dev/sdb: 16 GiB"), "{text}");
        let (_, text) = refusal(&config, std::slice::from_ref(&small));
        assert!(text.contains("No other disk fits."), "{text}");
    }
    let (_, text) = refusal(&trial(), &[small, large]);
    assert!(text.contains("For example install.device: {serial: serial-sdb}."), "{text}");
}

#[test]
fn a_disk_of_several_paths_warns_where_the_node_uses_one() {
    let mut map = disk("dm-0", ByteSize::gib(16));
    let way = |name: &str| DiskPath { name: name.into(), path: format!("/dev/{name}").into(), links: vec![] };
    map.paths = vec![way("sda"), way("sdb")];
    let mut config = trial();
    let warnings = try_plan(&config, std::slice::from_ref(&map)).unwrap().warnings;
    assert!(warnings[0].contains("has 2 paths, and the node uses one"), "{warnings:?}");
    config.os.external_storage_config.enabled = true;
    assert!(try_plan(&config, &[map]).unwrap().warnings.is_empty());
}
