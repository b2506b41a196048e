//! Tests of comparing releases: what a build wrote, with what another one wrote.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::digest::Digest;
use base::failure::{Class, class_of, render};
use base::progress::Progress;
use formats::minisign::SecretKey;
use jiff::Timestamp;
use medium::build_output::{CHECKSUMS, iso_name, netboot_names};
use medium::customization::{Content, FILE, area, argument};
use medium::reader::MediumReader;
use model::architecture::Architecture;
use model::release::{MANIFEST, MediumKind, Purpose, Release, SIGNATURES};
use testing::medium::{SampleMedium, damage};
use trust::TrustedKey;

use super::compare::compare;
use super::finished_release::FinishedRelease;
use super::inputs::ReleaseOrigin;
use super::{Agreement, ComparedInput, ComparedPart, Reproduction, unknown_key};
use crate::definition::OutputKind;
use crate::media::assemble::{blank_area, checksums};
use crate::media::customize::{CustomizationLocation, change};
use crate::media::finished::built_iso;
use crate::provenance::statement::tests::statement;
use crate::provenance::{BuilderVersion, PROVENANCE, Statement, Subject, dependencies};

/// The directory that a build of a sample writes.
struct Written {
    directory: tempfile::TempDir,
    iso: PathBuf,
}

fn written(change: impl FnOnce(&mut SampleMedium)) -> Written {
    let mut sample = SampleMedium::bootable(MediumKind::Full).with_room();
    change(&mut sample);
    let (sample, built) = built_iso::build(sample);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let iso = path(&iso_name(&sample.release, MediumKind::Full));
    fs::copy(built, &iso).unwrap();
    fs::write(path(MANIFEST), sample.release.to_bytes()).unwrap();
    for (purpose, name) in netboot_names(&sample.release) {
        let payload = sample.release.payload(purpose).unwrap();
        fs::copy(sample.tree().join(&payload.path), path(&name)).unwrap();
    }
    blank_area(&path(FILE)).unwrap();
    fs::write(path("sbom.spdx.json"), "{}").unwrap();
    fs::write(path(SIGNATURES), "nobody compares these\n").unwrap();
    let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let digest = |name: std::ffi::OsString| {
        let name = name.into_string().unwrap();
        (name.clone(), Digest::of(&fs::read(path(&name)).unwrap()))
    };
    let sums: BTreeMap<_, _> = names.map(digest).collect();
    fs::write(path(CHECKSUMS), checksums::render(&sums)).unwrap();
    Written { directory, iso }
}

/// Changes a payload of a sample, as another input would.
fn other_kernel(sample: &mut SampleMedium) {
    let kernel = sample.release.payloads.iter_mut().find(|payload| payload.purpose == Purpose::Kernel);
    let kernel = kernel.unwrap();
    kernel.sha256 = Digest::of(b"KERNEL");
    fs::write(sample.directory.path().join("tree").join(&kernel.path), "KERNEL").unwrap();
}

fn compared(first: &Path, again: &Path) -> Vec<ComparedPart> {
    let scratch = tempfile::tempdir().unwrap();
    let [first, again] = [first, again].map(|path| FinishedRelease::open(path).unwrap());
    compare(&first, &again, scratch.path(), &Progress::silent()).unwrap()
}

/// The names of parts that are not the same.
fn differing(first: &Path, again: &Path) -> Vec<String> {
    let parts = compared(first, again).into_iter();
    parts.filter(|part| part.agreement != Agreement::Same).map(|part| part.name).collect()
}

#[test]
fn two_builds_with_the_same_bytes_agree_in_every_part_whoever_has_customized_one() {
    let (first, again) = (written(|_| ()), written(|_| ()));
    assert_eq!(differing(first.directory.path(), again.directory.path()), [""; 0]);
    let place = CustomizationLocation::find(&MediumReader::open(&first.iso).unwrap()).unwrap();
    let arguments = vec!["console=ttyS1".parse().unwrap()];
    let grub = argument::grub(&arguments, None).unwrap();
    let area = area::bytes(&Content { arguments, ..Default::default() }).unwrap();
    change::apply(&change::open(&first.iso).unwrap(), &place, &change::AreaContents { area, grub }).unwrap();
    let parts = compared(first.directory.path(), again.directory.path());
    assert!(parts.iter().all(|part| part.agreement == Agreement::Same), "{parts:?}");
    let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
    for name in ["full: release.json", "full: live/vmlinuz", "release.json", "sbom.spdx.json"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.contains(&SIGNATURES) && !names.contains(&FILE), "{names:?}");
    // One ISO alone, whatever its file is called.
    let elsewhere = first.directory.path().join("stick.iso");
    fs::rename(&first.iso, &elsewhere).unwrap();
    assert_eq!(differing(&elsewhere, again.directory.path()), [""; 0]);
}

#[test]
fn another_input_is_found_in_the_manifest_in_the_payload_and_in_every_file_that_has_it() {
    let first = written(|_| ());
    let again = written(|sample| {
        other_kernel(sample);
        sample.release.epoch += 1;
    });
    let iso = first.iso.file_name().unwrap().to_str().unwrap().to_owned();
    let names = differing(first.directory.path(), again.directory.path());
    let kernel = iso.replace(".iso", "-vmlinuz");
    let expected =
        ["full: release.json", "full: live/vmlinuz", &kernel, &iso, "release.json"].map(str::to_owned);
    assert_eq!(names, expected);
    let parts = compared(first.directory.path(), again.directory.path());
    let manifest = &parts[0].differences;
    assert_eq!(manifest, &["epoch: 1700000000 in the release, 1700000001 now"]);
}

#[test]
fn a_byte_that_was_changed_after_the_build_is_found_though_manifest_and_checksums_are_as_they_were() {
    let (first, again) = (written(|_| ()), written(|_| ()));
    damage(&first.iso, testing::medium::INITRD);
    let iso = first.iso.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(differing(first.directory.path(), again.directory.path()), [iso]);
    // A directory with a manifest and payloads has no list, and its payloads are read.
    let plain = SampleMedium::bootable(MediumKind::Full).with_room();
    let (plain, _) = built_iso::build(plain);
    fs::write(plain.tree().join(MANIFEST), plain.release.to_bytes()).unwrap();
    assert_eq!(differing(&plain.tree(), again.directory.path()), [""; 0]);
    damage(&plain.tree().join("live/initrd"), testing::medium::INITRD);
    assert_eq!(differing(&plain.tree(), again.directory.path()), ["full: live/initrd"]);
}

#[test]
fn what_is_built_again_is_what_the_release_has() {
    let first = written(|_| ());
    let open = |path: &Path| FinishedRelease::open(path).unwrap().kinds().into_iter().collect::<Vec<_>>();
    assert_eq!(open(first.directory.path()), [OutputKind::Full, OutputKind::Netboot]);
    assert_eq!(open(&first.iso), [OutputKind::Full]);
    let net = SampleMedium::bootable(MediumKind::NetInstall).with_room();
    assert_eq!(open(&net.tree()), [OutputKind::NetInstall]);
}

#[test]
fn a_release_that_was_not_reproduced_says_which_inputs_were_others() {
    let part = |agreement| ComparedPart {
        name: "full: boot/initrd\u{1b}".into(),
        agreement,
        differences: vec!["init: another content".into(); 22],
    };
    let input = |first: &str| ComparedInput {
        name: "installer".into(),
        first: Some(first.into()),
        again: Some("sha256:b".into()),
    };
    let of = |agreement: Agreement, first| Reproduction {
        release: "dist".into(),
        manifests: [Digest::of(b"manifest")].into(),
        product: "NQRust Hypervisor 1.0".into(),
        definition: "image.yaml".into(),
        reproduced: agreement == Agreement::Same,
        inputs: vec![input(first)],
        parts: vec![part(agreement)],
        not_compared: vec![],
        output: None,
        signed_by: vec![],
    };
    of(Agreement::Same, "sha256:b").into_result().unwrap();
    let failure = |first| anyhow::Error::from(of(Agreement::Differs, first).into_result().unwrap_err());
    let other = failure("sha256:a");
    assert_eq!(class_of(&other), Class::Verification);
    assert!(render(&other).contains("was made with another installer"), "{}", render(&other));
    assert!(render(&failure("sha256:b")).contains("used other inputs than it says"));
    let text = of(Agreement::Differs, "sha256:a").to_string();
    assert!(!text.contains('\u{1b}'), "a release does not steer the terminal");
    for line in [
        "differs  installer: sha256:a made the release, sha256:b is here",
        "differs  full: boot/initrd",
        "… and 2 more",
    ] {
        assert!(text.contains(line), "{text}");
    }
}

/// A definition with its lock file, an installer, and the provenance of a release that was made of them.
struct Inputs {
    directory: tempfile::TempDir,
    statement: Statement,
}

impl Inputs {
    fn of(release: &Path) -> Self {
        // Releases name definitions below the current directory.
        let directory = tempfile::Builder::new().prefix("reproduce-").tempdir_in(".").unwrap();
        let written = |name: &str| {
            fs::write(directory.path().join(name), name).unwrap();
            Digest::of(name.as_bytes())
        };
        let manifest = Digest::of(&fs::read(release.join(MANIFEST)).unwrap());
        let mut statement = statement(vec![Subject::new(MANIFEST, manifest)]);
        let external = &mut statement.predicate.build_definition.external_parameters;
        external.definition.path = below_here(directory.path());
        external.definition.sha256 = written("image.yaml");
        external.lock.sha256 = written("image.yaml.lock");
        let installer = dependencies::file("installer", written("installer"));
        statement.predicate.build_definition.resolved_dependencies.push(installer);
        statement.predicate.run_details.builder.version =
            BuilderVersion::of_this_program(crate::files::digest_of_path).unwrap();
        let inputs = Self { directory, statement };
        inputs.state(release);
        inputs
    }

    /// Lets the release name another definition.
    fn name(&mut self, definition: &str, release: &Path) {
        let external = &mut self.statement.predicate.build_definition.external_parameters;
        external.definition.path = definition.to_owned();
        self.state(release);
    }

    /// Writes the provenance into a directory.
    fn state(&self, directory: &Path) {
        fs::write(directory.join(PROVENANCE), self.statement.to_envelope().to_line()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// The definition in `directory`, from the current directory.
fn below_here(directory: &Path) -> String {
    Path::new(directory.file_name().unwrap()).join("image.yaml").display().to_string()
}

fn origin(release: &Path) -> anyhow::Result<ReleaseOrigin> {
    ReleaseOrigin::read(&FinishedRelease::open(release).unwrap())
}

#[test]
fn the_definition_that_a_release_names_is_taken_and_each_other_input_is_told_before_the_build() {
    let release = written(|_| ());
    let inputs = Inputs::of(release.directory.path());
    for path in [release.directory.path(), &release.iso] {
        let origin = origin(path).unwrap();
        assert_eq!(
            origin.definition(None, path, None, Architecture::Amd64).unwrap(),
            Path::new(&below_here(inputs.directory.path()))
        );
    }
    let origin = origin(release.directory.path()).unwrap();
    let differing = || {
        let inputs = origin
            .compare_before(&inputs.path("image.yaml"), None, Architecture::Amd64, &inputs.path("installer"))
            .unwrap();
        assert_eq!(inputs.len(), 4);
        inputs.into_iter().filter(ComparedInput::differs).map(|input| input.name).collect::<Vec<_>>()
    };
    assert_eq!(differing(), [""; 0]);
    for (file, name) in
        [("image.yaml", "definition"), ("image.yaml.lock", "lock file"), ("installer", "installer")]
    {
        fs::write(inputs.path(file), "another").unwrap();
        assert_eq!(differing(), [name]);
        fs::write(inputs.path(file), file).unwrap();
    }
    // After the build all of them are known.
    let mut made = Inputs { directory: tempfile::tempdir().unwrap(), statement: inputs.statement.clone() };
    made.state(made.directory.path());
    let different = |made: &Inputs| {
        let inputs = origin.compare_after(made.directory.path()).unwrap();
        inputs.into_iter().filter(ComparedInput::differs).map(|input| input.name).collect::<Vec<_>>()
    };
    assert_eq!(different(&made), [""; 0]);
    let build = &mut made.statement.predicate.build_definition;
    build.resolved_dependencies[0].digest = dependencies::file("x", Digest::of(b"changed")).digest;
    build.internal_parameters.tools.insert("mmdebstrap".into(), "5.0".into());
    let name = build.resolved_dependencies[0].name.clone();
    made.state(made.directory.path());
    assert_eq!(different(&made), [name, "version of mmdebstrap".to_owned()]);
    // A second file of a name is another input, though one with the digest of the release is there.
    made.statement = inputs.statement.clone();
    let build = &mut made.statement.predicate.build_definition;
    let mut second = build.resolved_dependencies[0].clone();
    second.digest = dependencies::file("x", Digest::of(b"second")).digest;
    let name = second.name.clone();
    build.resolved_dependencies.insert(0, second);
    made.state(made.directory.path());
    assert_eq!(different(&made), [name]);
}

#[test]
fn what_is_missing_is_told_before_a_build() {
    let release = written(|_| ());
    let nothing = origin(release.directory.path()).unwrap();
    let error = nothing.definition(None, release.directory.path(), None, Architecture::Amd64).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("--definition FILE"), "{}", render(&error));
    let inputs = Inputs::of(release.directory.path());
    fs::remove_file(inputs.path("image.yaml.lock")).unwrap();
    let error = origin(release.directory.path())
        .unwrap()
        .definition(Some(&inputs.path("image.yaml")), release.directory.path(), None, Architecture::Amd64)
        .unwrap_err();
    assert!(error.to_string().contains("the lock file of the definition"), "{error}");
    // The provenance of another release is none for the directory, and no concern of an ISO that lies beside it.
    let other = written(other_kernel);
    inputs.state(other.directory.path());
    let error = origin(other.directory.path()).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification);
    assert!(error.to_string().contains("is of another release"), "{error}");
    assert!(origin(&other.iso).unwrap().definition(None, &other.iso, None, Architecture::Amd64).is_err());
}

#[test]
fn a_definition_that_came_with_the_release_is_not_used_though_it_fits() {
    let release = written(|_| ());
    let path = release.directory.path();
    let mut inputs = Inputs::of(path);
    let named = inputs.path("image.yaml").canonicalize().unwrap();
    // An absolute path, one above, and one that leaves the directory on the way.
    for hostile in [named.display().to_string(), "../image.yaml".into(), "a/../../image.yaml".into()] {
        inputs.name(&hostile, path);
        let error = origin(path).unwrap().definition(None, path, None, Architecture::Amd64).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("is not used"), "{}", render(&error));
    }
    assert_eq!(
        origin(path).unwrap().definition(Some(&named), path, None, Architecture::Amd64).unwrap(),
        named
    );
    // The release lies where the definition is.
    let stated = below_here(inputs.directory.path());
    inputs.name(&stated, path);
    origin(path).unwrap().definition(None, path, None, Architecture::Amd64).unwrap();
    let here = inputs.directory.path();
    assert!(origin(path).unwrap().definition(None, here, None, Architecture::Amd64).is_err());
    assert!(
        origin(path).unwrap().definition(None, &here.join("installer"), None, Architecture::Amd64).is_err()
    );
}

#[test]
fn a_key_that_only_the_release_names_is_told_and_no_reason_to_sign() {
    let key = SecretKey::of_seed([1; 8], [1; 32]).public_key();
    let key = TrustedKey { name: "a\u{1b}[2J".into(), key, development: false };
    unknown_key(&key, false, &Progress::silent()).unwrap();
    let error = unknown_key(&key, true, &Progress::silent()).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    let text = render(&error);
    assert!(text.contains("`trust.keys`") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_build_without_the_first_key_trusts_what_the_release_says_or_who_signed_it() {
    let key = |seed: u8| {
        let secret = SecretKey::of_seed([seed; 8], [seed; 32]);
        let name = format!("key {seed}");
        (TrustedKey { name, key: secret.public_key(), development: false }, secret)
    };
    let [(one, secret), (two, _)] = [key(1), key(2)];
    let release = written(|_| ());
    let manifest = fs::read(release.directory.path().join(MANIFEST)).unwrap();
    let parsed = Release::parse(&manifest).unwrap();
    let sign = |bytes: &[u8]| Ok::<_, std::convert::Infallible>(secret.sign_bytes(bytes));
    let signature = trust::sign_release(&parsed, &manifest, Timestamp::UNIX_EPOCH, &one.key, sign).unwrap();
    fs::write(release.directory.path().join(SIGNATURES), signature.to_string()).unwrap();
    let first = FinishedRelease::open(release.directory.path()).unwrap();
    let keys =
        |known: &[TrustedKey]| origin(release.directory.path()).unwrap().build_keys(&first, known).unwrap();
    assert_eq!(keys(&[two.clone(), one.clone()]), std::slice::from_ref(&one));
    assert_eq!(keys(std::slice::from_ref(&two)), []);
    Inputs::of(release.directory.path());
    let stated = keys(&[two, one]);
    assert_eq!(stated.len(), 1);
    assert!(stated[0].development, "as the sample says it");
}
