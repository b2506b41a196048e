//! `iso-builder build`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use base::failure::{Class, Failure, causes};
use base::files::named::told;
use base::program::Context;
use base::size::ByteSize;
use formats::oci::Repository;
use model::architecture::Architecture;

use crate::definition::{ImageChoice, OutputKind};
use crate::images::pull;
use crate::lock::LockPolicy;
use crate::pipeline::{
    self, BuildMetrics, BuildOptions, BuildSigners, BuiltFile, CacheOptions, EndedBuild, FinishedBuild,
    InputOptions, InstallerChoice, PullOptions, SharedOptions,
};
use crate::signing::arguments::SigningArguments;

/// Where a build puts its outputs unless another directory is named.
pub(super) const OUTPUT: &str = "dist";

/// Build media from image definitions.
///
/// Makes the full ISO, the net-install ISO and the netboot set, or what the definition's `outputs` say. What has not changed since the last build is taken
/// from the cache. Inputs are pinned in DEFINITION.lock, which is written by the first build. build-report.json, beside
/// the media, tells how they were made. For a definition with `architectures`, the outputs of each go to a directory with its
/// name, and its inputs are pinned in DEFINITION.ARCHITECTURE.lock; so are those of each of its `variants`, in DEFINITION.VARIANT.lock. Several definitions are
/// checked first and then built side by side, each into a directory with its name; what they have in common is made once.
#[derive(Debug, clap::Args)]
pub(super) struct BuildCommand {
    /// The image definitions; `-` is standard input.
    #[arg(required = true, value_name = "DEFINITION")]
    definitions: Vec<PathBuf>,
    #[command(flatten)]
    inputs: InputArguments,
    #[command(flatten)]
    shared: SharedArguments,
    /// Directory for the media.
    #[arg(short, long, value_name = "DIR", default_value = OUTPUT)]
    output: PathBuf,
    /// Builds that run side by side, where there are several; by default as many as processors and memory are enough for.
    #[arg(short, long, value_name = "COUNT")]
    jobs: Option<NonZeroUsize>,
    /// Make these in place of the definition's `outputs`.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "OUTPUT,...")]
    only: Option<Vec<OutputKind>>,
    /// The installer to put into the OS image: a static program of the image's architecture and of this builder's
    /// version; by default the one beside this builder, where `make` puts it. Repeatable, once for each architecture.
    #[arg(long, value_name = "FILE", env = "NQRUST_INSTALLER")]
    installer: Vec<PathBuf>,
    #[command(flatten)]
    modules: ModuleKeyArguments,
    #[command(flatten)]
    signing: SigningArguments,
    /// Append a summary of the build to this file, in Markdown, as CI systems show it.
    #[arg(long, value_name = "FILE")]
    summary_file: Option<PathBuf>,
    /// Write metrics of the build to this file at its end, also if it fails, for the textfile collector of node_exporter. The name has to end
    /// with `.prom`.
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
}

/// How the inputs of a definition are obtained.
#[derive(Debug, clap::Args)]
pub(super) struct InputArguments {
    #[command(flatten)]
    images: ImageArguments,
    #[command(flatten)]
    policy: PolicyArguments,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    pull: PullArguments,
}

/// Which of the images of a definition are meant.
#[derive(Debug, clap::Args)]
pub(super) struct ImageArguments {
    /// Of a definition with `architectures`, only this one.
    #[arg(long, value_name = "ARCHITECTURE")]
    architecture: Option<Architecture>,
    /// Of a definition with `variants`, only this one. Repeatable.
    #[arg(long = "variant", value_name = "NAME")]
    variants: Vec<String>,
}

impl From<ImageArguments> for ImageChoice {
    fn from(ImageArguments { architecture, variants }: ImageArguments) -> Self {
        Self { architecture, variants }
    }
}

/// The key of the modules of extensions.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct ModuleKeyArguments {
    /// Sign the modules of the definition's extensions with this private key (PEM, without a passphrase); its certificate is
    /// `kernel.module_certificate`.
    #[arg(long, value_name = "FILE")]
    pub(super) module_key: Option<PathBuf>,
}

/// How the lock file and the network are treated.
#[derive(Debug, clap::Args)]
struct PolicyArguments {
    /// Stop when the lock file is absent or does not fit the definition.
    #[arg(long)]
    locked: bool,
    /// Use no network: what is not in the cache is an error.
    #[arg(long)]
    offline: bool,
}

impl From<InputArguments> for InputOptions {
    fn from(arguments: InputArguments) -> Self {
        let InputArguments { images, policy, cache, pull } = arguments;
        let policy = LockPolicy { locked: policy.locked, offline: policy.offline };
        Self { images: images.into(), policy, module_key: None, pull: pull.into(), cache: cache.into() }
    }
}

/// How images are pulled.
#[derive(Debug, clap::Args)]
pub(super) struct PullArguments {
    /// Manifests and blobs pulled at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = pull::DEFAULT_TRANSFERS)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    transfers: usize,
    /// Pull at most this much a second, all transfers together: 10Mi, 500Ki.
    #[arg(long, value_name = "SIZE")]
    rate: Option<ByteSize>,
}

impl From<PullArguments> for PullOptions {
    fn from(arguments: PullArguments) -> Self {
        Self { transfers: arguments.transfers, rate: arguments.rate }
    }
}

/// Where steps and downloads are kept.
#[derive(Debug, clap::Args)]
pub(super) struct CacheArguments {
    /// Where finished steps are kept.
    #[arg(long, value_name = "DIR", env = "NQRUST_CACHE", default_value_os_t = default_cache())]
    cache_dir: PathBuf,
    /// Where downloads are kept, if not in the cache.
    #[arg(long, value_name = "DIR")]
    downloads: Option<PathBuf>,
}

impl From<CacheArguments> for CacheOptions {
    fn from(arguments: CacheArguments) -> Self {
        let shared = SharedOptions::default();
        Self { directory: arguments.cache_dir, downloads: arguments.downloads, shared }
    }
}

/// The registries through which builders share steps.
#[derive(Debug, clap::Args)]
pub(super) struct SharedArguments {
    /// Look in this repository of a registry for steps that are not in the cache: registry.example.org/builds/steps. Repeatable. What is
    /// signed with other keys than the development key is made without it.
    #[arg(long, value_name = "REPOSITORY")]
    cache_from: Vec<Repository>,
    /// Give this repository the steps that this host has made. Repeatable. Whoever may read it can read what is in them, and whoever may write to
    /// it decides what builds with --cache-from make.
    #[arg(long, value_name = "REPOSITORY")]
    cache_to: Vec<Repository>,
}

impl SharedArguments {
    /// # Errors
    /// [`Class::Invalid`] where no network may be used.
    fn options(self, policy: LockPolicy) -> Result<SharedOptions> {
        let Self { cache_from: from, cache_to: to } = self;
        if policy.offline && !(from.is_empty() && to.is_empty()) {
            let what = "--offline uses no network, and --cache-from and --cache-to name registries";
            return Err(Failure::new(Class::Invalid, what).hint("Leave one of them out.").into());
        }
        Ok(SharedOptions { from, to, ..SharedOptions::default() })
    }
}

fn default_cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    base.or_else(home).unwrap_or_else(|| PathBuf::from(".cache")).join("nqrust")
}

impl BuildCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if let Some(file) = &self.summary_file {
            pipeline::check_summary(file)?;
        }
        let metrics = self.metrics.as_deref().map(BuildMetrics::checked).transpose()?;
        let (summary, definitions) = (self.summary_file.clone(), self.definitions.clone());
        let ended = |build| {
            if let Some(metrics) = &metrics {
                metrics.note(build);
            }
        };
        let built = self.build(&ended, context);
        if let Some(metrics) = &metrics {
            let written = metrics.write(&definitions, built.as_ref().err());
            match &built {
                Ok(_) => written?,
                // The failure of the build is what the user has to know first.
                Err(_) => written.err().into_iter().for_each(|error| {
                    context.progress.warn("metrics", &causes(&error).join(": "));
                }),
            }
        }
        let builds = built?;
        for FinishedBuild { report, .. } in &builds {
            if builds.len() == 1 {
                report.lines().for_each(|line| context.progress.note("build", line));
            }
            if let Some(file) = &summary {
                report.append_summary(file)?;
            }
        }
        if builds.len() > 1 {
            table(&builds).iter().for_each(|line| context.progress.note("build", line));
        }
        let media: Vec<_> = builds.into_iter().flat_map(|build| build.files).collect();
        let line = |medium: &BuiltFile| {
            let size = ByteSize::bytes(medium.size).to_string();
            format!("{}  {size:>10}  {}", &medium.sha256.to_string()[..16], medium.path.display())
        };
        context.show(&media, || media.iter().map(line).collect::<Vec<_>>().join("\n"))
    }

    fn build(self, ended: &(dyn Fn(EndedBuild) + Sync), context: &Context) -> Result<Vec<FinishedBuild>> {
        let mut inputs = InputOptions { module_key: self.modules.module_key, ..self.inputs.into() };
        inputs.cache.shared = self.shared.options(inputs.policy)?;
        let options = BuildOptions {
            definitions: self.definitions,
            inputs,
            output: self.output,
            installer: InstallerChoice::of(self.installer),
            signers: BuildSigners::Keys(self.signing.options()?),
            only: self.only,
            jobs: self.jobs,
        };
        pipeline::build(&options, ended, &context.progress)
    }
}

/// What each build took and made, as a table.
fn table(builds: &[FinishedBuild]) -> Vec<String> {
    let mut rows =
        vec![["DEFINITION", "VARIANT", "ARCHITECTURE", "TIME", "OUTPUTS", "MADE ANEW"].map(str::to_owned)];
    rows.extend(builds.iter().map(|FinishedBuild { definition, variant, files, made, report, .. }| {
        let size = ByteSize::bytes(files.iter().map(|file| file.size).sum());
        let made = if made.is_empty() { "nothing".to_owned() } else { made.join(", ") };
        let architecture = report.product.architecture.clone();
        let variant = variant.clone().unwrap_or_default();
        [told(definition), variant, architecture, report.time(), size.to_string(), made]
    }));
    let has_variants = builds.iter().any(|build| build.variant.is_some());
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3, 4].map(width);
    let line = |row: &[String; 6]| {
        let [definition, variant, architecture, time, size, made] = row;
        let [one, two, three, four, five] = widths;
        let variant = if has_variants { format!("{variant:<two$}  ") } else { String::new() };
        format!("{definition:<one$}  {variant}{architecture:<three$}  {time:>four$}  {size:>five$}  {made}")
    };
    rows.iter().map(line).collect()
}
