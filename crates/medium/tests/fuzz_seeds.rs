//! The fuzzers' seeds and a few thousand mutations of them, the same ones in every run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod exercise;

use std::path::Path;

use medium::customization::{Content, File, area};
use model::config::Secret;
use testing::cases;
use testing::numbers::Numbers;

/// Mutations of each seed.
const MUTATIONS: u64 = 40;

/// The seeds: all documents of the repository in these directories.
fn seeds(directories: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = Vec::new();
    for directory in directories {
        let entries = walkdir::WalkDir::new(root.join(directory)).sort_by_file_name();
        let files = entries
            .into_iter()
            .map(Result::unwrap)
            .filter(|entry| entry.path().extension().is_some_and(|e| e == "yaml"));
        seeds.extend(
            files.map(|entry| String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned()),
        );
    }
    seeds
}

/// The documents of the configuration's tests.
fn corpus() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/corpus");
    let tables = ["broken", "valid", "warned"].into_iter().flat_map(|name| cases::tables(&root.join(name)));
    tables.flat_map(|table| table.cases).map(|case| case.document).collect()
}

/// A text that is a little different: characters changed, taken out, put in, or lines from elsewhere.
fn mutate(text: &str, others: &[String], numbers: &mut Numbers) -> String {
    const INSERTS: [&str; 12] = [":", "- ", "  ", "\n", "\"", "'", "{", "]", "#", "&a ", "é", "\u{0}"];
    let mut characters: Vec<char> = text.chars().collect();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(characters.len());
        match numbers.below(5) {
            0 if !characters.is_empty() => drop(characters.remove(at)),
            1 => drop(characters.splice(at..at, INSERTS[numbers.below(INSERTS.len())].chars())),
            2 => {
                let end = (at + numbers.below(40)).min(characters.len());
                characters.drain(at..end);
            }
            3 => {
                let other: Vec<&str> = others[numbers.below(others.len())].lines().collect();
                let line = other.get(numbers.below(other.len())).copied().unwrap_or_default();
                characters.splice(at..at, format!("\n{line}\n").chars());
            }
            _ => {
                if let Some(character) = characters.get_mut(at) {
                    *character = char::from(u8::try_from(32 + numbers.below(95)).unwrap());
                }
            }
        }
    }
    characters.into_iter().collect()
}

#[test]
fn no_mutation_of_a_document_breaks_the_reader() {
    let mut seeds = seeds(&["../../configs/nodes"]);
    assert!(!seeds.is_empty());
    seeds.extend(corpus());
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    for seed in &seeds {
        exercise::document(seed);
        for _ in 0..MUTATIONS {
            exercise::document(&mutate(seed, &seeds, &mut numbers));
        }
    }
}

#[test]
fn no_mutation_of_a_cluster_file_breaks_the_reader_or_gives_documents_that_are_refused() {
    let seeds = seeds(&["../../configs/clusters"]);
    assert!(!seeds.is_empty());
    let mut numbers = Numbers(0x6a09_e667_f3bc_c909);
    for seed in &seeds {
        exercise::cluster(seed);
        for _ in 0..MUTATIONS * 3 {
            exercise::cluster(&mutate(seed, &seeds, &mut numbers));
        }
    }
}

/// Bytes that are a little different: changed, taken out, or put in twice.
fn mutate_bytes(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        let end = (at + numbers.below(600)).min(bytes.len());
        match numbers.below(4) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
            _ => bytes[at..].iter_mut().take(1).for_each(|byte| *byte = numbers.below(256) as u8),
        }
    }
    bytes
}

#[test]
fn no_mutation_of_what_a_medium_was_customized_with_breaks_the_reader() {
    let file = File { mode: 0o755, bytes: vec![7; 1000] };
    let content = Content {
        nodes: [("serial-CZ12.yaml".to_owned(), Secret::new("token: x\n"))].into(),
        authorities: [("own.pem".to_owned(), "-----BEGIN".to_owned())].into(),
        files: [(format!("etc/{}motd", "long/".repeat(30)), file)].into(),
        arguments: vec!["quiet".parse().unwrap()],
        boot_password: None,
        signatures: Vec::new(),
    };
    let whole = area::bytes(&content).unwrap();
    let mut numbers = Numbers(0xbb67_ae85_84ca_a73b);
    for seed in [&whole[..], &whole[area::HEADER..]] {
        exercise::area(seed);
        for _ in 0..MUTATIONS * 20 {
            exercise::area(&mutate_bytes(seed, &mut numbers));
        }
    }
}

#[test]
fn no_mutation_of_the_names_on_a_volume_breaks_their_reader() {
    let seeds = [
        "default.yaml\nmac-52-54-00-12-34-56.yaml\nserial-CZ12.yml\nREADME\n.hidden.yaml",
        "uuid-4c4c4544-0042-3510-8052-b4c04f4a5a32.yaml\nasset-tag-rack%207.yaml\nserial-a%25b.yaml",
    ]
    .map(String::from);
    let mut numbers = Numbers(0x3c6e_f372_fe94_f82b);
    for seed in &seeds {
        exercise::names(seed);
        for _ in 0..MUTATIONS * 20 {
            exercise::names(&mutate(seed, &seeds, &mut numbers));
        }
    }
}

#[test]
fn no_mutation_of_a_command_line_breaks_the_reader() {
    let seeds = [
        "quiet root=live:x nqrust.release=sha256:00 nqrust.install.automatic nqrust.install.mode=create",
        "harvester.os.ntp_servers=a harvester.os.ntp_servers=b nqrust.install.device.serial=\"a b\"",
        "harvester.install.management_interface.interfaces=\"hwAddr: 52:54:00:12:34:56,name: ens3\"",
        "nqrust.install.webhooks[0].url=http://h/ nqrust.install.webhooks[0].method=GET nqrust.install.webhooks[0].event=STARTED",
        "\"nqrust.os.password=a b\" nqrust.token=x nqrust.system_settings.log-level=debug nqrust.os.labels.a=b",
    ]
    .map(String::from);
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    for seed in &seeds {
        exercise::command_line(seed);
        for _ in 0..MUTATIONS * 20 {
            exercise::command_line(&mutate(seed, &seeds, &mut numbers));
        }
    }
}
