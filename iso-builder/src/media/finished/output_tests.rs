//! Tests of verifying the directory that a build wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::digest::Digest;
use base::failure::class_of;
use base::failure::{Class, render};
use base::program::{Context, Format};
use base::progress::Progress;
use formats::minisign::SecretKey;
use medium::build_output::{
    BuildOutput, CHECKSUMS, PROVENANCE, REPORT, SBOM, UNFINISHED, iso_name, netboot_names,
};
use medium::customization::FILE;
use medium::payload_sources::{RetryPolicy, read_release, source};
use model::release::{MANIFEST, MediumKind, Purpose};
use serde_json::json;
use testing::medium::SampleMedium;
use trust::TrustStore;

use super::built_iso;
use super::verify::VerifyCommand;
use crate::media::assemble::{blank_area, checksums};
use crate::media::customize::{CustomizationLocation, change};
use crate::provenance::statement::tests::statement;
use crate::provenance::{ProvenanceDescription, Subject};
use crate::signing::arguments::KnownKeyArguments;
use medium::reader::MediumReader;

/// A directory as a build writes it.
struct Output {
    directory: tempfile::TempDir,
    iso: PathBuf,
}

impl Output {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (sample, built) = built_iso::build(SampleMedium::new(MediumKind::Full).with_room());
        let release = sample.release.clone();
        let iso = path(&iso_name(&release, MediumKind::Full));
        fs::copy(built, &iso).unwrap();
        fs::write(path(MANIFEST), release.to_bytes()).unwrap();
        for (purpose, name) in netboot_names(&release) {
            if let Some(payload) = release.payload(purpose) {
                fs::copy(sample.tree().join(&payload.path), path(&name)).unwrap();
            }
        }
        blank_area(&path(FILE)).unwrap();
        fs::write(path("sbom.spdx.json"), "{}").unwrap();
        let subjects = [(MANIFEST, release.to_bytes()), (SBOM, b"{}".to_vec())]
            .map(|(name, bytes)| Subject::new(name, Digest::of(&bytes)));
        let output = Self { directory, iso };
        output.provenance(&[], subjects.to_vec());
        output
    }

    /// Gives it a provenance about `subjects`, which `keys` have signed; a key above 100 signs something else.
    fn provenance(&self, keys: &[u8], subjects: Vec<Subject>) {
        let mut envelope = statement(subjects).to_envelope();
        for number in keys {
            let key = secret_key(number % 100);
            let sign = |bytes: &[u8]| -> anyhow::Result<_> {
                Ok(key.sign_bytes(if *number > 100 { b"other" } else { bytes }))
            };
            envelope.sign(&key.public_key(), sign).unwrap();
        }
        fs::write(self.path().join(PROVENANCE), envelope.to_line()).unwrap();
        self.seal();
    }

    fn verify(&self, known: KnownKeyArguments) -> anyhow::Result<()> {
        VerifyCommand { medium: self.path().to_owned(), known }.run(&Context::silent(Format::Text))
    }

    /// Lists what is there, as the end of a build does.
    fn seal(&self) {
        let mut sums = BTreeMap::new();
        for entry in fs::read_dir(self.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if ![CHECKSUMS, REPORT].contains(&&*name) {
                sums.insert(name.clone(), Digest::of(&fs::read(self.path().join(name)).unwrap()));
            }
        }
        fs::write(self.path().join(CHECKSUMS), checksums::render(&sums)).unwrap();
        let outputs: Vec<_> =
            sums.iter().map(|(name, sha256)| json!({ "name": name, "sha256": sha256 })).collect();
        fs::write(self.path().join(REPORT), json!({ "outputs": outputs }).to_string()).unwrap();
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The names of what is found to be wrong.
    fn faults(&self) -> Vec<String> {
        let output = BuildOutput::open(self.path()).unwrap().unwrap();
        let report = output.verify(&Progress::silent()).unwrap();
        report.findings.into_iter().map(|finding| finding.path).collect()
    }

    fn flip(&self, name: &str) {
        let path = self.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).unwrap();
    }
}

fn secret_key(number: u8) -> SecretKey {
    SecretKey::of_seed([number; 8], [number; 32])
}

#[test]
fn a_provenance_has_to_be_about_the_release_beside_it_and_its_signatures_have_to_be_right() {
    let output = Output::new();
    let subject = |name: &str| Subject::new(name, Digest::of(&fs::read(output.path().join(name)).unwrap()));
    let own = || vec![subject(MANIFEST), subject(SBOM)];
    let other = |name: &str| Subject::new(name, Digest::of(b"other"));
    let known = || {
        let known = KnownKeyArguments::allowing_unsigned();
        known.trusting(&secret_key(1).public_key().to_string())
    };
    for (keys, subjects, fault) in [
        (&[][..], own(), None),
        (&[1], own(), None),
        (&[7], own(), None),
        (
            &[101],
            own(),
            Some("the signature of 0101010101010101 (key 0101010101010101) does not belong to it"),
        ),
        (&[1], vec![subject(SBOM)], Some("release.json is not a subject of it")),
        (&[1], vec![other(MANIFEST), subject(SBOM)], Some("release.json is not a subject of it")),
        (&[1], vec![subject(MANIFEST), other(SBOM)], Some("sbom.spdx.json is not a subject of it")),
        (&[1], vec![subject(MANIFEST)], Some("sbom.spdx.json is not a subject of it")),
    ] {
        output.provenance(keys, subjects);
        let verified = output.verify(known());
        let Some(fault) = fault else {
            verified.unwrap();
            continue;
        };
        let error = verified.unwrap_err();
        assert_eq!(class_of(&error), Class::Verification, "{fault}");
        assert!(render(&error).contains(fault), "{fault}: {}", render(&error));
    }
    fs::write(output.path().join(PROVENANCE), "{}").unwrap();
    output.seal();
    assert_eq!(class_of(&output.verify(known()).unwrap_err()), Class::Verification);
    fs::remove_file(output.path().join(PROVENANCE)).unwrap();
    output.seal();
    output.verify(known()).unwrap();
}

#[test]
fn inspecting_a_release_says_what_it_was_built_from() {
    let output = Output::new();
    let store = KnownKeyArguments::allowing_unsigned().store().unwrap();
    let told = || ProvenanceDescription::of(output.path(), &store).to_string();
    let digest = |text: &str| Digest::of(text.as_bytes());
    let found = told();
    for part in [
        "signed     not signed".to_owned(),
        format!("definition image.yaml, sha256:{}", digest("definition")),
        format!("lock       sha256:{}", digest("lock")),
        format!("builder    iso-builder 1.0.0, sha256:{}", digest("builder")),
        "inputs".to_owned(),
    ] {
        assert!(found.contains(&part), "{part}: {found}");
    }
    assert!(!found.contains("FAULT"), "{found}");
    fs::write(output.path().join(SBOM), "other").unwrap();
    assert!(told().contains("FAULT      sbom.spdx.json is not a subject of it"), "{}", told());
    fs::write(output.path().join(PROVENANCE), "{}").unwrap();
    assert!(told().contains("not readable: "), "{}", told());
    fs::remove_file(output.path().join(PROVENANCE)).unwrap();
    assert!(told().contains("none: provenance.intoto.jsonl is missing"), "{}", told());
}

#[test]
fn what_a_build_wrote_is_a_medium_by_its_iso() {
    let output = Output::new();
    let open = || source(output.path().to_str(), &[], RetryPolicy::default()).unwrap();
    let full = BuildOutput::open(output.path()).unwrap().unwrap().iso().unwrap();
    assert_eq!(full, output.iso);
    assert!(open().describe().contains(full.to_str().unwrap()), "{}", open().describe());
    read_release(open().as_ref(), None, &TrustStore::absent()).unwrap();
}

#[test]
fn what_a_build_wrote_is_good_and_each_changed_byte_is_found() {
    let output = Output::new();
    assert_eq!(output.faults(), [""; 0]);
    let mut names: Vec<_> = fs::read_dir(output.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 9, "{names:?}");
    for name in names.iter().map(|name| name.to_str().unwrap()) {
        output.flip(name);
        let verify =
            VerifyCommand { medium: output.path().to_owned(), known: KnownKeyArguments::allowing_unsigned() };
        let error = verify.run(&Context::silent(Format::Text)).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification, "{name}: {}", render(&error));
        let named = render(&error).contains(name);
        assert!(named || name == CHECKSUMS, "{name}: {}", render(&error));
        output.flip(name);
    }
    assert_eq!(output.faults(), [""; 0]);
    let rootfs = names.iter().find(|name| name.to_string_lossy().ends_with("squashfs")).unwrap();
    fs::remove_file(output.path().join(rootfs)).unwrap();
    assert_eq!(output.faults(), [rootfs.to_str().unwrap()]);
}

#[test]
fn outputs_of_two_builds_are_told_apart_even_if_all_are_whole() {
    let output = Output::new();
    let (other, built) = {
        let mut sample = SampleMedium::new(MediumKind::Full).with_room();
        sample.release.epoch += 1;
        built_iso::build(sample)
    };
    fs::copy(built, &output.iso).unwrap();
    output.seal();
    let name = iso_name(&other.release, MediumKind::Full);
    assert_eq!(output.faults(), [name]);
    let output = Output::new();
    let kernel =
        netboot_names(&other.release).into_iter().find(|(purpose, _)| *purpose == Purpose::Kernel).unwrap().1;
    fs::write(output.path().join(&kernel), "of another build").unwrap();
    output.seal();
    assert_eq!(output.faults(), [kernel]);
    let output = Output::new();
    fs::write(output.path().join(REPORT), json!({ "outputs": [] }).to_string()).unwrap();
    assert_eq!(output.faults(), [REPORT]);
}

#[test]
fn an_iso_that_was_customized_is_good_as_it_is_now() {
    let output = Output::new();
    let place = CustomizationLocation::find(&MediumReader::open(&output.iso).unwrap()).unwrap();
    let arguments = vec!["console=ttyS1".parse().unwrap()];
    let grub = medium::customization::argument::grub(&arguments, None).unwrap();
    let content = medium::customization::Content { arguments, ..Default::default() };
    let area = medium::customization::area::bytes(&content).unwrap();
    change::apply(&change::open(&output.iso).unwrap(), &place, &change::AreaContents { area, grub }).unwrap();
    assert_eq!(output.faults(), [""; 0]);
}

#[test]
fn a_directory_in_which_a_build_was_cut_off_is_never_good() {
    let output = Output::new();
    fs::create_dir(output.path().join(UNFINISHED)).unwrap();
    assert_eq!(output.faults(), [""; 0], "an earlier build is whole while the next one runs");
    fs::remove_file(output.path().join(CHECKSUMS)).unwrap();
    let error = BuildOutput::open(output.path()).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification);
    assert!(render(&error).contains("Build again"), "{}", render(&error));
    assert!(BuildOutput::open(&output.iso).unwrap().is_none());
}
