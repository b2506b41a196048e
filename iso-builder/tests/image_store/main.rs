//! Layers, images, store and containerd's database, made twice with a real containerd: the same bytes; and a
//! containerd that starts on them has every image. Needs the programs `containerd` and `ctr` on this machine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod pulled;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use iso_builder::bolt;
use iso_builder::images::containerd::Containerd;
use iso_builder::images::contents::LayerContents;
use iso_builder::images::image::{self};
use iso_builder::images::store::StoreContents;
use iso_builder::images::stored_image::StoredImage;
use iso_builder::images::{BuiltImage, Store, layer, metadata};

const EPOCH: u64 = 1_700_000_000;

/// A tar file with files of its own time, as a package manager would leave them.
fn tar_file(path: &Path, files: &[(&str, &[u8])], mtime: u64) {
    let mut builder = tar::Builder::new(File::create(path).unwrap());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(mtime);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.finish().unwrap();
}

fn spec(name: &str) -> BuiltImage {
    let cmd = vec!["/bin/tool".into()];
    BuiltImage { name: name.parse().unwrap(), layers: vec![], entrypoint: vec![], cmd, env: vec![] }
}

/// Two images that share their first layer, in a store below `root`.
fn build(root: &Path, mtime: u64) -> (Store, Vec<StoredImage>, StoreContents) {
    let store = Store::create(&root.join("store")).unwrap();
    let (base, more) = (root.join("base.tar"), root.join("more.tar"));
    // More than a pipe holds, so that the import is fed while it reads.
    let large: Vec<u8> =
        (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    tar_file(&base, &[("bin/tool", b"tool"), ("lib/large", &large)], mtime);
    tar_file(&more, &[("bin/more", b"more"), ("bin/tool", b"tool")], mtime);
    let (lower, upper) = (LayerContents::scan(&base).unwrap(), LayerContents::scan(&more).unwrap());
    let base = layer::write(&base, &lower, &LayerContents::default(), EPOCH, &store).unwrap();
    let more = layer::write(&more, &upper, &lower, EPOCH, &store).unwrap();
    let images: Vec<_> = [("localhost/test/a:1", &[base][..]), ("localhost/test/b:1", &[base, more])]
        .into_iter()
        .map(|(name, layers)| image::write(&spec(name), layers, "amd64", EPOCH, &store).unwrap())
        .collect();
    let listing = store.finish(&images).unwrap();
    (store, images, listing)
}

fn prepared(root: &Path, mtime: u64) -> (Vec<StoredImage>, StoreContents, Vec<u8>) {
    let (store, images, listing) = build(root, mtime);
    let containerd = Containerd::of_host(root, "amd64");
    let prepared = metadata::prepare(&containerd, &store, &images, EPOCH)
        .unwrap_or_else(|error| panic!("this test needs containerd and ctr to work here: {error:#}"));
    let database = prepared.database(&images).unwrap();
    (images, listing, database)
}

fn blob_names(root: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(root.join("store/blobs/sha256"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into())
        .collect();
    names.sort();
    names
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn two_builds_at_different_times_in_different_places_give_the_same_bytes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (images, listing, database) = prepared(one.path(), 1);
    let before = seconds();
    while seconds() == before {
        thread::sleep(Duration::from_millis(20));
    }
    let again = prepared(two.path(), 2);
    assert_eq!(again.1, listing);
    assert_eq!(again.2, database);
    assert_eq!(blob_names(one.path()), blob_names(two.path()));
    assert_eq!(listing.payloads.len(), 1 + 6, "the index, two manifests, two configurations, two layers");
    let tree = bolt::read(&database).unwrap();
    assert_eq!(tree.bucket(&["v1", "k8s.io", "content", "blob"]).unwrap().buckets.len(), 6);
    assert_eq!(
        tree.bucket(&["v1", "k8s.io", "images"]).unwrap().buckets.len(),
        2 * images.len(),
        "by tag and by digest"
    );
    assert_eq!(fs::read_dir(one.path()).unwrap().count(), 3, "containerd's directory is gone");
}

#[test]
fn a_containerd_that_starts_on_the_database_and_links_has_every_image_and_keeps_it() {
    let root = tempfile::tempdir().unwrap();
    let (images, _, database) = prepared(root.path(), 1);
    let store = Store::create(&root.path().join("store")).unwrap();
    Containerd::of_host(root.path(), "amd64").verify(&store, &images, &database).unwrap();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 3, "containerd's directory is gone");
}

#[test]
fn a_blob_damaged_before_the_import_is_found_after_it() {
    let root = tempfile::tempdir().unwrap();
    let (store, images, _) = build(root.path(), 1);
    fs::write(store.blob_path(images[0].config.digest), b"damaged").unwrap();
    let error =
        metadata::prepare(&Containerd::of_host(root.path(), "amd64"), &store, &images, EPOCH).unwrap_err();
    let text = base::failure::render(&error);
    let missing = format!("the blob {} is missing", images[0].config.digest);
    assert!(text.contains(&missing), "{text}");
}

#[test]
fn a_containerd_that_does_not_start_is_quoted() {
    let root = tempfile::tempdir().unwrap();
    let (store, images, _) = build(root.path(), 1);
    let mut containerd = Containerd::of_host(root.path(), "amd64");
    let version = containerd.version().unwrap();
    containerd.programs.prefix = vec![];
    containerd.programs.containerd = "false".into();
    let text = base::failure::render(&containerd.write(&version, &store, &images).unwrap_err());
    assert!(text.contains("before it answered"), "{text}");
    containerd.programs.containerd = "/no/such/containerd".into();
    for error in [containerd.write(&version, &store, &images).unwrap_err(), containerd.version().unwrap_err()]
    {
        let text = base::failure::render(&error);
        assert!(text.contains("next: Install the packages containerd"), "{text}");
    }
}

#[test]
fn a_path_too_long_for_a_socket_is_named() {
    let root = tempfile::tempdir().unwrap();
    let (store, images, _) = build(root.path(), 1);
    let mut containerd = Containerd::of_host(root.path(), "amd64");
    let version = containerd.version().unwrap();
    containerd.scratch_inside = root.path().join("x".repeat(100));
    let text = base::failure::render(&containerd.write(&version, &store, &images).unwrap_err());
    assert!(text.contains("too long for containerd's socket"), "{text}");
}
