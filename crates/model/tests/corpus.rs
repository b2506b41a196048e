//! Documents as people write them: those of `corpus/valid` are accepted without a word, those of `corpus/warned` are
//! accepted with warnings, those of `corpus/broken` are refused. What is told of the latter two stands in the tables
//! below each document; `UPDATE_GOLDEN=1` writes it anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use model::config::{self, Diagnostic, Severity, shape};
use serde_json::Value;
use testing::cases::{self, Case, Table};

fn tables(directory: &str) -> Vec<Table> {
    cases::tables(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(directory))
}

struct Document {
    /// Table, line and name of the case, for messages of the test.
    place: String,
    /// The file name of the configuration.
    file: String,
    text: String,
}

/// The documents of a directory, in the order of their tables.
fn documents(directory: &str) -> Vec<Document> {
    let mut documents = Vec::new();
    for table in tables(directory) {
        for case in &table.cases {
            let (place, text) = (table.place(case), case.document.clone());
            documents.push(Document { place, file: file(case), text });
        }
    }
    documents
}

fn file(case: &Case) -> String {
    format!("{}.yaml", case.name)
}

fn diagnose(text: &str, file: &str) -> Vec<Diagnostic> {
    match config::check(text, file) {
        Ok(accepted) => accepted.warnings,
        Err(invalid) => invalid.0,
    }
}

/// The diagnostics of a document, without the name of the file at the beginning of each.
fn told(case: &Case) -> String {
    let file = file(case);
    let mut told = String::new();
    for diagnostic in diagnose(&case.document, &file) {
        let text = diagnostic.to_string();
        let text = text.strip_prefix(&file).and_then(|text| text.strip_prefix(':'));
        told.push_str(text.unwrap_or_else(|| panic!("{diagnostic} does not begin with {file}")));
        told.push('\n');
    }
    told
}

/// Compares what is told of every document with the expectation below it.
fn told_as_expected(directory: &str) {
    let mut different = Vec::new();
    for mut table in tables(directory) {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            table.cases.iter_mut().for_each(|case| case.expected = Some(told(case)));
            fs::write(&table.path, cases::text(&table.cases)).unwrap();
        }
        for case in &table.cases {
            let (told, expected) = (told(case), case.expected.as_deref().unwrap_or_default());
            if told != expected {
                let place = table.place(case);
                different.push(format!("{place}\n--- told\n{told}--- expected\n{expected}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn valid_documents_are_accepted_without_a_word() {
    let documents = documents("valid");
    assert!(documents.len() >= 80, "{}", documents.len());
    for Document { place, file, text } in documents {
        let found = diagnose(&text, &file);
        assert!(found.is_empty(), "{place}: {found:#?}");
    }
    for table in tables("valid") {
        for case in &table.cases {
            assert!(case.expected.is_none(), "{}: nothing can be expected", table.place(case));
        }
    }
}

#[test]
fn warned_documents_are_accepted_and_say_why() {
    let documents = documents("warned");
    assert!(documents.len() >= 45, "{}", documents.len());
    for Document { place, file, text } in documents {
        let found = diagnose(&text, &file);
        assert!(!found.is_empty(), "{place}");
        assert!(
            found.iter().all(|diagnostic| diagnostic.severity == Severity::Warning),
            "{place}: {found:#?}"
        );
    }
    told_as_expected("warned");
}

#[test]
fn broken_documents_are_refused_and_say_why() {
    let documents = documents("broken");
    assert!(documents.len() >= 220, "{}", documents.len());
    let accepted = |Document { place, file, text }: Document| {
        config::check(&text, &file)
            .ok()
            .map(|accepted| format!("{place}, {} warnings", accepted.warnings.len()))
    };
    let accepted: Vec<_> = documents.into_iter().filter_map(accepted).collect();
    assert!(accepted.is_empty(), "accepted: {accepted:#?}");
    told_as_expected("broken");
}

#[test]
fn a_suggestion_that_is_taken_makes_the_document_better() {
    let (mut taken, mut useless) = (0, Vec::new());
    for Document { place, file, text } in documents("broken") {
        let errors = |found: &[Diagnostic]| found.iter().filter(|d| d.severity == Severity::Error).count();
        let found = diagnose(&text, &file);
        for diagnostic in &found {
            let Some(better) = with_suggestion(&text, diagnostic) else { continue };
            taken += 1;
            let left = diagnose(&better, &file);
            if errors(&left) >= errors(&found) {
                useless.push(format!("{place}: {diagnostic}\n{better}{left:#?}"));
            }
        }
    }
    assert!(useless.is_empty(), "{}", useless.join("\n"));
    assert!(taken >= 40, "{taken}");
}

/// The document after its writer has done what is suggested; none where that is no replacement, but something to add or
/// another place.
fn with_suggestion(text: &str, diagnostic: &Diagnostic) -> Option<String> {
    let suggestion = diagnostic.suggestion.as_deref()?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = diagnostic.line.checked_sub(1)?;
    match diagnostic.code {
        "missing-value" => return None,
        // Of a text with placeholders only the one that is wrong is suggested.
        _ if suggestion.starts_with("{{") => return None,
        "unknown-key" if suggestion.contains('.') => return None,
        "older-scheme" => return Some(with_networks(lines, &diagnostic.message, suggestion)),
        _ => {}
    }
    let before: String = lines[at].chars().take(diagnostic.column - 1).collect();
    let rest: String = lines[at].chars().skip(diagnostic.column - 1).collect();
    let end = match rest.chars().next()? {
        quote @ ('"' | '\'') => rest[1..].find(quote)? + 2,
        _ if diagnostic.code == "unknown-key" || diagnostic.message.starts_with("the key is not") => {
            rest.find(':')?
        }
        _ => rest.find([',', '}', ']', '#']).unwrap_or(rest.len()),
    };
    lines[at] = format!("{before}{suggestion}{}", &rest[end..]);
    Some(lines.join("\n") + "\n")
}

/// The document with the groups that the message names removed, and with the keys of `replacement`, which all are in
/// `install`.
fn with_networks(lines: Vec<String>, message: &str, replacement: &str) -> String {
    let names: Vec<_> = message.split('`').skip(1).step_by(2).collect();
    let depth = |line: &str| line.chars().take_while(|c| *c == ' ').count();
    let mut kept = Vec::new();
    let mut skipped = None;
    for line in lines {
        let is_old = names.iter().any(|name| line.trim_start().starts_with(&format!("{name}:")));
        if skipped.is_some_and(|above| depth(&line) > above) {
            continue;
        }
        skipped = is_old.then(|| depth(&line));
        let is_install = line == "install:";
        if !is_old {
            kept.push(line);
        }
        if is_install {
            kept.extend(replacement.lines().skip(1).map(str::to_owned));
        }
    }
    kept.join("\n") + "\n"
}

#[test]
fn a_table_is_written_as_it_was_read() {
    for directory in ["valid", "warned", "broken"] {
        for table in tables(directory) {
            let text = fs::read_to_string(&table.path).unwrap();
            assert!(cases::text(&table.cases) == text, "{}", table.path.display());
        }
    }
}

#[test]
fn a_table_that_is_not_as_tables_are_is_refused_with_the_line() {
    for (text, line) in [
        ("", 1),
        ("os: {}\n", 1),
        ("=== \nos: {}\n", 1),
        ("=== A b\nos: {}\n", 1),
        ("===a\nos: {}\n", 1),
        ("=== a\n", 1),
        ("=== a\nos: {}", 2),
        ("=== a\nos: {}\n\n", 3),
        ("=== a\nos: {}\n=== b\nos: {}\n", 3),
        ("=== a\n\n=== b\nos: {}\n", 2),
        ("=== a\nos: {}\n\n=== a\nos: {}\n", 4),
        ("=== a\nos: {}\n--- expected\n", 3),
        ("=== a\nos: {}\n--- expected\n\n=== b\nos: {}\n", 4),
        ("=== a\n--- expected\n1:1: b\n", 3),
        ("=== a\nos: {}\n--- expcted\n1:1: b\n", 3),
        ("=== a\nos: {}\n--- expected \n1:1: b\n", 3),
        ("=== a\nos: {}\n--- expected\n1:1: b\n--- expected\n1:1: b\n", 5),
    ] {
        let refused = cases::parse(text).map_err(|(line, _)| line);
        assert_eq!(refused, Err(line), "{text:?}");
    }
    let parsed = cases::parse("=== a\n---\nos: {}\n\n\n=== b-1\n\tb\r\n--- expected\n1:1: c\n").unwrap();
    let [first, second] = &parsed[..] else { panic!("{parsed:?}") };
    assert_eq!((&*first.document, &first.expected, first.line), ("---\nos: {}\n\n", &None, 1));
    assert_eq!((&*second.document, second.expected.as_deref()), ("\tb\r\n", Some("1:1: c\n")));
    assert_eq!((&*second.name, second.line), ("b-1", 6));
}

#[test]
fn what_a_boot_applies_of_a_document_with_mistakes_is_a_configuration_of_which_nothing_more_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.yaml");
    let applicable = |text: &str, place: &str| {
        fs::write(&path, text).unwrap();
        config::load_applicable(&path, &[])
            .map(|usable| usable.config)
            .map_err(|error| format!("{place}: {error:#}"))
    };
    let mut applied = 0;
    for Document { place, text, .. } in documents("broken") {
        let Ok(config) = applicable(&text, &place) else { continue };
        assert_eq!(applicable(&config.to_yaml(), &place).unwrap(), config, "{place}");
        applied += 1;
    }
    assert!(applied > 100, "{applied}");
}

#[test]
fn every_document_that_is_accepted_survives_being_written() {
    for Document { place, file, text } in documents("valid") {
        let config = config::parse(&text, &file).unwrap();
        assert_eq!(config::parse(&config.to_yaml(), &file).unwrap(), config, "{place}");
    }
}

#[test]
fn every_code_of_the_source_is_told_of_some_document() {
    let told: BTreeSet<_> = ["warned", "broken"]
        .into_iter()
        .flat_map(documents)
        .flat_map(|document| diagnose(&document.text, &document.file))
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
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../document/src");
    for entry in walk(&config).into_iter().chain(walk(&reader)) {
        // Kernel parameters have codes of their own, and no document has them.
        if entry.starts_with(config.join("sources")) {
            continue;
        }
        let text = fs::read_to_string(&entry).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for begin in
            ["Finding::new(", "Finding::warning(", "finding(", "Problem::new(", "self.note(", "Format::new("]
        {
            for (at, _) in code.match_indices(begin) {
                let statement = code[at..].split(';').next().unwrap_or_default();
                let words = statement.split('"').skip(1).step_by(2);
                // The name of a format comes before its code.
                let words = words.skip(usize::from(begin == "Format::new("));
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
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration-keys.md");
    let page = fs::read_to_string(page).unwrap();
    let keys = keys_of_the_reference(&page);
    let mut used = BTreeSet::new();
    for Document { text, .. } in documents("valid") {
        if let Ok(value) = serde_saphyr::from_str::<Value>(&text) {
            gather(&value, "", &mut used);
        }
    }
    let is_used = |key: &str| used.iter().any(|path| matches(key, path)) || is_superfluous(key);
    let unused: Vec<_> = keys.iter().filter(|key| !is_used(key)).collect();
    assert!(unused.is_empty(), "{unused:#?}");
}

/// The keys of the rows, and those below a group that is told by reference to another one.
fn keys_of_the_reference(page: &str) -> Vec<String> {
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).collect();
    let mut keys: Vec<_> = rows.iter().map(|(key, _)| (*key).to_owned()).collect();
    for (group, row) in &rows {
        let Some((_, same)) = row.split_once("Its keys are those of `") else { continue };
        let same = same.split('`').next().unwrap_or_default();
        let below = rows.iter().filter_map(|(key, _)| key.strip_prefix(same));
        keys.extend(below.filter(|rest| rest.starts_with(['.', '['])).map(|rest| format!("{group}{rest}")));
    }
    assert!(keys.len() > rows.len(), "some group refers to another one");
    keys
}

/// Keys that are accepted with a warning only.
fn is_superfluous(key: &str) -> bool {
    matches!(key, "install.force_efi" | "install.force_gpt" | "install.silent")
}

fn gather(value: &Value, path: &str, used: &mut BTreeSet<String>) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                let below = document::shape::join(path, &shape::snake(key));
                gather(value, &below, used);
                used.insert(below);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, &format!("{path}[]"), used)),
        _ => {}
    }
}

/// True if a key of the page, where `*` is any key of a map, is the one at `path`.
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
