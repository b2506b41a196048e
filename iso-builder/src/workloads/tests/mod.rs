//! Complete definitions of manifests and charts.

mod charts;

use std::fs;

use super::*;
use base::command::{Runner, SystemRunner};
use base::failure::{Class, class_of, render};
use model::os_image::SHIPPED_MANIFESTS;
use proptest::prelude::*;

/// Files below a directory, with a scratch directory for helm.
struct WorkloadFiles {
    directory: tempfile::TempDir,
    scratch: tempfile::TempDir,
}

impl WorkloadFiles {
    fn new(files: &[(&str, &str)]) -> Self {
        let given = Self { directory: tempfile::tempdir().unwrap(), scratch: tempfile::tempdir().unwrap() };
        files.iter().for_each(|(path, text)| given.write(path, text));
        given
    }

    /// Helm's scratch directory as a relative path.
    fn scratch(&self) -> PathBuf {
        let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect::<PathBuf>();
        up.join(self.scratch.path().strip_prefix("/").unwrap())
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read_by(&self, runner: &dyn Runner, manifests: &str, charts: &str) -> Result<Workloads> {
        let manifests: Vec<ManifestSpec> = serde_saphyr::from_str(manifests).unwrap();
        let charts: Vec<ChartSpec> = serde_saphyr::from_str(charts).unwrap();
        let scratch = self.scratch();
        let helm = Helm::new(runner, &scratch);
        Workloads::read(&manifests, &charts, |path| self.directory.path().join(path), &helm)
    }

    fn read(&self, manifests: &str, charts: &str) -> Result<Workloads> {
        self.read_by(&SystemRunner, manifests, charts)
    }

    fn discover(&self, manifests: &str, charts: &str) -> Result<Vec<FoundImage>> {
        let workloads = self.read(manifests, charts)?;
        workloads.discover(&Helm::new(&SystemRunner, &self.scratch()))
    }

    /// Image and place of everything that was found, without the directory of this test.
    fn found(&self, manifests: &str, charts: &str) -> Vec<(String, String)> {
        let found = self.discover(manifests, charts).unwrap_or_else(|error| panic!("{}", render(&error)));
        let mut told: Vec<_> =
            found.iter().map(|one| (one.image.to_string(), self.short(&one.origin.to_string()))).collect();
        told.sort();
        told
    }

    fn error(&self, manifests: &str, charts: &str) -> String {
        let error = self.discover(manifests, charts).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        self.short(&render(&error))
    }

    fn short(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.directory.path().display()), "")
    }
}

const WEB: &str = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec:\n  template:\n    \
                   spec:\n      containers:\n      - name: web\n        image: registry.example.org/web:1\n";

#[test]
fn manifests_tell_their_images_with_file_line_and_object() {
    let given = WorkloadFiles::new(&[
        ("m/web.yaml", &format!("# first\n---\n{WEB}")),
        (
            "m/below/list.json",
            r#"{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [{"image": "b"}]}}]}"#,
        ),
        ("m/.hidden.yaml", "{{"),
        ("m/README.md", "{{"),
    ]);
    let expected = [
        ("docker.io/library/b:latest", "m/below/list.json, document 1: Pod a: spec.containers[0].image"),
        (
            "registry.example.org/web:1",
            "m/web.yaml:11, document 1: Deployment shop/web: spec.template.spec.containers[0].image",
        ),
    ];
    let found = given.found("[{path: m, roles: [worker], images: require}]", "[]");
    assert_eq!(found, expected.map(|(image, place)| (image.to_owned(), place.to_owned())));
    let found = given.discover("[{path: m/web.yaml, roles: [worker], images: require}]", "[]").unwrap();
    assert_eq!((found[0].roles.as_slice(), found[0].policy), (&[Role::Worker][..], ImagePolicy::Require));
}

#[test]
fn what_names_no_image_is_told_all_at_once_with_its_place() {
    let given = WorkloadFiles::new(&[
        (
            "a.yaml",
            &format!("{WEB}---\n{}", WEB.replace("registry.example.org/web:1", "'{{ .Values.image }}'")),
        ),
        ("b.yaml", &WEB.replace("registry.example.org/web:1", "")),
        ("c.yaml", "kind: Pod\n"),
        ("d.yaml", "# nothing\n"),
        ("e.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: [{image: Upper/Case}]}\n---\na: [\n"),
    ]);
    let paths = ["a", "b", "c", "d", "e"].map(|name| format!("{{path: {name}.yaml}}")).join(", ");
    let told = given.error(&format!("[{paths}]"), "[]");
    let lines: Vec<&str> = told.lines().collect();
    for (line, begin) in [
        "error: the images of manifests and charts cannot be determined",
        "  because: a.yaml:19, document 2: Deployment shop/web: spec.template.spec.containers[0].image: \"{{ .Values.image }}\" is not a reference",
        "  because: b.yaml:1, document 1: Deployment shop/web: spec.template.spec.containers[0].image is empty",
        "  because: c.yaml:1, document 1 is not an object for a cluster: it has no `apiVersion`",
        "  because: d.yaml holds no object",
        "  because: e.yaml:3, document 1: Pod without a name: spec.containers[0].image: \"Upper/Case\" is not a reference",
        "  because: e.yaml:5, document 2 is not YAML",
        "  next: ",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(lines[line].starts_with(begin), "{told}");
    }
}

#[test]
fn manifests_that_something_else_brings_are_searched_and_not_laid_out() {
    let given = WorkloadFiles::new(&[]);
    let mut workloads = Workloads::default();
    workloads.add_brought(
        "install.yaml".into(),
        WEB.to_owned(),
        vec![Role::Management],
        ImagePolicy::Require,
    );
    let found = workloads.discover(&Helm::new(&SystemRunner, given.scratch.path())).unwrap();
    assert_eq!(found[0].origin.line, None, "it is not a line of that file");
    assert_eq!((found.len(), &*found[0].roles), (1, &[Role::Management][..]));
    workloads.lay_out(given.directory.path()).unwrap();
    assert!(!given.directory.path().join(SHIPPED_MANIFESTS).exists());
    assert_eq!(workloads.digest(), Workloads::default().digest());
}

#[test]
fn the_documentations_definitions_are_read() {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        #[serde(default)]
        manifests: Vec<ManifestSpec>,
        #[serde(default)]
        charts: Vec<ChartSpec>,
        #[serde(default)]
        images: serde_json::Value,
    }
    let text =
        fs::read_to_string(format!("{}/../docs/how-to/workloads.md", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let (objects, parts): (Vec<&str>, Vec<&str>) = blocks.partition(|block| block.starts_with("apiVersion"));
    let specs: usize = parts
        .iter()
        .map(|block| {
            let part: Part = serde_saphyr::from_str(block).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(crate::definition::mistakes_of_form(block), [""; 0], "{block}");
            part.manifests.len() + part.charts.len() + part.images["preload"].as_array().map_or(0, Vec::len)
        })
        .sum();
    assert!(specs >= 4, "the test looks at something");
    for object in &objects {
        let given = WorkloadFiles::new(&[("a.yaml", object)]);
        assert!(!given.found("[{path: a.yaml}]", "[]").is_empty(), "{object}");
    }
    assert!(!objects.is_empty());
}

#[test]
fn two_files_of_one_name_are_refused() {
    let given = WorkloadFiles::new(&[("a/web.yaml", WEB), ("b/Web.yml", WEB), ("empty/x.txt", "")]);
    let error = given.read("[{path: a}, {path: b}]", "[]").unwrap_err();
    assert!(render(&error).contains("would both be manifest-web on the nodes"), "{}", render(&error));
    assert!(given.read("[{path: a}, {path: b/Web.yml}]", "[]").is_err());
    let error = given.read("[{path: empty}]", "[]").unwrap_err();
    assert!(render(&error).contains("has no manifests"), "{}", render(&error));
}

proptest! {
    #[test]
    fn no_manifest_makes_the_search_panic_and_what_is_found_has_a_place(
        lines in proptest::collection::vec(
            "( {0,6}(- )?(image|containers|metadata|annotations|nqrust.io/images|kind|apiVersion|spec|items|\"[a-z]\"):( [a-zA-Z0-9/:@.{}\\[\\]&*|>-]{0,9})?)|---|\\PC{0,8}",
            0..12,
        ),
    ) {
        let mut workloads = Workloads::default();
        let head = "apiVersion: v1\nkind: Pod\nspec: {containers: [{image: a}]}\n";
        workloads.add_brought("f".into(), head.to_owned() + &lines.join("\n"), vec![], ImagePolicy::Include);
        let scratch = tempfile::tempdir().unwrap();
        for found in workloads.discover(&Helm::new(&SystemRunner, scratch.path())).into_iter().flatten() {
            prop_assert!(found.origin.document > 0 && found.origin.field.ends_with(|c: char| c != '.'));
        }
    }
}
