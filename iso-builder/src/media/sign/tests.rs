//! Signing media as the builder writes them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, class_of, render};
use base::progress::Progress;
use formats::dsse::Envelope;
use formats::minisign::SecretKey;
use medium::build_output::{BuildOutput, CHECKSUMS, PROVENANCE, REPORT, iso_name};
use medium::customization::{Content, area, argument};
use medium::reader::MediumReader;
use medium::signatures;
use model::release::{MANIFEST, MediumKind, Release, SIGNATURES, SIGNATURES_LENGTH};
use serde_json::{Value, json};
use testing::medium::SampleMedium;

use super::region;
use super::*;
use crate::media::assemble::checksums;
use crate::media::customize::CustomizationLocation;
use crate::media::customize::change::{self, AreaContents, MediumWriter};
use crate::media::finished::built_iso;
use crate::provenance::statement::tests::statement;
use crate::provenance::{ReleaseProvenance, Statement, Subject};

const LENGTH: usize = SIGNATURES_LENGTH as usize;

/// The output directory of a build with both ISOs.
struct Output {
    directory: tempfile::TempDir,
    release: Release,
}

impl Output {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let release = [MediumKind::NetInstall, MediumKind::Full].map(|kind| {
            let (sample, built) = built_iso::build(SampleMedium::new(kind));
            fs::copy(built, directory.path().join(iso_name(&sample.release, kind))).unwrap();
            sample.release
        });
        let [_, release] = release;
        fs::write(directory.path().join(MANIFEST), release.to_bytes()).unwrap();
        fs::write(directory.path().join("sbom.spdx.json"), "{}").unwrap();
        let output = Self { directory, release };
        let mut subjects = vec![Subject::new("sbom.spdx.json", Digest::of(b"{}"))];
        subjects.extend(output.isos().map(|iso| {
            let name = iso.file_name().unwrap().to_string_lossy().into_owned();
            Subject::new(name, MediumReader::open(&iso).unwrap().release_digest())
        }));
        fs::write(output.file(PROVENANCE), statement(subjects).to_envelope().to_line()).unwrap();
        let mut sums = BTreeMap::new();
        for name in output.names() {
            sums.insert(name.clone(), Digest::of(&fs::read(output.file(&name)).unwrap()));
        }
        fs::write(output.file(CHECKSUMS), checksums::render(&sums)).unwrap();
        let outputs: Vec<_> =
            sums.iter().map(|(name, sha256)| json!({ "name": name, "size": 1, "sha256": sha256 })).collect();
        let report = json!({ "format": 1, "outputs": outputs, "warnings": ["one"] });
        fs::write(output.file(REPORT), report.to_string()).unwrap();
        output
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn iso(&self, kind: MediumKind) -> PathBuf {
        self.file(&iso_name(&self.release, kind))
    }

    fn isos(&self) -> [PathBuf; 2] {
        [MediumKind::Full, MediumKind::NetInstall].map(|kind| self.iso(kind))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn content(&self) -> BTreeMap<String, Digest> {
        self.names()
            .into_iter()
            .map(|name| (name.clone(), Digest::of(&fs::read(self.file(&name)).unwrap())))
            .collect()
    }

    fn faults(&self) -> Vec<String> {
        let output = BuildOutput::open(self.path()).unwrap().unwrap();
        let report = output.verify(&Progress::silent()).unwrap();
        report.findings.into_iter().map(|finding| finding.to_string()).collect()
    }
}

/// Adds a signature that names the manifest.
fn adding(manifest: &[u8], existing: Option<&[u8]>) -> Result<Vec<u8>> {
    let more = format!("untrusted comment: {}\nRW\ntrusted comment: b\nAA\n", Digest::of(manifest));
    Ok([existing.unwrap_or_default(), more.as_bytes()].concat())
}

/// Signs anew, whatever there is.
fn anew(manifest: &[u8], _: Option<&[u8]>) -> Result<Vec<u8>> {
    adding(manifest, None)
}

fn sign(path: &Path, how: impl FnMut(&[u8], Option<&[u8]>) -> Result<Vec<u8>>) -> Result<SignReport> {
    let mut how = how;
    let progress = Progress::silent();
    let mut seal = |envelope: &mut Envelope| -> Result<()> {
        let key = SecretKey::of_seed([5; 8], [5; 32]);
        envelope.sign(&key.public_key(), |bytes| Ok(key.sign_bytes(bytes)))
    };
    SignableMedia::open(path, &progress)?.sign(&mut how, &mut seal, &progress)
}

fn signatures_of(medium: &Path) -> Option<String> {
    let text = MediumReader::open(medium).unwrap().signatures().unwrap();
    text.map(|text| String::from_utf8(text).unwrap())
}

fn expected(medium: &Path, count: usize) -> Option<String> {
    let manifest = MediumReader::open(medium).unwrap().manifest().to_vec();
    Some(String::from_utf8(anew(&manifest, None).unwrap()).unwrap().repeat(count))
}

fn customize(iso: &Path) {
    let place = CustomizationLocation::find(&MediumReader::open(iso).unwrap()).unwrap();
    let arguments = vec!["console=ttyS1".parse().unwrap()];
    let grub = argument::grub(&arguments, None).unwrap();
    let area = area::bytes(&Content { arguments, ..Content::default() }).unwrap();
    change::apply(&change::open(iso).unwrap(), &place, &AreaContents { area, grub }).unwrap();
}

#[test]
fn an_iso_is_signed_in_its_own_bytes_for_that_and_again_beside_what_it_has() {
    let (_sample, iso) = built_iso::build(SampleMedium::new(MediumKind::Full));
    let before = fs::read(&iso).unwrap();
    for (count, changed) in [(1, true), (2, true)] {
        let report = sign(&iso, adding).unwrap();
        assert_eq!((report.manifests.len(), report.manifests[0].changed), (1, changed));
        assert_eq!(report.manifests[0].paths, std::slice::from_ref(&iso));
        assert_eq!(signatures_of(&iso), expected(&iso, count));
    }
    let after = fs::read(&iso).unwrap();
    let different: Vec<_> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
    let (first, last) = (different[0], *different.last().unwrap());
    assert!(before.len() == after.len() && last - first < LENGTH, "{first} to {last}");
    let medium = MediumReader::open(&iso).unwrap();
    let found =
        crate::media::finished::verify::verify(&medium, &trust::TrustStore::absent(), &Progress::silent())
            .unwrap();
    assert!(found.findings.is_empty(), "{found}");
    let keep = |_: &[u8], existing: Option<&[u8]>| Ok(existing.unwrap().to_vec());
    assert!(!sign(&iso, keep).unwrap().manifests[0].changed);
    assert!(fs::read(&iso).unwrap() == after);
}

#[test]
fn a_directory_gets_the_file_beside_its_manifest() {
    let sample = SampleMedium::new(MediumKind::Full);
    let mut manifests = Vec::new();
    sign(&sample.tree(), |manifest, existing| {
        manifests.push((manifest.to_vec(), existing.map(Vec::from)));
        adding(manifest, existing)
    })
    .unwrap();
    assert_eq!(manifests, [(sample.release.to_bytes(), None)]);
    assert_eq!(fs::read_to_string(sample.tree().join(SIGNATURES)).ok(), expected(&sample.tree(), 1));
    let report = sign(&sample.tree(), adding).unwrap();
    assert_eq!(signatures_of(&sample.tree()), expected(&sample.tree(), 2));
    assert!(report.to_string().contains("signed: "), "{report}");
}

#[test]
fn all_media_of_a_build_are_signed_and_its_lists_follow() {
    let output = Output::new();
    let mut asked = 0;
    let report = sign(output.path(), |manifest, existing| {
        asked += 1;
        adding(manifest, existing)
    })
    .unwrap();
    assert_eq!((asked, report.manifests.len()), (2, 2), "each manifest once");
    assert_eq!(report.manifests.iter().map(|signed| signed.paths.len()).sum::<usize>(), 3);
    for medium in output.isos().iter().map(PathBuf::as_path).chain([output.path()]) {
        assert_eq!(signatures_of(medium), expected(medium, 1), "{}", medium.display());
    }
    assert_eq!(output.faults(), [""; 0]);
    let listed = BuildOutput::open(output.path()).unwrap().unwrap();
    for (name, digest) in listed.sums() {
        assert_eq!(Digest::of(&fs::read(output.file(name)).unwrap()), *digest, "{name}");
    }
    assert!(listed.sums().contains_key(SIGNATURES));
    let told: Value = serde_json::from_slice(&fs::read(output.file(REPORT)).unwrap()).unwrap();
    let length = fs::metadata(output.file(SIGNATURES)).unwrap().len();
    let entry = told["outputs"].as_array().unwrap().iter().find(|entry| entry["name"] == SIGNATURES).unwrap();
    assert_eq!(
        (&entry["size"], &told["warnings"][0], &told["format"]),
        (&json!(length), &json!("one"), &json!(1))
    );
    let content = output.content();
    assert!(sign(output.path(), anew).unwrap().manifests.iter().all(|signed| !signed.changed));
    assert_eq!(output.content(), content, "the same signatures change nothing");
}

#[test]
fn a_customized_iso_is_listed_as_it_was_built() {
    let (output, plain) = (Output::new(), Output::new());
    customize(&output.iso(MediumKind::Full));
    for output in [&output, &plain] {
        sign(output.path(), adding).unwrap();
        assert_eq!(output.faults(), [""; 0]);
    }
    let sums = |output: &Output| fs::read_to_string(output.file(CHECKSUMS)).unwrap();
    assert_eq!(sums(&output), sums(&plain));
    customize(&plain.iso(MediumKind::Full));
    assert_eq!((plain.faults(), output.content()), (Vec::new(), plain.content()), "in either order");
}

#[test]
fn a_run_that_was_cut_off_is_completed_by_another() {
    let output = Output::new();
    let iso = output.iso(MediumKind::NetInstall);
    // One medium alone, as a run leaves it that ended before the lists.
    sign(&iso, anew).unwrap();
    assert_eq!(output.faults().len(), 1, "{:?}", output.faults());
    let mut had = Vec::new();
    sign(output.path(), |manifest, existing| {
        had.push(existing.is_some());
        anew(manifest, existing)
    })
    .unwrap();
    had.sort_unstable();
    assert_eq!((had, output.faults()), (vec![false, true], Vec::new()));

    // Bytes that are no text, as a power cut can leave them.
    let medium = MediumReader::open(&iso).unwrap();
    let at = medium.iso().unwrap().plain_file(SIGNATURES).unwrap().extents[0].start.offset().0;
    let file = change::open(&iso).unwrap();
    MediumWriter::write(&file, b"\nAAA", at).unwrap();
    drop(file);
    sign(output.path(), |manifest, existing| {
        assert!(existing.is_none() || manifest != medium.manifest());
        anew(manifest, existing)
    })
    .unwrap();
    assert_eq!((signatures_of(&iso), output.faults()), (expected(&iso, 1), Vec::new()));
}

/// Asserts that signing `path` is refused, and that nothing in the directory `watched` changes.
fn refused(path: &Path, watched: &Output, class: Class, told: &str) {
    let before = watched.content();
    let error = sign(path, adding).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), class, "{text}");
    assert!(text.contains(told), "{told} in {text}");
    assert_eq!(watched.content(), before, "{text}");
}

#[test]
fn what_cannot_be_signed_is_refused_before_anything_is_written() {
    let output = Output::new();
    let older = SampleMedium::new(MediumKind::Full);
    refused(&older.iso(), &output, Class::Invalid, "does not say how it is made: an older builder");
    let server = older.served();
    let url = format!("{}/tree/", server.url());
    refused(Path::new(&url), &output, Class::Invalid, "is on a server");
    refused(Path::new("/dev/null"), &output, Class::Invalid, "/dev/null");

    let lock = fs::File::open(output.path()).unwrap();
    lock.lock().unwrap();
    refused(output.path(), &output, Class::Busy, "another process writes to");
    drop(lock);
    let held = change::open(&output.iso(MediumKind::NetInstall)).unwrap();
    refused(output.path(), &output, Class::DiskIo, "is being changed by another process");
    drop(held);

    for name in [SIGNATURES, REPORT, CHECKSUMS] {
        let (file, other) = (output.file(name), output.file("other"));
        let _ = fs::rename(&file, &other);
        symlink("other", &file).unwrap();
        if !other.exists() {
            fs::write(&other, "").unwrap();
        }
        refused(output.path(), &output, Class::Invalid, "is a symbolic link");
        fs::remove_file(&file).unwrap();
        match name {
            SIGNATURES => fs::remove_file(other).unwrap(),
            _ => fs::rename(other, file).unwrap(),
        }
    }
    let report = fs::read(output.file(REPORT)).unwrap();
    fs::write(output.file(REPORT), "no report").unwrap();
    refused(output.path(), &output, Class::Verification, "is not the report of a build");
    fs::write(output.file(REPORT), report).unwrap();

    let iso = output.iso(MediumKind::NetInstall);
    let whole = fs::read(&iso).unwrap();
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&iso, damaged).unwrap();
    refused(output.path(), &output, Class::Verification, "is not as it was built, so it is not signed");
    fs::write(&iso, &whole[..whole.len() - 4096]).unwrap();
    refused(output.path(), &output, Class::Verification, "is cut off");
    let mut other = SampleMedium::new(MediumKind::NetInstall);
    other.release.epoch += 1;
    fs::copy(built_iso::build(other).1, &iso).unwrap();
    refused(output.path(), &output, Class::Verification, "is of another build");
    fs::write(&iso, &whole).unwrap();
    sign(output.path(), adding).unwrap();
    assert_eq!(output.faults(), [""; 0]);
}

#[test]
fn a_signer_that_fails_or_gives_what_no_medium_can_have_changes_nothing() {
    let output = Output::new();
    let before = output.content();
    let mut calls = 0;
    let mut second_fails = |manifest: &[u8], existing: Option<&[u8]>| {
        calls += 1;
        if calls == 2 { Err(anyhow!("no key")) } else { adding(manifest, existing) }
    };
    sign(output.path(), &mut second_fails).unwrap_err();
    for text in [&b""[..], b"\n\n", b"a\n\nb\n", b"a\0", &[b'a'; 8192], &[b'a'; 1 << 20]] {
        let error = sign(output.path(), |_, _| Ok(text.to_vec())).unwrap_err();
        assert!(matches!(class_of(&error), Class::Invalid | Class::Verification), "{}", render(&error));
    }
    assert_eq!(output.content(), before);
}

/// A device that loses power after a number of writes; the last one may be incomplete by sectors.
struct FailingDevice {
    bytes: RefCell<Vec<u8>>,
    writes: Cell<usize>,
    torn: usize,
}

impl MediumWriter for FailingDevice {
    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        buffer.copy_from_slice(&self.bytes.borrow()[at as usize..][..buffer.len()]);
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let power = self.writes.get() > 0;
        let length = if power { bytes.len() } else { self.torn.min(bytes.len()) };
        self.bytes.borrow_mut()[at as usize..][..length].copy_from_slice(&bytes[..length]);
        if !power {
            return Err(io::Error::other("no power"));
        }
        self.writes.set(self.writes.get() - 1);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_power_cut_leaves_the_old_signatures_the_new_ones_or_none_that_begin_as_a_text() {
    const AT: u64 = 4096;
    let text = |length: usize| format!("untrusted comment: {}\n", "x".repeat(length)).into_bytes();
    for (old, new) in [(0, 300), (300, 3000), (3000, 300), (3000, 8000)] {
        let padded = |length| match length {
            0 => signatures::padded(None).unwrap(),
            length => signatures::padded(Some(&text(length))).unwrap(),
        };
        let (old, new) = (padded(old), padded(new));
        let image = [&[1; AT as usize][..], &old, &[2; 4096]].concat();
        for (writes, torn) in (0..4).flat_map(|writes| [0, 512, 4096].map(|torn| (writes, torn))) {
            let device = FailingDevice { bytes: image.clone().into(), writes: writes.into(), torn };
            let done = region::replace(&device, AT, &new).is_ok();
            let bytes = device.bytes.into_inner();
            let region = &bytes[AT as usize..][..LENGTH];
            assert_eq!(done, writes == 3);
            assert!(region == old || region == new || region[0] == b'\n', "{writes} {torn}");
            assert!(bytes[..AT as usize] == image[..AT as usize] && bytes.ends_with(&[2; 4096]));
            let again = FailingDevice { bytes: bytes.into(), writes: usize::MAX.into(), torn: 0 };
            region::replace(&again, AT, &new).unwrap();
            assert!(!region::replace(&again, AT, &new).unwrap(), "nothing is left to write");
            assert!(again.bytes.into_inner()[AT as usize..][..LENGTH] == new);
        }
    }
}

#[test]
fn the_provenance_of_a_build_is_signed_with_its_media_and_listed() {
    let output = Output::new();
    let signatures =
        || Envelope::parse(&fs::read(output.file(PROVENANCE)).unwrap()).unwrap().signatures().len();
    for changed in [true, false] {
        let report = sign(output.path(), anew).unwrap();
        assert_eq!(report.provenance.map(|provenance| provenance.changed), Some(changed));
        assert_eq!(signatures(), 1, "the same key again replaces its own signature");
        assert_eq!(output.faults(), [""; 0]);
        ReleaseProvenance::find(output.path()).unwrap().unwrap().check_subjects().unwrap();
    }
    let report: Value = serde_json::from_slice(&fs::read(output.file(REPORT)).unwrap()).unwrap();
    let listed = report["outputs"].as_array().unwrap().iter().find(|one| one["name"] == PROVENANCE).unwrap();
    let bytes = fs::read(output.file(PROVENANCE)).unwrap();
    assert_eq!((&listed["size"], &listed["sha256"]), (&json!(bytes.len()), &json!(Digest::of(&bytes))));
}

#[test]
fn a_provenance_of_another_release_is_not_signed_and_nothing_is_changed() {
    let output = Output::new();
    let subject = Subject::new("sbom.spdx.json", Digest::of(b"{}"));
    fs::write(output.file(PROVENANCE), statement(vec![subject]).to_envelope().to_line()).unwrap();
    let before = output.content();
    let error = sign(output.path(), anew).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification);
    assert!(render(&error).contains("release.json is not a subject of it"), "{}", render(&error));
    assert_eq!(output.content(), before);
    fs::write(output.file(PROVENANCE), "{}").unwrap();
    let error = sign(output.path(), anew).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
}

#[test]
fn a_release_of_steps_that_other_hosts_shared_is_not_signed_and_nothing_is_changed() {
    let output = Output::new();
    let envelope = Envelope::parse(&fs::read(output.file(PROVENANCE)).unwrap()).unwrap();
    let mut statement = Statement::of_envelope(&envelope).unwrap();
    let parameters = &mut statement.predicate.build_definition.internal_parameters;
    parameters.shared_steps.insert("registry.example.org/builds/steps".to_owned());
    fs::write(output.file(PROVENANCE), statement.to_envelope().to_line()).unwrap();
    let before = output.content();
    let error = sign(output.path(), anew).unwrap_err();
    let told = render(&error);
    assert_eq!(class_of(&error), Class::Invalid, "{told}");
    assert!(told.contains("shared in registry.example.org/builds/steps"), "{told}");
    assert_eq!(output.content(), before);
}

#[test]
fn without_a_provenance_media_are_signed_all_the_same() {
    let output = Output::new();
    fs::remove_file(output.file(PROVENANCE)).unwrap();
    assert_eq!(sign(output.path(), anew).unwrap().provenance, None);
    assert!(!output.file(PROVENANCE).exists());
}

#[test]
fn a_provenance_that_cannot_be_signed_leaves_everything_as_it_was() {
    let output = Output::new();
    let before = output.content();
    let (progress, mut seal) = (Progress::silent(), |_: &mut Envelope| Err(anyhow!("no card in the reader")));
    let media = SignableMedia::open(output.path(), &progress).unwrap();
    media.sign(&mut anew, &mut seal, &progress).unwrap_err();
    assert_eq!(output.content(), before);
}
