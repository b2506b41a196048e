//! The published JSON Schemas take what the reader takes, as an ordinary validator (python3-jsonschema) judges documents that
//! an ordinary reader of YAML 1.1 (python3-yaml) has read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use model::{cluster_file, config};
use serde_json::{Value, json};
use testing::cases;

/// Reads `{schema, documents: [[place, text]]}` and prints what does not fit, a line each.
const VALIDATOR: &str = r#"
import json, sys, yaml, jsonschema
work = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(work["schema"])
validator = jsonschema.Draft202012Validator(work["schema"])
for place, text in work["documents"]:
    for error in validator.iter_errors(yaml.safe_load(text)):
        print(place, "/".join(map(str, error.absolute_path)), error.message[:200].replace("\n", " "))
"#;

fn misfits(schema: &str, documents: &[(String, String)]) -> String {
    let schema: Value = serde_json::from_str(schema).unwrap();
    let work = json!({ "schema": schema, "documents": documents }).to_string();
    // Debian's own Python has Debian's packages.
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", VALIDATOR])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, work.as_bytes()));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "python3-jsonschema and python3-yaml are needed: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(directory: &str, ending: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(repository().join(directory)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.display().to_string().ends_with(ending));
    paths.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

/// The documents of the corpus that the reader accepts.
fn accepted() -> Vec<(String, String)> {
    let tests = repository().join("crates/model/tests");
    let mut documents = Vec::new();
    for directory in ["corpus/valid", "corpus/warned", "harvester/documents"] {
        for table in cases::tables(&tests.join(directory)) {
            let place = |case: &cases::Case| (table.place(case), case.document.clone());
            documents.extend(table.cases.iter().map(place));
        }
    }
    documents.retain(|(_, text)| config::check(text, "f").is_ok());
    documents
}

#[test]
fn every_example_fits_the_schema_of_its_kind() {
    let mut nodes = files("configs/nodes", ".yaml");
    nodes.extend(files("configs/images", ".defaults.yaml"));
    let clusters = files("configs/clusters", ".yaml");
    assert!(nodes.len() >= 7 && clusters.len() >= 4, "{} {}", nodes.len(), clusters.len());
    assert_eq!(misfits(&config::json_schema(), &nodes), "");
    assert_eq!(misfits(&cluster_file::json_schema(), &clusters), "");
}

#[test]
fn every_hardware_address_of_an_example_is_text_for_every_reader() {
    for (place, text) in files("configs/nodes", ".yaml").into_iter().chain(files("configs/clusters", ".yaml"))
    {
        for line in text.lines().filter(|line| line.contains("52:54:00")) {
            assert!(line.contains("\"52:54:00") || line.contains("\\\"52"), "{place}: {line}");
        }
    }
}

#[test]
fn every_document_that_the_reader_accepts_fits_the_schema() {
    let documents = accepted();
    assert!(documents.len() >= 130, "{}", documents.len());
    assert_eq!(misfits(&config::json_schema(), &documents), "");
}

#[test]
fn what_the_reader_refuses_by_its_shape_does_not_fit() {
    for text in [
        "nonsense: 1\n",
        "os: [a]\n",
        "os: {hostnam: a}\n",
        "install: {automatic: perhaps}\n",
        "install: {automatic: 2}\n",
        "install: {mode: nonsense}\n",
        "install: {management_interface: {mtu: many}}\n",
        "install: {management_interface: {vlan_id: 5000}}\n",
        "install: {networks: {harvester-mgmt: {}}}\n",
    ] {
        assert!(config::check(text, "f").is_err(), "{text}");
        assert_ne!(misfits(&config::json_schema(), &[("f".to_owned(), text.to_owned())]), "", "{text}");
    }
}
