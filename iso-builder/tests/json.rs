//! With `--format json` standard output is exactly one document, whatever the command and however it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn run(directory: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
    command.current_dir(directory).env("XDG_CACHE_HOME", directory.join("cache"));
    command.args(words).output().unwrap()
}

/// The one document, and the exit code.
fn told(directory: &Path, words: &[&str]) -> (Value, i32) {
    let output = run(directory, words);
    let text = String::from_utf8(output.stdout).unwrap();
    let document = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text:?}"));
    (document, output.status.code().unwrap())
}

const NODE: &str = "scheme_version: 1\nos: {hostname: a}\n";

#[test]
fn every_command_prints_one_document_of_its_result_or_of_its_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("node.yaml"), NODE).unwrap();
    fs::write(path.join("wrong.yaml"), "nmae: x\n").unwrap();
    fs::write(path.join("text.iso"), "no ISO").unwrap();
    for (line, code) in [
        ("schema", 0),
        ("--version", 0),
        ("build --help", 0),
        ("completions bash", 0),
        ("prune --cache-dir cache --dry-run", 0),
        ("config-medium -o node.img --config node.yaml", 0),
        ("check absent.yaml", 2),
        ("check wrong.yaml", 2),
        ("build absent.yaml", 2),
        ("build wrong.yaml --cache-dir cache", 2),
        ("lock wrong.yaml --cache-dir cache", 2),
        ("images wrong.yaml --cache-dir cache", 2),
        ("images wrong.yaml --cache-dir node.yaml", 2),
        ("prune --cache-dir node.yaml", 2),
        ("inspect text.iso", 2),
        ("verify text.iso", 2),
        ("verify absent", 2),
        ("customize text.iso --show", 2),
        ("customize text.iso --config node.yaml -o -", 2),
        ("config-medium -o - --config node.yaml", 2),
        ("config-medium -o node.img", 2),
        ("config-medium -o node.yaml/x --config node.yaml", 2),
        ("config-medium -o absent/x --config node.yaml", 2),
        ("serve absent", 2),
        ("keys show --keys absent", 0),
        ("keys show other --keys absent", 2),
        ("keys new a/b --keys keys --no-passphrase", 2),
        ("keys new releases --keys node.yaml --no-passphrase", 6),
        ("keys sign absent --sign-with development --keys keys", 2),
        ("keys sign node.yaml", 2),
        ("keys verify absent --keys absent", 2),
        ("keys revoke --list revoked.json 0102030405060708", 0),
        ("keys revoke --list revoked.json 0102030405060708", 0),
        ("keys revoke --list node.yaml 0102030405060708", 2),
        ("keys revoke --list revoked.json absent --keys keys", 2),
        ("keys rotate --from absent --to new --keys keys --no-passphrase", 2),
        ("buld", 2),
        ("build wrong.yaml --colour", 2),
        ("build wrong.yaml --only netbot", 2),
        ("build", 2),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        for extra in
            [&["--format", "json"][..], &["--format=json", "--progress", "json"], &["-q", "--format", "json"]]
        {
            let (document, ended) = told(path, &[extra, &words].concat());
            assert_eq!(ended, code, "{line}: {document}");
            let error = &document["error"];
            if code == 0 {
                assert_eq!(*error, Value::Null, "{line}");
                continue;
            }
            let has_result = line.starts_with("check") && error.is_null();
            assert!(has_result || error["exit_code"] == code, "{line}: {document}");
            let whole =
                error["message"].is_string() && error["causes"].is_array() && error["places"].is_array();
            assert!(has_result || whole, "{line}: {document}");
        }
    }
    let (document, _) = told(path, &["--format", "json", "build", "wrong.yaml", "--cache-dir", "cache"]);
    let error = &document["error"];
    assert_eq!((&error["class"], &error["places"][0]["code"]), (&"invalid".into(), &"unknown-key".into()));
    assert_eq!(error["places"][0]["line"], 1);
    assert!(!error["message"].as_str().unwrap().contains('\n') && error["hint"].is_string(), "{error}");
}

#[test]
fn a_rotation_makes_the_new_key_once_and_a_revocation_names_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let run = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        told(directory.path(), &[&["--format", "json", "keys"][..], &words, &["--keys", "keys"]].concat())
    };
    let (old, _) = run("new old --no-passphrase");
    let (first, _) = run("rotate --from old --to new --no-passphrase");
    let (second, code) = run("rotate --from keys/old.pub --to new");
    assert_eq!((&first["from"]["id"], code), (&old["id"], 0));
    assert_eq!(first["made"]["id"], first["to"]["id"]);
    assert_eq!((&second["made"], &second["to"]["id"]), (&Value::Null, &first["to"]["id"]));
    assert_eq!(
        (&first["from"]["sign_with"], &second["from"]["sign_with"]),
        (&"old".into(), &"keys/old.key".into())
    );
    let key = first["to"]["key"].as_str().unwrap();
    assert_eq!(first["definition"], format!("{{name: new, key: {key}}}"));
    for (line, code) in [
        ("rotate --from old --to old", 2),
        ("rotate --from old --to keys/old.pub", 2),
        ("rotate --from old --to development", 2),
        ("rotate --from old --to absent/new.pub", 2),
        ("rotate --from old --to a..!b --no-passphrase", 2),
    ] {
        let (document, ended) = run(line);
        assert_eq!(ended, code, "{line}: {document}");
    }
    let (revoked, _) = run("revoke --list revoked.json old");
    assert_eq!(revoked["added"][0]["id"], old["id"]);
    let (again, _) = run("revoke --list revoked.json old keys/old.pub");
    assert_eq!((again["added"].as_array().map(Vec::len), &again["present"][0]["id"]), (Some(0), &old["id"]));
    assert_eq!(again["revoked"]["keys"], serde_json::json!([old["id"]]));
}

#[test]
fn progress_goes_to_standard_error_or_to_its_file_and_never_between_results() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("node.yaml"), NODE).unwrap();
    let words = [
        "--format",
        "json",
        "--progress",
        "json",
        "config-medium",
        "-o",
        "node.img",
        "--config",
        "node.yaml",
    ];
    let last = |text: &str| -> Value {
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        events.last().cloned().unwrap()
    };
    let output = run(path, &words);
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let event = last(&String::from_utf8(output.stderr).unwrap());
    assert_eq!((&event["step"], &event["exit_code"]), (&"run".into(), &0.into()));

    let output = run(path, &[&["--progress-file", "events"], &words[..]].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(last(&fs::read_to_string(path.join("events")).unwrap())["result"], "done");

    let output = run(
        path,
        &["--progress-file", "events", "-q", "config-medium", "-o", "node.img", "--config", "absent"],
    );
    assert!(output.stdout.is_empty() && String::from_utf8(output.stderr).unwrap().starts_with("error: "));

    let output = run(path, &["--format", "json", "--progress-file", "absent/events", "schema"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["error"]["class"], "invalid");
}

#[test]
fn a_wait_that_a_signal_ends_is_one_document_too() {
    let directory = tempfile::tempdir().unwrap();
    let cache = directory.path().join("cache");
    fs::create_dir(&cache).unwrap();
    let lock = fs::File::create(cache.join("lock")).unwrap();
    lock.lock().unwrap();
    for (format, signal, code) in [("json", "INT", 130), ("text", "TERM", 143)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iso-builder"));
        command.args(["--format", format, "prune", "--cache-dir"]).arg(&cache);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0; 1];
        std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut first).unwrap();
        Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let (stdout, stderr) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(stderr.ends_with(&format!("cancelled by SIG{signal}; cleaning up\n")), "{stderr}");
        match format {
            "json" => {
                let told: Value = serde_json::from_str(&stdout).unwrap();
                assert_eq!(
                    (&told["error"]["class"], &told["error"]["exit_code"]),
                    (&"cancelled".into(), &code.into())
                );
            }
            _ => assert_eq!(stdout, ""),
        }
    }
}
