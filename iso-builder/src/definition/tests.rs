//! Definitions with mistakes, and definitions in every form that they may have.

mod architectures;
mod extends;
mod variants;

use std::fs;
use std::path::Path;

use base::failure::{class_of, render};
use formats::minisign::SecretKey;
use model::architecture::Architecture;
use model::config::Invalid;
use model::rollback_index::RollbackIndex;
use proptest::prelude::*;

use super::chain::DefinitionText;
use super::formats::PathTarget;
use super::read::{ReadDefinition, ReadVariant, alone, parse};
use super::{Base, Definition, LoadedDefinition};

const REQUIRED_KEYS: &str = "id: a\nname: A\nversion: '1'\nbase: {debian: {include: [dash]}}\n";

/// Keys of every kind, in an order in which lines can be left out.
const ALL_KEYS: &str = "\
id: hypervisor
name: \"The Hypervisor\"
version: 1.0
architecture: amd64
profile: release
packages: {suite: trixie, mirrors: [deb http://deb.example.org trixie main]}
base:
  debian:
    include: [dash, 'curl=7.88.1-10', libc6]
overlays:
  rootfs: [here, there]
  initrd:
kernel: {arguments: [quiet, console=ttyS0]}
registries:
  Mirrors: {docker.io: {Endpoints: [https://mirror.example.org], rewrite: {'^a': b}}, other:}
  configs:
    mirror.example.org: {Auth: {Username: u, password: hunter2}, TLS: {insecureSkipVerify: yes}}
images:
  unpack: on
  preload:
  - name: localhost/a:1
    layers: [{packages: [dash]}, {packages: [curl]}]
    env: [A=b]
    roles: [worker]
  - {image: registry.example.org/app/web:1.2}
  - list: images.txt
  - {layout: dir, references: [a.b/c:1]}
  - {archive: a.tar, checksums: sums.txt}
kubernetes:
  distribution: rke2
  version: v1.33.1+rke2r1
  artifacts: https://example.org/files/
  images: [core, canal]
manifests: [{path: a.yaml, roles: [], images: require}]
charts:
- name: web
  path: charts/web
  namespace: web
  kube_version: 1.33.2
  api_versions: [batch/v1]
  values: ~
install_config: a.yaml
install_defaults:
";

fn nothing_else(path: &Path) -> anyhow::Result<DefinitionText> {
    anyhow::bail!("there is no {}", path.display())
}

/// The only image of a definition.
fn only(read: ReadDefinition) -> Definition {
    let [variant] = <[ReadVariant; 1]>::try_from(read.variants).unwrap();
    variant.definition
}

/// Reads a definition; its paths are relative to the current directory.
fn read(text: &str) -> Result<Definition, Invalid> {
    let search = |path: &Path, target: PathTarget| match target.is_at(path) {
        true => Ok(()),
        false => Err(path.to_owned()),
    };
    parse(alone(text), &nothing_else, &search).map(only)
}

/// Reads a definition whose files are all there.
fn read_form(text: &str) -> Result<Definition, Invalid> {
    parse(alone(text), &nothing_else, &|_, _| Ok(())).map(only)
}

fn told(text: &str) -> Vec<(usize, usize, String, Option<String>)> {
    let told = read(text).unwrap_err().0.into_iter();
    told.map(|told| (told.line, told.column, told.path, told.suggestion)).collect()
}

#[test]
fn five_mistakes_are_five_places_and_hints() {
    let text = "\
id: Hypervisor
nmae: The Hypervisor
name: The Hypervisor
version: '1'
profile: relaese
base:
  debian:
    include: [dash, --force]
overlays:
  rootfs: [/proc/absent]
";
    let hint = |text: &str| Some(text.to_owned());
    let expected = [
        (1, 5, "id".to_owned(), None),
        (2, 1, "nmae".to_owned(), hint("name")),
        (5, 10, "profile".to_owned(), hint("release")),
        (8, 21, "base.debian.include[1]".to_owned(), None),
        (10, 12, "overlays.rootfs[0]".to_owned(), None),
    ];
    assert_eq!(told(text), expected);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image.yaml");
    fs::write(&file, text).unwrap();
    let error = LoadedDefinition::read(&file).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 2);
    let shown = render(&error);
    for words in [
        "it has 5 mistakes",
        "image.yaml:2:1: unknown key `nmae` in the document [unknown-key]\n  2 | nmae: [hidden]\n    | ^^^^\n  try: name",
        "image.yaml:10:12: there is no directory /proc/absent [missing-file]",
        "`iso-builder schema` prints every key",
    ] {
        assert!(shown.contains(words), "{shown}");
    }
}

#[test]
fn what_contradicts_itself_is_told_at_its_place_beside_other_mistakes() {
    let text = format!(
        "{REQUIRED_KEYS}\
images:
  runtime: rke2
  preload:
  - {{image: a.b/c:1, list: x}}
  - {{list: /proc/absent, layers: [{{packages: []}}]}}
  - name: a.b/c@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881
    layers: []
  - {{image: A.b/C}}
  - {{roles: [wroker]}}
kubernetes: {{distribution: k3s, version: v1.33.1+rke2r1, images: [canal], artifacts: /proc/absent}}
manifests: [{{pth: x}}, {{path: /proc/absent}}]
"
    );
    let paths: Vec<_> = told(&text).into_iter().map(|(line, _, path, _)| (line, path)).collect();
    let expected = [
        (6, "images.runtime"),
        (8, "images.preload[0]"),
        (8, "images.preload[0].list"),
        (9, "images.preload[1].list"),
        (9, "images.preload[1].layers"),
        (9, "images.preload[1].layers[0].packages"),
        (10, "images.preload[2].name"),
        (11, "images.preload[2].layers"),
        (12, "images.preload[3].image"),
        (13, "images.preload[4].roles[0]"),
        (14, "kubernetes.version"),
        (14, "kubernetes.images"),
        (14, "kubernetes.artifacts"),
        (15, "manifests[0].pth"),
        (15, "manifests[1].path"),
    ];
    assert_eq!(paths, expected.map(|(line, path)| (line, path.to_owned())));
}

#[test]
fn keys_that_nodes_could_not_use_are_told_and_a_secret_one_is_not_shown() {
    let key = SecretKey::of_seed([1; 8], [1; 32]);
    let file = key.to_text("", None).unwrap();
    let (public, secret) = (key.public_key(), file.lines().nth(1).unwrap());
    let paths = |trust: &str| -> Vec<(usize, String)> {
        let text = format!("{REQUIRED_KEYS}trust:\n{trust}");
        told(&text).into_iter().map(|(line, _, path, _)| (line, path)).collect()
    };
    let forms = format!(
        "  keys: [{{name: c, key: {secret}}}, {{name: d, key: RWx}}]\n  \
         revoked: {{keys: [nonsense], releases: [sha256:00]}}\n"
    );
    let of_forms = [
        (6, "trust.keys[0].key"),
        (6, "trust.keys[1].key"),
        (7, "trust.revoked.keys[0]"),
        (7, "trust.revoked.releases[0]"),
    ];
    assert_eq!(paths(&forms), of_forms.map(|(line, path)| (line, path.to_owned())));
    let contradictions = format!(
        "  keys:\n  - {{name: a, key: {public}}}\n  - {{name: b, key: {public}}}\n  threshold: 0\n  \
         revoked: {{keys: [{}]}}\n",
        public.id()
    );
    let mut found = paths(&contradictions);
    found.dedup();
    let of_rules = [(7, "trust.keys[0].key"), (8, "trust.keys[1].key"), (9, "trust.threshold")];
    assert_eq!(found, of_rules.map(|(line, path)| (line, path.to_owned())));
    let text = format!("{REQUIRED_KEYS}trust:\n{forms}");
    let shown = read(&text).unwrap_err().to_string();
    assert!(shown.contains("is a secret key") && !shown.contains(secret), "{shown}");
    for wrong in ["-1", "4294967296", "1.5", "one"] {
        assert_eq!(paths(&format!("  rollback_index: {wrong}\n")), [(6, "trust.rollback_index".to_owned())]);
    }
    assert_eq!(paths("  customization: none\n"), [(6, "trust.customization".to_owned())]);
    let raised = read(&format!("{REQUIRED_KEYS}trust: {{rollback_index: 4294967295}}\n")).unwrap();
    assert_eq!(raised.trust.rollback_index, RollbackIndex(u32::MAX));
    let two = format!("{REQUIRED_KEYS}trust: {{keys: [{{name: a, key: {public}}}], threshold: 2}}\n");
    assert!(read(&two).unwrap_err().to_string().contains("2 signatures are demanded, and 1 can be made"));
}

#[test]
fn an_unknown_key_gets_the_key_that_was_meant_and_no_other_spelling_is_one() {
    for (line, hint) in [
        ("instal_config: x", Some("install_config")),
        ("installConfig: x", Some("install_config")),
        ("packages: {mirors: []}", Some("mirrors")),
        ("rootfs: [x]", Some("overlays.rootfs")),
        ("images: {preload: [{image: a.b/c:1, reference: []}]}", Some("references")),
        ("registries: {mirors: {}}", Some("mirrors")),
        ("runtime_version: 1", None),
        ("zebra: 1", None),
    ] {
        let told = read(&format!("{REQUIRED_KEYS}{line}\n")).unwrap_err().0;
        let [told] = &told[..] else { panic!("{line}: {told:?}") };
        assert_eq!((told.code, told.suggestion.as_deref()), ("unknown-key", hint), "{line}");
    }
}

#[test]
fn a_definition_has_what_it_needs_and_one_base() {
    for (text, paths) in [
        ("", &[""][..]),
        ("architecture: amd64\n", &["id", "name", "version", "base"]),
        ("id: a\nname:\n", &["version", "base", "name"]),
        ("id: a\nname: A\nversion: '1'\nbase:\n", &["base"]),
        ("id: a\nname: A\nversion: '1'\nbase: debian\n", &["base"]),
        ("id: a\nname: A\nversion: '1'\nbase: {}\n", &["base"]),
        ("id: a\nname: A\nversion: '1'\nbase: {debain: {include: [dash]}}\n", &["base.debain"]),
        ("id: a\nname: A\nversion: '1'\nbase: {debian: {include: []}, directory: {path: /}}\n", &["base"]),
        ("id: a\nname: A\nversion: '1'\nbase: {debian: {}}\n", &["base.debian.include"]),
    ] {
        let mut found: Vec<_> = told(text).into_iter().map(|(_, _, path, _)| path).collect();
        let mut expected: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn of_a_definition_with_very_many_mistakes_a_hundred_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image.yaml");
    let missing: Vec<_> = (0..1000).map(|number| format!("x{number}")).collect();
    let text = format!(
        "{{id: a, name: A, version: '1', base: {{debian: {{include: [aa]}}}}, overlays: {{rootfs: [{}]}}}}",
        missing.join(", ")
    );
    fs::write(&file, text).unwrap();
    let told = render(&LoadedDefinition::read(&file).unwrap_err());
    assert!(told.contains("no directory") && told.contains("and 900 more mistakes"), "{told}");
    assert_eq!(told.matches("there is no directory").count(), 100);
}

#[test]
fn no_secret_of_a_registry_is_shown() {
    let keys = "registries: {configs: {a.example.org: {Auth: {Password: hunter2, usrname: x}}}}\n";
    let shown = read(&format!("{REQUIRED_KEYS}{keys}")).unwrap_err().to_string();
    assert!(shown.contains("usrname") && !shown.contains("hunter2"), "{shown}");
    let shown = read(&format!("{REQUIRED_KEYS}{keys}  }}: [\n")).unwrap_err().to_string();
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn every_definition_of_the_repository_is_what_its_types_make_of_it_and_has_the_builders_version() {
    // Beside a release of Kubernetes, which `make kubernetes` has built in a repository or not.
    let place = tempfile::tempdir().unwrap();
    let repository = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    for release in ["kubernetes", "kubernetes-arm64"] {
        fs::create_dir_all(place.path().join("target").join(release)).unwrap();
    }
    std::os::unix::fs::symlink(repository.join("overlays"), place.path().join("overlays")).unwrap();
    let folder = place.path().join("configs/images");
    fs::create_dir_all(&folder).unwrap();
    let entries = fs::read_dir(repository.join("configs/images")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.filter(|name| name.ends_with(".yaml")).collect();
    for name in &names {
        fs::copy(repository.join("configs/images").join(name), folder.join(name)).unwrap();
    }
    let files = names.iter().filter(|name| !name.ends_with(".defaults.yaml")).map(|name| folder.join(name));
    let files: Vec<_> = files.collect();
    assert!(files.len() >= 3);
    for file in files {
        let loaded = LoadedDefinition::read(&file).unwrap();
        assert_eq!(loaded.definition.version, env!("CARGO_PKG_VERSION"), "{}", file.display());
        let text = super::show(&file, None).unwrap().yaml;
        let shown: Definition = serde_saphyr::from_str(&text).unwrap();
        let shown = shown.for_architecture(loaded.definition.architecture);
        assert_eq!(loaded.definition, shown, "{}", file.display());
        let packages = |base: &Base| match base {
            Base::Debian(base) => base.include.join(" "),
            _ => String::new(),
        };
        let (own, packages) = (loaded.definition.architecture, packages(&loaded.definition.base));
        for architecture in Architecture::ALL {
            let kernel = packages.contains(&format!("linux-image-{architecture}"));
            assert_eq!(kernel, architecture == own, "{}: {packages}", file.display());
        }
    }
}

#[test]
fn what_the_documentation_shows_as_an_image_definition_is_one() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let others = |path: &Path| {
        let path = repository.join("configs/images").join(path);
        let text = fs::read_to_string(&path)?;
        Ok(DefinitionText { name: path.display().to_string(), identity: path, text })
    };
    let mut count = 0;
    for (page, text) in testing::docs::pages() {
        for block in text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            if block.starts_with("# An image definition") {
                let read = parse(alone(block), &others, &|_, _| Ok(()));
                assert!(read.is_ok(), "{page}: {block}{}", read.unwrap_err());
                count += 1;
            }
        }
    }
    assert!(count >= 2, "{count}");
}

#[test]
fn every_form_that_the_types_accept_is_accepted_with_the_same_value() {
    same(ALL_KEYS);
    for more in [
        "kubernetes:\n",
        "kubernetes: null\ninstall_config: ~\n",
        "overlays:\nkernel:\nimages:\npackages:\nregistries:\n",
        "images: {preload: , unpack: 'no', runtime: }\n",
        "architecture: {amd64: }\n",
        "overlays: {rootfs: [&x a, *x], initrd: [*x]}\n",
        "x: &x {path: a.yaml}\n",
        "manifests: [&x {path: a.yaml, images: require}, {<<: *x, path: b.yaml}]\n",
        "install_config: !!str 5\n",
        "registries: {mirrors: {a: }, Auths: {b: {Auth: c}}, configs: {c: {tls: , auth: }}}\n",
        "registries: {Mirrors: , configs: , auths: }\n",
        "manifests: [~]\n",
        "images: {preload: [~]}\n",
        "profile: \"\"\n",
        "profile:\n",
        "overlays: {rootfs: [~]}\n",
        "packages: {suite: nUll}\n",
        "packages: {suite: 'null', mirrors: [1, true, 2.5]}\n",
        "kernel: {arguments: [[quiet]]}\n",
        "install_config: {path: x}\n",
        "install_config: [x]\n",
        "Kernel: {}\n",
        "kernel: {arguments: []}\nkernel: {arguments: []}\n",
        "registries: {mirrors: {}, Mirrors: {}}\n",
        "images: {unpack: 1}\n",
        "images: {unpack: \" Yes \"}\n",
        "---\n",
        "charts: [{name: a, path: b, version: 1.0, create_namespace: y, roles: }]\n",
        "charts: [{name: a, path: b, namespace: }]\n",
        "charts: [{name: a, path: b, values: , kube_version: , api_versions: }]\n",
        "images: {preload: [{name: a:1, layers: [{packages: [dash]}], image: , env: }]}\n",
    ] {
        same(&format!("{REQUIRED_KEYS}{more}"));
    }
}

/// Compares the reader with the types, by which alone definitions were read before: what they refuse is refused, and
/// what they accept is accepted with the same value unless a check of a value or a rule refuses it.
fn same(text: &str) {
    let types = serde_saphyr::from_str::<Definition>(text);
    match (read_form(text), types) {
        (Ok(definition), Ok(expected)) => assert_eq!(definition, expected, "{text}"),
        (Ok(_), Err(error)) => panic!("accepted, and the types say {error}:\n{text}"),
        (Err(_), Err(_)) => {}
        (Err(told), Ok(_)) => {
            let of_form = ["unknown-key", "wrong-type", "empty-value", "unknown-value", "invalid-value"];
            let of_form =
                [of_form.as_slice(), &["yaml-syntax", "yaml-unsupported", "duplicate-key"]].concat();
            assert!(!told.0.iter().any(|told| of_form.contains(&told.code)), "{told:?}\n{text}");
        }
    }
}

proptest! {
    #[test]
    fn reading_a_mutated_definition_never_panics_and_accepts_what_the_types_accept(
        at in 0..ALL_KEYS.len(),
        length in 0..12_usize,
        with in "[a-z:{}\\[\\],'&*~<# \n-]{0,6}",
    ) {
        let end = (at + length).min(ALL_KEYS.len());
        let text = format!("{}{with}{}", &ALL_KEYS[..at], &ALL_KEYS[end..]);
        same(&text);
    }

    #[test]
    fn reading_any_text_never_panics(text in "\\PC{0,200}") {
        let _ = read(&text);
    }
}

proptest! {
    #[test]
    fn extending_with_a_mutated_definition_never_panics_and_what_is_shown_is_the_same(
        at in 0..ALL_KEYS.len(),
        length in 0..12_usize,
        with in "[a-z:{}\\[\\],'&*~<# \n-]{0,6}",
        change in proptest::bool::ANY,
    ) {
        let end = (at + length).min(ALL_KEYS.len());
        let mutated = format!("{}{with}{}", &ALL_KEYS[..at], &ALL_KEYS[end..]);
        let own = if change { "extends: b\nbase: {debian: {include: {add: [aa], remove: [dash]}}}\n" } else { "extends: b\n" };
        let others = |_: &Path| Ok(DefinitionText { name: "b".into(), identity: "b".into(), text: mutated.clone() });
        if let Ok(read) = parse(alone(own), &others, &|_, _| Ok(())) {
            let shown = read.variants[0].shown(&read.chain).yaml;
            let again = read_form(&shown).map_err(|told| told.to_string());
            // The text of a definition for debugging has no secrets, as the one that is shown.
            prop_assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, String>(only(read))), "{}", shown);
        }
    }
}
