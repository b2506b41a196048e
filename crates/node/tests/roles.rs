//! A machine that changes from each role to each other one, and from one distribution to the other, keeps nothing of
//! what it was.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cluster::configuration::MachineSize;
use node::apply::{ApplyOutcome, apply_on};

/// A file's mode and content, or a link's target.
type Files = BTreeMap<PathBuf, (u32, Vec<u8>)>;

const ACCOUNTS: [(&str, &str); 4] = [
    ("passwd", "root:x:0:0:root:/root:/bin/bash\n"),
    ("group", "root:x:0:\nsudo:x:27:\n"),
    ("shadow", "root:*:19000:0:99999:7:::\n"),
    ("gshadow", "root:*::\nsudo:*::\n"),
];

/// Documents for each part that a node can have, as much of it as that part can have, for both distributions.
fn documents() -> Vec<(String, String)> {
    let mut documents = vec![("install".to_owned(), "install: {mode: install}\n".to_owned())];
    let vip = "  vip: 192.0.2.10\n  vip_mode: static\n";
    let dhcp = "  vip: 192.0.2.10\n  vip_mode: dhcp\n  vip_hw_addr: 52:54:00:AA:BB:CC\n";
    let objects = "system_settings:\n  ui-index: auto\n  containerd-registry: '{\"Mirrors\":{\"docker.io\":{\"Endpoints\":[\"https://mirror.example.org\"]}}}'\n";
    for distribution in ["rke2", "k3s"] {
        let kubernetes = format!("kubernetes:\n  distribution: {distribution}\n");
        let create =
            |rest: &str| format!("token: a-token-of-a-test\ninstall:\n  mode: create\n{rest}{kubernetes}");
        let addons = "  addons:\n    rancher_logging: {enabled: true, values_content: ''}\n";
        let manifests =
            "  manifests:\n  - {name: a, content: '{apiVersion: v1, kind: A, metadata: {name: a}}'}\n";
        documents.push((format!("create-{distribution}"), create(vip) + manifests + objects));
        documents.push((format!("create-dhcp-{distribution}"), create(&format!("{dhcp}{addons}"))));
        documents.push((format!("create-bare-{distribution}"), create("")));
        for role in ["default", "management", "worker", "witness"] {
            let join = format!(
                "server_url: https://192.0.2.10\ntoken: a-token-of-a-test\n\
                 install:\n  mode: join\n  role: {role}\n{kubernetes}"
            );
            documents.push((format!("{role}-{distribution}"), join));
        }
    }
    documents
}

/// A directory in memory, if there is one: an apply flushes each file, which takes its time on a disk.
fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn put_accounts(root: &Path) {
    fs::create_dir_all(root.join("etc")).unwrap();
    for (name, text) in ACCOUNTS {
        fs::write(root.join("etc").join(name), text).unwrap();
    }
}

fn apply(root: &Path, document: &str) -> ApplyOutcome {
    let oem = tempfile::tempdir().unwrap();
    let path = oem.path().join("node.yaml");
    fs::write(&path, document).unwrap();
    fs::write(oem.path().join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
    apply_on(&path, root, MachineSize { cpus: 4, memory: 8192 }, &[])
        .unwrap_or_else(|error| panic!("{error:#}\n{document}"))
}

fn snapshot(root: &Path) -> Files {
    let entries = walkdir::WalkDir::new(root).into_iter().map(Result::unwrap);
    let files = entries.filter(|entry| !entry.file_type().is_dir());
    files
        .map(|entry| {
            let name = entry.path().strip_prefix(root).unwrap().to_owned();
            match fs::read_link(entry.path()) {
                Ok(target) => (name, (0, target.into_os_string().into_encoded_bytes())),
                Err(_) => {
                    let mode = entry.metadata().unwrap().permissions().mode() & 0o7777;
                    // What is not written by an apply has the mode that the test's umask gives it.
                    let mode = if entry.path().starts_with(root.join("etc")) && is_account(&name) {
                        0
                    } else {
                        mode
                    };
                    (name, (mode, fs::read(entry.path()).unwrap()))
                }
            }
        })
        .collect()
}

fn is_account(name: &Path) -> bool {
    ACCOUNTS.iter().any(|(account, _)| name == Path::new("etc").join(account))
}

/// What an apply of the document leaves on a machine that was nothing before.
fn fresh(document: &str) -> Files {
    let root = memory();
    put_accounts(root.path());
    apply(root.path(), document);
    snapshot(root.path())
}

#[test]
fn whatever_the_machine_was_before_it_is_what_its_document_says() {
    let documents = documents();
    let expected: Vec<Files> = documents.iter().map(|(_, text)| fresh(text)).collect();
    // One machine that is everything in turn: forwards, and then in steps that meet other neighbours.
    let steps = (0..documents.len()).chain((0..documents.len()).map(|step| step * 4 % documents.len()));
    let root = memory();
    put_accounts(root.path());
    let mut before = "nothing";
    for (step, index) in steps.enumerate() {
        let (name, text) = &documents[index];
        if step % 2 == 1 {
            // `/etc` starts fresh at every boot, `/var` lasts.
            fs::remove_dir_all(root.path().join("etc")).unwrap();
            put_accounts(root.path());
        }
        apply(root.path(), text);
        let left = snapshot(root.path());
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&left), names(&expected[index]), "{before}, then {name}");
        assert!(left == expected[index], "{before}, then {name}: the same files, other content");
        before = name;
    }
    let of_cluster =
        |files: &Files| files.keys().filter(|path| path.to_string_lossy().contains("rancher")).count();
    let counts: Vec<usize> = expected.iter().map(of_cluster).collect();
    assert!(counts[0] == 0 && counts[1..].iter().all(|count| *count >= 2), "{counts:?}");
}

#[test]
fn a_second_apply_of_any_part_writes_nothing() {
    for (name, text) in documents() {
        let root = memory();
        put_accounts(root.path());
        assert!(!apply(root.path(), &text).written.is_empty(), "{name}");
        let before = snapshot(root.path());
        let ApplyOutcome { written, removed, .. } = apply(root.path(), &text);
        assert_eq!((written, removed), (vec![], vec![]), "{name}");
        assert!(snapshot(root.path()) == before, "{name}");
    }
}
