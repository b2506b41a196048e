//! Charts, rendered by a real helm.

use super::*;
use base::command::Invocation;
use base::digest::Digest;
use base64::prelude::{BASE64_STANDARD, Engine};

/// Makes a chart with a subchart, values, conditions, hooks, tests, a custom resource definition, and a file to leave
/// out.
fn chart(given: &WorkloadFiles, directory: &str) {
    let pod = |kind: &str, name: &str, more: &str, image: &str| {
        format!(
            "apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\n{more}spec:\n  containers:\n  - name: a\n    image: {image}\n"
        )
    };
    let hook = |hook: &str| format!("  annotations: {{\"helm.sh/hook\": \"{hook}\"}}\n");
    for (path, text) in [
        (
            "Chart.yaml",
            "apiVersion: v2\nname: web\nversion: 1.2.3\ndependencies:\n- {name: db, version: 0.1.0, condition: db.enabled}\n".to_owned(),
        ),
        ("values.yaml", "image: {repository: example.org/web, tag: '1'}\ndebug: false\ndb: {enabled: true, tag: '15'}\n".into()),
        (".helmignore", "*.bak.yaml\n".into()),
        ("templates/web.yaml", pod("Pod", "{{ .Release.Name }}", "", "{{ .Values.image.repository }}:{{ .Values.image.tag }}")),
        ("templates/space.yaml", pod("Pod", "space", "", "example.org/in-{{ .Release.Namespace }}:{{ .Capabilities.KubeVersion.Version }}")),
        ("templates/old.bak.yaml", pod("Pod", "old", "", "example.org/old:1")),
        ("templates/migrate.yaml", pod("Pod", "migrate", &hook("pre-install,test"), "example.org/migrate:1")),
        ("templates/tests/a.yaml", pod("Pod", "test", &hook("test"), "example.org/test:1")),
        ("templates/tests/b.yaml", pod("Pod", "test-b", &hook("test-success, test-failure"), "example.org/test:2")),
        ("templates/debug.yaml", format!("{{{{ if .Values.debug }}}}\n{}{{{{ end }}}}\n", pod("Pod", "debug", "", "example.org/debug:1"))),
        (
            "templates/monitor.yaml",
            format!("{{{{ if .Capabilities.APIVersions.Has \"monitoring.coreos.com/v1\" }}}}\n{}{{{{ end }}}}\n", pod("Pod", "monitor", "", "example.org/monitor:1")),
        ),
        ("crds/a.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.b, annotations: {nqrust.io/images: no}}\nspec: {x: {containers: [{image: no}]}}\n".into()),
        ("charts/database/Chart.yaml", "apiVersion: v2\nname: db\nversion: 0.1.0\n".into()),
        ("charts/database/values.yaml", "tag: latest\n".into()),
        ("charts/database/templates/db.yaml", pod("Pod", "db", "", "example.org/db:{{ .Values.tag }}")),
    ] {
        given.write(&format!("{directory}/{path}"), &text);
    }
}

fn images(found: &[(String, String)]) -> Vec<&str> {
    found.iter().map(|(image, _)| image.as_str()).collect()
}

#[test]
fn a_chart_that_names_no_version_is_told_that_of_the_images_distribution() {
    let given = WorkloadFiles::new(&[]);
    chart(&given, "charts/web");
    for (more, told) in [("", "v1.33.1"), (", kube_version: 1.30.1", "v1.30.1")] {
        let charts = format!("[{{name: shop, path: charts/web, version: 1.2.3{more}}}]");
        let workloads = given.read("[]", &charts).unwrap();
        let scratch = given.scratch();
        let found = workloads.discover(&Helm::new(&SystemRunner, &scratch).for_version("v1.33.1")).unwrap();
        let image = format!("example.org/in-default:{told}");
        assert!(found.iter().any(|found| found.image.to_string() == image), "{found:?}");
    }
}

#[test]
fn a_charts_images_are_those_of_what_it_renders_to() {
    let given = WorkloadFiles::new(&[("values.yaml", "debug: true\nimage: {tag: '2'}\n")]);
    chart(&given, "charts/web");
    let base = "name: shop, path: charts/web, version: 1.2.3";
    let found = given.found("[]", &format!("[{{{base}}}]"));
    let expected = [
        ("example.org/db:15", "web/charts/db/templates/db.yaml: Pod db"),
        (&*format!("example.org/in-default:v{KUBE_VERSION}"), "web/templates/space.yaml: Pod space"),
        ("example.org/migrate:1", "web/templates/migrate.yaml: Pod migrate"),
        ("example.org/web:1", "web/templates/web.yaml: Pod shop"),
    ];
    let expected = expected.map(|(image, template)| {
        (image.to_owned(), format!("charts/web, template {template}: spec.containers[0].image"))
    });
    assert_eq!(found, expected);
    let more = "values: values.yaml, namespace: inner, kube_version: 1.30.1, api_versions: [monitoring.coreos.com/v1]";
    let found = given.found("[]", &format!("[{{{base}, {more}}}]"));
    let expected = [
        "example.org/db:15",
        "example.org/debug:1",
        "example.org/in-inner:v1.30.1",
        "example.org/migrate:1",
        "example.org/monitor:1",
        "example.org/web:2",
    ];
    assert_eq!(images(&found), expected);
    given.write("values.yaml", "db: {enabled: false}\n");
    let found = given.found("[]", &format!("[{{{base}, values: values.yaml}}]"));
    assert_eq!(found.len(), 3, "the chart inside is switched off: {found:?}");
}

#[test]
fn charts_that_cannot_be_shipped_are_refused() {
    let given = WorkloadFiles::new(&[
        ("bad.tgz", "no archive"),
        ("library/Chart.yaml", "apiVersion: v2\nname: l\nversion: 1.0.0\ntype: library\n"),
    ]);
    chart(&given, "web");
    chart(&given, "lacking");
    fs::remove_dir_all(given.directory.path().join("lacking/charts")).unwrap();
    chart(&given, "linked");
    std::os::unix::fs::symlink("/etc/hostname", given.directory.path().join("linked/templates/x.yaml"))
        .unwrap();
    chart(&given, "broken");
    given.write("broken/templates/a.yaml", "{{ required \"a name is needed\" .Values.name }}\n");
    chart(&given, "remote");
    given.write("remote/values.schema.json", r#"{"$ref": "http://schemas.invalid/a.json"}"#);
    chart(&given, "large");
    // Digests do not compress.
    let noise: Vec<u8> = (0..32_768_u32).flat_map(|n| *Digest::of(&n.to_be_bytes()).as_bytes()).collect();
    fs::create_dir_all(given.directory.path().join("large/files")).unwrap();
    fs::write(given.directory.path().join("large/files/noise"), noise).unwrap();
    for (path, more, told) in [
        ("web", ", version: 9.9.9", "has the version 1.2.3, not 9.9.9"),
        ("lacking", "", "missing in charts/ directory: db"),
        ("linked", "", "linked/templates/x.yaml is neither a file nor a directory"),
        ("broken", "", "a name is needed"),
        ("remote", "", "helm refuses the chart remote"),
        ("library", "", "is a library for other charts"),
        ("bad.tgz", "", "reading the chart bad.tgz"),
        ("large", "", "; a cluster accepts 1047552"),
        ("web", ", values: none.yaml", "reading the values of the chart a"),
    ] {
        let text = given.error("[]", &format!("[{{name: a, path: {path}{more}}}]"));
        assert!(text.contains(told), "{path}: {text}");
        assert!(text.contains("\n  next: ") || text.contains("reading"), "{text}");
    }
}

#[test]
fn a_missing_or_old_helm_is_told_only_where_there_are_charts() {
    struct FakeHelm(&'static str);
    impl Runner for FakeHelm {
        fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
            match self.0 {
                "" => SystemRunner.run(&Invocation { program: "no-helm-here".into(), ..invocation.clone() }),
                version => Ok(version.into()),
            }
        }
    }
    let given = WorkloadFiles::new(&[("web.yaml", WEB)]);
    chart(&given, "web");
    for (version, told) in
        [("", "Install the package"), ("v3.7.2\n", "too old"), ("text", "too old"), ("v2.17", "too old")]
    {
        assert!(given.read_by(&FakeHelm(version), "[{path: web.yaml}]", "[]").is_ok());
        let error = given.read_by(&FakeHelm(version), "[]", "[{name: a, path: web}]").unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware, "{version}");
        assert!(render(&error).contains(told), "{version}: {}", render(&error));
    }
    let helm = |version| {
        let scratch = given.scratch.path();
        Helm::new(&FakeHelm(version), scratch).check()
    };
    assert!(helm("v3.8").is_ok() && helm("v3.11.3").is_ok() && helm("v4.0.1").is_ok());
}

#[test]
fn objects_that_bring_a_chart_are_rendered_and_those_that_name_one_are_refused() {
    let given = WorkloadFiles::new(&[]);
    chart(&given, "web");
    let workloads = given.read("[]", "[{name: a, path: web}]").unwrap();
    let content = BASE64_STANDARD.encode(&workloads.charts[0].archive);
    let object = |spec: &str, more: &str| {
        format!(
            "apiVersion: helm.cattle.io/v1\nkind: HelmChart\nmetadata: {{name: inner, namespace: kube-system{more}}}\nspec: {spec}\n"
        )
    };
    let spec = format!(
        "{{chartContent: {content}, targetNamespace: x, jobImage: 'no:image', valuesContent: 'debug: true', set: {{image.tag: '7', db.enabled: 'false'}}}}"
    );
    given.write("chart.yaml", &object(&spec, ""));
    let found = given.found("[{path: chart.yaml}]", "[]");
    let expected =
        ["example.org/debug:1", "example.org/in-x:v1.36.0", "example.org/migrate:1", "example.org/web:7"];
    assert_eq!(images(&found)[..4], expected);
    assert_eq!(
        found[3].1,
        "chart.yaml, template HelmChart kube-system/inner, web/templates/web.yaml: Pod inner: spec.containers[0].image"
    );
    let annotated = ", annotations: {nqrust.io/images: 'a/b:1'}";
    for (text, told) in [
        (object("{chart: 'https://example.org/a.tgz'}", ""), "ship it under `charts:`"),
        (object("{chart: a, repo: 'https://example.org'}", ""), "spec.chart"),
        (object("{}", ""), "spec.chart"),
        (object("{chartContent: '%'}", ""), "spec.chartContent is not base64"),
        (
            object(&format!("{{chartContent: {content}}}"), "").replace("name: inner", "name: --debug"),
            "not the name of a release",
        ),
        (
            object("{chart: a}", "")
                .replace("helm.cattle.io/v1", "harvesterhci.io/v1beta1")
                .replace("HelmChart", "Addon")
                .replace("{chart", "{enabled: true, chart"),
            "Addon kube-system/inner: spec.chart",
        ),
    ] {
        given.write("a.yaml", &text);
        let error = given.error("[{path: a.yaml}]", "[]");
        assert!(error.contains(told), "{error}");
    }
    given.write("a.yaml", &object("{chart: a}", annotated));
    assert_eq!(images(&given.found("[{path: a.yaml}]", "[]")), ["docker.io/a/b:1"]);
    given.write(
        "a.yaml",
        &object("{chart: a}", "")
            .replace("helm.cattle.io/v1", "harvesterhci.io/v1beta1")
            .replace("HelmChart", "Addon"),
    );
    assert!(given.found("[{path: a.yaml}]", "[]").is_empty(), "it is not enabled");
}

#[test]
fn what_is_laid_out_is_what_was_read_and_always_the_same() {
    let given = WorkloadFiles::new(&[
        ("m/web.yaml", WEB),
        ("m/crds/01_a.json", "{\"kind\": \"A\",\t\"apiVersion\": \"v1\", \"text\": \"\\ud83d\\ude00\"}"),
        ("values.yaml", "debug: true\n"),
    ]);
    chart(&given, "web");
    let charts = "[{name: shop, path: web, namespace: shop, create_namespace: true, values: values.yaml}, {name: plain, path: web}]";
    let laid_out = || {
        let root = tempfile::tempdir().unwrap();
        given.read("[{path: m}]", charts).unwrap().lay_out(root.path()).unwrap();
        let mut files: Vec<(String, String)> = fs::read_dir(root.path().join(SHIPPED_MANIFESTS))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        files
    };
    let files = laid_out();
    // Another checkout has other times and modes.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let file = given.directory.path().join("web/values.yaml");
    given.write("web/values.yaml", &fs::read_to_string(file).unwrap());
    assert_eq!(laid_out(), files);
    let text: String = files
        .iter()
        .map(|(name, text)| {
            let archive = text
                .lines()
                .find_map(|line| line.trim().strip_prefix("\"chartContent\": \"")?.strip_suffix("\","));
            let text = archive.map_or(text.clone(), |archive| text.replace(archive, &contents(archive)));
            format!("==> {name}\n{text}")
        })
        .collect();
    let path = format!("{}/src/workloads/tests/golden.txt", env!("CARGO_MANIFEST_DIR"));
    testing::golden::compare(path, &text);
}

/// The names of the files in a packed chart, with the fields of their headers.
fn contents(archive: &str) -> String {
    let bytes = BASE64_STANDARD.decode(archive).unwrap();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
    let entries = tar.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let header = entry.header();
        format!(
            "{} {:o} {} {}",
            entry.path().unwrap().display(),
            header.mode().unwrap(),
            header.mtime().unwrap(),
            header.uid().unwrap()
        )
    });
    entries.collect::<Vec<_>>().join("; ")
}

#[test]
fn the_digest_follows_what_is_laid_out() {
    let given =
        WorkloadFiles::new(&[("a.yaml", WEB), ("b/a.yaml", "apiVersion: v1\nkind: A\n"), ("b/b.yaml", WEB)]);
    let digest = |manifests: &str| given.read(manifests, "[]").unwrap().digest();
    assert_eq!(digest("[{path: a.yaml}]"), digest("[{path: a.yaml, roles: [worker]}]"));
    let all = ["a.yaml", "b/a.yaml", "b/b.yaml", "b"].map(|path| digest(&format!("[{{path: {path}}}]")));
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one), "{index}");
    }
}
