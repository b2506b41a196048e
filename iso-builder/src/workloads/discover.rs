//! Finds the images that manifests and charts name.

use std::path::Path;

use anyhow::Result;
use base::failure::{Class, Failure};
use base64::prelude::{BASE64_STANDARD, Engine};
use formats::oci::ImageReference;
use model::config::Role;
use serde_json::Value;

use super::chart::Chart;
use super::documents::ManifestDocument;
use super::found::{FoundImage, ImageOrigin};
use super::helm::{Helm, HelmRelease};
use super::manifest::ManifestFile;
use super::spec::ImagePolicy;
use super::walk::{ANNOTATION, annotation, kind, objects, places, title};

/// How deep charts may contain charts.
const MAX_CHART_DEPTH: usize = 4;

/// All images of these manifests and charts.
pub(super) fn all<'a>(
    manifests: impl Iterator<Item = &'a ManifestFile>,
    charts: &[Chart],
    helm: &Helm<'_>,
) -> Result<Vec<FoundImage>> {
    let mut search = ImageSearch { helm, found: Vec::new(), problems: Vec::new() };
    for manifest in manifests {
        let source = StreamSource {
            file: &manifest.file,
            roles: &manifest.roles,
            policy: manifest.policy,
            lines: manifest.verbatim,
            inside: None,
        };
        search.stream(&manifest.text, &source)?;
    }
    for chart in charts {
        let (spec, file) = (&chart.spec, &chart.file);
        let release = HelmRelease {
            name: &spec.name,
            namespace: &spec.namespace,
            values: chart.values.iter().map(String::as_str).collect(),
            set: Vec::new(),
            kube_version: spec.kube_version.as_deref(),
            api_versions: &spec.api_versions,
        };
        let text = helm.template(&chart.archive, &release, &file.display().to_string())?;
        let inside = Some(RenderedChart { depth: 1, within: String::new() });
        search.stream(
            &text,
            &StreamSource { file, roles: &spec.roles, policy: spec.images, lines: false, inside },
        )?;
    }
    search.finish()
}

/// Where a stream of documents comes from.
struct StreamSource<'a> {
    file: &'a Path,
    roles: &'a [Role],
    policy: ImagePolicy,
    /// True if its line numbers are those of the file.
    lines: bool,
    inside: Option<RenderedChart>,
}

struct RenderedChart {
    depth: usize,
    /// The objects that hold the chart, if the definition does not name it.
    within: String,
}

struct ImageSearch<'a> {
    helm: &'a Helm<'a>,
    found: Vec<FoundImage>,
    problems: Vec<String>,
}

impl ImageSearch<'_> {
    fn finish(self) -> Result<Vec<FoundImage>> {
        if self.problems.is_empty() {
            return Ok(self.found);
        }
        Err(Failure::new(Class::Invalid, "the images of manifests and charts cannot be determined")
            .because(self.problems.join("\n  because: "))
            .hint(
                "Correct the manifests, or the values of the charts; `iso-builder` preloads what they name.",
            )
            .into())
    }

    fn stream(&mut self, text: &str, source: &StreamSource<'_>) -> Result<()> {
        let mut objects = 0;
        for document in ManifestDocument::all(text) {
            match document.value() {
                Ok(Some(value)) => {
                    objects += 1;
                    self.document(&value, &document, source)?;
                }
                Ok(None) => {}
                Err(fault) => {
                    let origin = source.origin(&document, "", "", "");
                    self.problems.push(format!("{} {fault}", origin.place()));
                }
            }
        }
        if objects == 0 && source.inside.is_none() {
            self.problems.push(format!("{} holds no object", source.file.display()));
        }
        Ok(())
    }

    fn document(
        &mut self,
        value: &Value,
        document: &ManifestDocument<'_>,
        source: &StreamSource<'_>,
    ) -> Result<()> {
        if let Some(key) = ["apiVersion", "kind"].into_iter().find(|key| !value[key].is_string()) {
            let origin = source.origin(document, "", "", "");
            self.problems
                .push(format!("{} is not an object for a cluster: it has no `{key}`", origin.place()));
            return Ok(());
        }
        for object in objects(value) {
            self.object(object, document, source)?;
        }
        Ok(())
    }

    fn object(
        &mut self,
        object: &Value,
        document: &ManifestDocument<'_>,
        source: &StreamSource<'_>,
    ) -> Result<()> {
        // Tests run only when a person asks for them.
        if source.inside.is_some() && is_test(object) {
            return Ok(());
        }
        for place in places(object) {
            let origin = source.origin(document, &place.text, &title(object), &place.field);
            match place.text.parse::<ImageReference>() {
                Ok(image) => self.found.push(FoundImage {
                    image,
                    origin,
                    roles: source.roles.to_vec(),
                    policy: source.policy,
                }),
                Err(_) if place.text.is_empty() => self.problems.push(format!("{origin} is empty")),
                Err(error) => self.problems.push(format!("{origin}: {error}")),
            }
        }
        self.chart(object, document, source)
    }

    /// Reads the objects that make a controller of the cluster install a chart.
    fn chart(
        &mut self,
        object: &Value,
        document: &ManifestDocument<'_>,
        source: &StreamSource<'_>,
    ) -> Result<()> {
        let api = object["apiVersion"].as_str().unwrap_or_default();
        let spec = &object["spec"];
        let content = spec["chartContent"].as_str().filter(|content| !content.is_empty());
        let installs = match (api.split('/').next(), kind(object)) {
            (Some("helm.cattle.io"), "HelmChart") => true,
            (Some("harvesterhci.io"), "Addon") => spec["enabled"] == true,
            _ => false,
        };
        if !installs || annotation(object, ANNOTATION).is_some() {
            return Ok(());
        }
        let Some(content) = content else {
            let origin = source.origin(document, "", &title(object), "spec.chart");
            self.problems.push(format!(
                "{origin}: the images of a chart that is not shipped are not known; ship it under `charts:`, or list its \
                 images in the annotation {ANNOTATION} of this object",
            ));
            return Ok(());
        };
        let depth = source.inside.as_ref().map_or(0, |inside| inside.depth);
        let packed: String = content.split_whitespace().collect();
        let Some(archive) = BASE64_STANDARD.decode(packed).ok().filter(|_| depth < MAX_CHART_DEPTH) else {
            let origin = source.origin(document, "", &title(object), "spec.chartContent");
            self.problems.push(format!("{origin} is not base64, or contains charts that nest too deeply"));
            return Ok(());
        };
        self.nested(object, &archive, depth, document, source)
    }

    fn nested(
        &mut self,
        object: &Value,
        archive: &[u8],
        depth: usize,
        document: &ManifestDocument<'_>,
        source: &StreamSource<'_>,
    ) -> Result<()> {
        let (spec, title) = (&object["spec"], title(object));
        let origin = source.origin(document, "", &title, "spec.chartContent");
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let own = object["metadata"]["namespace"].as_str().unwrap_or("default");
        let namespace = spec["targetNamespace"].as_str().filter(|name| !name.is_empty()).unwrap_or(own);
        // Names that helm would take for an option are not valid in a cluster either.
        if [name, namespace].into_iter().any(|name| !super::spec::is_label(name, 63)) {
            self.problems.push(format!("{origin}: {name:?} in {namespace:?} is not the name of a release"));
            return Ok(());
        }
        let values = spec["values"].as_object().map(|_| spec["values"].to_string());
        let content = spec["valuesContent"].as_str();
        let release = HelmRelease {
            name,
            namespace,
            values: values.iter().map(String::as_str).chain(content).collect(),
            set: assignments(&spec["set"]),
            ..HelmRelease::default()
        };
        self.helm.check()?;
        let text = self.helm.template(archive, &release, &origin.to_string())?;
        let within = source.inside.as_ref().map_or("", |inside| inside.within.as_str());
        let inside = Some(RenderedChart { depth: depth + 1, within: format!("{within}{title}, ") });
        let source = StreamSource {
            file: source.file,
            roles: source.roles,
            policy: source.policy,
            lines: false,
            inside,
        };
        self.stream(&text, &source)
    }
}

impl StreamSource<'_> {
    fn origin(&self, document: &ManifestDocument<'_>, text: &str, object: &str, field: &str) -> ImageOrigin {
        let template = self
            .inside
            .as_ref()
            .map(|inside| format!("{}{}", inside.within, document.template().unwrap_or("without a name")));
        ImageOrigin {
            file: self.file.to_owned(),
            line: self.lines.then(|| document.line_of(text)),
            template,
            document: document.number,
            object: object.to_owned(),
            field: field.to_owned(),
        }
    }
}

/// `spec.set` of a HelmChart as options of helm: numbers and booleans keep their type, text stays text.
fn assignments(set: &Value) -> Vec<(String, bool)> {
    let assign = |(key, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let typed = !value.is_string() || matches!(&*text, "true" | "false" | "null");
        (format!("{key}={}", text.replace(',', "\\,")), !typed)
    };
    set.as_object().into_iter().flatten().map(assign).collect()
}

/// True if an object of a chart runs only in tests of the release.
fn is_test(object: &Value) -> bool {
    let hooks = annotation(object, "helm.sh/hook").unwrap_or_default();
    !hooks.is_empty() && hooks.split(',').all(|hook| hook.trim().starts_with("test"))
}
