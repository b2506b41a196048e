//! The metrics of a run of builds, for the textfile collector of node_exporter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Error, Result};
use base::failure::{Class, class_of};
use base::parallel::locked;
use metrics::{GaugeSnapshot, MetricsFile, gauges};

use super::output::definition_name;
use super::report::{BuildReport, ReportedOutput, ReportedProduct};
use crate::cache::{BuildFigures, FetchedKind, StepUse};
use crate::definition::LoadedDefinition;

gauges! { "nqrust_image_build_":
    INFO = "info", "The image whose build was tried last, and the version of the builder";
    SUCCESS = "success", "Whether the last build was successful";
    EXIT_CODE = "exit_code", "The exit code of the last build, by its class of error";
    END_TIME = "end_time_seconds", "When the last build ended, in seconds since 1970";
    LAST_SUCCESS_TIME = "last_success_time_seconds",
        "When the last successful build ended, in seconds since 1970";
    DURATION = "duration_seconds", "How long the last build took";
    STEP_DURATION = "step_duration_seconds",
        "How long the steps took that the last build finished, with the check of cached outputs";
    STEPS = "steps", "Steps that the last build made, or took from the cache or from a registry";
    FETCHED = "fetched_bytes", "Bytes that the last build fetched over networks";
    WRITTEN = "written_bytes", "Bytes of the steps and media that the last build made";
    SHARED_BLOBS = "shared_blobs", "Blobs of steps that the last build gave to registries";
    SHARED_BYTES = "shared_bytes", "Bytes of these blobs";
    OUTPUT_SIZE = "output_size_bytes", "Sizes of the outputs of the last build";
    WARNINGS = "warnings", "Warnings of the last build";
}

/// The image that series are about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ImageLabels {
    /// The name of the definition: no path, which says where a host has what.
    definition: String,
    /// Empty for a definition without variants, and where the run failed before they were known.
    variant: String,
    /// Likewise.
    architecture: String,
}

impl ImageLabels {
    fn pairs(&self) -> [(&'static str, &str); 3] {
        let Self { definition, variant, architecture } = self;
        [("definition", definition), ("variant", variant), ("architecture", architecture)]
    }

    /// Those of a series of an earlier file.
    fn of(labels: &[(String, String)]) -> Self {
        let label = |name| {
            let found = labels.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        Self {
            definition: label("definition"),
            variant: label("variant"),
            architecture: label("architecture"),
        }
    }
}

fn name_of(definition: &Path) -> String {
    definition_name(definition).unwrap_or_default().to_string_lossy().into_owned()
}

/// How the build of one image has ended.
#[derive(Clone, Debug)]
pub struct EndedBuild {
    image: ImageLabels,
    product: String,
    version: String,
    at: SystemTime,
    took: Duration,
    /// The class of the error of a failed build.
    result: Result<BuiltImage, Class>,
    steps: Vec<StepUse>,
    figures: Arc<BuildFigures>,
}

/// What only a successful build has.
#[derive(Clone, Debug)]
struct BuiltImage {
    /// The name of each output without `ID-VERSION-ARCH`, and its size in bytes.
    outputs: Vec<(String, u64)>,
    warnings: usize,
}

impl EndedBuild {
    pub(super) fn now(
        loaded: &LoadedDefinition,
        report: Result<&BuildReport, Class>,
        took: Duration,
        figures: &Arc<BuildFigures>,
    ) -> Self {
        let definition = &loaded.definition;
        let image = ImageLabels {
            definition: name_of(&loaded.file),
            variant: loaded.variant.clone().unwrap_or_default(),
            architecture: definition.architecture.debian().to_owned(),
        };
        Self {
            image,
            product: definition.id.clone(),
            version: definition.version.clone(),
            at: SystemTime::now(),
            took,
            // The report has the steps of the media, too.
            steps: report.map_or_else(|_| figures.uses(), |report| report.steps.clone()),
            result: report.map(|report| BuiltImage {
                outputs: report.outputs.iter().map(|output| short(output, &report.product)).collect(),
                warnings: report.warnings.len(),
            }),
            figures: Arc::clone(figures),
        }
    }

    fn add_to(&self, snapshot: &mut GaugeSnapshot) {
        let Self { product, version, steps, figures, .. } = self;
        let [definition, variant, architecture] = self.image.pairs();
        let image = [definition, variant, architecture];
        let with = |label| [definition, variant, architecture, label];
        let builder = env!("CARGO_PKG_VERSION");
        let info = [("id", product.as_str()), ("version", version.as_str()), ("builder", builder)];
        snapshot.set(INFO, &[&image[..], &info[..]].concat(), 1.0);
        add_end(snapshot, &self.image, self.at, self.result.as_ref().err().copied());
        snapshot.set(DURATION, &image, self.took.as_secs_f64());
        let mut durations = BTreeMap::<&str, f64>::new();
        let mut sources = BTreeMap::from([("cache", 0_u32), ("made", 0), ("registry", 0)]);
        for step in steps {
            *durations.entry(&step.step).or_default() += step.seconds;
            let source = match (&step.origin, step.cached) {
                (Some(_), _) => "registry",
                (None, true) => "cache",
                (None, false) => "made",
            };
            *sources.entry(source).or_default() += 1;
        }
        for (step, seconds) in durations {
            snapshot.set(STEP_DURATION, &with(("step", step)), seconds);
        }
        for (source, count) in sources {
            snapshot.set(STEPS, &with(("source", source)), count.into());
        }
        for kind in FetchedKind::ALL {
            snapshot.set(FETCHED, &with(("kind", kind.name())), figures.fetched_bytes(kind) as f64);
        }
        let made = steps.iter().filter(|step| !step.cached).map(|step| step.size);
        snapshot.set(WRITTEN, &image, made.fold(0, u64::saturating_add) as f64);
        let (blobs, bytes) = figures.shared();
        snapshot.set(SHARED_BLOBS, &image, blobs as f64);
        snapshot.set(SHARED_BYTES, &image, bytes as f64);
        if let Ok(built) = &self.result {
            for (output, size) in &built.outputs {
                snapshot.set(OUTPUT_SIZE, &with(("output", output)), *size as f64);
            }
            snapshot.set(WARNINGS, &image, built.warnings as f64);
        }
    }
}

/// The name of an output without what changes with each version, and its size.
fn short(output: &ReportedOutput, product: &ReportedProduct) -> (String, u64) {
    let ReportedProduct { id, version, architecture, .. } = product;
    let own = output.name.strip_prefix(&format!("{id}-{version}-{architecture}"));
    let name = own.map_or(&*output.name, |own| own.trim_start_matches(['-', '.']));
    (name.to_owned(), output.size)
}

/// How and when it ended; `class` is that of its error.
fn add_end(snapshot: &mut GaugeSnapshot, image: &ImageLabels, at: SystemTime, class: Option<Class>) {
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as f64;
    let image = image.pairs();
    snapshot.set_if(SUCCESS, &image, class.is_none());
    snapshot.set(EXIT_CODE, &image, class.map_or(0, Class::exit_code).into());
    snapshot.set(END_TIME, &image, at);
    if class.is_none() {
        snapshot.set(LAST_SUCCESS_TIME, &image, at);
    }
}

/// The metrics of a run, and the file for them.
#[derive(Debug)]
pub struct BuildMetrics {
    file: MetricsFile,
    ended: Mutex<Vec<EndedBuild>>,
}

impl BuildMetrics {
    /// Metrics for the file at `path`. Nothing is made yet.
    ///
    /// # Errors
    /// As of [`MetricsFile::checked`].
    pub fn checked(path: &Path) -> Result<Self> {
        Ok(Self { file: MetricsFile::checked(path)?, ended: Mutex::default() })
    }

    /// The build of an image has ended.
    pub fn note(&self, ended: EndedBuild) {
        locked(&self.ended).push(ended);
    }

    /// Replaces the file at the end of a run that builds `definitions` and has failed with `error`. A run that was canceled leaves it as it
    /// was: that says nothing of the definitions.
    ///
    /// # Errors
    /// [`Class::DiskIo`] if it cannot be written.
    pub fn write(&self, definitions: &[PathBuf], error: Option<&Error>) -> Result<()> {
        let class = error.map(class_of);
        if class == Some(Class::Cancelled) {
            return Ok(());
        }
        let mut snapshot = GaugeSnapshot::default();
        let definitions: Vec<_> = definitions.iter().map(|file| name_of(file)).collect();
        if class.is_some() {
            // The collector knows when each image was last built, and a failure does not change that.
            for earlier in self.file.series(LAST_SUCCESS_TIME.name) {
                let image = ImageLabels::of(&earlier.labels);
                if definitions.contains(&image.definition) {
                    snapshot.set(LAST_SUCCESS_TIME, &image.pairs(), earlier.value);
                }
            }
        }
        let ended = locked(&self.ended);
        ended.iter().for_each(|build| build.add_to(&mut snapshot));
        // The run failed before it knew the images.
        if class.is_some() && ended.iter().all(|build| build.result.is_ok()) {
            for definition in definitions {
                let image = ImageLabels { definition, ..ImageLabels::default() };
                add_end(&mut snapshot, &image, SystemTime::now(), class);
            }
        }
        self.file.write(&snapshot)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anyhow::anyhow;
    use base::failure::Failure;
    use metrics::{Gauge, series_of};

    use super::*;

    fn used(step: &str, cached: bool, origin: Option<&str>) -> StepUse {
        let origin = origin.map(str::to_owned);
        StepUse { step: step.to_owned(), cached, origin, seconds: 1.5, size: 1000 }
    }

    fn ended(variant: &str, result: Result<(), Class>) -> EndedBuild {
        let figures = Arc::new(BuildFigures::default());
        figures.fetched(FetchedKind::Images, 77);
        let outputs = vec![("iso".to_owned(), 4096)];
        EndedBuild {
            image: ImageLabels {
                definition: "edge".into(),
                variant: variant.into(),
                architecture: "amd64".into(),
            },
            product: "os".into(),
            version: "1.2".into(),
            at: UNIX_EPOCH + Duration::from_secs(1000),
            took: Duration::from_millis(2500),
            result: result.map(|()| BuiltImage { outputs, warnings: 1 }),
            steps: vec![
                used("base", true, None),
                used("kernel", true, Some("registry.example.org/steps")),
                used("extension", false, None),
                used("extension", false, None),
            ],
            figures,
        }
    }

    struct Scene {
        directory: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn run(&self, builds: Vec<EndedBuild>, class: Option<Class>) -> String {
            let path = self.directory.path().join("edge.prom");
            let metrics = BuildMetrics::checked(&path).unwrap();
            builds.into_iter().for_each(|build| metrics.note(build));
            let error = class.map(|class| anyhow!(Failure::new(class, "/home/me/secret is not there")));
            metrics.write(&["/home/me/edge.yaml".into()], error.as_ref()).unwrap();
            fs::read_to_string(path).unwrap_or_default()
        }
    }

    /// The value of the only series of this gauge with these labels.
    fn value(text: &str, gauge: Gauge, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |(name, value): &(&str, &str), own: &[(String, String)]| {
            own.iter().any(|(known, found)| known == name && found == value)
        };
        let all = series_of(text, gauge.name).into_iter();
        let found: Vec<_> =
            all.filter(|series| labels.iter().all(|label| has(label, &series.labels))).collect();
        assert!(found.len() < 2, "{found:?}");
        found.first().map(|series| series.value)
    }

    #[test]
    fn a_successful_build_tells_its_steps_bytes_and_outputs() {
        let text = Scene::new().run(vec![ended("small", Ok(()))], None);
        for (gauge, labels, expected) in [
            (INFO, ("version", "1.2"), 1.0),
            (SUCCESS, ("variant", "small"), 1.0),
            (EXIT_CODE, ("variant", "small"), 0.0),
            (END_TIME, ("architecture", "amd64"), 1000.0),
            (LAST_SUCCESS_TIME, ("definition", "edge"), 1000.0),
            (DURATION, ("definition", "edge"), 2.5),
            (STEP_DURATION, ("step", "extension"), 3.0),
            (STEPS, ("source", "made"), 2.0),
            (STEPS, ("source", "cache"), 1.0),
            (STEPS, ("source", "registry"), 1.0),
            (FETCHED, ("kind", "images"), 77.0),
            (FETCHED, ("kind", "steps"), 0.0),
            (WRITTEN, ("definition", "edge"), 2000.0),
            (OUTPUT_SIZE, ("output", "iso"), 4096.0),
            (WARNINGS, ("definition", "edge"), 1.0),
        ] {
            assert_eq!(value(&text, gauge, &[labels]), Some(expected), "{} {labels:?}: {text}", gauge.name);
        }
    }

    #[test]
    fn a_failure_keeps_the_last_success_of_each_image_and_a_success_forgets_other_images() {
        let scene = Scene::new();
        scene.run(vec![ended("small", Ok(())), ended("large", Ok(()))], None);
        let failed = Some(Class::Network);
        let text = scene.run(vec![ended("large", Err(Class::Network))], failed);
        let of = |text: &str, gauge, variant| value(text, gauge, &[("variant", variant)]);
        assert_eq!(of(&text, SUCCESS, "large"), Some(0.0));
        assert_eq!(of(&text, EXIT_CODE, "large"), Some(5.0));
        assert_eq!(of(&text, SUCCESS, "small"), None, "it was not begun");
        for variant in ["small", "large"] {
            assert_eq!(of(&text, LAST_SUCCESS_TIME, variant), Some(1000.0), "{text}");
        }
        assert_eq!(of(&text, OUTPUT_SIZE, "large"), None);
        let again = scene.run(Vec::new(), Some(Class::Invalid));
        assert_eq!(of(&again, LAST_SUCCESS_TIME, "large"), Some(1000.0), "it is kept over two failures");
        let text = scene.run(vec![ended("small", Ok(()))], None);
        assert_eq!(of(&text, LAST_SUCCESS_TIME, "large"), None);
    }

    #[test]
    fn a_run_that_fails_before_it_knows_the_images_is_a_failure_of_each_definition() {
        let text = Scene::new().run(Vec::new(), Some(Class::Invalid));
        assert_eq!(value(&text, SUCCESS, &[("definition", "edge"), ("variant", "")]), Some(0.0), "{text}");
        assert_eq!(value(&text, EXIT_CODE, &[]), Some(2.0));
        assert!(!text.contains("/home") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn a_canceled_run_leaves_the_file_as_it_was() {
        let scene = Scene::new();
        let before = scene.run(vec![ended("small", Ok(()))], None);
        assert_eq!(scene.run(vec![ended("small", Err(Class::Cancelled))], Some(Class::Cancelled)), before);
    }

    #[test]
    fn outputs_have_names_that_stay_from_version_to_version() {
        let product = ReportedProduct {
            id: "os".into(),
            name: "An OS".into(),
            version: "1.2".into(),
            architecture: "amd64".into(),
        };
        for (name, expected) in [
            ("os-1.2-amd64.iso", "iso"),
            ("os-1.2-amd64-net-install.iso", "net-install.iso"),
            ("release.json", "release.json"),
        ] {
            let output = ReportedOutput { name: name.into(), size: 1, sha256: base::digest::Digest::of(b"") };
            assert_eq!(short(&output, &product), (expected.to_owned(), 1));
        }
    }

    #[test]
    fn the_page_about_metrics_has_those_of_builds_and_no_others() {
        let scene = Scene::new();
        let text = scene.run(vec![ended("small", Ok(()))], None);
        testing::docs::metrics_are_those_of("Builds", &text);
    }
}
