//! Archives in Docker's form.

use super::*;

/// A configuration whose layers are these tar streams.
fn config(layers: &[&[u8]], architecture: &str) -> Vec<u8> {
    let diff_ids: Vec<String> = layers.iter().map(|layer| Digest::of(layer).oci()).collect();
    let rootfs = json!({ "type": "layers", "diff_ids": diff_ids });
    json!({ "architecture": architecture, "os": "linux", "rootfs": rootfs }).to_string().into()
}

fn manifest(config: &str, tags: &[&str], layers: &[&str]) -> Vec<u8> {
    json!([{ "Config": config, "RepoTags": tags, "Layers": layers }]).to_string().into()
}

fn unpacked(place: &Place, blob: Digest) -> Vec<u8> {
    let bytes = place.blob(blob);
    let mut plain = Vec::new();
    crate::archive::compression::plain(bytes.as_slice()).unwrap().read_to_end(&mut plain).unwrap();
    plain
}

#[test]
fn skopeos_archive_keeps_its_configuration_and_gets_the_same_manifest_every_time() {
    let place = Place::new();
    place.layout();
    let target = format!("docker-archive:docker.tar:{NAME}");
    place.skopeo(&["copy", &format!("oci:made:{NAME}"), &target]);
    let archive = place.path("docker.tar");
    let image = place.image(&archive);
    let config = place.skopeo(&["inspect", "--config", "--raw", "docker-archive:docker.tar"]);
    assert_eq!(place.blob(image.config.digest), config);
    assert_eq!(image.name.to_string(), NAME);
    // The layers are those that the configuration names.
    let parsed: Value = serde_json::from_slice(&config).unwrap();
    let diff_ids: Vec<Value> =
        image.layers.iter().map(|blob| Digest::of(&unpacked(&place, blob.digest)).oci().into()).collect();
    assert_eq!(parsed["rootfs"]["diff_ids"], Value::Array(diff_ids));
    // In another store, and from an archive compressed otherwise, the bytes are the same.
    let bytes = read_file(&archive);
    for (name, bytes) in [("d.tar", bytes.clone()), ("d.tar.gz", gzip(&bytes)), ("d.tar.zst", zstd(&bytes))] {
        let other = Place::new();
        assert_eq!(other.image(&other.write(name, &bytes)), image, "{name}");
    }
    // skopeo accepts the image that was made.
    place.store.finish(std::slice::from_ref(&image)).unwrap();
    place.skopeo(&["copy", &format!("oci:store:{NAME}"), "dir:copied"]);
}

#[test]
fn several_images_and_names_share_layers_and_manifests() {
    let place = Place::new();
    place.layout();
    let source = format!("oci:made:{NAME}");
    let tag = "--additional-tag";
    place.skopeo(&["copy", tag, "docker.io/rancher/b:2", &source, &format!("docker-archive:two.tar:{NAME}")]);
    let imported = place.import(&place.path("two.tar"), &[]).unwrap();
    let names: Vec<_> = imported.images.iter().map(|image| image.name.to_string()).collect();
    assert_eq!(names, [NAME, "docker.io/rancher/b:2"]);
    assert_eq!(imported.images[0].manifest, imported.images[1].manifest);
    let one = place.import(&place.path("two.tar"), &["rancher/b:2"]).unwrap();
    assert_eq!(one.images, imported.images[1..]);
}

#[test]
fn links_between_layers_and_files_of_old_versions_are_understood() {
    let place = Place::new();
    let layer = tar_of(&[("etc/file", Part::File(&noise(5000)))]);
    let config = config(&[&layer, &layer, &layer], "amd64");
    let name = format!("{}.json", Digest::of(&config));
    let parts = [
        ("1/VERSION", Part::File(b"1.0".as_slice())),
        ("1/json", Part::File(b"{}")),
        ("1/layer.tar", Part::Symlink("../2/layer.tar")),
        ("2/layer.tar", Part::File(&layer)),
        ("3/layer.tar", Part::HardLink("2/layer.tar")),
        (&name, Part::File(&config)),
        ("repositories", Part::File(b"{}")),
        (
            "manifest.json",
            Part::File(&manifest(&name, &["app:1"], &["1/layer.tar", "2/layer.tar", "3/layer.tar"])),
        ),
    ];
    let image = place.image(&place.write("old.tar", &tar_of(&parts)));
    assert_eq!(image.name.to_string(), "docker.io/library/app:1");
    assert_eq!(image.config.digest, Digest::of(&config));
    assert!(image.layers.iter().all(|blob| *blob == image.layers[0]));
    assert_eq!(unpacked(&place, image.layers[0].digest), layer);
}

#[test]
fn layers_that_are_compressed_stay_as_they_are() {
    let place = Place::new();
    let layers = [b"1".as_slice(), b"2", b"3"].map(|content| tar_of(&[("file", Part::File(content))]));
    let config = config(&[&layers[0], &layers[1], &layers[2]], "amd64");
    let name = Digest::of(&config).oci();
    let (packed, tight) = (gzip(&layers[0]), zstd(&layers[1]));
    let parts = [
        (
            "manifest.json",
            Part::File(&manifest(&name, &["a.b/c:1"], &["x.tar.gz", "y.tar", "blobs/sha256/z"])[..]),
        ),
        (&name, Part::File(&config)),
        ("x.tar.gz", Part::File(&packed)),
        ("y.tar", Part::File(&tight)),
        ("blobs/sha256/z", Part::File(&layers[2])),
    ];
    let image = place.image(&place.write("packed.tar", &tar_of(&parts)));
    assert_eq!(place.blob(image.layers[0].digest), packed);
    assert_eq!(place.blob(image.layers[1].digest), tight);
    assert_eq!(unpacked(&place, image.layers[2].digest), layers[2]);
    let manifest: Value = serde_json::from_slice(&place.blob(image.manifest.blob.digest)).unwrap();
    let kinds: Vec<_> =
        manifest["layers"].as_array().unwrap().iter().map(|l| l["mediaType"].as_str().unwrap()).collect();
    assert!(
        kinds[0].ends_with("+gzip") && kinds[1].ends_with("+zstd") && kinds[2].ends_with("+zstd"),
        "{kinds:?}"
    );
}

#[test]
fn of_both_forms_in_one_archive_that_of_oci_counts() {
    let place = Place::new();
    let layer = tar_of(&[("file", Part::File(b"x"))]);
    let mut files = Files::default();
    let mut image = files.image("amd64", &layer);
    // As Docker names images since version 25.
    image["annotations"] =
        json!({ "io.containerd.image.name": NAME, "org.opencontainers.image.ref.name": "1" });
    let mut files = files.index(std::slice::from_ref(&image));
    let (config, blob) = (files.0[0].0.clone(), files.0[1].0.clone());
    files.0.push(("manifest.json".into(), manifest(&config, &[NAME], &[&blob])));
    let both = place.image(&place.write("both.tar", &files.tar()));
    assert_eq!(
        (both.name.to_string(), Value::from(both.manifest.blob.digest.oci())),
        (NAME.into(), image["digest"].clone())
    );
    // Without the index the same archive is in Docker's form.
    files.0.retain(|(path, _)| path != "index.json");
    let docker = place.image(&place.write("docker.tar", &files.tar()));
    assert_eq!(docker.config, both.config);
    assert_eq!(unpacked(&place, docker.layers[0].digest), layer);
}

#[test]
fn an_image_that_is_not_what_it_says_is_refused() {
    let place = Place::new();
    let layer = tar_of(&[("file", Part::File(b"x"))]);
    let good = config(&[&layer], "amd64");
    let name = format!("{}.json", Digest::of(&good));
    let archive = |config: &[u8], config_name: &str, layers: &[&str], content: &[u8]| {
        let manifest = manifest(config_name, &[NAME], layers);
        let parts = [
            ("manifest.json", Part::File(&manifest[..])),
            (config_name, Part::File(config)),
            ("l.tar", Part::File(content)),
        ];
        place.write("bad.tar", &tar_of(&parts))
    };
    let other = tar_of(&[("file", Part::File(b"y"))]);
    let verification = Class::Verification;
    place.refused(
        &archive(&good, &name, &["l.tar"], &other),
        &[],
        verification,
        &[NAME, "layer l.tar is damaged"],
    );
    place.refused(
        &archive(b"{}", &name, &["l.tar"], &layer),
        &[],
        verification,
        &[NAME, "configuration", "is damaged"],
    );
    place.refused(
        &archive(&good, &name, &["m.tar"], &layer),
        &[],
        verification,
        &[NAME, "m.tar is not in the archive"],
    );
    let cut = &gzip(&layer)[..30];
    place.refused(
        &archive(&good, &name, &["l.tar"], cut),
        &[],
        verification,
        &[NAME, "cannot be decompressed"],
    );
    place.refused(&archive(&good, &name, &[], &layer), &[], Class::Invalid, &[NAME, "0 layers", "names 1"]);
    let arm = config(&[&layer], "arm64");
    place.refused(&archive(&arm, "c", &["l.tar"], &layer), &[], Class::Invalid, &[NAME, "linux/arm64"]);
    place.refused(&archive(b"[]", "c", &["l.tar"], &layer), &[], Class::Invalid, &[NAME, "configuration"]);
}
