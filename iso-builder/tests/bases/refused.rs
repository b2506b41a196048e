//! Broken inputs are refused with a cause, a hint and the documented exit code.

use std::fs;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::build::{BuildOutcome, INDEX, LAYER, Layout, build, for_platform};
use crate::entries::{archive, directory, file};

fn small() -> Vec<u8> {
    archive(&[directory("usr/"), directory("etc/"), file("etc/file", "content")])
}

fn build_archive(bytes: &[u8]) -> BuildOutcome {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("base.tar");
    fs::write(&path, bytes).unwrap();
    build(place.path(), &json!({ "archive": { "path": path } }))
}

#[test]
fn archives_that_are_damaged_or_something_else() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&small()).unwrap();
    let packed = packed.finish().unwrap();
    let cut = &packed[..packed.len() / 2];
    build_archive(cut).refused(
        "a cut gzip file",
        2,
        &["base.tar is not a readable tar archive", "gzip ended"],
    );
    let cut = &small()[..2 * 512 + 512 + 3];
    build_archive(cut).refused("a cut archive", 2, &["base.tar is not a readable tar archive"]);
    let text = "no archive\n".repeat(100);
    build_archive(text.as_bytes()).refused("a text", 2, &["base.tar is not a readable tar archive"]);
    let top = archive(&[directory("rootfs/"), directory("rootfs/usr/"), directory("rootfs/etc/")]);
    let words = ["is not a root file system", "at its top is: rootfs", "next: A base has at least"];
    build_archive(&top).refused("a tree that is deeper", 2, &words);
    let foreign = archive(&[directory("usr/").owner(1000, 1000), directory("etc/")]);
    build_archive(&foreign).refused(
        "a tree of another user",
        2,
        &["its /usr belongs to the user 1000", "next: "],
    );
    build_archive(b"").refused("an empty file", 2, &["is not a readable tar archive"]);
    let climbing = archive(&[directory("usr/"), directory("etc/"), file("../outside", "x")]);
    build_archive(&climbing).refused("a name that climbs", 2, &["../outside, which leads out of the tree"]);
}

#[test]
fn a_tree_without_anything_says_all_that_is_to_be_added() {
    let ended = build_archive(&small());
    for word in [
        "error: the base lacks what a node needs",
        "boot/vmlinuz-*",
        "next: Add these packages of Debian to the base: curl, dbus, dmsetup, dracut",
        "linux-image-amd64",
        "shim-signed",
    ] {
        assert!(ended.told.contains(word), "{}", ended.told);
    }
    assert_eq!(ended.code, 2);
}

/// A layout that `change` has made something of.
fn build_layout(change: impl FnOnce(&Layout) -> Value) -> BuildOutcome {
    let place = tempfile::tempdir().unwrap();
    let layout = Layout::new(&place.path().join("layout"));
    let base = change(&layout);
    build(place.path(), &base)
}

fn digest(descriptor: &Value) -> &str {
    descriptor["digest"].as_str().unwrap()
}

#[test]
fn layouts_with_damaged_or_missing_or_unknown_blobs() {
    let damaged = build_layout(|layout| {
        let layer = layout.blob(LAYER, &small());
        let mut bytes = small();
        bytes[600] ^= 1;
        fs::write(layout.blob_path(digest(&layer)), bytes).unwrap();
        layout.finish(&[layout.image("amd64", &[layer])])
    });
    damaged.refused(
        "a damaged layer",
        4,
        &["is damaged or missing", "its digest is", "next: Make the layout"],
    );
    let missing = build_layout(|layout| {
        let image = layout.image("amd64", &[]);
        fs::remove_file(layout.blob_path(digest(&image))).unwrap();
        layout.finish(&[image])
    });
    missing.refused("a missing manifest", 4, &["is damaged or missing", "No such file"]);
    let unknown = build_layout(|layout| {
        let layer = layout.blob("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", b"?");
        layout.finish(&[layout.image("amd64", &[layer])])
    });
    unknown.refused(
        "a layer of unknown type",
        2,
        &["cannot be unpacked", "+encrypted", "next: Name an image"],
    );
}

#[test]
fn layouts_that_do_not_say_which_image_or_have_none_for_this_platform() {
    let several = build_layout(|layout| {
        let images = ["one", "two"].map(|name| {
            let mut image = layout.image("amd64", &[layout.blob(LAYER, name.as_bytes())]);
            image["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
            image
        });
        layout.finish(&images)
    });
    several.refused("two images", 2, &["2 images match; its names are: one, two", "next: Name one of them"]);
    let foreign = build_layout(|layout| {
        let index =
            json!({ "schemaVersion": 2, "manifests": [for_platform(layout.image("arm64", &[]), "arm64")] });
        layout.finish(&[layout.document(INDEX, &index)])
    });
    foreign.refused("an index without amd64", 2, &["its platforms are: linux/arm64", "next: Copy the image"]);
    let only = build_layout(|layout| layout.finish(&[layout.image("arm64", &[])]));
    only.refused("an image for arm64", 2, &["it is for linux/arm64", "next: Copy the image"]);
}

#[test]
fn what_is_no_layout_says_what_it_may_be() {
    let docker = build_layout(|layout| {
        fs::write(layout.0.join("manifest.json"), "[]").unwrap();
        json!({ "oci": { "path": layout.0 } })
    });
    docker.refused(
        "docker's own archive",
        2,
        &["is not a readable OCI layout", "next: This is an archive in Docker"],
    );
    let tree = build_layout(|layout| {
        fs::create_dir(layout.0.join("usr")).unwrap();
        json!({ "oci": { "path": layout.0 } })
    });
    tree.refused("a tree", 2, &["next: This is a root file system"]);
    let garbage = build_layout(|layout| {
        fs::write(layout.0.join("index.json"), "{").unwrap();
        json!({ "oci": { "path": layout.0 } })
    });
    garbage.refused("an index that is no JSON", 2, &["is not a readable OCI layout", "index.json"]);
    let absent = build_layout(|_| json!({ "archive": { "path": "/no/such/file" } }));
    absent.refused("a path to nothing", 2, &["there is no file /no/such/file [missing-file]"]);
}
