//! Kubernetes manifests and Helm charts in the image definition.

use std::path::PathBuf;

use document::format::{FormatFault, FormatResult};
use model::config::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Manifests that the OS image ships and that the first server of a cluster applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ManifestSpec {
    /// A file, or a directory whose files `*.yaml`, `*.yml` and `*.json` are taken, those in its directories too.
    pub path: PathBuf,
    /// The roles whose nodes may run the pods; empty means every role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// What becomes of the images that the manifests name.
    #[serde(default)]
    pub images: ImagePolicy,
}

/// A Helm chart that the OS image ships and that the first server of a cluster installs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChartSpec {
    /// The name of the release.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?$"))]
    pub name: String,
    /// The chart: an archive (`.tgz`) or a directory. What it depends on must be in its `charts/`.
    pub path: PathBuf,
    /// The version that the chart must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The namespace that the chart is installed into.
    #[serde(default = "default_namespace")]
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub namespace: String,
    /// Make the namespace if it is not there.
    #[serde(default)]
    pub create_namespace: bool,
    /// A file of values for the chart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<PathBuf>,
    /// The roles whose nodes may run the pods; empty means every role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
    /// What becomes of the images that the chart's templates name.
    #[serde(default)]
    pub images: ImagePolicy,
    /// The version of Kubernetes that the templates are told when the builder looks for images, if it is not
    /// the builder's own: `1.33.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^v?[0-9]+(\.[0-9]+){1,2}([+-][0-9A-Za-z.+-]+)?$"))]
    pub kube_version: Option<String>,
    /// Further APIs that the templates are told of when the builder looks for images: `monitoring.coreos.com/v1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_versions: Vec<String>,
}

/// What becomes of the container images that shipped manifests and charts name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImagePolicy {
    /// They are preloaded like those of `images.preload`.
    #[default]
    Include,
    /// The build fails unless `images.preload` has them.
    Require,
}

fn default_namespace() -> String {
    "default".to_owned()
}

/// The path of a manifest or a chart.
pub(crate) fn path(path: &str) -> FormatResult {
    check(!path.is_empty(), "names no file")
}

/// The name of a release. Helm's own limit leaves room for what charts append to it.
pub(crate) fn release(name: &str) -> FormatResult {
    check(
        is_label(name, 53),
        "may have at most 53 of a-z, 0-9 and -, and begins and ends with a letter or digit",
    )
}

pub(crate) fn namespace(name: &str) -> FormatResult {
    check(
        is_label(name, 63),
        "may have at most 63 of a-z, 0-9 and -, and begins and ends with a letter or digit",
    )
}

/// A version of Kubernetes, perhaps with that of a distribution.
pub(crate) fn version(text: &str) -> FormatResult {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (numbers, suffix) = text.find(['-', '+']).map_or((text, ""), |at| text.split_at(at));
    let parts: Vec<&str> = numbers.split('.').collect();
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let plain = suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
    let right = matches!(parts.len(), 2 | 3) && parts.iter().all(number) && plain && suffix.len() != 1;
    check(right, "is not a version of Kubernetes such as 1.33.2")
}

/// An API as Helm's templates ask for it.
pub(crate) fn api(text: &str) -> FormatResult {
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
    };
    let parts = text.split('/').count();
    let right = (1..=3).contains(&parts) && text.split('/').all(word) && !text.starts_with('-');
    check(right, "is not an API such as monitoring.coreos.com/v1")
}

/// A label as in RFC 1123, which Kubernetes wants names to be.
pub(super) fn is_label(name: &str, longest: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=longest).contains(&name.len())
        && name.bytes().all(|byte| plain(byte) || byte == b'-')
        && [name.bytes().next(), name.bytes().next_back()].into_iter().flatten().all(plain)
}

fn check(right: bool, fault: &'static str) -> FormatResult {
    if right { Ok(()) } else { Err(FormatFault::new(fault)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::mistakes_of_form;

    /// A chart as a definition with this text in it has it, or what is wrong with it.
    fn read(chart: &str) -> Result<ChartSpec, Vec<String>> {
        let mistakes = mistakes_of_form(&format!("charts: [{chart}]\n"));
        if mistakes.is_empty() { Ok(serde_saphyr::from_str(chart).unwrap()) } else { Err(mistakes) }
    }

    fn chart(more: &str) -> Result<ChartSpec, Vec<String>> {
        read(&format!("{{name: web, path: charts/web, {more}}}"))
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let chart = chart("").unwrap();
        assert_eq!(
            (&*chart.namespace, chart.images, chart.create_namespace),
            ("default", ImagePolicy::Include, false)
        );
        let manifest: ManifestSpec =
            serde_saphyr::from_str("{path: a.yaml, roles: [worker], images: require}").unwrap();
        assert_eq!((manifest.roles, manifest.images), (vec![Role::Worker], ImagePolicy::Require));
    }

    #[test]
    fn values_that_would_reach_helm_as_options_or_names_that_no_cluster_takes_are_refused() {
        for wrong in [
            "name: Web",
            "name: -web",
            "name: ''",
            "namespace: a_b",
            "namespace: a.b",
            "path: ''",
            "values: ''",
            "kube_version: latest",
            "kube_version: '1'",
            "kube_version: --x",
            "kube_version: 1.2.3-",
            "api_versions: ['--help']",
            "api_versions: [a/b/c/d]",
            "api_versions: ['']",
            "chart: x",
            "images: maybe",
        ] {
            let key = wrong.split(':').next().unwrap();
            let base = ["name: web", "path: charts/web"].into_iter().filter(|line| !line.starts_with(key));
            let keys: Vec<_> = base.chain([wrong]).collect();
            assert_eq!(read(&format!("{{{}}}", keys.join(", "))).unwrap_err().len(), 1, "{wrong}");
        }
        for right in [
            "kube_version: v1.33.2+rke2r1",
            "kube_version: '1.33'",
            "api_versions: [a.b/v1, batch/v1/CronJob, v1]",
        ] {
            chart(right).unwrap();
        }
    }
}
