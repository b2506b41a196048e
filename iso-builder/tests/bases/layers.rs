//! Layers over layers.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::build::{INDEX, LAYER, Layout, build, for_platform};
use crate::entries::{Entry, archive, directory, file, hard_link, link, read};

fn lower() -> Vec<Entry> {
    vec![
        directory("etc/"),
        file("etc/removed", "lower"),
        file("etc/one", "lower"),
        hard_link("etc/two", "etc/one"),
        directory("opaque/"),
        file("opaque/lower", "lower"),
        directory("opaque/below/"),
        directory("tofile/"),
        file("tofile/inside", "lower"),
        file("todirectory", "lower"),
        directory("usr/"),
        directory("usr/lib/"),
        link("lib", "usr/lib"),
        link("tolink", "etc"),
        directory("run/"),
        directory("var/"),
        link("var/run", "/run"),
        link("var/up", "../../../../run"),
    ]
}

/// Names and contents of the base that the layers make.
fn tree(layers: &[&[Entry]]) -> Vec<(String, String)> {
    let place = tempfile::tempdir().unwrap();
    let layers: Vec<_> = layers.iter().map(|entries| archive(entries)).collect();
    let base = build(place.path(), &Layout::of_layers(&place.path().join("layout"), &layers)).base();
    read(&base).into_values().map(|entry| (entry.name, entry.content)).collect()
}

fn has(tree: &[(String, String)], name: &str, content: &str) -> bool {
    tree.contains(&(name.to_owned(), content.to_owned()))
}

#[test]
fn whiteouts_hide_what_lower_layers_have_and_nothing_of_their_own() {
    let upper = [
        file("etc/.wh.removed", ""),
        file("etc/.wh.never-there", ""),
        directory("opaque/"),
        file("opaque/upper", "upper"),
        // After a file of the same layer, which stays.
        file("opaque/.wh..wh..opq", ""),
        file("lib/.wh.nothing", ""),
    ];
    let tree = tree(&[&lower(), &upper]);
    assert!(has(&tree, "./opaque/upper", "upper") && has(&tree, "./etc/one", "lower"));
    let hidden =
        |name: &str| ["removed", ".wh.", "opaque/lower", "below"].iter().any(|hidden| name.contains(hidden));
    assert!(!tree.iter().any(|(name, _)| hidden(name)), "{tree:?}");
}

#[test]
fn an_upper_layer_replaces_what_is_of_another_kind_and_only_the_name_it_has() {
    let upper = [
        file("tofile", "upper"),
        directory("todirectory/"),
        file("todirectory/inside", "upper"),
        directory("tolink/"),
        file("tolink/inside", "upper"),
        file("etc/one", "upper"),
    ];
    let tree = tree(&[&lower(), &upper]);
    for (name, content) in [
        ("./tofile", "upper"),
        ("./todirectory/inside", "upper"),
        ("./tolink/inside", "upper"),
        ("./etc/one", "upper"),
        // The other name of the file that the layer replaced.
        ("./etc/two", "lower"),
    ] {
        assert!(has(&tree, name, content), "{name}: {tree:?}");
    }
    assert!(!has(&tree, "./etc/inside", "upper") && !has(&tree, "./tofile/inside", "lower"));
}

#[test]
fn links_of_lower_layers_are_followed_inside_the_tree() {
    let marker = format!("nqrust-test-{}", std::process::id());
    let upper = [
        file("lib/module", "upper"),
        file(&format!("var/run/{marker}"), "upper"),
        file("var/up/climbed", "upper"),
    ];
    let tree = tree(&[&lower(), &upper]);
    assert!(has(&tree, "./usr/lib/module", "upper"), "{tree:?}");
    assert!(has(&tree, &format!("./run/{marker}"), "upper") && has(&tree, "./run/climbed", "upper"));
    assert!(
        has(&tree, "./var/run", "/run") && has(&tree, "./var/up", "../../../../run"),
        "the links are as before"
    );
    assert!(!Path::new("/run").join(&marker).exists(), "nothing was written to this host");
}

#[test]
fn a_layer_removes_and_links_nothing_outside_the_tree() {
    let place = tempfile::tempdir().unwrap();
    let canary = place.path().join("host/canary");
    fs::create_dir(canary.parent().unwrap()).unwrap();
    fs::write(&canary, "alive").unwrap();
    let host = canary.parent().unwrap().to_str().unwrap();
    let mut lowest = lower();
    lowest.push(link("host", host));
    for (case, entry, word) in [
        ("a whiteout through a link", file("host/.wh.canary", ""), "the base lacks what a node needs"),
        (
            "an opaque directory that is a link",
            file("host/.wh..wh..opq", ""),
            "the base lacks what a node needs",
        ),
        (
            "a hard link to a file of the host",
            hard_link("etc/stolen", "host/canary"),
            "is not a readable layer",
        ),
        ("a whiteout of the directory above", file(".wh...", ""), "names no file that it could hide"),
        ("a whiteout of nothing", file("etc/.wh.", ""), "names no file that it could hide"),
        ("a name that climbs", file("../../host/canary", "x"), "leads out of the tree"),
        ("a target that climbs", hard_link("etc/stolen", "../../host/canary"), "is not a readable layer"),
    ] {
        let layers = [archive(&lowest), archive(&[entry])];
        let ended = build(place.path(), &Layout::of_layers(&place.path().join("layout"), &layers));
        assert!(ended.code == 2 && ended.told.contains(word), "{case}: {}", ended.told);
        assert_eq!(fs::read_to_string(&canary).unwrap(), "alive", "{case}");
    }
}

#[test]
fn the_image_of_our_platform_is_taken_by_its_name() {
    let place = tempfile::tempdir().unwrap();
    let layout = Layout::new(&place.path().join("layout"));
    let image = |name: &str, architecture| {
        let layer =
            layout.blob(LAYER, &archive(&[directory("usr/"), directory("etc/"), file("etc/name", name)]));
        for_platform(layout.image(architecture, &[layer]), architecture)
    };
    let both = json!({ "schemaVersion": 2, "manifests": [image("wrong", "arm64"), image("right", "amd64")] });
    let mut named = layout.document(INDEX, &both);
    named["annotations"] = json!({ "org.opencontainers.image.ref.name": "wanted" });
    let mut base = layout.finish(&[image("other", "amd64"), named]);
    base["oci"]["reference"] = "wanted".into();
    assert_eq!(read(&build(place.path(), &base).base())["./etc/name"].content, "right");
}
