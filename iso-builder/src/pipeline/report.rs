//! The report of a build: `build-report.json` beside the media, and a summary in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files::{parent, unusable};
use base::parallel::locked;
use base::progress::{Event, Sink, StepState};
use base::size::ByteSize;
use nix::unistd::{AccessFlags, access};
use serde::Serialize;

use super::context::Build;
use super::media::{BuiltFile, MadeMedia};
use crate::cache::StepUse;
use crate::extensions::BuiltExtension;
use crate::files::digest_of_file;
use crate::images::pull::PinnedImage;
use crate::lock::{Lock, LockedFile};

const REPORT_FORMAT: u32 = 1;
/// The prefix of progress texts that are warnings.
const WARNING: &str = "warning: ";
/// Everything about one build that its media do not say themselves.
#[derive(Clone, Debug, Serialize)]
pub struct BuildReport {
    pub format: u32,
    pub builder: String,
    pub product: ReportedProduct,
    /// When the build began, in seconds since 1970.
    pub started: u64,
    pub seconds: f64,
    pub definition: ReportedFile,
    /// The variant of the definition, if it has some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    pub lock: ReportedFile,
    /// The time stamp of everything in the media, in seconds since 1970.
    pub epoch: u64,
    pub inputs: ReportedInputs,
    /// Of `release.json`, which lists the payloads of the full ISO.
    pub release: Digest,
    /// In the order of their ends; those that ran at the same time overlap.
    pub steps: Vec<StepUse>,
    pub outputs: Vec<ReportedOutput>,
    /// The versions of the programs of this host, as they tell them.
    pub tools: BTreeMap<String, String>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReportedProduct {
    pub id: String,
    pub name: String,
    pub version: String,
    pub architecture: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReportedFile {
    pub path: PathBuf,
    pub sha256: Digest,
}

/// The inputs that the lock file pins.
#[derive(Clone, Debug, Serialize)]
pub struct ReportedInputs {
    pub packages: usize,
    /// Of the base, if it is a file or a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Digest>,
    pub images: Vec<PinnedImage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Archives and layouts of images, sources and modules of extensions, and the definitions that the definition extends.
    pub files: Vec<LockedFile>,
    /// The modules of extensions, as they are in the OS image.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<BuiltExtension>,
    pub installer: Digest,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReportedOutput {
    /// The name in the directory of the report.
    pub name: String,
    /// In bytes.
    pub size: u64,
    pub sha256: Digest,
}

/// Collects the warnings of a run. Clones share what is collected: one is a sink, another is asked at the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Sink for Warnings {
    fn show(&mut self, event: &Event) {
        if let (StepState::Progress, Some(text)) = (event.state, event.message.strip_prefix(WARNING)) {
            locked(&self.0).push(text.to_owned());
        }
    }
}

/// The start time and the warnings of a build, for its report.
#[derive(Debug)]
pub(super) struct Recording {
    started: SystemTime,
    begun: Instant,
    pub(super) warnings: Warnings,
}

impl Recording {
    pub(super) fn begin() -> Self {
        Self { started: SystemTime::now(), begun: Instant::now(), warnings: Warnings::default() }
    }

    /// The report of a build that has ended with these outputs.
    pub(super) fn end(
        self,
        build: &Build<'_>,
        epoch: u64,
        installer: Digest,
        extensions: &[BuiltExtension],
        tools: BTreeMap<String, String>,
        made: &MadeMedia,
    ) -> Result<BuildReport> {
        let (definition, loaded) = (&build.inputs.loaded.definition, &build.inputs.loaded);
        let file = |path: &Path| -> Result<ReportedFile> {
            Ok(ReportedFile { path: path.to_owned(), sha256: digest_of_file(path)?.0 })
        };
        let named = |output: &BuiltFile| ReportedOutput {
            name: output.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            size: output.size,
            sha256: output.sha256,
        };
        let lock = &build.lock;
        let mut steps = build.inputs.cache.figures().uses();
        steps.extend_from_slice(&made.uses);
        let release_of = |locked: &crate::lock::LockedRelease| {
            format!("{} {}", locked.distribution.name(), locked.version)
        };
        Ok(BuildReport {
            format: REPORT_FORMAT,
            builder: env!("CARGO_PKG_VERSION").to_owned(),
            product: ReportedProduct {
                id: definition.id.clone(),
                name: definition.name.clone(),
                version: definition.version.clone(),
                architecture: definition.architecture.debian().to_owned(),
            },
            started: self.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            seconds: self.begun.elapsed().as_secs_f64(),
            definition: ReportedFile { path: loaded.file.clone(), sha256: loaded.digest },
            variant: loaded.variant.clone(),
            lock: file(&Lock::path_of(loaded))?,
            epoch,
            inputs: ReportedInputs {
                packages: lock.packages.len(),
                base: lock.base,
                images: lock.images.clone(),
                kubernetes: lock.kubernetes.as_ref().map(release_of),
                files: lock.files.clone(),
                extensions: extensions.to_vec(),
                installer,
            },
            release: made.release,
            steps,
            outputs: made.files.iter().map(named).collect(),
            tools,
            warnings: locked(&self.warnings.0).clone(),
        })
    }
}

/// Fails if a summary could not be appended to this file after a build. Nothing is made.
///
/// # Errors
/// As [`unusable`] has them.
pub fn check_summary(file: &Path) -> Result<()> {
    let writable = if file.exists() {
        OpenOptions::new().append(true).open(file).map(drop)
    } else {
        access(parent(file), AccessFlags::W_OK | AccessFlags::X_OK).map_err(io::Error::from)
    };
    Ok(writable.map_err(|error| unusable(file, error))?)
}

impl BuildReport {
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Appends the summary to a file ([`check_summary`] looks before), as CI systems collect them from several commands.
    ///
    /// # Errors
    /// [`Class::Invalid`] if the file cannot be written.
    pub fn append_summary(&self, file: &Path) -> Result<()> {
        let append =
            || OpenOptions::new().create(true).append(true).open(file)?.write_all(self.summary().as_bytes());
        append().class(Class::Invalid, || format!("writing the summary {}", file.display()))
    }

    /// The summary: Markdown with tables (GitHub's).
    #[must_use]
    pub fn summary(&self) -> String {
        let ReportedProduct { name, version, architecture, .. } = &self.product;
        let mut text =
            format!("## {name} {version} ({architecture})\n\n| Output | Size | SHA-256 |\n|---|---:|---|\n");
        for output in &self.outputs {
            let size = ByteSize::bytes(output.size);
            let _ = writeln!(text, "| `{}` | {size} | `{}` |", output.name, output.sha256);
        }
        text.push_str("\n| Step | Time | Size |\n|---|---:|---:|\n");
        for step in &self.steps {
            let time = step.time();
            let _ = writeln!(text, "| {} | {time} | {} |", step.step, ByteSize::bytes(step.size));
        }
        let minutes = self.time();
        let (definition, lock) = (self.definition.path.display(), &self.lock.sha256.to_string()[..16]);
        let _ = writeln!(
            text,
            "\nBuilt from `{definition}` in {minutes}; lock file `{lock}…`, release `{}`.",
            self.release
        );
        for warning in &self.warnings {
            let _ = writeln!(text, "\n> **Warning:** {}", warning.replace('\n', " "));
        }
        text.push('\n');
        text
    }

    /// The time of the whole build, for people.
    #[must_use]
    pub fn time(&self) -> String {
        minutes(Duration::from_secs_f64(self.seconds))
    }

    /// The steps in lines for people: the time of each, or that it came from the cache.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let line = |step: &StepUse| {
            let time = step.time();
            format!("{time:>9}  {:<18} {:>10}", step.step, ByteSize::bytes(step.size).to_string())
        };
        let total = format!("{:>9}  in all", self.time());
        self.steps.iter().map(line).chain(std::iter::once(total))
    }
}

fn minutes(time: Duration) -> String {
    format!("{}:{:02} min", time.as_secs() / 60, time.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use base::progress::Progress;

    use super::*;

    fn report() -> BuildReport {
        let digest = Digest::of(b"x");
        let file = |path: &str| ReportedFile { path: path.into(), sha256: digest };
        let step = |step: &str, cached, seconds| StepUse {
            step: step.into(),
            cached,
            origin: None,
            seconds,
            size: 2048,
        };
        BuildReport {
            format: REPORT_FORMAT,
            builder: "1".into(),
            product: ReportedProduct {
                id: "os".into(),
                name: "An OS".into(),
                version: "2".into(),
                architecture: "amd64".into(),
            },
            started: 0,
            seconds: 61.5,
            definition: file("image.yaml"),
            variant: None,
            lock: file("image.yaml.lock"),
            epoch: 0,
            inputs: ReportedInputs {
                packages: 1,
                base: None,
                images: Vec::new(),
                kubernetes: None,
                files: Vec::new(),
                extensions: Vec::new(),
                installer: digest,
            },
            release: digest,
            steps: vec![step("base", true, 0.01), step("rootfs", false, 12.34)],
            outputs: vec![ReportedOutput { name: "os.iso".into(), size: 4096, sha256: digest }],
            tools: BTreeMap::new(),
            warnings: vec!["of two\nlines".into()],
        }
    }

    #[test]
    fn a_summary_has_a_row_for_each_output_and_step_and_follows_what_is_in_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("summary.md");
        std::fs::write(&file, "before\n").unwrap();
        report().append_summary(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        let row = format!("| `os.iso` | 4 KiB | `{}` |\n", Digest::of(b"x"));
        for part in [
            "before\n## An OS 2 (amd64)\n",
            &row,
            "| base | cached | 2 KiB |\n",
            "| rootfs | 12.3 s | 2 KiB |\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.contains("Built from `image.yaml` in 1:01 min")
                && text.contains("> **Warning:** of two lines\n")
        );
        assert_eq!(
            base::failure::class_of(&report().append_summary(directory.path()).unwrap_err()),
            Class::Invalid
        );
    }

    #[test]
    fn a_summary_that_could_not_be_written_is_refused_before_a_build_and_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let refused = |file: &Path| base::failure::class_of(&check_summary(file).unwrap_err());
        assert_eq!(refused(&directory.path().join("absent/summary.md")), Class::Invalid);
        assert_eq!(refused(directory.path()), Class::Invalid);
        let file = directory.path().join("summary.md");
        check_summary(&file).unwrap();
        assert!(!file.exists());
        std::fs::write(&file, "before\n").unwrap();
        check_summary(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "before\n");
    }

    #[test]
    fn only_warnings_are_collected_of_what_is_told() {
        let warnings = Warnings::default();
        let progress = Progress::new(vec![Box::new(warnings.clone())]);
        progress.note("image", "warning: it is old");
        progress.note("image", "it is new");
        progress.step("image", "warning: none", None).done();
        assert_eq!(*locked(&warnings.0), ["it is old"]);
    }
}
