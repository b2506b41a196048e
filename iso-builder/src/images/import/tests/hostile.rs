//! Archives that are damaged, or made to attack the reader.

use super::*;

#[test]
fn blobs_that_are_missing_damaged_or_of_another_kind_name_archive_and_image() {
    let place = Place::new();
    let mut files = Files::default();
    let image = named(files.image("amd64", b"layer"), NAME);
    let files = files.index(std::slice::from_ref(&image));
    let changed = |change: &dyn Fn(&mut Files)| {
        let mut files = files.clone();
        change(&mut files);
        place.write("bad.tar", &files.tar())
    };
    let refused = |archive: PathBuf, class, words: &[&str]| {
        place.refused(&archive, &[], class, &[words, &[NAME]].concat());
    };
    let verification = Class::Verification;
    // In the order in which they were made: configuration, layer, manifest.
    for blob in 0..3 {
        refused(changed(&|files| drop(files.0.remove(blob))), verification, &["is not in the archive"]);
        refused(changed(&|files| files.0[blob].1.push(b' ')), verification, &["its digest is sha256:"]);
    }
    let index = |size: Value, digest: Value| {
        let mut image = image.clone();
        (image["size"], image["digest"]) = (size, digest);
        changed(&move |files| {
            files.0[3].1 = json!({ "schemaVersion": 2, "manifests": [image] }).to_string().into()
        })
    };
    refused(index(1.into(), image["digest"].clone()), verification, &["was announced with 1"]);
    let sha512 = format!("sha512:{}", "0".repeat(128));
    let other = index(1.into(), sha512.into());
    place.refused(&other, &[], Class::Invalid, &["index.json", "sha512", "64 digits"]);
    let listed = Digest::of(b"layer").oci();
    refused(index(5.into(), listed.into()), Class::Invalid, &["it is not the manifest of an image"]);
}

#[test]
fn what_is_no_image_is_told_from_one() {
    let place = Place::new();
    let mut files = Files::default();
    let config = files.blob("application/vnd.cncf.helm.config.v1+json", b"{}");
    let chart = json!({ "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [] });
    let chart = named(files.document(OCI_MANIFEST, &chart), NAME);
    let archive = place.write("chart.tar", &files.index(&[chart]).tar());
    place.refused(&archive, &[], Class::Invalid, &[NAME, "not a container image", "helm"]);
}

#[test]
fn paths_and_links_that_lead_out_lead_nowhere() {
    let place = Place::new();
    let secret = place.write("secret", b"secret");
    for path in ["../outside", "blobs/../../outside", "/outside"] {
        let archive = place.write("climb.tar", &tar_of(&[(path, Part::File(b"x"))]));
        place.refused(&archive, &[], Class::Invalid, &["leads out of the archive"]);
    }
    let manifest = br#"[{"Config": "c.json", "RepoTags": ["a:1"], "Layers": []}]"#;
    for link in
        [Part::Symlink("../secret"), Part::Symlink(secret.to_str().unwrap()), Part::HardLink("../secret")]
    {
        let bytes = tar_of(&[("c.json", link), ("manifest.json", Part::File(manifest))]);
        place.refused(
            &place.write("link.tar", &bytes),
            &[],
            Class::Invalid,
            &["library/a:1", "leads out of the archive"],
        );
    }
    let circle = [
        ("c.json", Part::Symlink("d")),
        ("d", Part::Symlink("c.json")),
        ("manifest.json", Part::File(manifest)),
    ];
    place.refused(&place.write("circle.tar", &tar_of(&circle)), &[], Class::Invalid, &["form a loop"]);
    assert!(!place.path("outside").exists() && !place.path("store/outside").exists());
}

#[test]
fn one_path_twice_has_to_be_the_same_twice() {
    let place = Place::new();
    let mut files = Files::default();
    let image = named(files.image("amd64", b"layer"), NAME);
    let mut files = files.index(&[image]);
    let first = files.0[0].clone();
    files.0.push(first);
    place.image(&place.write("same.tar", &files.tar()));
    for path in [files.0[1].0.clone(), "index.json".to_owned()] {
        let mut files = files.clone();
        files.0.push((path, b"other".to_vec()));
        place.refused(
            &place.write("twice.tar", &files.tar()),
            &[],
            Class::Invalid,
            &["the archive has it twice"],
        );
    }
}

#[test]
fn what_has_no_bounds_is_bounded() {
    let place = Place::new();
    let large = vec![b' '; usize::try_from(MAX_DOCUMENT_BYTES).unwrap() + 1];
    for name in ["index.json", "manifest.json"] {
        let archive = place.write("large.tar", &tar_of(&[(name, Part::File(&large))]));
        place.refused(&archive, &[], Class::Invalid, &[name, "larger than 4194304 bytes"]);
    }
    // 64 MiB of zeros behind the archive, in a few bytes.
    let bomb = zstd(&[tar_of(&[("x", Part::File(b"x"))]), vec![0; 64 << 20]].concat());
    assert!(bomb.len() < 1 << 16);
    place.refused(&place.write("bomb.tar", &bomb), &[], Class::Invalid, &["follows the end"]);
}

#[test]
fn what_is_no_archive_says_what_is_wrong() {
    let place = Place::new();
    let good = Files::default().index(&[]).tar();
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("empty", vec![], "neither index.json nor manifest.json"),
        ("text", b"no archive\n".repeat(100), "not a tar archive"),
        ("cut", good[..520].to_vec(), "it is truncated"),
        ("cut.gz", gzip(&noise(4000))[..2000].to_vec(), "not a tar archive"),
        ("cut.zst", zstd(&good)[..20].to_vec(), "not a readable archive"),
        ("xz", b"\xfd7zXZ\0".to_vec(), "compressed with xz"),
        ("none", good, "it has no image"),
    ];
    for (name, bytes, word) in cases {
        place.refused(&place.write(name, &bytes), &[], Class::Invalid, &[word]);
    }
    place.refused(&place.path("absent"), &[], Class::Invalid, &["Correct the path"]);
    place.refused(place.store.root(), &[], Class::Invalid, &["no index.json"]);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    #[test]
    fn a_damaged_archive_is_refused_or_gives_the_same_image(at in 0..8000_usize, byte: u8) {
        let place = Place::new();
        let mut files = Files::default();
        let image = named(files.image("amd64", b"layer"), NAME);
        let mut bytes = files.index(&[image]).tar();
        let good = place.image(&place.write("good.tar", &bytes));
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        if let Ok(imported) = place.import(&place.write("bad.tar", &bytes), &[]) {
            let manifests = imported.images.iter().map(|image| &image.manifest.blob);
            proptest::prop_assert!(manifests.eq([&good.manifest.blob]));
        }
    }
}
