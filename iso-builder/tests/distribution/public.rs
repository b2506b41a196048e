//! The definitions that this project publishes: they ask for the public releases, and build from a release in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use iso_builder::definition::{Base, LoadedDefinition};
use iso_builder::kubernetes::texts::Artifacts;
use model::config::Distribution;
use serde_json::{Value, json};

use crate::release::{Place, k3s, publish, rke2};

/// Distributions whose releases have a program or an archive of an installation.
const BUILT_IN: [Distribution; 2] = [Distribution::Rke2, Distribution::K3s];

fn configs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/images")
}

fn published(distribution: Distribution) -> LoadedDefinition {
    let file = configs().join(format!("hypervisor-{}.yaml", distribution.name()));
    LoadedDefinition::read(&file).unwrap_or_else(|error| panic!("{}", base::failure::render(&error)))
}

fn packages(loaded: &LoadedDefinition) -> Vec<String> {
    let Base::Debian(base) = &loaded.definition.base else { panic!("a base of packages") };
    base.include.clone()
}

#[test]
fn they_ask_for_a_public_release_and_have_what_the_minimal_image_has() {
    let minimal = packages(&LoadedDefinition::read(&configs().join("minimal.yaml")).unwrap());
    for distribution in BUILT_IN {
        let loaded = published(distribution);
        let kubernetes = loaded.definition.kubernetes.as_ref().unwrap();
        assert_eq!(
            (kubernetes.distribution, kubernetes.version.distribution()),
            (distribution, distribution)
        );
        let Artifacts::Url(url) = kubernetes.artifacts(loaded.definition.architecture) else {
            panic!("a directory")
        };
        assert!(url.starts_with("https://github.com/") && url.contains("%2B"), "{url}");
        let own = packages(&loaded);
        let missing: Vec<_> = minimal.iter().filter(|package| !own.contains(package)).collect();
        assert!(missing.is_empty(), "{}: {missing:?}", distribution.name());
        for package in ["open-iscsi", "nfs-common", "iptables", "apparmor"] {
            assert!(own.iter().any(|known| known == package), "{package}");
        }
    }
}

#[test]
fn they_build_from_a_release_in_a_directory() {
    for distribution in BUILT_IN {
        let loaded = published(distribution);
        let version = loaded.definition.kubernetes.as_ref().unwrap().version.clone();
        let place = Place::new();
        let files = match distribution {
            Distribution::Rke2 => rke2(version.as_str(), &version.tag()),
            _ => k3s(version.as_str()),
        };
        publish(&place.path("release"), &files);
        // All but the base, for which this test would need a mirror and a long time.
        let mut definition = serde_json::to_value(&loaded.definition).unwrap();
        definition["kubernetes"]["artifacts"] = json!("release");
        definition["base"] = json!({ "archive": { "path": "base.tar" } });
        absolute(&mut definition);
        place.define(&definition);
        let tree = place.build();
        let defaults =
            fs::read_to_string(loaded.resolve(loaded.definition.install_defaults.as_ref().unwrap()));
        assert!(defaults.unwrap().contains(&format!("distribution: {}", distribution.name())));
        assert!(tree.join("usr/local/bin").join(distribution.name()).is_file());
    }
}

/// Makes the paths of a published definition such that a definition elsewhere may have them.
fn absolute(definition: &mut Value) {
    let whole = |path: &mut Value| *path = json!(configs().join(path.as_str().unwrap()));
    whole(&mut definition["install_defaults"]);
    definition["overlays"]["rootfs"].as_array_mut().unwrap().iter_mut().for_each(whole);
}
