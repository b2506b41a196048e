//! What a refusal proposes leads on: the same document with it gives a plan, or another problem, and the chain of problems ends.

use std::collections::BTreeSet;

use proptest::prelude::*;
use regex::Regex;

use super::*;
use machine::inventory::{DiskPath, Nic, RemoteTarget};
use model::config::DiskSelector;
use model::network_disks::DiskProtocol;

/// The documents that the hint of a refusal asks for: each disk that fits, each clause, each path, each card.
fn followed(config: &InstallConfig, text: &str) -> Vec<InstallConfig> {
    let Some((_, hint)) = text.split_once("next: ") else { return Vec::new() };
    if text.contains("network cards have the address") || text.contains("is in two places") {
        return with_other_cards(config, text, hint);
    }
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
    for found in Regex::new(r"list (/dev/\S+) in install\.wipe_disks_list").unwrap().captures_iter(hint) {
        let mut config = config.clone();
        config.install.wipe_disks_list.push(found[1].parse().unwrap());
        all.push(config);
    }
    if hint.contains("install.profile: trial") {
        let mut config = config.clone();
        config.install.profile = Profile::Trial;
        all.push(config);
    }
    all
}

/// The documents with the cards that a hint offers in the place of the one that is refused.
fn with_other_cards(config: &InstallConfig, text: &str, hint: &str) -> Vec<InstallConfig> {
    let pattern = |pattern: &str| Regex::new(pattern).unwrap();
    // The network, and the card in it that gives way.
    let (network, gone) = match pattern(r"and in network (\S+) as (\S+)").captures(text) {
        Some(found) => (found[1].to_owned(), found[2].trim_end_matches(',').to_owned()),
        None => {
            let network = pattern(r"in network (\S+) in place").captures(hint).unwrap()[1].to_owned();
            (network, pattern(r"have the address ([0-9a-f:]{17})").captures(text).unwrap()[1].to_owned())
        }
    };
    let listed = pattern(r"\{name: ([^}]+)\}");
    let offered: Vec<_> = match hint.split_once("Other cards: ") {
        Some((_, others)) => {
            pattern(r"(\S+) \(").captures_iter(others).map(|found| found[1].to_owned()).collect()
        }
        None => listed.captures_iter(hint).map(|found| found[1].to_owned()).collect(),
    };
    let replaced = |name: &String| {
        let mut install = serde_json::to_value(&config.install).unwrap();
        let cards = match network.as_str() {
            "mgmt" => &mut install["management_interface"]["interfaces"],
            other => {
                let networks = install["networks"].as_array_mut().unwrap();
                let named = networks.iter_mut().find(|one| one["name"] == other);
                &mut named.unwrap_or_else(|| panic!("no network {other}"))["interfaces"]
            }
        };
        // The last one: two cards of one network may be the same.
        let is_it = |card: &serde_json::Value| {
            let given = card["hw_addr"].as_str().or(card["name"].as_str()).unwrap_or_default();
            given.eq_ignore_ascii_case(&gone)
        };
        let card = cards.as_array_mut().unwrap().iter_mut().rev().find(|card| is_it(card)).expect("the card");
        *card = serde_json::json!({ "name": name });
        InstallConfig { install: serde_json::from_value(install).unwrap(), ..config.clone() }
    };
    offered.iter().map(replaced).collect()
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

/// Follows every hint, and those of the refusals behind it. Fails on a refusal that comes a second time on one way. `said` gets
/// each refusal and each plan in the order in which they come.
fn follow(config: &InstallConfig, machine: &Inventory, seen: &BTreeSet<String>, said: &mut String) {
    let step = "  ".repeat(seen.len());
    let text = match plan(config, machine, &release().into(), GUID) {
        Ok(plan) => {
            let disks: Vec<_> = plan.disks().map(|disk| disk.path.display().to_string()).collect();
            said.push_str(&format!("{step}plan for {}\n", disks.join(", ")));
            return;
        }
        Err(error) => render(&error),
    };
    text.lines().for_each(|line| said.push_str(&format!("{step}{line}\n")));
    assert!(!seen.contains(&text), "a hint leads back to: {text}after {seen:#?}");
    let mut seen = seen.clone();
    seen.insert(text.clone());
    // Each key can be refused for several reasons in turn.
    assert!(seen.len() < 9, "a chain of {seen:#?}");
    // What multipathd does, nobody can do in a document: behind it is another machine, with a chain of its own.
    let mut machine = machine.clone();
    if text.contains("Start multipathd") {
        // Disks that report one name and that multipathd does not take for one are detached. It makes no two maps of one name.
        machine.join_paths();
        let again = plan(config, &machine, &release().into(), GUID).err();
        let paths: BTreeSet<_> = machine.disks.iter().map(|disk| &disk.path).collect();
        if paths.len() < machine.disks.len() || again.is_some_and(|error| render(&error) == text) {
            return;
        }
        seen = BTreeSet::from([text.clone()]);
    }
    followed(config, &text).iter().for_each(|next| follow(next, &machine, &seen, said));
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
        follow(&config, &machine(&machine_of(disks)), &BTreeSet::new(), &mut String::new());
    }

    #[test]
    fn the_hint_about_a_card_leads_to_a_plan_or_to_another_problem(
        nics in prop::collection::vec(0..3_u8, 1..5),
        cards in prop::collection::vec((0..3_u8, 0..5_u8, any::<bool>()), 1..4),
    ) {
        let nics = nics.iter().enumerate().map(|(number, address)| some_nic(number, *address));
        let machine = Inventory { nics: nics.collect(), ..machine(&[disk("vda", ByteSize::gib(16))]) };
        let of = |network: u8| -> Vec<_> {
            let cards = cards.iter().filter(|(of, ..)| *of == network);
            cards.map(|(_, number, by_name)| match by_name {
                true => serde_json::json!({ "name": format!("ens{number}") }),
                false => serde_json::json!({ "hw_addr": address(*number % 3) }),
            }).collect()
        };
        let mut document = serde_json::json!({ "install": { "mode": "install", "profile": "trial", "networks": [] } });
        for (number, name) in ["mgmt", "store", "live"].into_iter().enumerate() {
            let cards = of(u8::try_from(number).unwrap());
            if cards.is_empty() {
                continue;
            }
            match name {
                "mgmt" => document["install"]["management_interface"] = serde_json::json!({ "interfaces": cards }),
                _ => document["install"]["networks"].as_array_mut().unwrap().push(
                    serde_json::json!({ "name": name, "interfaces": cards })
                ),
            }
        }
        // What is wrong with the document alone is told before any machine is looked at.
        if let Ok(config) = model::config::parse(&document.to_string(), "f") {
            follow(&config, &machine, &BTreeSet::new(), &mut String::new());
        }
    }
}

fn address(number: u8) -> String {
    format!("52:54:00:00:00:{number:02x}")
}

fn some_nic(number: usize, mac: u8) -> Nic {
    let text = serde_json::json!({ "name": format!("ens{number}"), "mac": address(mac), "carrier": true, "speed": null });
    serde_json::from_value(text).unwrap()
}

/// What `plan --inventory` says of a document on a machine, and of what its hints ask for.
#[test]
fn machines_that_people_have_are_refused_with_hints_that_lead_on() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan/tests/machines");
    for mut table in testing::cases::tables(&directory) {
        for case in &mut table.cases {
            let (document, inventory) = case.document.split_once("inventory:\n").expect("an inventory");
            let config = model::config::parse(document, &case.name).unwrap_or_else(|error| panic!("{error}"));
            let mut said = String::new();
            follow(&config, &whole(inventory), &BTreeSet::new(), &mut said);
            case.expected = Some(said);
        }
        let text = testing::cases::text(&table.cases);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&table.path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(&table.path).unwrap(), "{}", table.path.display());
    }
}

/// An inventory as `installer inventory` prints it, of lines that say what matters of each disk and card.
fn whole(lines: &str) -> Inventory {
    let mut inventory = serde_json::json!({ "disks": [], "nics": [] });
    for line in lines.lines() {
        let (kind, given) = line.split_once(' ').expect("a kind and its values");
        let given: serde_json::Value =
            serde_json::from_str(given).unwrap_or_else(|error| panic!("{line}: {error}"));
        let mut all = match kind {
            "disk" => serde_json::json!({
                "size": "480GiB", "logical_sector": 512, "physical_sector": 4096, "rotational": false, "removable": false,
                "read_only": false, "optical": false, "transport": "ata", "model": "EXAMPLE SSD", "serial": null,
                "wwn": null, "links": [], "boot_medium": false, "partitions": [],
            }),
            _ => serde_json::json!({ "carrier": true, "speed": null }),
        };
        given.as_object().unwrap().iter().for_each(|(key, value)| all[key] = value.clone());
        if kind == "disk" {
            all["path"] = format!("/dev/{}", all["name"].as_str().unwrap()).into();
        }
        inventory[format!("{kind}s")].as_array_mut().unwrap().push(all);
    }
    // Through the text, as the command reads it.
    serde_json::from_str(&inventory.to_string()).unwrap_or_else(|error| panic!("{lines}: {error}"))
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
fn the_node_is_told_which_of_its_disks_are_over_the_network_and_gets_how_they_are_reached() {
    let remote = |name: &str| Disk {
        remote: Some(RemoteTarget {
            protocol: DiskProtocol::Iscsi,
            target: "iqn.2026-01.com.example:a".into(),
            portals: vec!["192.0.2.9:3260".parse().unwrap()],
        }),
        ..disk(name, ByteSize::gib(64))
    };
    let document = "install: {profile: trial, device: /dev/sda, data_disk: /dev/sdb, network_disks: {\
        initiator: 'iqn.2026-01.com.example:n', cards: [{interface: {name: ens4}}], \
        iscsi: [{target: 'iqn.2026-01.com.example:a', portals: [192.0.2.9], chap: {user: n, password: correct horse}}, \
        {target: 'iqn.2026-01.com.example:volumes', portals: [192.0.2.9]}], \
        host: 'nqn.2026-01.com.example:n', nvme: [{subsystem: 'nqn.2026-01.com.example:b', portals: [192.0.2.9]}]}}";
    let nic = Nic {
        name: "ens4".into(),
        mac: "52:54:00:00:00:04".into(),
        carrier: None,
        speed: None,
        driver: None,
        temporary_mac: false,
    };
    let made = |system: Disk, data: Disk, document: &str| {
        let inventory =
            Inventory { disks: vec![system, data], nics: vec![nic.clone()], ..Inventory::default() };
        let config = model::config::parse(document, "f").unwrap();
        plan(&config, &inventory, &release().into(), GUID).unwrap()
    };
    let files = |plan: &Plan| {
        let esp = plan.steps.iter().find_map(|step| match step {
            Step::Esp(content) => Some(content.files.clone()),
            _ => None,
        });
        let esp = esp.unwrap();
        let node = esp.iter().find(|file| file.path == "grub/node.cfg").map(|file| match &file.content {
            PlannedContent::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        });
        let secret = esp.iter().find(|file| file.path == "grub/disks.img").map(|file| match &file.content {
            PlannedContent::Secret(text) => text.expose().to_owned(),
            other => panic!("{other:?}"),
        });
        (node.unwrap(), secret)
    };
    let local = |name: &str| disk(name, ByteSize::gib(64));
    let over_nvme = |name: &str| {
        let mut disk = remote(name);
        let remote = disk.remote.as_mut().unwrap();
        (remote.protocol, remote.target) = (DiskProtocol::NvmeTcp, "nqn.2026-01.com.example:b".into());
        disk
    };
    for (system, data, expected) in [
        (remote("sda"), local("sdb"), "nqrust.network_disks=system "),
        (local("sda"), remote("sdb"), "nqrust.network_disks=data "),
        (remote("sda"), remote("sdb"), "nqrust.network_disks=system,data "),
        (local("sda"), over_nvme("sdb"), "nqrust.network_disks=data-nvme "),
        (remote("sda"), over_nvme("sdb"), "nqrust.network_disks=system,data-nvme "),
    ] {
        let plan = made(system, data, document);
        let (node, secret) = files(&plan);
        assert!(format!("{node} ").replace('\n', " \n").contains(expected), "{node}");
        let secret = secret.unwrap();
        assert!(secret.contains("etc/nqrust/network-disks.json"), "{secret}");
        // Without the targets that it does not need it does not wait for them either.
        let iscsi = expected.contains("system") || expected.ends_with("data ");
        assert_eq!(secret.contains("correct horse"), iscsi, "{secret}");
        assert_eq!(secret.contains(r#""target":"nqn."#), expected.contains("nvme"), "{secret}");
        assert_eq!(
            secret.contains(r#""system_targets":["iqn.2026-01.com.example:a"]"#),
            expected.contains("system"),
            "{secret}"
        );
        assert!(!secret.contains("volumes"), "{secret}");
        assert!(secret.contains(r#""mac":"52:54:00:00:00:04""#), "{secret}");
        let shown = format!("{plan}{}", serde_json::to_string(&plan).unwrap());
        assert!(!shown.contains("correct horse"), "{shown}");
    }
    // A node on disks of its own has nothing of it, and what the firmware names the initrd finds itself.
    let (node, secret) = files(&made(local("sda"), local("sdb"), document));
    assert!(!node.contains("network_disks") && secret.is_none());
    let plain = "install: {profile: trial, device: /dev/sda, data_disk: /dev/sdb}";
    let plan = made(remote("sda"), local("sdb"), plain);
    let (node, secret) = files(&plan);
    assert!(node.contains("nqrust.network_disks=system") && secret.is_none());
}

#[test]
fn no_system_is_put_on_a_disk_that_the_firmware_does_not_reach() {
    let remote = RemoteTarget {
        protocol: DiskProtocol::NvmeTcp,
        target: "nqn.2026-01.com.example:a".into(),
        portals: vec!["192.0.2.9:4420".parse().unwrap()],
    };
    let disks = vec![
        Disk { remote: Some(remote), ..disk("nvme0n1", ByteSize::gib(64)) },
        disk("sda", ByteSize::gib(64)),
    ];
    let inventory = Inventory { disks, ..Inventory::default() };
    for document in [
        "install: {profile: trial, device: /dev/nvme0n1}",
        "install: {profile: trial, device: /dev/sda, mirror: /dev/nvme0n1}",
    ] {
        let config = model::config::parse(document, "f").unwrap();
        let error = plan(&config, &inventory, &release().into(), GUID).unwrap_err();
        let text = base::failure::render(&error);
        for part in [
            "/dev/nvme0n1 cannot hold the system: it is NVMe subsystem nqn.2026-01.com.example:a at 192.0.2.9:4420",
            "this one with install.data_disk",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn the_node_is_told_of_its_disks_with_several_paths_by_their_wwids() {
    let way = |name: &str| DiskPath { name: name.into(), path: format!("/dev/{name}").into(), links: vec![] };
    let map = |name: &str, wwid: &str, paths: &[&str]| Disk {
        path: format!("/dev/mapper/{wwid}").into(),
        paths: paths.iter().map(|name| way(name)).collect(),
        ..disk(name, ByteSize::gib(16))
    };
    let mut config = trial();
    let node_cfg = |config: &InstallConfig, disks: &[Disk]| {
        let plan = try_plan(config, disks).unwrap();
        assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
        let files = plan.steps.iter().find_map(|step| match step {
            Step::Esp(content) => Some(&content.files),
            _ => None,
        });
        match &files.unwrap().iter().find(|file| file.path == "grub/node.cfg").unwrap().content {
            PlannedContent::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        }
    };
    // One path may have failed before the install.
    for paths in [&["sda", "sdb"][..], &["sda"]] {
        let text = node_cfg(&config, &[map("dm-0", "3600c0ff0", paths)]);
        assert!(text.contains(" nqrust.multipath=3600c0ff0") && !text.contains("multipath=off"), "{text}");
    }
    let mut friendly = map("dm-0", "mpatha", &["sda", "sdb"]);
    friendly.links = vec!["/dev/disk/by-id/dm-uuid-mpath-3600c0ff1".into()];
    assert!(node_cfg(&config, &[friendly]).contains(" nqrust.multipath=3600c0ff1"));
    let (_, text) = refusal(&config, &[map("dm-0", "a b", &["sda", "sdb"])]);
    assert!(text.contains("not \"a b\""), "{text}");
    // A local disk for the system, and one with several paths for data.
    config.install.device = serde_json::from_str(r#""/dev/sdz""#).unwrap();
    config.install.data_disk = serde_json::from_str(r#""/dev/mapper/3600c0ff2""#).unwrap();
    let disks = [disk("sdz", ByteSize::gib(16)), map("dm-0", "3600c0ff2", &["sda", "sdb"])];
    assert!(node_cfg(&config, &disks).contains(" nqrust.multipath=3600c0ff2"));
}
