//! With `--format json` standard output is exactly one document, whatever the command and however it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The one document, and the exit code.
fn told(directory: &Path, words: &[&str]) -> (Value, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_installer"));
    let output = command.current_dir(directory).args(["--format", "json"]).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let document = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{words:?}: {error}: {text:?} {}", String::from_utf8_lossy(&output.stderr))
    });
    (document, output.status.code().unwrap())
}

#[test]
fn every_command_prints_one_document_of_its_result_or_of_its_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("node.yaml"), "scheme_version: 1\nos: {hostname: a}\n").unwrap();
    fs::write(path.join("wrong.yaml"), "os: {hostnam: a}\n").unwrap();
    let cluster = "cluster: {name: east, install: {vip: 192.0.2.9}}\n\
                   pools: [{name: p, role: management, machines: [{hostname: n1}]}]\n";
    fs::write(path.join("cluster.yaml"), cluster).unwrap();
    fs::create_dir(path.join("root")).unwrap();
    for (line, code) in [
        ("schema", 0),
        ("schema --cluster", 0),
        ("completions zsh", 0),
        ("inventory", 0),
        ("preflight --list", 0),
        ("--version", 0),
        ("--help", 0),
        ("plan --help", 0),
        ("render --cluster cluster.yaml -o -", 0),
        ("validate node.yaml", 0),
        ("validate wrong.yaml", 2),
        ("validate absent.yaml", 2),
        ("validate --cluster wrong.yaml", 2),
        ("convert node.yaml", 0),
        ("convert node.yaml -o node.yaml", 0),
        ("convert node.yaml -o wrong.yaml", 2),
        ("convert absent.yaml", 2),
        ("convert --cmdline node.yaml", 2),
        ("validate --show-sources wrong.yaml", 2),
        ("preflight --config wrong.yaml", 2),
        ("plan --config node.yaml --medium root", 3),
        ("verify --medium root", 3),
        ("render --cluster absent.yaml -o out", 2),
        ("apply --config absent.yaml --root root", 2),
        ("status --root root", 3),
        ("images check --root root", 3),
        ("install --config absent.yaml --medium root", 2),
        ("plan --no-such-option", 2),
        ("pln", 2),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let (document, ended) = told(path, &words);
        let error = &document["error"];
        match ended {
            0 => assert!(error.is_null(), "{line}: {document}"),
            // What it found is the result.
            _ if words[0] == "validate" && error.is_null() => {}
            _ => {
                assert_eq!(error["exit_code"], ended, "{line}: {document}");
                assert!(error["message"].is_string() && error["causes"].is_array(), "{line}: {document}");
            }
        }
        assert_eq!(ended, code, "{line}: {document}");
    }
    let (document, _) = told(path, &["preflight", "--config", "wrong.yaml"]);
    assert_eq!(document["error"]["places"][0]["code"], "unknown-key", "{document}");
}

#[test]
fn a_server_that_refuses_connections_is_told_at_once_by_a_dry_run() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("node.yaml"), "scheme_version: 1\nos: {hostname: a}\n").unwrap();
    let begun = Instant::now();
    let (document, code) =
        told(directory.path(), &["plan", "--config", "node.yaml", "--medium", "http://127.0.0.1:1/"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!((code, &document["error"]["class"]), (5, &"network".into()), "{document}");
}
