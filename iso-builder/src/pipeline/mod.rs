//! A build: from a definition to media, as a graph of steps.
//!
//! ```text
//! packages ─ base ┬ kernel (kernel, loaders) ─ initrd (installer) ┐
//! module tools ─ extensions ┤                                       │
//! distribution ───┼ rootfs (overlays, installer) ──────────────┼ media
//! packages ─ built images ┐                                    │
//! archives and layouts ───┼ image store ─ metadata (containerd)┘
//! registries ─ blobs ─────┘
//! ```
//!
//! Each step is keyed by the digests of what goes into it, so a change rebuilds only what depends on it. Steps that need nothing of each
//! other run side by side.

mod base_contents;
mod base_listing;
mod base_system;
mod builder_image;
mod check;
mod configuration;
mod context;
mod disk;
mod extension_inputs;
mod extensions;
mod hardware;
mod host_programs;
mod image_outputs;
mod image_report;
mod images;
mod initrd;
mod inputs;
mod kubernetes;
mod media;
mod metrics;
mod options;
mod os;
mod output;
mod overlay;
mod program;
mod provenance;
mod record;
mod release_images;
mod report;
mod room;
mod runner_image;
mod sbom;
mod signing;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Instant;

use anyhow::{Context, Result};
use base::failure::{self, Class};
use base::parallel::{self, locked};
use base::progress::Progress;
use medium::build_output::REPORT;

pub use self::builder_image::{BuilderImageOptions, builder_image};
pub use self::check::{BuildCheck, CheckOptions, CheckReport, CheckState, check};
use self::context::Build;
pub use self::image_report::ImageReport;
use self::inputs::{BuildInputs, LockUse};
pub use self::media::BuiltFile;
pub use self::metrics::{BuildMetrics, EndedBuild};
pub use self::options::{BuildOptions, CacheOptions, InputOptions, PullOptions, SharedOptions};
use self::output::OutputDirectory;
use self::program::BuildInstaller;
pub use self::program::InstallerChoice;
use self::provenance::MadeOutputs;
use self::report::Recording;
pub use self::report::{BuildReport, check_summary};
pub use self::runner_image::{runner_image, runner_image_name};
pub use self::signing::{BuildSigners, KnownSignatures};
use self::signing::{BuildSigning, OpenSigners};
use crate::cache::{Cache, LostStep, StepRules, StepTrust};
use crate::definition::{LoadedDefinition, OutputKind};
use crate::images::stored_image::StoredImage;
use crate::lock::Lock;
use crate::steps::available_memory;

/// The outputs of a build of one image of a definition.
#[derive(Debug)]
pub struct FinishedBuild {
    pub definition: PathBuf,
    /// Which of its variants it is, if it has some.
    pub variant: Option<String>,
    /// Where they are.
    pub directory: PathBuf,
    pub files: Vec<BuiltFile>,
    /// The steps whose outputs were not in the cache, in the order of their ends.
    pub made: Vec<String>,
    /// What is written beside them.
    pub report: BuildReport,
}

/// Builds the media of definitions, of their variants and architectures, several side by side. What they have in common is made once.
/// `ended` hears how each has ended that was begun.
///
/// # Errors
/// Everything that can be known of any of them is checked before anything that takes time or writes a lock file. After the first that fails
/// no other is begun; what is under way is finished, and what was finished stays.
pub fn build(
    options: &BuildOptions,
    ended: &(dyn Fn(EndedBuild) + Sync),
    progress: &Progress,
) -> Result<Vec<FinishedBuild>> {
    // A mistake in any of them comes before a fault of the host.
    let mut read = Vec::new();
    for (file, output) in output::directories_of(&options.output, &options.definitions)? {
        let each = LoadedDefinition::read_each(file, &options.inputs.images)?;
        read.extend(each.into_iter().map(|loaded| (loaded, output.clone())));
    }
    let planned = read.into_iter().map(|(loaded, output)| PlannedBuild::of(loaded, &output, options));
    let planned = planned.collect::<Result<Vec<_>>>()?;
    let signers = OpenSigners::open(&options.signers)?;
    let run = BuildRun { options, signers, ended, cache: Mutex::default(), lost: Mutex::default() };
    if let [build] = &planned[..] {
        return Ok(vec![run.finish(build, progress)?]);
    }
    let jobs = options.jobs.unwrap_or_else(jobs_of_this_host).get();
    let numbered: Vec<_> = planned.iter().enumerate().collect();
    parallel::map(&numbered, jobs, |(index, build)| {
        let subject = build.loaded.told();
        progress.note("build", format!("Building {subject}, {} of {}", index + 1, numbered.len()));
        run.finish(build, &progress.part(&*subject)).with_context(|| format!("building {subject}"))
    })
}

/// The memory that a build has to itself where several run side by side, in bytes.
const MEMORY_OF_A_BUILD: u64 = 4 << 30;

/// What steps of a build need that unpack its base each, in bytes for each of its archive: three trees, and each is in memory if that has
/// room for two.
const BYTES_OF_TREES: u64 = 8;

/// Whether steps that unpack the base run side by side.
#[derive(Clone, Copy, Debug)]
struct Trees {
    fit_memory: bool,
}

impl Trees {
    /// Of a base whose archive has so many bytes.
    fn of(archive: u64) -> Self {
        let needed = archive.saturating_mul(BYTES_OF_TREES).saturating_add(MEMORY_OF_A_BUILD);
        Self { fit_memory: available_memory().is_some_and(|bytes| bytes >= needed) }
    }

    /// Does both, side by side where their trees fit the memory: on a disk they would take longer than one after the other.
    fn both<A: Send, B>(
        self,
        first: impl FnOnce() -> Result<A> + Send,
        second: impl FnOnce() -> Result<B>,
    ) -> Result<(A, B)> {
        if self.fit_memory { parallel::both(first, second) } else { Ok((first()?, second()?)) }
    }
}

/// How many builds run side by side: one for each processor, as far as the memory reaches.
fn jobs_of_this_host() -> NonZeroUsize {
    let processors = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let memory = available_memory().map_or(0, |bytes| bytes / MEMORY_OF_A_BUILD);
    processors
        .min(NonZeroUsize::new(usize::try_from(memory).unwrap_or(usize::MAX)).unwrap_or(NonZeroUsize::MIN))
}

/// Builds that have a cache in common.
struct BuildRun<'o> {
    options: &'o BuildOptions,
    signers: OpenSigners,
    ended: &'o (dyn Fn(EndedBuild) + Sync),
    /// Opened by the first build that needs it.
    cache: Mutex<Option<Cache>>,
    /// The steps of other hosts that did not come to one of the builds.
    lost: Mutex<BTreeSet<String>>,
}

/// How often a build begins again for a step that does not come: more than a build has steps.
const LOST_STEPS_MAX: u32 = 64;

impl BuildRun<'_> {
    /// The cache for a build with these rules.
    fn cache(&self, rules: StepRules, progress: &Progress) -> Result<Cache> {
        let mut cache = locked(&self.cache);
        let cache = match &mut *cache {
            Some(cache) => cache,
            unopened => unopened.insert(self.options.inputs.cache.open(progress)?),
        };
        Ok(cache.for_build(rules))
    }

    fn finish(&self, build: &PlannedBuild, progress: &Progress) -> Result<FinishedBuild> {
        let begun = Instant::now();
        let figures = Mutex::new(Arc::default());
        let cache = |rules| {
            let cache = self.cache(rules, progress)?;
            // Where it begins anew, what it has asked for so far is asked for again.
            *locked(&figures) = Arc::clone(cache.figures());
            Ok(cache)
        };
        let built = self.made_of_all(progress, |options| build.run(&self.signers, options, &cache, progress));
        let figures = figures.into_inner().unwrap_or_else(PoisonError::into_inner);
        let report = built.as_ref().map(|built| &built.report).map_err(failure::class_of);
        (self.ended)(EndedBuild::now(&build.loaded, report, begun.elapsed(), &figures));
        built
    }

    /// Builds with what other hosts share, and where a step of them does not come, once more with what is here: what is there already is
    /// quick.
    fn made_of_all<T>(&self, progress: &Progress, build: impl Fn(&BuildOptions) -> Result<T>) -> Result<T> {
        let mut options = self.options.clone();
        let mut left = LOST_STEPS_MAX;
        loop {
            let mark = progress.mark();
            let result = build(&options);
            let shared = &mut options.inputs.cache.shared;
            let known = shared.rules.lost.len();
            shared.rules.lost.extend(locked(&self.lost).iter().cloned());
            let error = match result {
                Err(error) if left > 0 => error,
                result => return result,
            };
            let lost = error.downcast_ref::<LostStep>().cloned();
            // A step that another build has lost is not where this one had it.
            let is_lost = shared.rules.lost.len() > known;
            if lost.is_none() && !is_lost {
                return Err(error);
            }
            progress.back_to(mark);
            left -= 1;
            if let Some(lost) = lost.filter(|lost| !shared.rules.lost.contains(&lost.step)) {
                let why = failure::causes(&error).join(": ");
                progress.warn("shared-steps", &format!("{why}; it is made here"));
                if failure::class_of(&error) == Class::Verification {
                    locked(&self.lost).insert(lost.step.clone());
                    shared.rules.lost.insert(lost.step);
                } else {
                    // Others would not come either.
                    shared.from.clear();
                    shared.rules.whole = true;
                }
            }
        }
    }
}

/// A build of one image, of which all is checked that can be known before it begins.
#[derive(Debug)]
struct PlannedBuild {
    loaded: LoadedDefinition,
    /// The installer, which is checked.
    installer: PathBuf,
    wanted: BTreeSet<OutputKind>,
    /// The directory of its outputs.
    output: PathBuf,
}

impl PlannedBuild {
    /// The outputs go to the directory `output`, or to one within it for each variant and architecture.
    fn of(loaded: LoadedDefinition, output: &Path, options: &BuildOptions) -> Result<Self> {
        let definition = &loaded.definition;
        let architecture = definition.architecture;
        let installer = program::check(&options.installer.path(architecture)?, architecture)?;
        let wanted: BTreeSet<_> =
            options.only.as_ref().unwrap_or(&definition.outputs).iter().copied().collect();
        host_programs::check_disks(&wanted)?;
        // A host that cannot build gets no directory, and nobody is asked for a passphrase. It starts programs to know, and the other
        // checks go on meanwhile.
        parallel::both(
            || {
                let scratch = tempfile::tempdir().context("making a scratch directory")?;
                configuration::payloads(&loaded, scratch.path())?;
                configuration::disk(&loaded, &wanted)?;
                signing::revocations(&loaded)?;
                extension_inputs::check(&loaded)?;
                extension_inputs::check_key(definition, options.inputs.module_key.as_ref())
            },
            || host_programs::check(architecture),
        )?;
        let output = output::directory_of(output, loaded.variant.as_deref(), definition.own_architecture())?;
        Ok(Self { loaded, installer, wanted, output })
    }

    fn run(
        &self,
        signers: &OpenSigners,
        options: &BuildOptions,
        cache: &dyn Fn(StepRules) -> Result<Cache>,
        progress: &Progress,
    ) -> Result<FinishedBuild> {
        let Self { loaded, installer, wanted, output: directory } = self;
        let (wanted, directory) = (wanted.clone(), directory.clone());
        let recording = Recording::begin();
        progress.add(Box::new(recording.warnings.clone()));
        let scratch = tempfile::tempdir().context("making a scratch directory")?;
        let configuration = configuration::payloads(loaded, scratch.path())?;
        if let Some(warning) = configuration::unreachable_images(loaded, &wanted) {
            progress.warn("configuration", &warning);
        }
        let signing = BuildSigning::begin(loaded, signers, progress)?;
        let outputs = OutputDirectory::open(&directory, progress)?;
        options.inputs.check_room(loaded, Some(&directory))?;
        let approve = |lock: &Lock| base_contents::check_packages(loaded, lock);
        let mut inputs = options.inputs.clone();
        let shared = &mut inputs.cache.shared;
        if signing.step_trust() == StepTrust::Own || inputs.module_key.is_some() {
            shared.rules.trust = StepTrust::Own;
            if !shared.from.is_empty() {
                let text = "No step of --cache-from is used: what keys vouch for is made on this host";
                progress.note("signing", text);
            }
        }
        let cache = cache(inputs.cache.shared.rules.clone())?;
        let build = Build::begin(loaded.clone(), &inputs, cache, &approve, progress)?;
        build.check_room(&directory, wanted.len())?;
        let installer = BuildInstaller::of(installer.clone(), build.inputs.cache.known_files())?;
        let distribution = build.distribution()?;
        let ((base, extensions), built) = parallel::both(
            || {
                let base = build.base()?;
                let paths = build.base_paths(&base)?;
                build.check_base(&paths)?;
                let extensions = build.extensions(&paths)?;
                Ok((base, extensions))
            },
            || build.built_images(),
        )?;
        let trees = Trees::of(base.archive_bytes()?);
        let ((kernel, initrd), (rootfs, images)) = trees.both(
            || {
                let kernel = build.kernel(&base, &extensions)?;
                let initrd = build.initrd(&kernel, &installer, &signing.store)?;
                Ok((kernel, initrd))
            },
            || {
                trees.both(
                    || build.rootfs(&base, distribution.as_ref(), &extensions, &installer, &signing.store),
                    || build.images(&base, built.as_ref()),
                )
            },
        )?;
        let hardware = build.hardware(&initrd, &rootfs)?;
        let architecture = loaded.definition.architecture;
        let parts = media::MediumParts::collect(
            architecture,
            base.epoch,
            kernel,
            (&initrd, &rootfs, &hardware),
            images.as_ref(),
            configuration,
        )?;
        let sbom = build.sbom(&base, images.as_ref(), &extensions)?;
        let sign = |manifest: &[u8]| signing.sign(manifest, base.epoch);
        let tools = host_programs::versions(build.inputs.cache.known_files());
        let describe =
            |outputs: &MadeOutputs| build.provenance(outputs, base.epoch, &installer, &tools, &signing);
        let made = build.media(&parts, &sbom, &outputs, (&wanted, &installer), (&sign, &describe))?;
        let steps = build.inputs.cache.figures().uses().into_iter().filter(|step| !step.cached);
        let steps = steps.map(|step| step.step).collect();
        let report = recording.end(&build, base.epoch, installer.sha256, &extensions.built, tools, &made)?;
        outputs.write(REPORT, &report.to_bytes()?)?;
        outputs.commit(&made.stale)?;
        made.record.write()?;
        build.inputs.cache.share();
        Ok(FinishedBuild {
            definition: loaded.file.clone(),
            variant: loaded.variant.clone(),
            directory,
            files: made.files,
            made: steps,
            report,
        })
    }
}

/// A lock file that was made anew, with its path.
#[derive(Debug)]
pub struct WrittenLock {
    pub path: PathBuf,
    pub lock: Lock,
}

/// Resolves every input of a definition anew and writes its lock file, or one for each of its images.
pub fn relock(definition: &Path, options: &InputOptions, progress: &Progress) -> Result<Vec<WrittenLock>> {
    let definitions = LoadedDefinition::read_each(definition, &options.images)?;
    definitions.iter().try_for_each(|loaded| host_programs::check(loaded.definition.architecture))?;
    definitions.iter().try_for_each(|loaded| options.check_room(loaded, None))?;
    let cache = options.cache.open(progress)?;
    let relock = |loaded: LoadedDefinition| {
        let path = Lock::path_of(&loaded);
        let cache = cache.for_build(options.cache.shared.rules.clone());
        let lock = BuildInputs::gather(loaded, options, cache, LockUse::Anew, progress)?.relock(progress)?;
        Ok(WrittenLock { path, lock })
    };
    definitions.into_iter().map(relock).collect()
}

/// The images that a definition preloads, with their blobs and roles. From registries only manifests are pulled, no
/// blobs.
pub fn list_images(
    definition: &Path,
    options: &InputOptions,
    progress: &Progress,
) -> Result<Vec<StoredImage>> {
    let loaded = LoadedDefinition::read_one(definition, &options.images)?;
    host_programs::check(loaded.definition.architecture)?;
    options.check_room(&loaded, None)?;
    let cache = options.cache.open(progress)?;
    let build = Build::begin(loaded, options, cache, &|_| Ok(()), progress)?;
    let built = build.built_images()?;
    let images = build.all_images(built.as_ref())?;
    build.check_completeness(&images)?;
    Ok(images)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use anyhow::anyhow;
    use base::failure::Failure;

    use super::*;
    use crate::definition::ImageChoice;

    fn options() -> BuildOptions {
        let shared =
            SharedOptions { from: vec!["r.example.org/steps".parse().unwrap()], ..SharedOptions::default() };
        BuildOptions {
            definitions: Vec::new(),
            inputs: InputOptions {
                images: ImageChoice::default(),
                policy: crate::lock::LockPolicy { locked: false, offline: false },
                module_key: None,
                pull: PullOptions { transfers: 1, rate: None },
                cache: CacheOptions { directory: PathBuf::new(), downloads: None, shared },
            },
            output: PathBuf::new(),
            installer: InstallerChoice::BesideBuilder,
            signers: BuildSigners::Keys(Vec::new()),
            only: None,
            jobs: None,
        }
    }

    fn run(options: &BuildOptions) -> BuildRun<'_> {
        let signers = OpenSigners::Keys(Vec::new());
        BuildRun { options, signers, ended: &|_| (), cache: Mutex::default(), lost: Mutex::default() }
    }

    #[test]
    fn a_build_whose_step_another_has_lost_begins_again_without_it() {
        let options = options();
        let run = run(&options);
        let lost = RefCell::new(Vec::new());
        let result = run.made_of_all(&Progress::silent(), |options| {
            let known: Vec<_> = options.inputs.cache.shared.rules.lost.iter().cloned().collect();
            lost.borrow_mut().push(known.join(" "));
            locked(&run.lost).insert("step-1".to_owned());
            anyhow::ensure!(known == ["step-1"], "a file is not there");
            Ok(())
        });
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(lost.into_inner(), ["", "step-1"]);
    }

    /// What each run of a build reads and leaves out, whose runs end as `failures` say.
    fn runs(failures: &[Option<Class>]) -> (bool, Vec<(usize, usize, bool)>) {
        let runs = RefCell::new(Vec::new());
        let options = options();
        let result = run(&options).made_of_all(&Progress::silent(), |options| {
            let SharedOptions { from, rules, .. } = &options.inputs.cache.shared;
            let number = runs.borrow().len();
            runs.borrow_mut().push((from.len(), rules.lost.len(), rules.whole));
            match failures.get(number).copied().flatten() {
                None => Ok(()),
                Some(class) => {
                    let error = anyhow!(Failure::new(class, "why"));
                    Err(error.context(LostStep { step: format!("step-{number}") }).context("building"))
                }
            }
        });
        (result.is_ok(), runs.into_inner())
    }

    #[test]
    fn a_damaged_step_is_left_out_and_a_silent_registry_is_not_read_again() {
        let (damaged, silent) = (Some(Class::Verification), Some(Class::Network));
        assert_eq!(runs(&[]), (true, vec![(1, 0, false)]));
        assert_eq!(
            runs(&[damaged, damaged, silent]),
            (true, vec![(1, 0, false), (1, 1, false), (1, 2, false), (0, 2, true)])
        );
        let (good, all) = runs(&[damaged; 100]);
        assert!(!good && all.len() == LOST_STEPS_MAX as usize + 1);
    }

    #[test]
    fn another_failure_ends_a_build_at_once() {
        let count = RefCell::new(0);
        let options = options();
        let result: Result<()> = run(&options).made_of_all(&Progress::silent(), |_| {
            *count.borrow_mut() += 1;
            Err(anyhow!(Failure::new(Class::Network, "a package does not come")))
        });
        assert!(result.is_err() && *count.borrow() == 1);
    }
}
