//! The program `helm`: packs charts and renders their templates, without the user's own configuration, without a
//! network and without a cluster.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use base::command::{Invocation, Runner};
use base::failure::{Class, Classify, Failure, class_of};
use base::files;

/// The version of Kubernetes that templates see unless the definition sets another.
pub const KUBE_VERSION: &str = "1.36.0";
/// The oldest version of helm that works: major, minor.
const OLDEST_HELM: (u32, u32) = (3, 8);
/// Any chart takes less, even on a slow machine.
const HELM_TIME_LIMIT: Duration = Duration::from_secs(120);
/// In bytes; the largest public charts render to a tenth of it.
const MAX_OUTPUT_BYTES: usize = 64 << 20;
/// A port on which no server listens. Values of a chart may be checked with schemas at URLs, which helm would fetch.
const UNREACHABLE_URL: &str = "http://127.0.0.1:9";

#[derive(Clone, Copy)]
pub struct Helm<'a> {
    runner: &'a dyn Runner,
    scratch: &'a Path,
    kube_version: &'a str,
}

impl fmt::Debug for Helm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Helm").field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

/// The parameters for rendering templates.
#[derive(Clone, Debug, Default)]
pub(super) struct HelmRelease<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    /// The contents of values files, each stronger than the one before.
    pub(super) values: Vec<&'a str>,
    /// Single values in the form of helm's option `--set`, stronger than the files; and whether each is always text.
    pub(super) set: Vec<(String, bool)>,
    pub(super) kube_version: Option<&'a str>,
    pub(super) api_versions: &'a [String],
}

impl<'a> Helm<'a> {
    /// Runs helm with `runner`; its files are made below the existing directory `scratch`.
    #[must_use]
    pub fn new(runner: &'a dyn Runner, scratch: &'a Path) -> Self {
        Self { runner, scratch, kube_version: KUBE_VERSION }
    }

    /// Sets the version of Kubernetes that templates see unless their chart sets another.
    #[must_use]
    pub fn for_version(self, kube_version: &'a str) -> Self {
        Self { kube_version, ..self }
    }

    /// Fails unless helm is installed and new enough.
    pub fn check(&self) -> Result<()> {
        let home = self.scratch()?;
        let version = self.helm(home.path()).args(["version", "--template", "{{.Version}}"]);
        let version = self.runner.run(&version).context("looking for helm, which renders charts")?;
        let version = String::from_utf8_lossy(&version);
        let mut numbers = version.trim().trim_start_matches('v').split('.').map(str::parse::<u32>);
        let numbers = (numbers.next(), numbers.next());
        if matches!(numbers, (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST_HELM) {
            return Ok(());
        }
        let what = format!("helm has the version {:?}, too old for rendering charts", version.trim());
        Err(Failure::new(Class::Hardware, what).hint("Put helm 3.8 or later in PATH.").into())
    }

    /// A new directory that is removed when it is dropped. Its path is absolute, as helm runs in another directory.
    pub(super) fn scratch(&self) -> Result<tempfile::TempDir> {
        tempfile::tempdir_in(std::path::absolute(self.scratch)?).context("making a scratch directory")
    }

    /// Packs the chart in `directory` into an archive in `into`, without the files that its `.helmignore` names.
    pub(super) fn package(&self, directory: &Path, into: &Path) -> Result<()> {
        let directory = std::path::absolute(directory)?;
        let run = self.helm(into).arg("package").arg(&directory).arg("--destination").arg(into);
        self.runner.run(&run).map(drop).map_err(|error| refused(error, &directory.display()))
    }

    /// The rendered templates and custom resource definitions of the chart in `archive`.
    pub(super) fn template(&self, archive: &[u8], release: &HelmRelease<'_>, title: &str) -> Result<String> {
        let directory = self.scratch()?;
        let chart = directory.path().join("chart.tgz");
        files::write_atomically(&chart, archive, 0o600)?;
        let mut run = self.helm(directory.path()).arg("template").arg(release.name).arg(&chart);
        run = run.args(["--include-crds", "--namespace", release.namespace]);
        run = run.arg("--kube-version").arg(release.kube_version.unwrap_or(self.kube_version));
        run = run.args(release.api_versions.iter().flat_map(|api| ["--api-versions", api]));
        for (index, values) in release.values.iter().enumerate() {
            let file = directory.path().join(format!("values-{index}.yaml"));
            files::write_atomically(&file, values.as_bytes(), 0o600)?;
            run = run.arg("--values").arg(file);
        }
        for (assignment, text) in &release.set {
            run = run.arg(if *text { "--set-string" } else { "--set" }).arg(assignment);
        }
        let output = self.runner.run(&run).map_err(|error| refused(error, &title))?;
        String::from_utf8(output).class(Class::Invalid, || format!("reading what {title} renders to"))
    }

    /// The command that runs helm with its own files below `home`.
    fn helm(&self, home: &Path) -> Invocation {
        let at = |name: &str| OsString::from(home.join(format!(".helm/{name}")));
        let mut run = Invocation::new("helm").limit(HELM_TIME_LIMIT).output(MAX_OUTPUT_BYTES).directory(home);
        for (name, below) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
            ("HELM_PLUGINS", "plugins"),
            ("HELM_REGISTRY_CONFIG", "registry.json"),
            ("HELM_REPOSITORY_CACHE", "repository"),
            ("HELM_REPOSITORY_CONFIG", "repositories.yaml"),
            ("KUBECONFIG", "kubeconfig"),
        ] {
            run = run.env(name, at(below));
        }
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
            run = run.env(name, UNREACHABLE_URL);
        }
        for name in ["NO_PROXY", "no_proxy", "HELM_DEBUG", "HELM_NAMESPACE", "HELM_KUBECONTEXT"] {
            run = run.env(name, "");
        }
        run.env("HELM_NO_PLUGINS", "1")
    }
}

/// The failure of helm on a chart. A missing helm keeps its own class and message.
fn refused(error: anyhow::Error, chart: &dyn fmt::Display) -> anyhow::Error {
    if class_of(&error) != Class::Unexpected {
        return error.context(format!("rendering the chart {chart}"));
    }
    Failure::new(Class::Invalid, format!("helm refuses the chart {chart}"))
        .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
        .hint(
            "Correct the chart or its values. What it depends on must be in its directory charts/, where \
             `helm dependency update` puts it.",
        )
        .into()
}
