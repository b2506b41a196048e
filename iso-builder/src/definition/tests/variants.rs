//! Definitions with variants.

use std::fs;
use std::path::PathBuf;

use base::failure::{Class, class_of, render};
use model::architecture::Architecture::{Amd64, Arm64};

use super::super::read::{alone, parse};
use super::super::{Base, ImageChoice, LoadedDefinition, OutputKind, published_schema, show};
use crate::lock::Lock;

/// What all variants have.
const COMMON: &str = "\
id: edge
name: Edge
version: '1'
base: {debian: {include: [dash, nano]}}
kernel: {arguments: [quiet]}
";

/// A directory with `image.yaml`, and `site.yaml` that it can name.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new(definition: &str) -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        fs::write(bench.file("image.yaml"), definition).unwrap();
        fs::write(bench.file("site.yaml"), "").unwrap();
        bench
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn each(&self, choice: &ImageChoice) -> Vec<LoadedDefinition> {
        let read = LoadedDefinition::read_each(&self.file("image.yaml"), choice);
        read.unwrap_or_else(|error| panic!("{}", render(&error)))
    }

    /// What is told of the definition, without the directory.
    fn refusal(&self, choice: &ImageChoice) -> String {
        let error = LoadedDefinition::read_each(&self.file("image.yaml"), choice).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        render(&error).replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn only(variants: &[&str]) -> ImageChoice {
    ImageChoice { architecture: None, variants: variants.iter().map(|name| (*name).to_owned()).collect() }
}

fn packages(loaded: &LoadedDefinition) -> String {
    match &loaded.definition.base {
        Base::Debian(base) => base.include.join(" "),
        _ => panic!("a base of packages"),
    }
}

const SITES: &str = "\
variants:
  plain:
  berlin:
    name: Edge in Berlin
    install_defaults: site.yaml
    base: {debian: {include: {add: [curl], remove: [nano]}, firmware: none}}
  lab:
    kernel: {arguments: [debug]}
    outputs: [disk-raw]
    architectures: [amd64, arm64]
";

#[test]
fn each_variant_is_the_rest_of_the_definition_with_what_differs() {
    let bench = Bench::new(&format!("{COMMON}{SITES}"));
    let each = bench.each(&ImageChoice::default());
    let images: Vec<_> = each
        .iter()
        .map(|loaded| (loaded.variant.as_deref().unwrap(), loaded.definition.architecture, packages(loaded)))
        .collect();
    assert_eq!(
        images,
        [
            ("plain", Amd64, "dash nano".to_owned()),
            ("berlin", Amd64, "dash curl".to_owned()),
            ("lab", Amd64, "dash nano".to_owned()),
            ("lab", Arm64, "dash nano".to_owned()),
        ]
    );
    let [plain, berlin, lab, _] = &each[..] else { panic!("{images:?}") };
    let defaults = |loaded: &LoadedDefinition| loaded.definition.install_defaults.clone();
    assert_eq!((defaults(plain), defaults(berlin)), (None, Some(PathBuf::from("site.yaml"))));
    assert_eq!((&*plain.definition.name, &*berlin.definition.name), ("Edge", "Edge in Berlin"));
    assert_eq!(lab.definition.kernel.arguments, ["debug"]);
    assert_eq!(lab.definition.outputs, [OutputKind::DiskRaw]);
    let locks: Vec<_> = each.iter().map(Lock::path_of).collect();
    let names = ["plain", "berlin", "lab.amd64", "lab.arm64"];
    assert_eq!(locks, names.map(|name| bench.file(&format!("image.yaml.{name}.lock"))));
    assert!(each.iter().all(|loaded| loaded.digest == plain.digest), "one text");
}

#[test]
fn a_variant_is_the_same_as_a_definition_that_extends_the_rest() {
    let bench = Bench::new(&format!("{COMMON}{SITES}"));
    fs::write(bench.file("common.yaml"), COMMON).unwrap();
    for name in ["berlin", "lab"] {
        let begin = SITES.find(&format!("  {name}:\n")).unwrap() + name.len() + 4;
        let part: String = SITES[begin..]
            .lines()
            .take_while(|line| line.starts_with("    "))
            .map(|line| format!("{}\n", &line[4..]))
            .collect();
        fs::write(bench.file("own.yaml"), format!("extends: common.yaml\n{part}")).unwrap();
        let own = LoadedDefinition::read_each(&bench.file("own.yaml"), &ImageChoice::default()).unwrap();
        let variant = bench.each(&only(&[name]));
        let definitions =
            |all: &[LoadedDefinition]| all.iter().map(|loaded| loaded.definition.clone()).collect::<Vec<_>>();
        assert_eq!(definitions(&variant), definitions(&own), "{name}");
    }
}

#[test]
fn variants_are_named_one_by_one_and_what_is_not_there_is_told() {
    let bench = Bench::new(&format!("{COMMON}{SITES}"));
    let names = |choice: &ImageChoice| {
        bench.each(choice).into_iter().map(|loaded| loaded.own_names().join(".")).collect::<Vec<_>>()
    };
    assert_eq!(names(&only(&["lab", "berlin"])), ["berlin", "lab.amd64", "lab.arm64"], "in their order");
    let arm64 = ImageChoice { architecture: Some(Arm64), ..ImageChoice::default() };
    assert_eq!(names(&arm64), ["lab.arm64"], "the others are not for it");
    let told = bench.refusal(&only(&["berlim"]));
    assert!(told.contains("image.yaml has no variant berlim"), "{told}");
    assert!(told.contains("plain, berlin and lab") && told.contains("Did you mean berlin?"), "{told}");
    let told = bench.refusal(&ImageChoice { architecture: Some(Arm64), ..only(&["plain"]) });
    assert!(told.contains("is not for arm64"), "{told}");
    let file = bench.file("image.yaml");
    let told = render(&LoadedDefinition::read(&file).unwrap_err());
    assert!(told.contains("more than one variant") && told.contains("--variant plain"), "{told}");
    assert_eq!(LoadedDefinition::read_one(&file, &only(&["berlin"])).unwrap().variant.unwrap(), "berlin");
    let told = Bench::new(COMMON).refusal(&only(&["berlin"]));
    assert!(told.contains("it has no variants"), "{told}");
}

#[test]
fn variants_of_a_definition_that_is_extended_are_not_inherited() {
    let bench = Bench::new("extends: parent.yaml\nversion: '2'\n");
    fs::write(bench.file("parent.yaml"), format!("{COMMON}{SITES}")).unwrap();
    let [loaded] = &bench.each(&ImageChoice::default())[..] else { panic!("several") };
    assert_eq!((&loaded.variant, &*loaded.definition.version), (&None, "2"));
    let bench = Bench::new("extends: parent.yaml\nvariants:\n  a: {version: '3'}\n  b: {overlays: {}}\n");
    fs::write(bench.file("parent.yaml"), format!("{COMMON}{SITES}")).unwrap();
    let versions: Vec<_> =
        bench.each(&ImageChoice::default()).into_iter().map(|loaded| loaded.definition.version).collect();
    assert_eq!(versions, ["3", "1"]);
}

#[test]
fn a_mistake_is_told_where_it_is_and_once() {
    let refusal = |text: &str| Bench::new(text).refusal(&ImageChoice::default());
    let told =
        refusal(&format!("{COMMON}colour: red\nvariants:\n  a:\n  b:\n    kernel: {{argument: [x]}}\n"));
    assert!(told.contains("it has 2 mistakes"), "{told}");
    assert!(told.contains("image.yaml:6:1: unknown key `colour`"), "{told}");
    assert!(told.contains("image.yaml:10:14: unknown key `argument` in `kernel`"), "{told}");
    for (text, expected) in [
        ("variants: {}\n", "the definition has no variant"),
        ("variants: [a, b]\n", "expected names with what differs in each, found a list"),
        ("variants: {a: yes}\n", "expected what differs in this variant"),
        ("variants: {A: {}}\n", "may only have a-z, 0-9 and -"),
        ("variants: {arm64: {}}\n", "the name of an architecture"),
        ("variants: {a: {extends: minimal}}\n", "a variant cannot have `extends`"),
        ("variants: {a: {variants: {b: {}}}}\n", "a variant cannot have `variants`"),
        ("variants: {a: {kernel: {arguments: {remove: [debug]}}}}\n", "debug"),
        ("variants: {a: {install_defaults: absent.yaml}}\n", "absent.yaml"),
    ] {
        let told = refusal(&format!("{COMMON}{text}"));
        assert!(told.contains(expected), "{text}{told}");
    }
    let told = refusal("variants: {a: {id: a}}\n");
    assert!(told.contains("base") && told.contains("name"), "what none of its texts has is missing: {told}");
}

#[test]
fn programs_are_told_the_path_of_a_mistake_with_the_variant_that_has_it() {
    let paths = |text: &str| {
        let told = parse(alone(text), &|_| anyhow::bail!("no other"), &|_, _| Ok(())).unwrap_err().0;
        told.into_iter().map(|told| told.path).collect::<Vec<_>>()
    };
    let own =
        "variants:\n  a: {profile: fast, kernel: {arguments: {remove: [debug]}}}\n  b: {disk: {size: 1x}}\n";
    assert_eq!(
        paths(&format!("{COMMON}{own}")),
        ["variants.a.profile", "variants.a.kernel.arguments.remove", "variants.b.disk.size"]
    );
    assert_eq!(paths(&format!("{COMMON}profile: fast\nvariants: {{a: {{}}, b: {{}}}}\n")), ["profile"]);
}

#[test]
fn a_variant_is_shown_as_the_definition_that_it_is() {
    let bench = Bench::new(&format!("{COMMON}{SITES}"));
    let file = bench.file("image.yaml");
    let told = render(&show(&file, None).unwrap_err());
    assert!(told.contains("--variant plain"), "{told}");
    let shown = show(&file, Some("lab")).unwrap();
    assert!(!shown.yaml.contains("variants") && shown.yaml.contains("- debug"), "{}", shown.yaml);
    fs::write(bench.file("shown.yaml"), &shown.yaml).unwrap();
    let again = LoadedDefinition::read_each(&bench.file("shown.yaml"), &ImageChoice::default()).unwrap();
    let variant = bench.each(&only(&["lab"]));
    assert!(again.iter().zip(&variant).all(|(again, first)| again.definition == first.definition));
}

#[test]
fn the_published_schema_has_variants_of_parts() {
    let schema = published_schema();
    let part = &schema["properties"]["variants"]["additionalProperties"];
    assert_eq!(part["properties"]["kernel"], schema["properties"]["kernel"]);
    assert!(part["properties"]["extends"].is_null() && part["properties"]["variants"].is_null());
}
