//! The file that says what nodes refuse, for image definitions to name: JSON with the ids of keys and the digests of manifests, sorted.
//! It only grows, so that a comparison of two versions of it shows what was revoked.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{self, write_atomically};
use formats::minisign::KeyId;
use serde::{Deserialize, Serialize};
use trust::Revocations;

/// The version of the document that this program writes and reads.
const FORMAT: u32 = 1;
/// The most bytes that it may have.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationDocument {
    format: u32,
    keys: BTreeSet<KeyId>,
    releases: BTreeSet<Digest>,
}

/// What a list had, and what was added to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrownList {
    pub before: Revocations,
    pub after: Revocations,
}

/// Reads the list `file`.
///
/// # Errors
/// [`Class::Invalid`] for a file that is none.
pub fn read(file: &Path) -> Result<Revocations> {
    let bytes = files::read_at_most(file, MAX_BYTES).class(Class::Invalid, || reading(file))?;
    parse(file, &bytes)
}

fn reading(file: &Path) -> String {
    format!("reading the list of revoked keys and releases {}", file.display())
}

fn parse(file: &Path, bytes: &[u8]) -> Result<Revocations> {
    let document = serde_json::from_slice(bytes).map_err(|error| damaged(reading(file), error))?;
    let RevocationDocument { format, keys, releases } = document;
    match format {
        FORMAT => Ok(Revocations { keys, releases }),
        other => {
            let why = anyhow::anyhow!("it has the format {other}, and this program reads {FORMAT}");
            Err(damaged(reading(file), why.reallocate_into_boxed_dyn_error_without_backtrace()))
        }
    }
}

fn damaged(what: String, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> anyhow::Error {
    let hint = "Restore the file from version control. Do not start a new list: nodes would not learn what the old one revoked.";
    Failure::new(Class::Invalid, what).because(why).hint(hint).into()
}

/// Adds `more` to the list `file`, which is made if there is none.
///
/// # Errors
/// Those of [`read`]; [`Class::Busy`] if somebody else has changed the list meanwhile, [`Class::DiskIo`] if it cannot be written. The file
/// is as it was then.
pub fn add(file: &Path, more: Revocations) -> Result<GrownList> {
    let before = read_if_there(file)?;
    let after = before.clone().joined(more);
    if after == before {
        return Ok(GrownList { before, after });
    }
    // Nothing that another run has added may be lost.
    if read_if_there(file)? != before {
        let what = format!("{} was changed by another program", file.display());
        return Err(Failure::new(Class::Busy, what).hint("Run the command again.").into());
    }
    let Revocations { keys, releases } = after.clone();
    let text = base::encode::json_text(&RevocationDocument { format: FORMAT, keys, releases }) + "\n";
    // What a symbolic link leads to is written, and the link stays.
    let target = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    write_atomically(&target, text.as_bytes(), 0o644)
        .class(Class::DiskIo, || format!("writing {}", file.display()))?;
    Ok(GrownList { before, after })
}

fn read_if_there(file: &Path) -> Result<Revocations> {
    let bytes = files::read_if_present(file, MAX_BYTES).class(Class::Invalid, || reading(file))?;
    bytes.map_or_else(|| Ok(Revocations::default()), |bytes| parse(file, &bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use base::failure::{class_of, render};
    use proptest::prelude::*;

    use super::*;

    fn revoking(keys: &[u8], releases: &[u8]) -> Revocations {
        Revocations {
            keys: keys.iter().map(|number| format!("{number:016x}").parse().unwrap()).collect(),
            releases: releases.iter().map(|number| Digest::of(&[*number])).collect(),
        }
    }

    #[test]
    fn a_list_is_sorted_and_written_only_if_it_grows() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("revoked.json");
        let grown = add(&file, revoking(&[9, 1], &[3])).unwrap();
        assert_eq!((grown.before, grown.after), (Revocations::default(), revoking(&[1, 9], &[3])));
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("{\n  \"format\": 1,\n  \"keys\": [\n    \"0000000000000001\","), "{text}");
        assert!(text.ends_with("}\n"), "{text}");
        fs::write(&file, text.replace('\n', "\n\n")).unwrap();
        add(&file, revoking(&[1], &[])).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("\n\n"), "nothing new, so it stays as it was");
        add(&file, revoking(&[2], &[])).unwrap();
        assert_eq!(read(&file).unwrap(), revoking(&[1, 2, 9], &[3]));
    }

    #[test]
    fn what_is_no_list_is_refused_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("revoked.json");
        let whole = r#"{"format": 1, "keys": [], "releases": []}"#;
        let huge = format!("{whole}{}", " ".repeat(1 << 20));
        for text in [
            "",
            "\0\0",
            "[]",
            "{}",
            &whole[..20],
            &whole.replace('1', "2"),
            &whole.replace("releases", "more"),
            &whole.replace(r#""keys": []"#, r#""keys": ["x"]"#),
            &huge,
        ] {
            fs::write(&file, text).unwrap();
            let error = add(&file, revoking(&[1], &[])).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{text}");
            assert!(render(&error).contains("revoked.json"), "{}", render(&error));
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        fs::remove_file(&file).unwrap();
        symlink("nowhere", &file).unwrap();
        assert_eq!(class_of(&add(&file, revoking(&[1], &[])).unwrap_err()), Class::Invalid);
        fs::write(directory.path().join("nowhere"), whole).unwrap();
        add(&file, revoking(&[1], &[])).unwrap();
        assert!(file.is_symlink() && read(&file).unwrap() == revoking(&[1], &[]));
        let below_a_file = directory.path().join("nowhere/revoked.json");
        assert_eq!(class_of(&add(&below_a_file, revoking(&[1], &[])).unwrap_err()), Class::Invalid);
    }

    proptest! {
        #[test]
        fn a_list_has_everything_that_was_ever_added(
            additions in prop::collection::vec(
                (prop::collection::vec(0_u8..9, 0..3), prop::collection::vec(0_u8..9, 0..3)), 1..5),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("revoked.json");
            let mut all = Revocations::default();
            for (keys, releases) in additions {
                all = all.joined(revoking(&keys, &releases));
                let grown = add(&file, revoking(&keys, &releases)).unwrap();
                prop_assert_eq!(&grown.after, &all);
            }
            prop_assert_eq!(read_if_there(&file).unwrap(), all);
        }
    }
}
