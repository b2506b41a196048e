//! Whole media customized: image files that another program made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, class_of, render};
use base::program::{Context, Format};
use base::progress::Progress;
use medium::customization::{FILE, GRUB_FILE, area, argument};
use medium::reader::MediumReader;
use model::cluster_file;
use model::release::MediumKind;

use super::change::AreaContents;
use super::customization::{Customization, CustomizationState, is_customized};
use super::{CustomizationLocation, CustomizationSources, GatheredCustomization, change, copy};
use crate::media::finished::verify::{MediumFault, verify};
use crate::media::finished::{InspectCommand, VerifyCommand};
use crate::signing::arguments::KnownKeyArguments;
use trust::TrustStore;

use testing::http::{AUTHORITY as CERTIFICATE, Answer, Fake};
use testing::medium::{SampleMedium, damage};

/// A medium with room, and configurations beside it.
struct CustomizeFixture {
    sample: SampleMedium,
    path: PathBuf,
}

impl CustomizeFixture {
    fn new() -> Self {
        let sample = SampleMedium::new(MediumKind::Full).with_room();
        let path = sample.iso();
        Self { sample, path }
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.sample.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn node(&self, hostname: &str) -> PathBuf {
        let text = testing::medium::CONFIG.replace("node1", hostname);
        self.file(&format!("{hostname}.yaml"), &text)
    }

    fn sources(&self) -> CustomizationSources {
        CustomizationSources {
            fallback: Some(self.node("anyone")),
            for_machines: vec![("mac:52:54:00:00:00:01".parse().unwrap(), self.node("first"))],
            authorities: vec![self.file("own.pem", CERTIFICATE)],
            arguments: vec!["console=ttyS1".into(), "nqrust.os.password=secret-argument".into()],
            files: vec![("/etc/motd".into(), self.file("motd", "secret-file"))],
            ..CustomizationSources::default()
        }
    }
}

fn wanted(gathered: &GatheredCustomization) -> AreaContents {
    let grub = argument::grub(&gathered.content.arguments, gathered.content.boot_password.as_ref()).unwrap();
    AreaContents { area: area::bytes(&gathered.content).unwrap(), grub }
}

fn apply(path: &Path, wanted: &AreaContents) -> u64 {
    let place = CustomizationLocation::find(&MediumReader::open(path).unwrap()).unwrap();
    let file = change::open(&place.path).unwrap();
    assert!(change::protect(&file).unwrap());
    change::apply(&file, &place, wanted).unwrap()
}

fn nothing() -> AreaContents {
    wanted(&GatheredCustomization::default())
}

#[test]
fn a_customized_iso_is_whole_shows_no_secret_and_goes_back_to_its_bytes() {
    let bench = CustomizeFixture::new();
    let before = fs::read(&bench.path).unwrap();
    assert_eq!(
        Customization::of(&MediumReader::open(&bench.path).unwrap(), &TrustStore::absent()).state,
        CustomizationState::AsBuilt
    );
    let mut gathered = bench.sources().read().unwrap();
    gathered.check(None).unwrap();
    let written = apply(&bench.path, &wanted(&gathered));
    assert!(written < 100 << 10, "{written}");

    let medium = MediumReader::open(&bench.path).unwrap();
    let report = verify(&medium, &TrustStore::absent(), &Progress::silent()).unwrap();
    assert!(
        report.findings.is_empty() && report.to_string().contains("\ncustomized with 2 configurations,"),
        "{report}"
    );
    let shown = Customization::of(&medium, &TrustStore::absent());
    let text = format!("{shown} {} {shown:?}", serde_json::to_string(&shown).unwrap());
    for words in [
        "mac:52:54:00:00:00:01  first, sha256 ",
        "every other machine  anyone",
        "ca/own.pem",
        "/etc/motd  mode 0",
        "kernel arguments: console=… nqrust.os.password=…",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(!text.contains("secret") && !text.contains("ttyS1"), "{text}");
    assert_eq!(fs::metadata(&bench.path).unwrap().permissions().mode() & 0o777, 0o600);

    assert_eq!(apply(&bench.path, &wanted(&gathered)), 0, "what is there already is not written");
    apply(&bench.path, &nothing());
    assert!(fs::read(&bench.path).unwrap() == before);
}

#[test]
fn a_copy_as_a_file_and_as_a_stream_are_what_a_change_in_place_gives() {
    let bench = CustomizeFixture::new();
    let before = fs::read(&bench.path).unwrap();
    let wanted = wanted(&bench.sources().read().unwrap());
    let image = before.clone();
    let server = Fake::start(move |request| Answer::range(&image, request));
    let output = bench.sample.directory.path().join("copy.iso");
    let mut copies = Vec::new();
    for named in [bench.path.clone(), format!("{}/full.iso", server.url()).into()] {
        let medium = MediumReader::open(&named).unwrap();
        let place = CustomizationLocation::find(&medium).unwrap();
        copy::to_file(&medium, &place, &wanted, &output).unwrap();
        assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o600);
        let mut stream = Vec::new();
        copy::to_stream(&medium, &place, &wanted, &mut stream).unwrap();
        copies.extend([fs::read(&output).unwrap(), stream]);
    }
    assert!(fs::read(&bench.path).unwrap() == before, "the medium itself stays");
    apply(&bench.path, &wanted);
    let in_place = fs::read(&bench.path).unwrap();
    assert!(copies.iter().all(|copy| *copy == in_place));
}

#[test]
fn a_cluster_file_and_what_was_rendered_of_it_give_the_same_medium() {
    let bench = CustomizeFixture::new();
    let text = "cluster: {name: east, token: 9f2c4e6a8b0d1357924680acebdf1357, install: {vip: 192.0.2.9}}\n\
         pools:\n- name: p\n  role: management\n  machines:\n\
         \x20 - {hostname: n1, macs: ['52:54:00:00:00:01', '52:54:00:00:00:11']}\n\
         \x20 - {hostname: n2, macs: ['52:54:00:00:00:02']}\n\
         \x20 - {hostname: n3}\n";
    let cluster = bench.file("cluster.yaml", text);
    let rendered = bench.sample.directory.path().join("rendered");
    cluster_file::write(&cluster_file::load(&cluster).unwrap(), &rendered).unwrap();
    let of_file = CustomizationSources { cluster: Some(cluster), ..CustomizationSources::default() };
    let of_directory = CustomizationSources { directory: Some(rendered), ..CustomizationSources::default() };
    let [mut one, mut other] = [of_file, of_directory].map(|sources| sources.read().unwrap());
    let names: Vec<_> = one.content.nodes.keys().map(String::as_str).collect();
    assert_eq!(names, ["mac-52-54-00-00-00-01.yaml", "mac-52-54-00-00-00-02.yaml"]);
    assert!(one.content == other.content);
    for gathered in [&mut one, &mut other] {
        let warnings = gathered.check(None).unwrap();
        assert!(warnings.iter().any(|warning| warning.contains("n3 has no macs")), "{warnings:?}");
    }
}

#[test]
fn a_new_customization_replaces_all_of_the_old_one() {
    let bench = CustomizeFixture::new();
    apply(&bench.path, &wanted(&bench.sources().read().unwrap()));
    let sources =
        CustomizationSources { fallback: Some(bench.node("only")), ..CustomizationSources::default() };
    apply(&bench.path, &wanted(&sources.read().unwrap()));
    let medium = MediumReader::open(&bench.path).unwrap();
    let shown = Customization::of(&medium, &TrustStore::absent());
    assert_eq!(shown.brief(), "customized with 1 configuration");
    assert!(verify(&medium, &TrustStore::absent(), &Progress::silent()).unwrap().findings.is_empty());
    let bytes = fs::read(&bench.path).unwrap();
    assert!(!bytes.windows(11).any(|window| window == b"secret-file"), "nothing of it stays behind");
}

#[test]
fn a_netboot_set_is_customized_beside_its_manifest() {
    let bench = CustomizeFixture::new();
    let tree = bench.sample.tree();
    apply(&tree, &wanted(&bench.sources().read().unwrap()));
    assert_eq!(
        Customization::of(&MediumReader::open(&tree).unwrap(), &TrustStore::absent()).configurations.len(),
        2
    );
    apply(&tree, &nothing());
    assert_eq!(
        Customization::of(&MediumReader::open(&tree).unwrap(), &TrustStore::absent()).state,
        CustomizationState::AsBuilt
    );
    let zeros = fs::read(tree.join(FILE)).unwrap();
    assert!(zeros.len() as u64 == area::LENGTH && zeros.iter().all(|byte| *byte == 0));
}

#[test]
fn damage_to_the_area_and_other_arguments_for_grub_fail_verification() {
    let bench = CustomizeFixture::new();
    apply(&bench.path, &wanted(&bench.sources().read().unwrap()));
    let faults = |path: &Path| -> Vec<_> {
        let report =
            verify(&MediumReader::open(path).unwrap(), &TrustStore::absent(), &Progress::silent()).unwrap();
        report.findings.into_iter().map(|finding| (finding.path, finding.fault)).collect()
    };
    damage(&bench.path, b"set nqrust_arguments='console");
    let [(path, MediumFault::Customization { reason })] = &faults(&bench.path)[..] else { panic!() };
    assert!(path == GRUB_FILE && reason.contains("does not have the kernel arguments"), "{reason}");
    damage(&bench.path, b"secret-file");
    let [(path, MediumFault::Customization { reason })] = &faults(&bench.path)[..] else { panic!() };
    assert!(path == FILE && reason.contains("SHA-256"), "{reason}");
    let medium = MediumReader::open(&bench.path).unwrap();
    assert_eq!(Customization::of(&medium, &TrustStore::absent()).state, CustomizationState::Damaged);
    let error =
        verify(&medium, &TrustStore::absent(), &Progress::silent()).unwrap().into_result().unwrap_err();
    assert_eq!(class_of(&error), Class::Verification);
}

#[test]
fn media_without_room_and_cut_ones_are_refused_and_not_written() {
    let sample = SampleMedium::new(MediumKind::Full);
    let old = sample.iso();
    for path in [&old, &sample.tree()] {
        let error = CustomizationLocation::find(&MediumReader::open(path).unwrap()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("built without room"), "{}", render(&error));
        assert_eq!(
            Customization::of(&MediumReader::open(path).unwrap(), &TrustStore::absent()).state,
            CustomizationState::Impossible
        );
    }
    let bench = CustomizeFixture::new();
    let whole = fs::read(&bench.path).unwrap();
    for lost in [100_000, 400_000, whole.len() / 2] {
        fs::write(&bench.path, &whole[..whole.len() - lost]).unwrap();
        let error = MediumReader::open(&bench.path)
            .and_then(|medium| CustomizationLocation::find(&medium))
            .unwrap_err();
        assert_eq!(class_of(&error), Class::Verification);
        let text = render(&error);
        assert!(text.contains("is cut off") || text.contains("the image ends at byte"), "{text}");
    }
}

fn refused(sources: &CustomizationSources) -> String {
    let error = sources.read().and_then(|mut gathered| gathered.check(None)).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid, "{}", render(&error));
    render(&error)
}

/// A password hash for GRUB's menu; `digit` makes different ones.
fn boot_password(digit: char) -> String {
    format!("grub.pbkdf2.sha512.10000.{}.{}", digit.to_string().repeat(128), "CD".repeat(64))
}

impl CustomizeFixture {
    fn protected(&self, hostname: &str, digit: char) -> PathBuf {
        let text = fs::read_to_string(self.node(hostname)).unwrap();
        let key = format!("os:\n  boot_password: {}\n", boot_password(digit));
        let text = text.replacen("os:\n", &key, 1);
        assert!(text.contains(&key), "{text}");
        self.file(&format!("{hostname}.yaml"), &text)
    }
}

#[test]
fn a_boot_password_of_a_configuration_protects_the_menu_of_the_medium_and_is_checked_there() {
    let bench = CustomizeFixture::new();
    let sources = CustomizationSources {
        fallback: Some(bench.protected("one", 'A')),
        for_machines: vec![("mac:52:54:00:00:00:01".parse().unwrap(), bench.protected("two", 'A'))],
        ..CustomizationSources::default()
    };
    let mut gathered = sources.read().unwrap();
    gathered.check(None).unwrap();
    apply(&bench.path, &wanted(&gathered));
    let medium = MediumReader::open(&bench.path).unwrap();
    let menu = medium.read_at_most(GRUB_FILE, 1 << 20).unwrap();
    let line = format!(
        "\nset superusers=\"root\"\nexport superusers\npassword_pbkdf2 root {}\n",
        boot_password('A')
    );
    assert!(String::from_utf8_lossy(&menu).contains(&line));
    assert!(verify(&medium, &TrustStore::absent(), &Progress::silent()).unwrap().findings.is_empty());
    let shown = format!("{} {:?}", Customization::of(&medium, &TrustStore::absent()), gathered.content);
    assert!(!shown.contains("grub.pbkdf2"), "{shown}");
    // Removed from the menu only, it is noticed.
    damage(&bench.path, b"password_pbkdf2");
    let report =
        verify(&MediumReader::open(&bench.path).unwrap(), &TrustStore::absent(), &Progress::silent())
            .unwrap();
    let paths: Vec<_> = report.findings.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(paths, [GRUB_FILE]);
}

#[test]
fn configurations_with_different_boot_passwords_do_not_go_onto_one_medium() {
    let bench = CustomizeFixture::new();
    let sources = CustomizationSources {
        fallback: Some(bench.protected("one", 'A')),
        for_machines: vec![("mac:52:54:00:00:00:01".parse().unwrap(), bench.protected("two", 'B'))],
        ..CustomizationSources::default()
    };
    let text = refused(&sources);
    assert!(
        text.contains("one.yaml") && text.contains("two.yaml") && text.contains("os.boot_password"),
        "{text}"
    );
    assert!(!text.contains("grub.pbkdf2"), "{text}");
}

#[test]
fn two_configurations_for_one_machine_are_named_both() {
    let bench = CustomizeFixture::new();
    let (one, other) = (bench.node("one"), bench.node("other"));
    let mac = |text: &str| text.parse().unwrap();
    let directory = bench.file("rack/mac-52-54-00-00-00-0a.yaml", "install: {}");
    let rack = || Some(directory.parent().unwrap().to_owned());
    let twice = [
        CustomizationSources {
            for_machines: vec![
                (mac("mac:52:54:00:00:00:0a"), one.clone()),
                (mac("mac:52-54-00-00-00-0A"), other.clone()),
            ],
            ..CustomizationSources::default()
        },
        CustomizationSources {
            for_machines: vec![(mac("serial:ab"), one.clone()), (mac("serial:AB"), other.clone())],
            ..CustomizationSources::default()
        },
    ];
    for sources in twice {
        let text = refused(&sources);
        assert!(text.contains("one.yaml and ") && text.contains("other.yaml"), "{text}");
    }
    let sources = CustomizationSources {
        directory: rack(),
        for_machines: vec![(mac("mac:52:54:00:00:00:0a"), one)],
        ..CustomizationSources::default()
    };
    let text = refused(&sources);
    assert!(text.contains("rack/mac-52-54-00-00-00-0a.yaml and "), "{text}");
    let both = bench.file("rack/default.yaml", "install: {}");
    let text = refused(&CustomizationSources {
        directory: rack(),
        fallback: Some(other),
        ..CustomizationSources::default()
    });
    assert!(text.contains("every other machine") && text.contains(both.to_str().unwrap()), "{text}");
}

#[test]
fn what_an_install_would_refuse_does_not_get_onto_a_medium() {
    let bench = CustomizeFixture::new();
    let fallback = |text: &str| CustomizationSources {
        fallback: Some(bench.file("bad.yaml", text)),
        ..CustomizationSources::default()
    };
    let text = refused(&fallback("install: {automatc: true}"));
    assert!(text.contains("bad.yaml:1:11") && text.contains("automatic"), "{text}");
    let argument =
        |word: &str| CustomizationSources { arguments: vec![word.into()], ..CustomizationSources::default() };
    for (word, words) in [
        ("a b", "has blanks"),
        ("nqrust.install.automatc=true", "automatic"),
        ("nqrust.os.password=\"very secret\"", "has blanks"),
        ("root=/dev/sda", "set by the boot menu"),
    ] {
        let text = refused(&argument(word));
        assert!(text.contains(words) && !text.contains("very secret"), "{text}");
    }
    let long =
        CustomizationSources { arguments: vec!["x".repeat(700); 2], ..CustomizationSources::default() };
    assert!(refused(&long).contains("there is room for 1024"));
    let key = bench.file("key.pem", "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n");
    let text = refused(&CustomizationSources { authorities: vec![key], ..CustomizationSources::default() });
    assert!(text.contains("it has a private key") && !text.contains("secret\n"), "{text}");
    let file = |target: &str, size: usize| {
        let path = bench.file(&format!("file-{size}"), &"x".repeat(size));
        CustomizationSources {
            fallback: Some(bench.node("node")),
            files: vec![(target.into(), path)],
            ..CustomizationSources::default()
        }
    };
    for (sources, words) in [
        (file("etc/motd", 1), "is not an absolute path"),
        (file("/etc/../motd", 1), "is not an absolute path"),
        (file("/etc/motd", 600 << 10), "is larger than"),
        (file("/etc/hostname", 1), "--file /etc/hostname is not possible with"),
    ] {
        let text = refused(&sources);
        assert!(text.contains(words), "{text}");
    }
    // Without a configuration for which it could be right, a file has the same places.
    for target in ["/usr/bin/x", "/etc/passwd", "/oem/x", "/boot/x"] {
        let path = bench.file("content", "x");
        let alone =
            CustomizationSources { files: vec![(target.into(), path)], ..CustomizationSources::default() };
        let with = CustomizationSources { fallback: Some(bench.node("node")), ..alone.clone() };
        for sources in [alone, with] {
            let text = refused(&sources);
            assert!(text.contains(&format!("--file {target} is not possible")), "{text}");
        }
    }
    let empty = bench.file("empty/README", "");
    let text = refused(&CustomizationSources {
        directory: empty.parent().map(Path::to_owned),
        ..CustomizationSources::default()
    });
    assert!(text.contains("has no configuration") && text.contains("mac-52-54-00-12-34-56.yaml"), "{text}");
}

#[test]
fn inspect_and_verify_tell_of_a_customized_medium() -> Result<()> {
    let bench = CustomizeFixture::new();
    apply(&bench.path, &wanted(&bench.sources().read()?));
    for format in [Format::Text, Format::Json] {
        let context = Context::silent(format);
        InspectCommand { medium: bench.path.clone(), known: KnownKeyArguments::allowing_unsigned() }
            .run(&context)?;
        VerifyCommand { medium: bench.path.clone(), known: KnownKeyArguments::allowing_unsigned() }
            .run(&context)?;
    }
    let description = crate::media::finished::inspect::MediumDescription::of(
        &MediumReader::open(&bench.path)?,
        &TrustStore::absent(),
    )?;
    let text = format!("{description}{}", serde_json::to_string(&description)?);
    assert!(text.contains("mac:52:54:00:00:00:01  first"), "{text}");
    assert!(!text.contains("secret"), "{text}");
    assert_eq!(description.release_sha256, Digest::of(&bench.sample.release.to_bytes()));
    Ok(())
}

#[test]
fn a_medium_that_is_as_it_was_built_does_not_count_as_customized() {
    let bench = CustomizeFixture::new();
    let gathered = bench.sources().read().unwrap();
    let beside = bench.sample.directory.path().join(FILE);
    for (wanted, expected) in [(nothing(), false), (wanted(&gathered), true), (nothing(), false)] {
        apply(&bench.path, &wanted);
        let mut area = wanted.area;
        area.resize(area.len().max(area::HEADER), 0);
        fs::write(&beside, area).unwrap();
        assert_eq!((is_customized(&bench.path), is_customized(&beside)), (expected, expected));
    }
    assert!(!is_customized(&bench.file("noise", "noise")));
    assert!(!is_customized(&bench.path.with_extension("absent")));
}
