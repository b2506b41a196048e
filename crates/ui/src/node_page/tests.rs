//! The screens as golden text, the effects of keys, and this node's own facts.

mod network;

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ratatui::layout::Size;

use super::look::{BUNDLES, ThisNode};
use super::state::{NodePage, NodePageEffect, NodeView};
use super::{Cluster, NodeControl, NodePageEnd, NodePageFacts, NodePageInput, NodeWork, Power, draw};
use crate::toolkit::testing::{compare, shown};
use crate::toolkit::{Capabilities, Key, Theme};
use base::size::ByteSize;
use cluster::images::BlobCount;
use cluster::stages::{Stage, StageName as Name, StageState as UpdateStage};
use install::usb_stick::{StickFormat, StickSurvey, StickVolume};
use machine::arrays::{ArrayState as Health, ArrayStatus};
use machine::image_health::ImageHealth;
use machine::nics::MissingCards;
use machine::nics::missing::{MissingCard, PresentCard};
use machine::release_origin::ReleaseOrigin;
use machine::update_state::UpdateNotice;
use model::boot::Slot;
use model::config::{NodeRole, Role};
use node::status::Status;
use testing::node::{ADDRESS_OF_ENS3, release_with_images as release};
use testing::runner::ScriptedRunner;

fn stage(name: Name, state: UpdateStage, detail: &str) -> Stage {
    let since = Some("2026-03-02T10:41:07Z".to_owned());
    Stage { name, state, since, detail: detail.into(), next: None }
}

/// A worker that is part of its cluster.
pub(super) fn ready() -> NodePageFacts {
    let stages = [
        (Name::Network, "mgmt-br has 192.0.2.12/24"),
        (Name::Server, "https://192.0.2.110:9345 answers"),
        (Name::Service, "rke2-agent.service runs"),
        (Name::Images, "214 of 214 blobs are in the store"),
        (Name::Registered, "as node-2"),
        (Name::Ready, "the node is part of its cluster"),
    ];
    NodePageFacts {
        status: Status {
            image: ImageHealth::default(),
            product: "NQRust Hypervisor".into(),
            version: "1.0.0".into(),
            trust: ReleaseOrigin {
                text: "signed by NQRust releases (key 0102030405060708) on 2026-03-02".into(),
                signers: Vec::new(),
                warnings: Vec::new(),
                unsigned: None,
                rollback_index: Default::default(),
                memory: Default::default(),
            },
            hostname: "node-2".into(),
            role: NodeRole { role: Role::Worker, asked_role: None },
            mode: "join",
            slot: Some(Slot::A),
            mounts: Vec::new(),
            paths: Vec::new(),
            network_disks: Vec::new(),
            arrays: Vec::new(),
            host: Vec::new(),
            crashes: Vec::new(),
            unexplained_end: None,
            write_latency: None,
            pending: false,
            images: BlobCount { expected: 214, present: 214, deferred: false },
            missing_cards: None,
            mistakes: Vec::new(),
            stages: stages.iter().map(|(name, detail)| stage(*name, UpdateStage::Done, detail)).collect(),
            ready: None,
            kubernetes: None,
            update: None,
        },
        addresses: vec![
            "mgmt-br 192.0.2.12/24, 2001:db8::12/64".into(),
            "storage-br 198.51.100.12/24".into(),
        ],
        cluster: Some(Cluster {
            distribution: "rke2",
            address: Some("https://192.0.2.110:9345".into()),
            vip: Some("192.0.2.110".into()),
            management: Some("https://192.0.2.110/".into()),
        }),
        disks: vec![
            "/dev/nvme0n1: 447.1 GiB, model MICRON 7450, serial 20302A7F61C4".into(),
            "/dev/sda: 3.6 TiB, model ST4000NM, serial ZC1".into(),
        ],
    }
}

/// A node that is still kept from its cluster.
fn joining() -> NodePageFacts {
    let mut facts = ready();
    facts.status.stages[4] = Stage {
        next: Some("Give the node a name of its own in `os.hostname`.".into()),
        ..stage(
            Name::Registered,
            UpdateStage::Failed,
            "the cluster has another node of this name (Node password rejected, duplicate hostname)",
        )
    };
    facts.status.stages[5] =
        stage(Name::Ready, UpdateStage::Waiting, "the cluster does not know the node yet");
    facts.status.pending = true;
    if let Some(cluster) = &mut facts.cluster {
        cluster.management = None;
    }
    facts
}

/// A node that kubeadm is making a server.
fn joining_by_kubeadm() -> NodePageFacts {
    let mut facts = joining();
    facts.status.role.role = Role::Management;
    let stages = [
        (Name::Server, UpdateStage::Done, "https://192.0.2.110:6443 answers"),
        (
            Name::Service,
            UpdateStage::Waiting,
            "Joining etcd (4 of 7); nqrust-kubeadm.service is activating (start)",
        ),
        (Name::Images, UpdateStage::Done, "9 of 9 blobs are in the store"),
        (Name::Registered, UpdateStage::Waiting, "the node has no credentials from its cluster yet"),
        (Name::Ready, UpdateStage::Waiting, "the cluster does not know the node yet"),
    ];
    facts.status.stages.truncate(1);
    facts.status.stages.extend(stages.map(|(name, state, detail)| stage(name, state, detail)));
    if let Some(cluster) = &mut facts.cluster {
        (cluster.distribution, cluster.address) = ("kubeadm", Some("https://192.0.2.110:6443".into()));
    }
    facts
}

/// A node whose second disk is missing.
fn degraded() -> NodePageFacts {
    let mut facts = ready();
    facts.status.trust.warnings = vec![
        "the running release is not signed".into(),
        "was installed or updated with an unsigned release on 2026-03-02 (0.9.0)".into(),
    ];
    facts.status.update = Some(UpdateNotice {
        version: "1.1.0".into(),
        bad: true,
        text: "1.1.0 was taken back: it was started 3 times and did not become good".into(),
    });
    let array = |name: &str, device: &str, state, members: &[&str]| ArrayStatus {
        name: name.into(),
        device: device.into(),
        state,
        disks: 2,
        members: members.iter().map(|member| (*member).to_owned()).collect(),
        filled: Vec::new(),
        percent: (state == Health::Rebuilding).then_some(34),
    };
    facts.status.arrays = vec![
        array("config", "md127", Health::Degraded, &["sda3"]),
        array("data", "md126", Health::Rebuilding, &["sda8"]),
        array("persistent", "md125", Health::Whole, &["sda7", "sdb7"]),
    ];
    facts.cluster = None;
    facts.status.stages.clear();
    facts
}

fn state(administrator: bool, facts: Option<NodePageFacts>) -> NodePage {
    let mut state = NodePage::new(administrator);
    if let Some(facts) = facts {
        state.take(NodePageInput::Seen(Ok(Box::new(facts))));
    }
    state
}

fn drawn(state: &mut NodePage, term: &str, size: Size) -> String {
    let theme = Theme::of(Capabilities::of_term(term, true));
    shown(size, |frame| draw::state(state, "2026-03-02 10:42 UTC", frame, theme))
}

/// Compares with the files of this name in `golden/`; with `UPDATE_GOLDEN` set, writes them. The Linux console and a
/// larger one have files of their own only where they say something else.
fn golden(name: &str, mut state: NodePage) {
    let forms = [
        ("80x24-vt220", "vt220", Size::new(80, 24)),
        ("80x24-linux", "linux", Size::new(80, 24)),
        ("120x40-vt220", "vt220", Size::new(120, 40)),
    ];
    let pictures = forms.map(|(form, term, size)| (form, drawn(&mut state, term, size)));
    compare("node_page/golden", name, &pictures);
}

#[test]
fn a_console_that_has_not_looked_yet_says_so() {
    golden("starting", state(false, None));
}

#[test]
fn a_node_that_cannot_join_shows_the_last_error_in_words_and_what_to_do() {
    golden("joining", state(false, Some(joining())));
    golden("joining-kubeadm", state(false, Some(joining_by_kubeadm())));
}

#[test]
fn a_ready_node_shows_where_it_is_managed() {
    golden("ready", state(false, Some(ready())));
}

#[test]
fn a_node_whose_mirror_has_lost_a_disk_shows_which() {
    golden("degraded", state(false, Some(degraded())));
}

/// A node on another board, whose cards have other names.
fn without_card() -> NodePageFacts {
    let mut facts = joining();
    let card = |name: &str, last: &str, link| PresentCard {
        name: name.into(),
        address: format!("52:54:00:00:00:{last}"),
        driver: Some("igb".into()),
        link: Some(link),
    };
    let missing = MissingCard {
        name: Some("ens3".into()),
        address: Some("52:54:00:00:00:03".into()),
        network: "mgmt".into(),
    };
    let missing = MissingCards {
        cards: vec![missing],
        present: vec![card("enp1s0f0", "10", true), card("enp1s0f1", "11", false)],
    };
    facts.status.stages[0] = Stage {
        next: Some(MissingCards::next().to_owned()),
        ..stage(Name::Network, UpdateStage::Failed, &missing.of_network("mgmt").unwrap())
    };
    facts.status.missing_cards = Some(missing);
    facts.addresses.clear();
    facts
}

#[test]
fn a_node_whose_network_card_is_missing_says_so_before_anything_else() {
    golden("card-missing", state(false, Some(without_card())));
    let text = drawn(&mut state(false, Some(without_card())), "vt220", Size::new(80, 24));
    let at = |text_of: &str| text.find(text_of).unwrap_or_else(|| panic!("{text_of} in {text}"));
    assert!(at("ens3 (52:54:00:00:00:03) of network mgmt") < at("node-2: worker"), "{text}");
    assert!(at("enp1s0f0 52:54:00:00:00:10 (igb, link)") < at("node-2: worker"), "{text}");
}

#[test]
fn an_administrator_is_offered_actions_and_asked_before_a_restart() {
    let mut state = state(true, Some(ready()));
    state.take(NodePageInput::Done(Ok(
        "The support bundle is in /var/lib/nqrust/support/a.tar.gz, readable by root only.".into(),
    )));
    golden("administrator", state.clone());
    assert_eq!(state.take(NodePageInput::Key(Key::Char('r'))), None);
    golden("restart", state);
}

#[test]
fn a_node_that_cannot_be_looked_at_keeps_what_was_seen_before() {
    let mut state = state(false, Some(ready()));
    state.take(NodePageInput::Seen(Err("reading /oem/node.yaml: Input/output error".into())));
    let text = drawn(&mut state, "vt220", Size::new(80, 24));
    assert!(text.contains("READY since") && text.contains("Input/output error"), "{text}");
}

#[test]
fn what_cannot_be_undone_needs_two_keys() {
    let keys = |keys: &str| {
        let mut state = state(true, Some(ready()));
        keys.chars().filter_map(|key| state.take(NodePageInput::Key(Key::Char(key)))).collect::<Vec<_>>()
    };
    assert_eq!(keys("ry"), [NodePageEffect::Work(NodeWork::Power(Power::Restart))]);
    assert_eq!(keys("pY"), [NodePageEffect::Work(NodeWork::Power(Power::Off))]);
    assert_eq!(keys("rr"), [], "the same key twice is no yes");
    assert_eq!(keys("s"), [NodePageEffect::Work(NodeWork::Sticks)]);
}

fn stick() -> StickVolume {
    StickVolume {
        node: "/dev/sdc1".into(),
        format: StickFormat::Vfat,
        size: ByteSize::gib(8),
        label: Some("LOGS".into()),
        uuid: None,
        disk: "/dev/sdc: 8 GiB, model Ultra, serial 4C53".into(),
    }
}

#[test]
fn a_support_bundle_goes_to_a_stick_where_there_is_one() {
    let mut state = state(true, Some(ready()));
    let found = |volumes: &[StickVolume]| StickSurvey {
        volumes: volumes.to_vec(),
        others: vec!["/dev/sdd1: it has NTFS; FAT, exFAT and ext4 can take files".into()],
    };
    state.take(NodePageInput::Key(Key::Char('s')));
    assert_eq!(state.take(NodePageInput::Sticks(Ok(found(&[stick()])))), None);
    golden("bundle", state.clone());
    let mut node = state.clone();
    assert_eq!(node.take(NodePageInput::Key(Key::Enter)), Some(NodePageEffect::Work(NodeWork::Bundle(None))));
    state.take(NodePageInput::Key(Key::Down));
    assert_eq!(
        state.take(NodePageInput::Key(Key::Enter)),
        Some(NodePageEffect::Work(NodeWork::Bundle(Some(stick()))))
    );
    assert_eq!(state.view, NodeView::Node);
}

#[test]
fn a_support_bundle_stays_on_the_node_where_there_is_no_stick() {
    for found in [Ok(StickSurvey::default()), Err("reading /sys/block: Input/output error".to_owned())] {
        let mut state = state(true, Some(ready()));
        state.take(NodePageInput::Key(Key::Char('s')));
        assert_eq!(
            state.take(NodePageInput::Sticks(found)),
            Some(NodePageEffect::Work(NodeWork::Bundle(None)))
        );
        assert_eq!(state.view, NodeView::Node);
    }
}

#[test]
fn the_journal_is_read_shown_and_left() {
    let mut state = state(true, Some(ready()));
    assert_eq!(state.take(NodePageInput::Key(Key::Char('j'))), Some(NodePageEffect::Work(NodeWork::Logs)));
    let lines = (0..60).map(|line| format!("line {line}")).collect();
    state.take(NodePageInput::Logs(Ok(lines)));
    assert!(drawn(&mut state, "vt220", Size::new(80, 24)).contains("line 59"));
    state.take(NodePageInput::Key(Key::Home));
    assert!(drawn(&mut state, "vt220", Size::new(80, 24)).contains("line 0\n"));
    state.take(NodePageInput::Key(Key::Escape));
    assert_eq!(state.view, NodeView::Node);
}

fn key() -> impl Strategy<Value = Key> {
    let keys = vec![Key::Enter, Key::Escape, Key::Up, Key::PageDown, Key::End, Key::Function(5)];
    let control = any::<u8>().prop_map(|n| Key::Control(char::from(b'a' + n % 26)));
    prop_oneof![
        "[a-zA-Z0-9]".prop_map(|c| Key::Char(c.chars().next().unwrap())),
        control,
        prop::sample::select(keys)
    ]
}

proptest! {
    #[test]
    fn before_a_login_no_keys_do_more_than_show_and_log_in(
        keys in prop::collection::vec(key(), 0..40), seen: bool, width in 0u16..130, height in 0u16..45,
    ) {
        let mut state = state(false, seen.then(joining));
        for key in keys {
            let effect = state.take(NodePageInput::Key(key));
            let harmless = [None, Some(NodePageEffect::Work(NodeWork::Look)), Some(NodePageEffect::End(NodePageEnd::LogIn))];
            prop_assert!(harmless.contains(&effect), "{:?}", effect);
            prop_assert_eq!(&state.view, &NodeView::Node);
        }
        drawn(&mut state, "linux", Size::new(width, height));
    }

    #[test]
    fn no_keys_of_an_administrator_lose_the_page(
        keys in prop::collection::vec(key(), 0..40), width in 0u16..130, height in 0u16..45,
    ) {
        let mut state = state(true, Some(degraded()));
        for key in keys {
            state.take(NodePageInput::Key(key));
            drawn(&mut state, "vt220", Size::new(width, height));
        }
        state.take(NodePageInput::Key(Key::Escape));
        prop_assert_eq!(&state.view, &NodeView::Node);
    }
}

/// Programs whose output contains secrets.
fn programs() -> ScriptedRunner {
    let said = "2026-03-02T10:41:07+00:00 node-2 k3s[1]: token MARK-token, K10abc::server:MARK and more\n";
    ScriptedRunner::failing("there is no such program")
        .answer("ip ", ADDRESS_OF_ENS3)
        .answer("journalctl", said)
        .answer("dmesg", said)
        .answer("systemctl", "LoadState=loaded\nActiveState=activating\n")
        .answer("systemctl poweroff", "")
}

fn node() -> (tempfile::TempDir, ThisNode) {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, bytes: &[u8]| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let document = "server_url: https://127.0.0.2\ntoken: MARK-token\nos: {hostname: node-2}\n\
                    install: {mode: join, role: worker}\nkubernetes: {distribution: k3s}\n";
    put("oem/node.yaml", document.as_bytes());
    put("oem/release.json", &release().to_bytes());
    put("proc/cmdline", b"quiet\n");
    put("proc/sys/kernel/hostname", b"node-2\n");
    put("proc/self/mountinfo", b"");
    for directory in ["sys/block", "sys/class/net", "dev", "run/udev/data"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    let node = ThisNode::new(root.path(), Box::new(programs()));
    (root, node)
}

#[test]
fn a_node_is_looked_at_as_a_whole() {
    let (_root, node) = node();
    let facts = node.look().unwrap();
    assert_eq!((facts.status.hostname.as_str(), facts.status.stages.len()), ("node-2", 6));
    assert_eq!(facts.addresses, ["ens3 192.0.2.7/24"]);
    let cluster = facts.cluster.unwrap();
    assert_eq!((cluster.distribution, cluster.management), ("k3s", None), "nothing answers there");
    assert_eq!(cluster.address.as_deref(), Some("https://127.0.0.2:6443"));
}

#[test]
fn there_are_signs_of_what_the_watching_unit_sees_and_of_disks_that_come_and_go() {
    let (root, node) = node();
    let first = node.signs();
    assert_eq!(node.signs(), first);
    fs::create_dir_all(root.path().join("run/nqrust")).unwrap();
    fs::write(root.path().join("run/nqrust/stages.json"), "[]").unwrap();
    let second = node.signs();
    fs::create_dir(root.path().join("sys/block/sdb")).unwrap();
    assert!(first != second && second != node.signs());
}

#[test]
fn neither_the_journal_nor_a_support_bundle_tells_secrets() {
    let (root, node) = node();
    let lines = node.logs().unwrap();
    assert_eq!(lines.len(), 1);
    assert!(lines[0].ends_with("token [hidden], [hidden] and more"), "{lines:?}");
    let told = node.bundle(None).unwrap();
    let told = told
        .strip_prefix("The support bundle is in ")
        .and_then(|told| told.strip_suffix(", readable by root only."));
    let path = PathBuf::from(told.unwrap());
    assert_eq!(path.parent().unwrap(), root.path().join(BUNDLES.trim_start_matches('/')));
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(path).unwrap()));
    let mut names = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        names.push(entry.path().unwrap().file_name().unwrap().to_str().unwrap().to_owned());
        let text = std::io::read_to_string(&mut entry).unwrap();
        assert!(!text.contains("MARK"), "{names:?}: {text}");
    }
    let expected = ["status.txt", "configuration.yaml", "inventory.json", "kernel.txt", "journal.txt"];
    assert_eq!(names, expected);
}

#[test]
fn the_example_for_a_serial_line_does_what_the_unit_of_the_screen_does() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let manual = fs::read_to_string(root.join("docs/how-to/node-console.md")).unwrap();
    let (_, rest) = manual.split_once("```yaml\n").unwrap();
    let (document, _) = rest.split_once("```").unwrap();
    let config = model::config::parse(document, "docs/how-to/node-console.md").unwrap();
    let [file] = config.os.write_files.as_slice() else { panic!("{document}") };
    let drop_in = "overlays/rootfs/usr/lib/systemd/system/getty@tty1.service.d/20-nqrust-console.conf";
    let unit = fs::read_to_string(root.join(drop_in)).unwrap();
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(lines(&file.content), lines(&unit));
}

#[test]
fn power_is_asked_of_systemd() {
    let (_root, node) = node();
    node.power(Power::Off).unwrap();
}

#[test]
fn a_node_that_never_had_a_trial_fills_in_its_present_network_and_tells_what_would_change() {
    let (root, node) = node();
    let card = root.path().join("sys/class/net/ens3");
    fs::create_dir_all(card.join("device")).unwrap();
    fs::create_dir_all(card.join("bonding_slave")).unwrap();
    fs::write(card.join("address"), "52:54:00:00:00:99\n").unwrap();
    fs::write(card.join("bonding_slave/perm_hwaddr"), "52:54:00:00:00:03\n").unwrap();
    assert_eq!(node.trial(), node::network_trial::TrialStatus::None);
    let present = node.network().unwrap();
    assert_eq!(present.nics[0].mac, "52:54:00:00:00:03", "a card in a bond has its own address");
    let text = "install: {management_interface: {interfaces: [{name: ens3}]}}";
    let networks = node::network_trial::Networks::of(&model::config::parse(text, "f").unwrap());
    let proposal = node.propose(&networks).unwrap();
    assert_eq!(proposal.differences, ["install.management_interface.interfaces[0].name: none -> ens3"]);
    assert!(!proposal.grave && proposal.warnings[0].contains("k3s-agent.service"), "{proposal:?}");
    let error = node.try_networks(&networks, false).unwrap_err();
    assert!(format!("{error:#}").contains("not applied"), "{error:#}");
}
