//! Definitions that build on others.

use std::fs;
use std::path::Path;

use base::failure::render;
use serde_json::json;

use super::super::{Base, LoadedDefinition, OutputKind, show};

const PARENT: &str = "\
id: parent
name: Parent
version: '1'
packages: {suite: trixie, mirrors: [deb http://deb.example.org trixie main]}
base:
  debian:
    include: [dash, nano, curl=7.88.1-10]
overlays: {rootfs: [over]}
kernel: {arguments: [quiet]}
registries:
  Mirrors: {docker.io: {Endpoints: [https://one.example.org]}}
  configs: {one.example.org: {auth: {username: u, password: hunter2}, tls: {caFile: ca.pem}}}
images:
  preload:
  - {name: localhost/a:1, layers: [{packages: [dash]}]}
  - {image: registry.example.org/web:1, roles: [worker]}
kubernetes: {distribution: rke2, version: v1.33.1+rke2r1, artifacts: files, images: [core]}
install_defaults: defaults.yaml
";

/// A directory with `base/parent.yaml`, what that names, and `image.yaml`.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new(own: &str) -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        for directory in ["base/over", "base/files", "mine"] {
            fs::create_dir_all(bench.path().join(directory)).unwrap();
        }
        bench.write("base/parent.yaml", PARENT);
        for file in ["base/ca.pem", "base/defaults.yaml"] {
            bench.write(file, "");
        }
        bench.write("image.yaml", own);
        bench
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn load(&self) -> LoadedDefinition {
        LoadedDefinition::read(&self.path().join("image.yaml"))
            .unwrap_or_else(|error| panic!("{}", render(&error)))
    }

    /// The messages about the definition, without the directory.
    fn refusal(&self) -> String {
        let error = LoadedDefinition::read(&self.path().join("image.yaml")).unwrap_err();
        assert_eq!(base::failure::class_of(&error).exit_code(), 2);
        render(&error).replace(&format!("{}/", self.path().display()), "")
    }
}

fn packages(loaded: &LoadedDefinition) -> &[String] {
    let Base::Debian(base) = &loaded.definition.base else { panic!("a base of packages") };
    &base.include
}

#[test]
fn groups_are_merged_values_replaced_and_lists_changed() {
    let bench = Bench::new(
        "\
extends: base/parent.yaml
id: child
base: {debian: {include: {add: [htop, dash], remove: [nano, curl]}}}
overlays: {rootfs: {add: [mine]}}
kernel: {arguments: [debug]}
registries: {mirrors: {quay.io: {endpoint: [https://two.example.org]}}}
images:
  unpack: true
  preload: {remove: [localhost/a:1, {image: registry.example.org/web:1}], add: [{image: registry.example.org/db:2}]}
kubernetes: {images: {add: [canal]}}
install_defaults: ~
outputs: {add: [disk-raw]}
",
    );
    let loaded = bench.load();
    let definition = serde_json::to_value(&loaded.definition).unwrap();
    assert_eq!((&definition["id"], &definition["name"]), (&json!("child"), &json!("Parent")));
    assert_eq!(packages(&loaded), ["dash", "htop"]);
    assert_eq!(definition["overlays"]["rootfs"], json!(["base/over", "mine"]));
    assert_eq!(definition["kernel"]["arguments"], json!(["debug"]));
    let mirrors: Vec<_> = definition["registries"]["mirrors"].as_object().unwrap().keys().collect();
    assert_eq!(mirrors, ["docker.io", "quay.io"]);
    assert_eq!(definition["registries"]["configs"]["one.example.org"]["tls"]["ca_file"], "base/ca.pem");
    assert_eq!(definition["images"]["preload"], json!([{ "image": "registry.example.org/db:2" }]));
    assert_eq!(definition["kubernetes"]["images"], json!(["core", "canal"]));
    assert_eq!(definition["kubernetes"]["artifacts"], "base/files");
    assert_eq!(loaded.definition.install_defaults, None);
    let outputs = [OutputKind::Full, OutputKind::NetInstall, OutputKind::Netboot, OutputKind::DiskRaw];
    assert_eq!(loaded.definition.outputs, outputs);
    let extended: Vec<_> = loaded.extended.iter().map(|other| other.path.as_path()).collect();
    assert_eq!(extended, [Path::new("base/parent.yaml")]);
}

#[test]
fn another_kind_of_base_replaces_the_inherited_one_and_nothing_takes_a_part_away() {
    let bench =
        Bench::new("extends: base/parent.yaml\nbase: {directory: {path: mine}}\nkubernetes:\nregistries:\n");
    let definition = bench.load().definition;
    assert!(matches!(&definition.base, Base::Directory(base) if base.path == Path::new("mine")));
    assert!(definition.kubernetes.is_none() && definition.registries.is_empty());
}

#[test]
fn a_definition_extends_what_the_builder_has_and_what_extends_others() {
    let bench = Bench::new("extends: base/second.yaml\nversion: '3'\n");
    bench.write(
        "base/second.yaml",
        "extends: ../third.yaml\nid: second\nbase: {debian: {include: {add: [htop]}}}\ninstall_config: defaults.yaml\n",
    );
    bench.write("third.yaml", "extends: minimal\noverlays: {rootfs: [mine]}\n");
    let loaded = bench.load();
    assert_eq!((&*loaded.definition.id, &*loaded.definition.version), ("second", "3"));
    let packages = packages(&loaded);
    assert!(packages.contains(&"linux-image-amd64".to_owned()) && packages.contains(&"htop".to_owned()));
    let paths = serde_json::to_value(&loaded.definition).unwrap();
    assert_eq!(paths["overlays"]["rootfs"], json!(["base/../mine"]));
    assert_eq!(paths["install_config"], "base/defaults.yaml");
    let extended: Vec<_> = loaded.extended.iter().map(|other| other.path.to_str().unwrap()).collect();
    assert_eq!(extended, ["base/second.yaml", "base/../third.yaml", "minimal"]);
}

#[test]
fn a_mistake_is_reported_in_the_text_that_has_it() {
    let bench = Bench::new("extends: base/parent.yaml\nid: Child\nkernal: {}\n");
    bench.write(
        "base/parent.yaml",
        &PARENT.replace("suite: trixie", "siute: trixie").replace("[over]", "[gone]"),
    );
    let told = bench.refusal();
    for words in [
        "image.yaml:2:5: ",
        "image.yaml:3:1: unknown key `kernal`",
        "base/parent.yaml:4:12: unknown key `siute`",
        "base/parent.yaml:8:21: there is no directory base/gone [missing-file]",
        "it has 4 mistakes",
    ] {
        assert!(told.contains(words), "{words}:\n{told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
}

#[test]
fn what_extends_cannot_mean_is_reported_at_its_place() {
    for (own, place, words) in [
        ("extends: gone.yaml\n", "1:10", "the definition gone.yaml cannot be read: No such file"),
        ("extends: minimall\n", "1:10", "the builder itself has `minimal`"),
        ("extends: image.yaml\n", "1:10", "extend each other"),
        ("extends: [a, b]\n", "1:10", "expected the path of one definition, found a list"),
        ("extends: https://example.org/parent.yaml\n", "1:10", "a definition extends a file"),
        ("", "1:1", "the definition is empty; the shortest one is `extends: minimal`"),
        ("extends: base/parent.yaml\nbase: {packages: [htop]}\n", "2:8", "try: base.debian.include"),
        ("extends: base/parent.yaml\nbase:\n\tdebian: {}\n", "3:2", "indented with a tab"),
        ("extend: base/parent.yaml\n", "1:1", "try: extends"),
        (
            "extends: base/parent.yaml\nbase: {debian: {include: {remove: [nanoo]}}}\n",
            "2:36",
            "the inherited list has no such element; `iso-builder show DEFINITION` prints it [nothing-to-remove]",
        ),
        ("extends: base/parent.yaml\nbase: {debian: {include: {remove: [nanoo]}}}\n", "2:36", "try: nano"),
        (
            "extends: base/parent.yaml\nbase: {debian: {include: {add: [htop], delete: [nano]}}}\n",
            "2:40",
            "unknown key `delete` beside `add` and `remove`",
        ),
        ("extends: base/parent.yaml\nkernel: {arguments: {add: debug}}\n", "2:27", "expected a list"),
        ("extends: base/parent.yaml\nkernel: {arguments: {ad: [debug]}}\n", "2:21", "expected a list"),
        (
            "id: a\nname: A\nversion: '1'\nbase: {debian: {include: {add: [dash]}}}\n",
            "4:26",
            "this definition extends none; write a list",
        ),
    ] {
        let told = Bench::new(own).refusal();
        assert!(told.contains(&format!("image.yaml:{place}: ")) && told.contains(words), "{own}{told}");
    }
}

#[test]
fn definitions_that_extend_each_other_end() {
    let bench = Bench::new("extends: base/parent.yaml\n");
    bench.write("base/parent.yaml", "extends: ../image.yaml\n");
    let told = bench.refusal();
    assert!(told.contains("base/parent.yaml:1:10: the definitions extend each other"), "{told}");
    for number in 0..20 {
        bench.write(&format!("d{number}.yaml"), &format!("extends: d{}.yaml\n", number + 1));
    }
    bench.write("image.yaml", "extends: d0.yaml\n");
    assert!(bench.refusal().contains("a definition can extend 16 others at most"));
}

#[test]
fn what_show_prints_is_the_same_definition_and_says_where_values_are_from() {
    let own =
        "extends: base/parent.yaml\nid: child\nbase: {debian: {include: {add: [htop]}}}\nname: 'A: #1'\n";
    let bench = Bench::new(own);
    let shown = show(&bench.path().join("image.yaml"), None).unwrap();
    let text = shown.yaml.replace(&format!("{}/", bench.path().display()), "");
    for line in [
        "id: child",
        "name: \"A: #1\"",
        "    - dash  # base/parent.yaml:7",
        "    - htop",
        "  - name: localhost/a:1  # base/parent.yaml:15",
        "        password: \"[hidden]\"  # base/parent.yaml:12",
    ] {
        assert!(text.lines().any(|shown| shown.trim_start() == line.trim_start()), "{line}:\n{text}");
    }
    assert!(!text.contains("hunter2") && !shown.definition.to_string().contains("hunter2"), "{text}");
    let loaded = bench.load();
    bench.write("image.yaml", &text.replace("[hidden]", "hunter2"));
    assert_eq!(bench.load().definition, loaded.definition, "{text}");
}

#[test]
fn the_published_schema_takes_a_part_only_beside_extends() {
    let schema = super::super::published_schema();
    assert_eq!(schema["anyOf"][0], json!({ "required": ["extends"] }));
    let include = &schema["properties"]["base"]["oneOf"][0]["properties"]["debian"]["properties"]["include"];
    assert_eq!(include["anyOf"][0]["type"], "array");
    assert_eq!(include["anyOf"][1]["properties"]["add"]["items"]["type"], "string");
    assert!(schema["properties"]["kubernetes"].to_string().find("\"required\"").is_none(), "{schema:#}");
    // Elements of lists are whole.
    let charts = schema["properties"]["charts"]["anyOf"][0]["items"]["required"].to_string();
    assert!(charts.contains("name") && charts.contains("path"), "{charts}");
}
