//! Releases that do not fit together, and definitions that contradict themselves.

use std::fs;

use iso_builder::definition::ImageChoice;
use iso_builder::pipeline::{CheckOptions, InstallerChoice, check};
use serde_json::{Value, json};

use crate::release::{K3S, Place, RKE2, k3s, k3s_here, publish, rke2, rke2_here};

const BUILD: &[&str] = &["build", "--output", "/dev/null/out"];

/// A place with a whole release of RKE2 and a definition that asks for it.
fn place() -> Place {
    let place = Place::new();
    publish(&place.path("release"), &rke2(RKE2, "v1.33.1-rke2r1"));
    place.define(&rke2_here());
    place
}

/// [`rke2_here`] or [`k3s_here`] with another value.
fn with(mut keys: Value, key: &str, value: Value) -> Value {
    keys["kubernetes"][key] = value;
    keys
}

#[test]
fn a_file_that_is_not_the_one_of_the_checksums_is_named() {
    let place = place();
    let file = "rke2-images-canal.linux-amd64.tar.zst";
    fs::write(place.path("release").join(file), "something else").unwrap();
    place.refused(&["images"], 4, &[file, "is not the file of its release", "sha256sum-amd64.txt says"]);
}

#[test]
fn what_a_release_lacks_is_named() {
    let place = place();
    place.define(&with(rke2_here(), "images", json!(["core", "cilium", "calico"])));
    let words =
        ["no checksum for rke2-images-calico.linux-amd64.tar.zst", "rke2-images-cilium", "kubernetes.images"];
    place.refused(&["images"], 2, &words);
    place.define(&rke2_here());
    fs::remove_file(place.path("release/rke2.linux-amd64.tar.gz")).unwrap();
    place.refused(&["images"], 2, &["there is no file", "release/rke2.linux-amd64.tar.gz"]);
    fs::remove_file(place.path("release/sha256sum-amd64.txt")).unwrap();
    place.refused(&["images"], 2, &["reading the checksums of rke2 v1.33.1+rke2r1"]);
}

#[test]
fn only_the_archives_that_the_definition_names_are_needed() {
    let place = place();
    for name in ["canal", "multus"] {
        fs::remove_file(place.path("release").join(format!("rke2-images-{name}.linux-amd64.tar.zst")))
            .unwrap();
    }
    place.define(&with(rke2_here(), "images", json!(["core"])));
    assert_eq!(place.images(&[]).len(), 3);
}

#[test]
fn program_images_and_version_have_to_be_of_one_release() {
    for (files, told) in [
        (rke2("v1.33.2+rke2r1", "v1.33.1-rke2r1"), "its program contains these versions: v1.33.2+rke2r1"),
        (rke2("v1.33.1+rke2r10", "v1.33.1-rke2r1"), "v1.33.1+rke2r10"),
        (rke2(RKE2, "v1.33.2-rke2r1"), "they have docker.io/rancher/rke2-runtime:v1.33.2-rke2r1"),
    ] {
        let place = Place::new();
        publish(&place.path("release"), &files);
        place.define(&rke2_here());
        let output = place.path("out");
        let build = ["build", "--output", output.to_str().unwrap()];
        place.refused(&build, 2, &[told, "from one release", RKE2]);
    }
}

#[test]
fn a_program_of_another_release_is_known_before_the_build() {
    for (files, keys, found) in [
        (rke2("v1.33.2+rke2r1", "v1.33.1-rke2r1"), rke2_here(), "contains these versions: v1.33.2+rke2r1"),
        (k3s("v1.33.2+k3s1"), k3s_here(), "contains these versions: v1.33.2+k3s1"),
        (k3s(K3S), k3s_here(), "k3s v1.33.1+k3s1: 2 files in release"),
    ] {
        let place = Place::new();
        publish(&place.path("release"), &files);
        place.define(&keys);
        let installer = InstallerChoice::Named(vec![place.path("installer")]);
        let options = CheckOptions {
            definition: place.path("image.yaml"),
            images: ImageChoice::default(),
            installer,
            locked: false,
        };
        let report = check(&options).unwrap();
        let said = report.checks.iter().find(|check| check.part == "kubernetes").unwrap();
        assert!(said.message.contains(found), "{}", said.message);
    }
}

#[test]
fn archives_that_are_none_are_refused() {
    let place = place();
    let mut files = rke2(RKE2, "v1.33.1-rke2r1");
    files[0].1 = b"not found".to_vec();
    publish(&place.path("release"), &files);
    let output = place.path("out");
    let build = ["build", "--output", output.to_str().unwrap()];
    let ended = place.run(&build);
    assert!(
        ended.code == 2 && ended.told.contains("rke2.linux-amd64.tar.gz is not a readable tar"),
        "{ended:?}"
    );
    files[0].1 = k3s(K3S).remove(1).1;
    publish(&place.path("release"), &files);
    let ended = place.run(&build);
    assert!(ended.code == 2 && ended.told.contains("it has no bin/rke2"), "{ended:?}");
}

#[test]
fn a_definition_that_contradicts_itself_is_told_everything_at_once() {
    let place = place();
    let mut keys = with(k3s_here(), "version", json!(RKE2));
    keys["images"] = json!({ "runtime": "rke2" });
    keys["kubernetes"]["images"] = json!(["core"]);
    keys["kubernetes"]["artifacts"] = json!("absent");
    place.define(&keys);
    let words = [
        "v1.33.1+rke2r1 is a release of rke2, and `kubernetes.distribution` is k3s",
        "K3s has one archive of images; leave the key out",
        "it is k3s because `kubernetes.distribution` is; leave the key out",
        "there is no directory",
    ];
    place.refused(BUILD, 2, &words);
    place.define(&with(k3s_here(), "version", json!("1.33")));
    place.refused(BUILD, 2, &["the value is not a release of RKE2, K3s or Kubernetes"]);
    place.define(&with(k3s_here(), "artefacts", json!("x")));
    place.refused(BUILD, 2, &["unknown key `artefacts`", "try: artifacts"]);
    // A value that follows anyway may be given.
    publish(&place.path("release"), &k3s(K3S));
    let mut keys = with(k3s_here(), "version", json!(K3S));
    keys["images"] = json!({ "runtime": "k3s" });
    place.define(&keys);
    assert_eq!(place.images(&[]).len(), 2);
    // Nodes would look for RKE2, which is not there.
    keys.as_object_mut().unwrap().remove("install_defaults");
    place.define(&keys);
    place.refused(
        BUILD,
        2,
        &["the image contains k3s, but its installs would set up nodes of rke2", "install_defaults"],
    );
}
