//! No command shows a secret: a document in which every secret is marked goes through all of them, rightly and wrongly.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use base::digest::Digest;
use base::size::ByteSize;
use machine::inventory::{Disk, Inventory, RemoteTarget};
use model::config::disk::Transport;
use model::network_disks::DiskProtocol;
use model::release::{
    Containerd, ExpandedImage, FORMAT, MANIFEST, MediumKind, Payload, Purpose, Release, metadata_path,
};

/// In every secret of the document, and nowhere else.
const MARK: &str = "Kq7Marked9Z";

const DOCUMENT: &str = "\
scheme_version: 1
token: Kq7Marked9Z-5b1f0e6c2d9a48f7b3
system_settings:
  http-proxy: '{\"httpProxy\": \"http://user:Kq7Marked9Z@proxy.example.org:3128\"}'
registries:
  configs:
    mirror.example.org: {auth: {username: node, password: Kq7Marked9Z-registry}}
os:
  hostname: node-1
  environment:
    HTTPS_PROXY: http://user:Kq7Marked9Z@proxy.example.org:3128
    NO_PROXY: .example.org
  password: Kq7Marked9Z-password
  users:
    - {name: operator, password: Kq7Marked9Z-operator}
kubernetes:
  agent_token: Kq7Marked9Z-0c4e7f2a91b8d36e5f
install:
  automatic: true
  mode: create
  profile: trial
  device: {serial: no-such-disk-anywhere}
  vip: 192.0.2.10
  network_disks:
    initiator: iqn.2026-01.com.example:node-1
    iscsi:
      - target: iqn.2026-01.com.example:array-1
        portals: [192.0.2.9]
        chap: {user: node-1, password: Kq7Marked9Z-chap}
  webhooks:
    - event: FAILED
      method: POST
      url: http://127.0.0.1:1/hook
      headers: {Authorization: [Kq7Marked9Z-header]}
      basic_auth: {user: me, password: Kq7Marked9Z-basic}
";

fn payload(path: &str, purpose: Purpose) -> Payload {
    let size = if purpose == Purpose::GrubCore { 40_000 } else { 512 };
    Payload { path: path.into(), purpose, size, sha256: Digest::of(path.as_bytes()) }
}

/// A medium that is good enough for a plan.
fn medium(directory: &Path) {
    let mut payloads = vec![
        payload("boot/vmlinuz", Purpose::Kernel),
        payload("boot/initrd", Purpose::Initrd),
        payload("boot/shim", Purpose::Shim),
        payload("boot/grub.efi", Purpose::GrubEfi),
        payload("boot/boot.img", Purpose::GrubBoot),
        payload("boot/core.img", Purpose::GrubCore),
        payload("rootfs.squashfs", Purpose::Rootfs),
    ];
    for role in ["default", "management", "witness", "worker"] {
        payloads.push(payload(&metadata_path(role), Purpose::ImageMetadata));
    }
    let release = Release {
        format: FORMAT,
        id: "sample".into(),
        name: "Sample".into(),
        version: "1".into(),
        rollback_index: model::rollback_index::RollbackIndex::default(),
        architecture: model::architecture::Architecture::Amd64,
        epoch: 1_700_000_000,
        medium: MediumKind::Full,
        kernel: "6.1.0".into(),
        kernel_arguments: vec![],
        expanded: ExpandedImage { size: 0, root_hash: Digest::of(b"") },
        payloads,
        images: vec![],
        containerd: Containerd::default(),
        distribution: None,
        kubernetes: None,
        iso: None,
    };
    fs::write(directory.join(MANIFEST), release.to_bytes()).unwrap();
}

fn inventory() -> String {
    let disk = Disk {
        name: "vda".into(),
        path: "/dev/vda".into(),
        size: ByteSize::gib(64),
        logical_sector: 512,
        physical_sector: 512,
        rotational: false,
        removable: false,
        read_only: false,
        optical: false,
        transport: Transport::Virtio,
        model: None,
        serial: Some("no-such-disk-anywhere".into()),
        wwn: None,
        links: vec![],
        boot_medium: false,
        namespace: None,
        remote: Some(RemoteTarget {
            protocol: DiskProtocol::Iscsi,
            target: "iqn.2026-01.com.example:array-1".into(),
            portals: vec!["192.0.2.9:3260".parse().unwrap()],
        }),
        paths: vec![],
        holders: vec![],
        signatures: vec![],
        unread: None,
        partitions: vec![],
    };
    serde_json::to_string(&Inventory { disks: vec![disk], ..Inventory::default() }).unwrap()
}

fn run(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_installer"));
    let output = command.current_dir(directory).args(args).output().unwrap();
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        assert!(!text.contains(MARK), "{args:?} shows a secret:\n{text}");
    }
    output
}

#[test]
fn no_command_shows_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("node.yaml"), DOCUMENT).unwrap();
    let wrong = DOCUMENT.replace("  password: H", "  pasword: H").replace("mode: create", "mode: creat");
    fs::write(path.join("wrong.yaml"), wrong).unwrap();
    fs::write(path.join("broken.yaml"), DOCUMENT.replace("  password: H", "  password: \"H")).unwrap();
    fs::write(path.join("machine.json"), inventory()).unwrap();
    fs::create_dir(path.join("medium")).unwrap();
    medium(&path.join("medium"));

    for format in ["text", "json"] {
        let run = |args: &[&str]| run(path, &[&["--format", format], args].concat());
        let succeeds = |args: &[&str]| {
            let output = run(args);
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        succeeds(&["validate", "node.yaml"]);
        succeeds(&["validate", "--show-sources", "node.yaml"]);
        assert_eq!(run(&["validate", "wrong.yaml", "broken.yaml"]).status.code(), Some(2));
        let typed = "nqrust.token=Kq7Marked9Z-typed nqrust.os.pasword=Kq7Marked9Z nqrust.install.mode=x";
        assert_eq!(
            run(&["validate", "--show-sources", "--cmdline", typed, "node.yaml"]).status.code(),
            Some(2)
        );
        let plan = ["plan", "--config", "node.yaml", "--inventory", "machine.json", "--medium", "medium"];
        succeeds(&plan);
        succeeds(&[&plan[..], &["--show-sources"]].concat());
        run(&["preflight", "--config", "node.yaml", "--inventory", "machine.json"]);
        run(&["apply", "--config", "node.yaml", "--root", "nowhere"]);
        run(&["status"]);
    }
    // No machine has this disk, and the medium holds nothing: it ends before anything is written.
    let output = run(path, &["--progress", "json", "install", "--config", "node.yaml", "--medium", "medium"]);
    assert!(!output.status.success());
}
