//! Definitions for several architectures.

use std::fs;
use std::path::{Path, PathBuf};

use base::failure::{Class, class_of, render};
use model::architecture::Architecture::{self, Amd64, Arm64};

use super::super::{Base, ImageChoice, LoadedDefinition, show};
use crate::kubernetes::texts::Artifacts;

const REST: &str = "id: edge\nname: Edge\nversion: '1'\n\
                    base: {debian: {include: [dash, 'grub-pc-bin [amd64]', 'nano [arm64]']}}\n";

/// A directory with `image.yaml`, and `parent.yaml` that it can extend.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new(own: &str, parent: &str) -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        fs::write(bench.file("image.yaml"), own).unwrap();
        fs::write(bench.file("parent.yaml"), format!("{REST}{parent}")).unwrap();
        bench
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn each(&self) -> Vec<LoadedDefinition> {
        let read = LoadedDefinition::read_each(&self.file("image.yaml"), &ImageChoice::default());
        read.unwrap_or_else(|error| panic!("{}", render(&error)))
    }

    fn refusal(&self, only: Option<Architecture>) -> String {
        let error = LoadedDefinition::read_each(&self.file("image.yaml"), &only_for(only)).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        render(&error)
    }
}

fn only_for(architecture: Option<Architecture>) -> ImageChoice {
    ImageChoice { architecture, ..ImageChoice::default() }
}

fn architectures(own: &str, parent: &str) -> Vec<Architecture> {
    let each = Bench::new(own, parent).each();
    each.iter().map(|loaded| loaded.definition.architecture).collect()
}

#[test]
fn each_architecture_has_its_packages_and_its_lock_file() {
    let bench = Bench::new(&format!("architectures: [arm64, amd64]\n{REST}"), "");
    let each = bench.each();
    let packages = |loaded: &LoadedDefinition| match &loaded.definition.base {
        Base::Debian(base) => base.include.join(" "),
        _ => panic!("a base of packages"),
    };
    assert_eq!(each.iter().map(packages).collect::<Vec<_>>(), ["dash nano", "dash grub-pc-bin"]);
    let own: Vec<_> = each.iter().map(|loaded| loaded.definition.own_architecture()).collect();
    assert_eq!(own, [Some(Arm64), Some(Amd64)]);
    let locks: Vec<_> = each.iter().map(crate::lock::Lock::path_of).collect();
    assert_eq!(locks, [bench.file("image.yaml.arm64.lock"), bench.file("image.yaml.amd64.lock")]);
}

#[test]
fn a_definition_without_the_list_is_for_one_architecture_and_its_lock_file_has_the_name_that_it_always_had() {
    let bench = Bench::new(&format!("architecture: arm64\n{REST}"), "");
    let [loaded] = &bench.each()[..] else { panic!("several") };
    assert_eq!((loaded.definition.architecture, loaded.definition.own_architecture()), (Arm64, None));
    assert_eq!(crate::lock::Lock::path_of(loaded), bench.file("image.yaml.lock"));
}

#[test]
fn one_architecture_of_several_can_be_named_and_another_is_refused() {
    let bench = Bench::new(&format!("architectures: [amd64, arm64]\n{REST}"), "");
    let file = bench.file("image.yaml");
    let one = LoadedDefinition::read_one(&file, &only_for(Some(Arm64))).unwrap();
    assert_eq!(one.definition.architecture, Arm64);
    let told = render(&LoadedDefinition::read(&file).unwrap_err());
    assert!(told.contains("for more than one architecture") && told.contains("--architecture"), "{told}");
    let told = Bench::new(REST, "").refusal(Some(Arm64));
    assert!(told.contains("is not for arm64") && told.contains("it is for amd64"), "{told}");
    assert!(told.contains("architectures: [amd64, arm64]"), "{told}");
}

#[test]
fn lists_that_nobody_can_mean_are_refused_with_their_place() {
    for (own, told) in [
        ("architectures: []", "the list names no architecture; write [amd64, arm64]"),
        ("architectures: [amd64, arm64, amd64]", "amd64 is in the list twice"),
        ("architectures: [amd64, riscv64]", "riscv64"),
        ("architectures: [amd64]\narchitecture: amd64", "leave out one of the two keys"),
        ("archs: [amd64]", "architectures"),
    ] {
        let refusal = Bench::new(&format!("{own}\n{REST}"), "").refusal(None);
        assert!(refusal.contains(told), "{own}: {refusal}");
        assert!(refusal.contains("image.yaml:1:") || refusal.contains("image.yaml:2:"), "{own}: {refusal}");
    }
    let refusal = Bench::new(&format!("architectures: [x86_64, aarch64]\n{REST}"), "").refusal(None);
    assert!(refusal.contains("amd64") && refusal.contains("arm64"), "{refusal}");
}

#[test]
fn a_definition_replaces_the_architectures_that_it_inherits_by_either_key_and_can_add_to_them() {
    for (own, parent, expected) in [
        ("architectures: [amd64, arm64]", "architecture: arm64", vec![Amd64, Arm64]),
        ("architecture: arm64", "architectures: [amd64, arm64]", vec![Arm64]),
        ("name: Other", "architectures: [amd64, arm64]", vec![Amd64, Arm64]),
        ("architectures: {add: [arm64]}", "", vec![Amd64, Arm64]),
        ("architectures: {add: [amd64]}", "architecture: arm64", vec![Arm64, Amd64]),
        ("architectures: {remove: [amd64]}", "architectures: [amd64, arm64]", vec![Arm64]),
    ] {
        assert_eq!(architectures(&format!("extends: parent.yaml\n{own}"), parent), expected, "{own}");
    }
}

#[test]
fn the_place_of_a_release_of_kubernetes_can_have_the_name_of_the_architecture() {
    let text = format!(
        "architectures: [amd64, arm64]\n{REST}\
         kubernetes: {{distribution: kubeadm, version: v1.37.2, artifacts: 'k8s-{{architecture}}'}}\n"
    );
    let bench = Bench::new(&text, "");
    fs::create_dir(bench.file("k8s-amd64")).unwrap();
    let told = bench.refusal(None);
    assert!(told.contains("k8s-arm64") && !told.contains("k8s-amd64"), "{told}");
    fs::create_dir(bench.file("k8s-arm64")).unwrap();
    let places: Vec<_> = bench
        .each()
        .into_iter()
        .map(|loaded| loaded.definition.kubernetes.unwrap().artifacts(loaded.definition.architecture))
        .collect();
    let expected = ["k8s-amd64", "k8s-arm64"].map(|name| Artifacts::Directory(Path::new(name).into()));
    assert_eq!(places, expected);
}

#[test]
fn what_is_shown_has_the_list_and_the_packages_of_all_architectures() {
    let bench = Bench::new("extends: parent.yaml\narchitectures: [amd64, arm64]", "architecture: arm64");
    let shown = show(&bench.file("image.yaml"), None).unwrap();
    assert!(
        shown.yaml.contains("architectures:\n  - amd64\n  - arm64") && !shown.yaml.contains("architecture:")
    );
    assert_eq!(shown.definition["architectures"], serde_json::json!(["amd64", "arm64"]));
    assert_eq!(shown.definition.get("architecture"), None);
    assert!(shown.definition["base"].to_string().contains("nano [arm64]"), "{}", shown.definition);
}
