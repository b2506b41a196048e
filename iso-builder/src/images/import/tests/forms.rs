//! Archives and layouts in OCI form.

use super::*;

#[test]
fn a_layout_and_archives_of_it_give_the_image_that_skopeo_sees() {
    let place = Place::new();
    let layout = place.layout();
    place.skopeo(&["copy", &format!("oci:made:{NAME}"), &format!("oci-archive:plain.tar:{NAME}")]);
    let plain = read_file(&place.path("plain.tar"));
    let raw = place.skopeo(&["inspect", "--raw", &format!("oci:made:{NAME}")]);
    let image = place.image(&layout);
    assert_eq!(image.manifest.blob.digest, Digest::of(&raw));
    assert_eq!((image.name.to_string().as_str(), image.layers.len()), (NAME, 2));
    assert_eq!((image.roles.as_slice(), image.indexes.len()), (&[Role::Worker][..], 0));
    // File names with the ending of another compression.
    for (name, bytes) in [("a.tar.zst", gzip(&plain)), ("a.tgz", zstd(&plain)), ("a.gz", plain)] {
        assert_eq!(place.image(&place.write(name, &bytes)), image, "{name}");
    }
    let stored: Vec<Value> =
        serde_json::from_slice::<Value>(&raw).unwrap()["layers"].as_array().unwrap().clone();
    let digests = image.layers.iter().map(|blob| Value::from(blob.digest.oci()));
    assert!(digests.eq(stored.iter().map(|layer| layer["digest"].clone())), "blobs travel unchanged");
}

#[test]
fn zstd_layers_travel_unchanged() {
    let place = Place::new();
    place.layout();
    let target = format!("oci:packed:{NAME}");
    place.skopeo(&["copy", "--dest-compress-format", "zstd", &format!("oci:made:{NAME}"), &target]);
    let raw = place.skopeo(&["inspect", "--raw", &target]);
    let image = place.image(&place.path("packed"));
    assert_eq!(image.manifest.blob.digest, Digest::of(&raw));
    assert!(place.blob(image.layers[0].digest).starts_with(b"\x28\xb5\x2f\xfd"));
}

#[test]
fn a_store_that_was_imported_is_a_layout_that_skopeo_reads() {
    let place = Place::new();
    let image = place.image(&place.layout());
    place.store.finish(std::slice::from_ref(&image)).unwrap();
    let raw = place.skopeo(&["inspect", "--raw", &format!("oci:store:{NAME}")]);
    assert_eq!(Digest::of(&raw), image.manifest.blob.digest);
    place.skopeo(&["copy", &format!("oci:store:{NAME}"), "dir:copied"]);
}

#[test]
fn an_index_is_kept_and_the_image_of_the_platform_taken() {
    let place = Place::new();
    let mut files = Files::default();
    let images = ["arm64", "amd64"]
        .map(|name| for_platform(files.image(name, &tar_of(&[(name, Part::File(b"x"))])), name));
    let mut attestation =
        for_platform(files.document(OCI_MANIFEST, &json!({ "schemaVersion": 2 })), "unknown");
    attestation["platform"]["os"] = "unknown".into();
    let document = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [attestation, images[0], images[1]] });
    let index = files.document(OCI_INDEX, &document);
    let archive = place.write("index.tar", &files.clone().index(&[named(index.clone(), NAME)]).tar());
    let image = place.image(&archive);
    assert_eq!(Value::from(image.target().blob.digest.oci()), index["digest"]);
    assert_eq!((image.indexes.len(), &*image.indexes[0].media_type), (1, OCI_INDEX));
    assert_eq!(Value::from(image.manifest.blob.digest.oci()), images[1]["digest"]);
    // An index inside the index is followed, and an attestation or another variant in front of the image is passed over.
    let mut newer = for_platform(files.image("newer", &tar_of(&[("n", Part::File(b"n"))])), "amd64");
    newer["platform"]["variant"] = "v3".into();
    let inner =
        json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [attestation, newer, images[1]] });
    let inner = files.document(OCI_INDEX, &inner);
    let outer = files
        .document(OCI_INDEX, &json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [inner] }));
    let nested =
        place.image(&place.write("nested.tar", &files.clone().index(&[named(outer.clone(), NAME)]).tar()));
    let on_the_way: Vec<_> =
        nested.indexes.iter().map(|index| Value::from(index.blob.digest.oci())).collect();
    assert_eq!(on_the_way, [outer["digest"].clone(), inner["digest"].clone()]);
    assert_eq!(Value::from(nested.manifest.blob.digest.oci()), images[1]["digest"]);
    // The same from the directory, and what skopeo chooses there.
    place.run("mkdir", &["layout"]);
    place.run("tar", &["-xf", "index.tar", "-C", "layout"]);
    place.write("layout/oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#);
    assert_eq!(place.image(&place.path("layout")), image);
    let source = format!("oci:layout:{NAME}");
    let platform =
        ["--override-arch", "amd64", "--override-os", "linux", "--dest-oci-accept-uncompressed-layers"];
    place.skopeo(&[&["copy"], &platform[..], &[&source, "oci:one:x"]].concat());
    let raw = place.skopeo(&["inspect", "--raw", "oci:one:x"]);
    assert_eq!(Digest::of(&raw), image.manifest.blob.digest);
}

#[test]
fn platforms_may_stand_side_by_side_under_one_name() {
    let place = Place::new();
    let mut files = Files::default();
    let images = ["arm64", "amd64"].map(|name| named(for_platform(files.image(name, b""), name), NAME));
    let archive = place.write("side.tar", &files.clone().index(&images).tar());
    assert_eq!(Value::from(place.image(&archive).target().blob.digest.oci()), images[1]["digest"]);
    let again = named(for_platform(files.image("amd64", b"other"), "amd64"), NAME);
    let archive = place.write("two.tar", &files.clone().index(&[images[1].clone(), again]).tar());
    place.refused(&archive, &[], Class::Invalid, &[NAME, "2 images have this name"]);
    let archive = place.write("arm.tar", &files.index(&images[..1]).tar());
    place.refused(&archive, &[], Class::Invalid, &[NAME, "not for linux/amd64", "linux/arm64"]);
}

#[test]
fn references_choose_and_what_is_not_there_is_told() {
    let place = Place::new();
    let mut files = Files::default();
    let images = [b"one".as_slice(), b"two", b"three", b"four"].map(|layer| files.image("amd64", layer));
    let [one, two, tagged, unnamed] = images;
    let by_digest = format!("localhost/test/c@{}", unnamed["digest"].as_str().unwrap());
    let index = [named(one, NAME), named(two, "test/b:2"), named(tagged, "3"), unnamed];
    let archive = place.write("four.tar", &files.index(&index).tar());
    let names = |references: &[&str]| -> Vec<String> {
        let imported = place.import(&archive, references).unwrap();
        imported.images.iter().map(|image| image.name.to_string()).collect()
    };
    assert_eq!(names(&[]), [NAME, "docker.io/test/b:2"]);
    assert_eq!(place.import(&archive, &[]).unwrap().notes.len(), 2);
    let wanted = ["docker.io/test/b:2", "localhost/test/c:3", &by_digest];
    assert_eq!(names(&wanted), wanted);
    let words =
        ["no image localhost/test/a:2; it has: localhost/test/a:1", "docker.io/test/b:2", "without a name"];
    place.refused(&archive, &["localhost/test/a:2"], Class::Invalid, &words);
}

#[test]
fn an_archive_has_to_be_the_one_that_was_published() {
    let place = Place::new();
    let mut files = Files::default();
    let image = named(files.image("amd64", b"layer"), NAME);
    // Bytes at the end that no reader needs are part of the file's digest as well.
    let bytes = [zstd(&files.index(&[image]).tar()), zstd(b"")].concat();
    let archive = place.write("images.tar.zst", &bytes);
    let list = |digest: Digest, name: &str| place.write("sums.txt", format!("{digest}  {name}\n").as_bytes());
    let import = |list: &Path| {
        let mut read = 0;
        let wanted = ImageImport {
            path: &archive,
            references: &[],
            checksums: Some(list),
            architecture: "amd64",
            roles: &[],
        };
        super::super::import(&wanted, &place.store, &mut |bytes| read += bytes).map(|_| read)
    };
    assert_eq!(import(&list(Digest::of(&bytes), "images.tar.zst")).unwrap(), bytes.len() as u64);
    let refused = |list: PathBuf, word: &str| {
        let error = import(&list).unwrap_err();
        let told = base::failure::render(&error);
        assert_eq!(base::failure::class_of(&error), Class::Verification, "{told}");
        assert!(told.contains(word) && told.contains("images.tar.zst"), "{told}");
    };
    refused(list(Digest::of(b""), "images.tar.zst"), "is not the file whose checksum is in");
    refused(list(Digest::of(&bytes), "other.tar.zst"), "no checksum for images.tar.zst");
    place.write("images.tar.zst", &bytes[..bytes.len() / 2]);
    refused(list(Digest::of(&bytes), "images.tar.zst"), "is not the file whose checksum is in");
}
