use super::*;
use base::failure::{class_of, render};
use model::release::MediumKind;
use testing::medium::{INITRD, SampleMedium};

/// The whole file, read in pieces of `piece` bytes.
fn content(served: &ServedFile, piece: usize) -> Vec<u8> {
    let mut content = Vec::new();
    let mut buffer = vec![0; piece];
    loop {
        match served.read_at(&mut buffer, content.len() as u64).unwrap() {
            0 => return content,
            count => content.extend_from_slice(&buffer[..count]),
        }
    }
}

fn holds_everything(files: &MediumFiles, sample: &SampleMedium) {
    for payload in &sample.release.payloads {
        let served = files.get(&payload.path).unwrap();
        assert_eq!(served.length, payload.size);
        assert_eq!(Digest::of(&content(served, 65_537)), payload.sha256, "{}", payload.path);
        assert_eq!(served.tag(), format!("\"{}\"", payload.sha256));
    }
    let manifest = files.get(MANIFEST).unwrap();
    assert_eq!(content(manifest, 100), sample.release.to_bytes());
    assert_eq!((manifest.sha256, files.missing()), (files.release_digest(), 0));
}

#[test]
fn an_iso_and_a_directory_give_the_same_files() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    holds_everything(&MediumFiles::open(&sample.tree()).unwrap(), &sample);
    holds_everything(&MediumFiles::open(&sample.iso()).unwrap(), &sample);
}

#[test]
fn a_build_directory_serves_its_iso_and_without_it_the_netboot_set() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    let built = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        std::fs::copy(sample.tree().join(from), built.path().join(to)).unwrap();
    };
    copy("release.json", "release.json");
    copy("live/vmlinuz", "nqrust-1.0-amd64-vmlinuz");
    copy("live/initrd", "nqrust-1.0-amd64-initrd");
    copy("live/rootfs.squashfs", "nqrust-1.0-amd64-rootfs.squashfs");
    let files = MediumFiles::open(built.path()).unwrap();
    assert_eq!(content(files.get("live/initrd").unwrap(), 100), INITRD);
    assert_eq!(files.missing(), 2);
    let iso = built.path().join("nqrust-1.0-amd64.iso");
    std::fs::copy(sample.iso(), &iso).unwrap();
    holds_everything(&MediumFiles::open(built.path()).unwrap(), &sample);
    // An ISO of another build is another release.
    std::fs::write(built.path().join("release.json"), [sample.release.to_bytes(), b"\n".to_vec()].concat())
        .unwrap();
    assert_eq!(MediumFiles::open(built.path()).unwrap().missing(), 2);
}

#[test]
fn nothing_is_found_but_by_the_exact_name_of_a_file_of_the_release() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    std::fs::write(sample.tree().join("secret"), "not of the release").unwrap();
    let files = MediumFiles::open(&sample.tree()).unwrap();
    for path in [
        "",
        "/",
        "/live/initrd",
        "live",
        "live/",
        "live//initrd",
        "live/./initrd",
        "live/../live/initrd",
        "../tree/live/initrd",
        "live/initrd\0",
        "live/INITRD",
        "secret",
        "boot/grub/grub.cfg",
        "/etc/passwd",
    ] {
        assert!(files.get(path).is_none(), "{path:?}");
    }
}

#[test]
fn a_net_install_medium_lacks_the_blobs_of_images() {
    let sample = SampleMedium::bootable(MediumKind::NetInstall);
    assert_eq!(MediumFiles::open(&sample.iso()).unwrap().missing(), 2);
}

#[test]
fn a_medium_that_no_machine_can_boot_from_is_refused() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    std::fs::remove_file(sample.tree().join("live/initrd")).unwrap();
    let error = MediumFiles::open(&sample.tree()).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("it lacks live/initrd"), "{}", render(&error));
    let mut sample = SampleMedium::bootable(MediumKind::Full);
    sample.release.payloads.retain(|payload| payload.purpose != Purpose::Rootfs);
    std::fs::write(sample.tree().join(MANIFEST), sample.release.to_bytes()).unwrap();
    assert_eq!(class_of(&MediumFiles::open(&sample.tree()).unwrap_err()), Class::Invalid);
}

#[test]
fn a_file_of_another_length_is_refused() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    std::fs::write(sample.tree().join("live/initrd"), "short").unwrap();
    for path in [sample.tree(), sample.iso()] {
        let error = MediumFiles::open(&path).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification);
        assert!(render(&error).contains("live/initrd is not the file"), "{}", render(&error));
    }
}

#[test]
fn a_medium_whose_configuration_everybody_could_read_is_refused() {
    let sample = SampleMedium::new(MediumKind::Full);
    let error = MediumFiles::open(&sample.tree()).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    let text = render(&error);
    assert!(text.contains("config/install.yaml") && !text.contains("a-very-secret"), "{text}");
}

#[test]
fn a_file_of_another_directory_is_not_served_whatever_its_length() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    let outside = tempfile::tempdir().unwrap();
    let (secret, initrd) = (outside.path().join("secret"), sample.tree().join("live/initrd"));
    std::fs::write(&secret, vec![b's'; INITRD.len()]).unwrap();
    std::fs::remove_file(&initrd).unwrap();
    std::os::unix::fs::symlink(&secret, &initrd).unwrap();
    let error = format!("{:#}", MediumFiles::open(&sample.tree()).unwrap_err());
    assert!(error.contains("live/initrd is a link to another directory"), "{error}");
    std::fs::remove_file(&initrd).unwrap();
    nix::unistd::mkfifo(&initrd, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = format!("{:#}", MediumFiles::open(&sample.tree()).unwrap_err());
    assert!(error.contains("is a FIFO"), "{error}");
}

#[test]
fn the_signatures_of_a_signed_release_are_served_and_nothing_in_their_place() {
    let sample = SampleMedium::bootable(MediumKind::Full);
    assert!(MediumFiles::open(&sample.tree()).unwrap().get(SIGNATURES).is_none());
    let path = sample.tree().join(SIGNATURES);
    // On an ISO, newlines follow.
    for padding in ["", &"\n".repeat(8000)] {
        std::fs::write(&path, format!("untrusted comment: a\n{padding}")).unwrap();
        for medium in [sample.tree(), sample.iso()] {
            let files = MediumFiles::open(&medium).unwrap();
            assert_eq!(content(files.get(SIGNATURES).unwrap(), 7), b"untrusted comment: a\n");
            holds_everything(&files, &sample);
        }
    }
    std::fs::write(&path, "\n".repeat(8192)).unwrap();
    assert!(MediumFiles::open(&sample.iso()).unwrap().get(SIGNATURES).is_none());
    std::fs::write(&path, "a".repeat(8193)).unwrap();
    assert_eq!(class_of(&MediumFiles::open(&sample.tree()).unwrap_err()), Class::Verification);
}
