//! `iso-builder reproduce`: builds a release again and compares every part of it with what comes out.
//!
//! Nothing counts that an earlier build has made: every step runs again, in a cache of its own; only downloads are shared, which are
//! compared with the digests of the lock file. The signatures of the release go into what is built, so that ISOs can be equal.
//!
//! | Module | What it knows |
//! |---|---|
//! | [`finished_release`] | the files of a release, wherever they are |
//! | [`inputs`] | what the release says it was made of |
//! | [`compare`] | manifests, payloads and files of two releases |
//! | [`contents`] | the paths that differ in OS images and initrds |
//! | [`report`] | what people and programs are told |

mod compare;
mod contents;
mod finished_release;
mod inputs;
mod report;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use base::failure::{Class, Failure};
use base::progress::Progress;
use trust::TrustedKey;

use self::finished_release::FinishedRelease;
pub use self::report::{Agreement, ComparedInput, ComparedPart, Reproduction};
use crate::definition::ImageChoice;
use crate::lock::LockPolicy;
use crate::namespaces::remove_tree;
use crate::pipeline::{
    self, BuildOptions, BuildSigners, CacheOptions, InputOptions, InstallerChoice, KnownSignatures,
    PullOptions, SharedOptions,
};
use crate::wording::printable;

/// The directories for the steps of a reproduction and for what is built.
const STEPS: &str = "cache";
const MEDIA: &str = "media";

#[derive(Clone, Debug)]
pub struct ReproduceOptions {
    /// What a build wrote, an ISO, or a directory with `release.json`.
    pub release: PathBuf,
    /// None for the definition that the release names.
    pub definition: Option<PathBuf>,
    /// Which of its variants; none for the one that the release names, if it names one.
    pub variant: Option<String>,
    /// The `installer` executable that goes into the OS image.
    pub installer: InstallerChoice,
    /// True if nothing is downloaded.
    pub offline: bool,
    /// The file of the private key that signs the modules of extensions, in PEM.
    pub module_key: Option<PathBuf>,
    pub pull: PullOptions,
    /// The user's cache, whose downloads are used.
    pub cache: CacheOptions,
    /// Where what is built is kept; without it, it is removed.
    pub output: Option<PathBuf>,
    /// The public keys that are known here.
    pub keys: Vec<TrustedKey>,
    /// True if the release is to be signed when it was reproduced.
    pub signs: bool,
}

/// Builds a release again and compares. That something differs is in the report.
///
/// # Errors
/// If the release cannot be read, or the build fails.
pub fn reproduce(options: &ReproduceOptions, progress: &Progress) -> Result<Reproduction> {
    let first = FinishedRelease::open(&options.release)?;
    let origin = inputs::ReleaseOrigin::read(&first)?;
    let architecture = first.media().first().map(|medium| medium.release.architecture).unwrap_or_default();
    let variant = options.variant.as_deref().or_else(|| origin.variant());
    let definition = origin.definition(options.definition.as_deref(), first.path(), variant, architecture)?;
    let installer = options.installer.path(architecture)?;
    let before = origin.compare_before(&definition, variant, architecture, &installer)?;
    for input in before.iter().filter(|input| input.differs()) {
        let again = input.again.as_deref().unwrap_or("none");
        let first = input.first.as_deref().unwrap_or("none");
        progress.warn(
            "reproduce",
            &format!(
                "the release was made with another {}: {}, and {again} is here",
                input.name,
                printable(first)
            ),
        );
    }
    let keys = origin.build_keys(&first, &options.keys)?;
    for key in keys.iter().filter(|key| !options.keys.iter().any(|known| known.key == key.key)) {
        unknown_key(key, options.signs, progress)?;
    }
    let signatures = KnownSignatures { keys, by_manifest: first.signatures()? };
    // The user's cache is held to the end: whoever opens it empties its scratch directory.
    let cache = options.cache.open(progress)?;
    let place = tempfile::tempdir_in(cache.scratch()).context("making a scratch directory")?;
    let media = options.output.clone().unwrap_or_else(|| place.path().join(MEDIA));
    let steps = CacheOptions {
        directory: place.path().join(STEPS),
        downloads: Some(cache.downloads().to_owned()),
        shared: SharedOptions::default(),
    };
    let build = BuildOptions {
        definitions: vec![definition.clone()],
        inputs: InputOptions {
            images: ImageChoice {
                architecture: Some(architecture),
                variants: variant.into_iter().map(str::to_owned).collect(),
            },
            policy: LockPolicy { locked: true, offline: options.offline },
            module_key: options.module_key.clone(),
            pull: options.pull,
            cache: steps,
        },
        output: media.clone(),
        installer: options.installer.clone(),
        signers: BuildSigners::Known(signatures),
        only: Some(first.kinds().into_iter().collect()),
        jobs: None,
    };
    let compared = (|| {
        let made = pipeline::build(&build, &|_| (), progress)?;
        let made = made.first().map_or(&*media, |build| &*build.directory);
        let again = FinishedRelease::open(made)?;
        let parts = compare::compare(&first, &again, place.path(), progress)?;
        Ok::<_, anyhow::Error>((origin.compare_after(made)?, parts))
    })();
    // Steps have files of other owners.
    remove_tree(place.path())?;
    let (inputs, parts) = compared?;
    let (_, not_compared) = first.files();
    let product =
        first.media().first().map(|medium| format!("{} {}", medium.release.name, medium.release.version));
    Ok(Reproduction {
        release: first.path().to_owned(),
        manifests: first.media().iter().map(|medium| medium.reader.release_digest()).collect(),
        product: product.unwrap_or_default(),
        definition,
        reproduced: parts.iter().all(|part| part.agreement == Agreement::Same),
        inputs,
        parts,
        not_compared,
        output: options.output.clone(),
        signed_by: Vec::new(),
    })
}

/// Tells that the nodes of a release will trust a key because the release says so: its definition names none, and nobody here knows it.
fn unknown_key(key: &TrustedKey, signs: bool, progress: &Progress) -> Result<()> {
    let name = printable(&key.name);
    let what = format!("its nodes trust the key {name} ({}), because the release says so", key.key.id());
    if !signs {
        progress.warn("reproduce", &format!("{what}; the definition names no key"));
        return Ok(());
    }
    Err(Failure::new(Class::Invalid, format!("the release would be signed, and {what}"))
        .because(anyhow!("the definition has no `trust.keys`, and the key is not in the key directory"))
        .hint("Name the keys in the definition; or, if you know whose key it is, put its .pub file into the key directory.")
        .into())
}
