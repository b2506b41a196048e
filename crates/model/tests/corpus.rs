//! Documents as people write them: `corpus/valid` is accepted without a word, `corpus/warned` is accepted with
//! warnings, `corpus/broken` is refused. What is told of the latter two stands beside each document as text;
//! `UPDATE_GOLDEN=1` writes it anew.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on, helpers included")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use model::config::{self, Diagnostic, Severity, shape};
use serde_json::Value;

/// The documents of a directory with their names, in order.
fn documents(directory: &str) -> Vec<(String, PathBuf, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(directory);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).unwrap();
            found.push((name, path, text));
        }
    }
    found.sort();
    found
}

fn diagnose(text: &str, name: &str) -> Vec<Diagnostic> {
    match config::check(text, name) {
        Ok(accepted) => accepted.warnings,
        Err(invalid) => invalid.0,
    }
}

/// Compares what is told of every document with the text beside it.
fn told_as_before(directory: &str) {
    let mut different = Vec::new();
    for (name, path, text) in documents(directory) {
        let told: String =
            diagnose(&text, &name).iter().map(|diagnostic| format!("{diagnostic}\n")).collect();
        let golden = path.with_extension("txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&golden, &told).unwrap();
        }
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if told != expected {
            different.push(format!("{}\n--- told\n{told}--- expected\n{expected}", golden.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn valid_documents_are_accepted_without_a_word() {
    let documents = documents("valid");
    assert!(documents.len() >= 60, "{}", documents.len());
    for (name, _, text) in documents {
        let found = diagnose(&text, &name);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn warned_documents_are_accepted_and_say_why() {
    for (name, _, text) in documents("warned") {
        let found = diagnose(&text, &name);
        assert!(!found.is_empty(), "{name}");
        assert!(
            found.iter().all(|diagnostic| diagnostic.severity == Severity::Warning),
            "{name}: {found:#?}"
        );
    }
    told_as_before("warned");
}

#[test]
fn broken_documents_are_refused_and_say_why() {
    let documents = documents("broken");
    assert!(documents.len() >= 120, "{}", documents.len());
    for (name, _, text) in documents {
        assert!(config::check(&text, &name).is_err(), "{name} is accepted");
    }
    told_as_before("broken");
}

#[test]
fn every_document_that_is_accepted_survives_being_written() {
    for (name, _, text) in documents("valid") {
        let config = config::parse(&text, &name).unwrap();
        assert_eq!(config::parse(&config.to_yaml(), &name).unwrap(), config, "{name}");
    }
}

#[test]
fn every_code_of_the_source_is_told_of_some_document() {
    let told: BTreeSet<_> = ["warned", "broken"]
        .into_iter()
        .flat_map(documents)
        .flat_map(|(name, _, text)| diagnose(&text, &name))
        .map(|diagnostic| diagnostic.code.to_owned())
        .collect();
    let codes = codes();
    assert!(codes.len() > 80, "{codes:?}");
    // The type of every value has a format, so that the first is a defect of the program; only cluster files have names
    // of groups, and `tests/large.rs` has the documents with more mistakes than are told.
    let elsewhere = ["invalid-value", "invalid-group-name", "more-mistakes"];
    let untold: Vec<_> =
        codes.iter().filter(|code| !told.contains(*code) && !elsewhere.contains(&code.as_str())).collect();
    assert!(untold.is_empty(), "no document has {untold:?}");
    let unknown: Vec<_> = told.difference(&codes).collect();
    assert!(unknown.is_empty(), "the search does not find {unknown:?}");
}

/// The codes in the source of the checks: words joined by `-`, in quotes, after the beginning of a finding.
fn codes() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config");
    for entry in walk(&config) {
        // Kernel parameters have codes of their own, and no document has them.
        if entry.starts_with(config.join("sources")) {
            continue;
        }
        let text = fs::read_to_string(&entry).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for begin in
            ["Finding::new(", "Finding::warning(", "finding(", "Problem::new(", "self.note(", "code: "]
        {
            for (at, _) in code.match_indices(begin) {
                let statement = code[at..].split(';').next().unwrap_or_default();
                let words = statement.split('"').skip(1).step_by(2);
                codes.extend(words.filter(|word| is_code(word)).take(1).map(str::to_owned));
            }
        }
    }
    codes
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

fn is_code(word: &str) -> bool {
    word.contains('-')
        && word.split('-').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase()))
}

#[test]
fn every_key_of_the_reference_stands_in_some_valid_document() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration-reference.md");
    let page = fs::read_to_string(page).unwrap();
    let keys = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut used = BTreeSet::new();
    for (_, _, text) in documents("valid") {
        if let Ok(value) = serde_saphyr::from_str::<Value>(&text) {
            gather(&value, "", &mut used);
        }
    }
    let is_used = |key: &&str| used.iter().any(|path| matches(key, path)) || is_superfluous(key);
    let unused: Vec<_> = keys.filter(|key| !is_used(key)).collect();
    assert!(unused.is_empty(), "{unused:#?}");
}

/// Keys that are accepted with a warning only.
fn is_superfluous(key: &str) -> bool {
    matches!(key, "install.force_efi" | "install.force_gpt" | "install.silent")
}

fn gather(value: &Value, path: &str, used: &mut BTreeSet<String>) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                let below = shape::join(path, &shape::snake(key));
                gather(value, &below, used);
                used.insert(below);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, &format!("{path}[]"), used)),
        _ => {}
    }
}

/// Whether a key of the page, where `*` is any key of a map, is the one at `path`.
fn matches(key: &str, path: &str) -> bool {
    let (mut key, mut path) = (key.split('.'), path.split('.'));
    loop {
        match (key.next(), path.next()) {
            (None, None) => return true,
            (Some(key), Some(path)) if key == path || key == "*" => {}
            _ => return false,
        }
    }
}
