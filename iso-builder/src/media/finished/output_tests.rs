//! Tests of verifying the directory that a build wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::digest::Digest;
use base::failure::class_of;
use base::failure::{Class, render};
use base::program::{Context, Format};
use base::progress::Progress;
use medium::build_output::{BuildOutput, CHECKSUMS, REPORT, UNFINISHED, iso_name, netboot_names};
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
        let output = Self { directory, iso };
        output.seal();
        output
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
    assert_eq!(names.len(), 8, "{names:?}");
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
