//! Documents and boot scripts of the reference product, written anew after public ones (the first line of each says which):
//! those that it takes today are taken as they are, those of older versions are converted. What becomes of each stands
//! below it; `UPDATE_GOLDEN=1` writes it anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use model::config::convert::{self, Change, ChangeKind, ConvertedDocument};
use model::config::{self, Diagnostic, Invalid, Severity};
use proptest::prelude::*;
use testing::cases::{self, Table};

fn tables(directory: &str) -> Vec<Table> {
    let tests: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    cases::tables(&tests.join(directory))
}

/// Every document that there is, each with its place.
fn documents() -> &'static [(String, String)] {
    static DOCUMENTS: LazyLock<Vec<(String, String)>> = LazyLock::new(read_documents);
    &DOCUMENTS
}

fn read_documents() -> Vec<(String, String)> {
    ["corpus/valid", "corpus/warned", "corpus/broken", "harvester/documents"]
        .into_iter()
        .flat_map(tables)
        .flat_map(|table| {
            let document = |case: &cases::Case| (table.place(case), case.document.clone());
            table.cases.iter().map(document).collect::<Vec<_>>()
        })
        .collect()
}

fn documents_of(name: &str) -> Vec<(String, String)> {
    let named = |place: &String| place.contains(&format!("harvester/documents/{name}"));
    documents().iter().filter(|(place, _)| named(place)).cloned().collect()
}

/// The messages of a conversion, as the tables have them.
fn told(result: Result<ConvertedDocument, Invalid>) -> String {
    let change = |change: &Change| {
        let kind = match change.kind {
            ChangeKind::Changed => "changed",
            ChangeKind::Dropped => "dropped",
            ChangeKind::Lost => "lost",
        };
        format!("# {kind} {} {}\n", change.line, change.path)
    };
    match result {
        Ok(converted) => {
            let warning = |warning: &Diagnostic| format!("# warning {} {}\n", warning.path, warning.code);
            let changes: String = converted.changes.iter().map(change).collect();
            let warnings: String = converted.warnings.iter().map(warning).collect();
            format!("{}{changes}{warnings}", converted.text)
        }
        Err(invalid) => format!("{invalid}\n"),
    }
}

fn become_as_expected(directory: &str, convert: fn(&str, &str) -> Result<ConvertedDocument, Invalid>) {
    let mut different = Vec::new();
    for mut table in tables(directory) {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            for case in &mut table.cases {
                case.expected = Some(told(convert(&case.document, "f")));
            }
            fs::write(&table.path, cases::text(&table.cases)).unwrap();
        }
        for case in &table.cases {
            let (told, expected) =
                (told(convert(&case.document, "f")), case.expected.as_deref().unwrap_or_default());
            if told != expected {
                let place = table.place(case);
                different.push(format!("{place}\n--- told\n{told}--- expected\n{expected}"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn every_document_becomes_what_stands_below_it() {
    become_as_expected("harvester/documents", convert::document);
}

#[test]
fn every_script_becomes_what_stands_below_it() {
    become_as_expected("harvester/boot", convert::command_line);
}

#[test]
fn every_document_that_harvester_takes_today_is_taken_as_it_is() {
    let documents = documents_of("today");
    assert!(documents.len() >= 10, "{}", documents.len());
    for (place, text) in documents {
        if let Err(invalid) = config::check(&text, "f") {
            panic!("{place}: {invalid}");
        }
    }
}

#[test]
fn of_older_documents_and_scripts_19_in_20_are_converted_without_a_hand() {
    let failed = |convert: fn(&str, &str) -> Result<ConvertedDocument, Invalid>,
                  documents: Vec<(String, String)>| {
        let count = documents.len();
        let failed =
            |(place, text): (String, String)| Some(format!("{place}: {}", convert(&text, "f").err()?));
        (count, documents.into_iter().filter_map(failed).collect::<Vec<_>>())
    };
    let scripts = tables("harvester/boot");
    let scripts = scripts.iter().flat_map(|table| {
        let script = |case: &cases::Case| (table.place(case), case.document.clone());
        table.cases.iter().map(script).collect::<Vec<_>>()
    });
    let (older, mut left) = failed(convert::document, documents_of("older"));
    let (scripts, others) = failed(convert::command_line, scripts.collect());
    left.extend(others);
    assert!(older >= 16 && scripts >= 7, "{older} {scripts}");
    assert!(left.len() * 20 <= older + scripts, "{}", left.join("\n"));
}

/// Any conversion passes the check, and converting it again changes nothing; or there is a mistake.
fn holds(place: &str, text: &str) -> Result<(), String> {
    let converted = match convert::document(text, "f") {
        Ok(converted) => converted,
        Err(invalid) if invalid.errors() > 0 => return Ok(()),
        Err(_) => return Err(format!("{place}: refused without a mistake\n{text}")),
    };
    if let Err(invalid) = config::check(&converted.text, "f") {
        return Err(format!("{place}: {invalid}\n{}", converted.text));
    }
    let again = convert::document(&converted.text, "f").map_err(|invalid| format!("{place}: {invalid}"))?;
    match again.text == converted.text && again.changes.is_empty() {
        true => Ok(()),
        false => Err(format!("{place}: {:#?}\n{}---\n{}", again.changes, converted.text, again.text)),
    }
}

#[test]
fn what_is_written_passes_and_stays_as_it_is() {
    let wrong: Vec<_> = documents().iter().filter_map(|(place, text)| holds(place, text).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_document_says_is_said_by_what_is_made_of_it() {
    for (place, text) in documents() {
        // A document that is taken as it is says the same afterwards.
        let Ok(accepted) = config::check(text, "f") else { continue };
        let converted = match convert::document(text, "f") {
            Ok(converted) => converted,
            Err(invalid) if invalid.0[0].code == "nothing-left" => continue,
            Err(invalid) => panic!("{place}: {invalid}"),
        };
        let mut same = config::parse(&converted.text, "f").unwrap();
        let mut before = accepted.config;
        for config in [&mut same, &mut before] {
            // These do nothing.
            config.install.force_efi = None;
            config.install.force_gpt = None;
            config.install.silent = None;
            config.server_url = None;
            let foreign = |url: &config::IsoUrl| url.to_ascii_lowercase().contains("harvester");
            config.install.iso_url = config.install.iso_url.take().filter(|url| !foreign(url));
        }
        let has_idle = converted.changes.iter().any(|change| change.kind == ChangeKind::Dropped);
        assert!(same == before || has_idle, "{place}: {}\n{:#?}", converted.text, converted.changes);
    }
}

#[test]
fn a_document_that_is_accepted_without_a_word_and_has_our_spellings_stays_as_it_is() {
    let mut same = 0;
    for table in tables("corpus/valid") {
        for case in &table.cases {
            let converted = convert::document(&case.document, "f").unwrap();
            same += usize::from(converted.text == case.document && converted.changes.is_empty());
            let renamed = converted.changes.iter().all(|change| change.kind == ChangeKind::Changed);
            assert!(renamed, "{}: {:#?}", table.place(case), converted.changes);
        }
    }
    assert!(same >= 70, "{same}");
}

#[test]
fn the_examples_stay_as_they_are() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let mut count = 0;
    for entry in
        fs::read_dir(configs.join("nodes")).unwrap().chain(fs::read_dir(configs.join("images")).unwrap())
    {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        if name.contains("/images/") && !name.ends_with(".defaults.yaml") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let converted = convert::document(&text, &name).unwrap_or_else(|invalid| panic!("{invalid}"));
        assert_eq!((converted.text, converted.changes), (text, vec![]), "{name}");
        count += 1;
    }
    assert!(count >= 7, "{count}");
}

#[test]
fn no_secret_is_in_what_is_told() {
    for (place, text) in documents() {
        let told =
            match convert::document(&text.replace("9c41d7e05b6f4a3280de", "hunter2hunter2hunter2"), "f") {
                Ok(converted) => format!("{:?} {:?}", converted.changes, converted.warnings),
                Err(invalid) => invalid.to_string(),
            };
        assert!(!told.contains("hunter2"), "{place}: {told}");
    }
}

#[test]
fn scripts_that_do_not_say_one_thing_are_refused() {
    let line = |name: &str| format!("kernel vmlinuz harvester.install.mode={name}\n");
    for (script, code, said) in [
        (format!("#!ipxe\n{}{}", line("create"), line("install")), "several-command-lines", "lines 2, 3"),
        ("#!ipxe\nkernel vmlinuz quiet\nboot\n".to_owned(), "no-parameters", "no line"),
        ("quiet console=tty1\n".to_owned(), "no-parameters", "no parameter"),
        (
            "harvester.os.hostname=a harvester.os.hostname=b\n".to_owned(),
            "duplicate-key",
            "duplicate parameter",
        ),
    ] {
        let invalid = convert::command_line(&script, "boot.ipxe").unwrap_err();
        assert_eq!(invalid.0[0].code, code, "{invalid}");
        assert!(invalid.to_string().contains(said), "{invalid}");
    }
}

#[test]
fn mistakes_that_are_left_stand_at_their_places_in_the_document_that_was_given() {
    let text = "token: 9c41d7e05b6f4a3280de\nforceMBR: no\nos: {hostname: a b}\ninstall:\n  silent: true\n  mtu: 9\n  mode: nonsense\n";
    let invalid = convert::document(text, "f").unwrap_err();
    let places: Vec<_> =
        invalid.0.iter().filter(|one| one.severity == Severity::Error).map(|one| one.line).collect();
    assert_eq!(places, [3, 7], "{invalid}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Lines of several documents together are mostly nonsense; whatever comes of them holds.
    #[test]
    fn whatever_is_converted_passes_or_is_refused(
        first in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..3), 0..4),
        from in any::<prop::sample::Index>(),
    ) {
        let all = documents();
        let lines = |index: prop::sample::Index| -> Vec<String> {
            all[index.index(all.len())].1.lines().map(str::to_owned).collect()
        };
        let (mut mixed, other) = (lines(first), lines(second));
        for (at, what) in cuts {
            let at = at.index(mixed.len().max(1)).min(mixed.len());
            match what {
                0 if at < mixed.len() => drop(mixed.remove(at)),
                1 => mixed.extend(other.iter().skip(from.index(other.len().max(1))).cloned()),
                _ => mixed.insert(at, other.get(from.index(other.len().max(1))).cloned().unwrap_or_default()),
            }
        }
        let text = mixed.join("\n") + "\n";
        prop_assert_eq!(holds("mixed", &text), Ok(()));
    }
}
