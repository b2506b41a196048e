use std::fs;
use std::path::{Path, PathBuf};

use base::digest::Digest;
use base::failure::{Class, class_of, render};
use base::program::{Context, Format};
use base::progress::{Progress, StepState};
use medium::reader::MediumReader;
use model::release::{MANIFEST, MediumKind, Purpose};
use testing::http::{Answer, Fake};
use testing::medium::{CONFIG, SampleMedium, damage};
use testing::progress::Recorder;

use super::inspect::MediumDescription;
use super::verify::{MediumFault, VerifyReport, verify};
use super::{InspectCommand, VerifyCommand};
use crate::signing::arguments::KnownKeyArguments;
use crate::wording::printable;
use trust::TrustStore;

fn verified(path: &Path) -> VerifyReport {
    verify(&MediumReader::open(path).unwrap(), &TrustStore::absent(), &Progress::silent()).unwrap()
}

fn faults(report: &VerifyReport) -> Vec<(&str, &MediumFault)> {
    report.findings.iter().map(|finding| (finding.path.as_str(), &finding.fault)).collect()
}

#[test]
fn a_medium_is_the_same_as_an_iso_and_as_a_directory_here_and_on_a_server() {
    let sample = SampleMedium::new(MediumKind::Full);
    let server = sample.served();
    let urls = ["tree/", "full.iso"].map(|name| PathBuf::from(format!("{}/{name}", server.url())));
    for path in [sample.iso(), sample.tree()].into_iter().chain(urls) {
        let description =
            MediumDescription::of(&MediumReader::open(&path).unwrap(), &TrustStore::absent()).unwrap();
        assert_eq!(description.install_configs.len(), 1, "{}", path.display());
        let report = verified(&path);
        assert_eq!(faults(&report), [], "{report}");
        assert_eq!((report.payloads, report.remote), (5, 0));
        report.into_result().unwrap();
    }
}

#[test]
fn a_server_without_a_medium_is_told_from_one_that_does_not_answer() {
    let server = Fake::start(|_| Answer::new(404, b""));
    let open = |url: String| MediumReader::open_for_verification(Path::new(&url)).unwrap_err();
    for name in ["", "full.iso"] {
        let error = open(format!("{}/{name}", server.url()));
        assert_ne!(class_of(&error), Class::Unexpected, "{}", render(&error));
        assert!(render(&error).contains("next: "), "{}", render(&error));
    }
    let sample = SampleMedium::new(MediumKind::Full);
    let server = sample.served();
    fs::remove_file(sample.tree().join("live/vmlinuz")).unwrap();
    let url = format!("{}/tree", server.url().replace("http://", "http://user:a-very-secret-word@"));
    let report = verified(Path::new(&url));
    assert_eq!(faults(&report), [("live/vmlinuz", &MediumFault::Missing)]);
    assert!(!report.to_string().contains("a-very-secret-word"), "{report}");
}

#[test]
fn payloads_of_an_iso_and_of_a_directory_read_the_same() {
    let sample = SampleMedium::new(MediumKind::Full);
    for path in [sample.iso(), sample.tree()] {
        let medium = MediumReader::open(&path).unwrap();
        let release = medium.release().unwrap();
        assert_eq!(release, sample.release);
        let payload = release.payload(Purpose::Rootfs).unwrap();
        let found = Digest::of_reader(medium.open_payload(payload).unwrap()).unwrap();
        assert_eq!(found, (payload.sha256, payload.size));
    }
}

#[test]
fn one_changed_byte_is_found_in_the_payload_that_has_it() {
    let sample = SampleMedium::new(MediumKind::Full);
    let iso = sample.iso();
    damage(&iso, b"first blob");
    damage(&iso, &[250, 251, 252, 0, 1]);
    let report = verified(&iso);
    let found: Vec<_> = report.findings.iter().map(|finding| finding.path.as_str()).collect();
    assert_eq!(found, ["live/rootfs.squashfs", &sample.release.payloads[2].path]);
    assert!(report.findings.iter().all(|finding| matches!(finding.fault, MediumFault::Damaged { .. })));
    let error = report.into_result().unwrap_err();
    assert_eq!(class_of(&error), Class::Verification);
    assert!(render(&error).contains("live/rootfs.squashfs: damaged"), "{}", render(&error));
}

#[test]
fn missing_short_long_and_unreadable_payloads_are_told_apart() {
    let sample = SampleMedium::new(MediumKind::Full);
    let tree = sample.tree();
    fs::remove_file(tree.join("live/vmlinuz")).unwrap();
    fs::write(tree.join("live/rootfs.squashfs"), b"short").unwrap();
    fs::write(tree.join("config/install.yaml"), format!("{CONFIG}more")).unwrap();
    let blob = &sample.release.payloads[2].path;
    fs::remove_file(tree.join(blob)).unwrap();
    fs::create_dir(tree.join(blob)).unwrap();
    for path in [sample.iso(), tree] {
        let report = verified(&path);
        let size = CONFIG.len() as u64;
        let [kernel, rootfs, directory, config] = &faults(&report)[..] else { panic!("{report}") };
        assert_eq!(kernel, &("live/vmlinuz", &MediumFault::Missing));
        assert_eq!(rootfs, &("live/rootfs.squashfs", &MediumFault::Short { expected: 300_000, found: 5 }));
        assert!(matches!(directory.1, MediumFault::Unreadable { .. }));
        assert_eq!(config, &("config/install.yaml", &MediumFault::Long { expected: size }));
    }
}

#[test]
fn a_net_install_medium_may_lack_image_blobs_and_nothing_else() {
    let sample = SampleMedium::new(MediumKind::NetInstall);
    let report = verified(&sample.iso());
    assert_eq!((faults(&report), report.payloads, report.remote), (vec![], 3, 2));
    assert!(report.to_string().contains("2 image blobs for an install to download"), "{report}");
    fs::remove_file(sample.tree().join("live/vmlinuz")).unwrap();
    assert_eq!(faults(&verified(&sample.iso())), [("live/vmlinuz", &MediumFault::Missing)]);
}

#[test]
fn a_boot_menu_for_another_release_is_found() {
    let sample = SampleMedium::new(MediumKind::Full);
    sample.write_menu("sha256:00");
    let report = verified(&sample.iso());
    assert!(matches!(report.findings[0].fault, MediumFault::OtherRelease { .. }), "{report}");
    fs::remove_file(sample.tree().join("boot/grub/grub.cfg")).unwrap();
    assert_eq!(faults(&verified(&sample.iso())), [("boot/grub/grub.cfg", &MediumFault::Missing)]);
    assert_eq!(faults(&verified(&sample.tree())), [], "a netboot set has no boot menu");
}

#[test]
fn a_cut_iso_fails_verification_wherever_it_is_cut() {
    let sample = SampleMedium::new(MediumKind::Full);
    let iso = sample.iso();
    let whole = fs::read(&iso).unwrap();
    for length in [34 * 1024, 60 * 1024, whole.len() / 2, whole.len() - 400 * 1024] {
        fs::write(&iso, &whole[..length]).unwrap();
        let error = MediumReader::open(&iso)
            .and_then(|medium| verify(&medium, &TrustStore::absent(), &Progress::silent()))
            .and_then(VerifyReport::into_result)
            .unwrap_err();
        assert_eq!(class_of(&error), Class::Verification, "{length}: {}", render(&error));
    }
}

#[test]
fn what_is_not_a_medium_is_named_with_what_was_expected() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), b"x").unwrap();
    let iso = directory.path().join("other.iso");
    ::testing::xorriso::make_iso(&other, &iso);
    let write = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    for (path, words) in [
        (write("empty", b""), "an empty file"),
        (write("notes.txt", b"hello\n"), "a text file"),
        (write("rootfs", b"hsqs\0\0"), "a squashfs image"),
        (write("noise", &[0x80; 50_000]), "unknown data"),
        (iso, "an ISO of another product (volume \"SAMPLE\")"),
        (other, "a directory without release.json"),
        (directory.path().join("absent"), "opening the medium"),
        ("/dev/null".into(), "neither a file nor a drive nor a directory"),
    ] {
        let error = MediumReader::open(&path).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Invalid, "{text}");
        assert!(text.contains(words) && text.contains("Give an ISO made by iso-builder"), "{text}");
    }
}

#[test]
fn a_garbled_manifest_fails_verification_and_another_format_is_invalid() {
    let sample = SampleMedium::new(MediumKind::Full);
    for (manifest, class) in
        [("{\"format\": 1, \"id", Class::Verification), ("{\"format\": 9}", Class::Invalid)]
    {
        fs::write(sample.tree().join(MANIFEST), manifest).unwrap();
        let error = MediumReader::open(&sample.tree()).unwrap().release().unwrap_err();
        assert_eq!(class_of(&error), class, "{}", render(&error));
    }
}

#[test]
fn inspecting_tells_what_is_on_the_medium_and_no_secret() {
    let sample = SampleMedium::new(MediumKind::NetInstall);
    let description =
        MediumDescription::of(&MediumReader::open(&sample.iso()).unwrap(), &TrustStore::absent()).unwrap();
    let (text, json) = (description.to_string(), serde_json::to_string(&description).unwrap());
    for words in [
        "NQRust Hypervisor 1.0 for amd64, net-install medium",
        "kernel    6.1.0-40-amd64",
        "dated     2023-11-14T22:13:20Z",
        "live/rootfs.squashfs",
        "localhost/nqrust/tools:1.0  management, 2 blobs, 21 B",
        "3 payloads on the medium",
        "2 for an install to download, 21 B",
        "hostname  node1",
        "mode      create",
        "role      management",
        "device    /dev/vda",
    ] {
        assert!(text.contains(words), "{words:?} in\n{text}");
    }
    assert!(json.contains("\"hostname\":\"node1\""), "{json}");
    assert!(!format!("{text}{json}{description:?}").contains("a-very-secret"));
}

#[test]
fn an_unreadable_configuration_is_named_without_quoting_it() {
    let sample = SampleMedium::new(MediumKind::Full);
    fs::write(sample.tree().join("config/install.yaml"), "token: [9f2c4e6a8b0d1357924680acebdf1357\n")
        .unwrap();
    let description =
        MediumDescription::of(&MediumReader::open(&sample.tree()).unwrap(), &TrustStore::absent()).unwrap();
    let text = format!("{description}{description:?}");
    assert!(text.contains("not readable as an install configuration") && !text.contains("secret"), "{text}");
}

#[test]
fn names_from_a_medium_cannot_steer_the_terminal() {
    assert_eq!(printable("a\u{1b}[31mb\nc"), "a\\u{1b}[31mb\\nc");
}

#[test]
fn progress_counts_every_byte_and_a_fault_fails_the_step() {
    let sample = SampleMedium::new(MediumKind::Full);
    let last_event = || {
        let recorder = Recorder::default();
        let progress = Progress::new(vec![Box::new(recorder.clone())]);
        verify(&MediumReader::open(&sample.tree()).unwrap(), &TrustStore::absent(), &progress).unwrap();
        let last = recorder.0.lock().unwrap().pop().unwrap();
        (last.step, last.state, last.bytes, last.total)
    };
    let total = sample.release.payloads.iter().map(|payload| payload.size).sum();
    assert_eq!(last_event(), ("verify".into(), StepState::Done, Some(total), Some(total)));
    damage(&sample.tree().join("live/vmlinuz"), b"kernel");
    assert_eq!(last_event(), ("verify".into(), StepState::Failed, Some(total), Some(total)));
}

#[test]
fn the_commands_end_with_the_class_of_what_they_found() {
    let sample = SampleMedium::new(MediumKind::Full);
    let iso = sample.iso();
    for format in [Format::Text, Format::Json] {
        let context = Context::silent(format);
        InspectCommand { medium: iso.clone(), known: KnownKeyArguments::allowing_unsigned() }
            .run(&context)
            .unwrap();
        VerifyCommand { medium: iso.clone(), known: KnownKeyArguments::allowing_unsigned() }
            .run(&context)
            .unwrap();
    }
    damage(&iso, b"first blob");
    let context = Context::silent(Format::Json);
    let error = VerifyCommand { medium: iso, known: KnownKeyArguments::allowing_unsigned() }
        .run(&context)
        .unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 4);
}
