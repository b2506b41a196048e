//! The options of a build.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify};
use base::progress::Progress;
use base::size::ByteSize;
use formats::oci::Repository;

use super::program::InstallerChoice;
use super::room::{self, NeededRoom};
use super::signing::BuildSigners;
use crate::cache::{Cache, StepRules};
use crate::definition::{ImageChoice, LoadedDefinition, OutputKind};
use crate::lock::{Lock, LockPolicy};

#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// The definitions, which are begun in this order.
    pub definitions: Vec<PathBuf>,
    pub inputs: InputOptions,
    /// The directory of the outputs; those of each of several definitions, variants and architectures have a directory within it.
    pub output: PathBuf,
    /// The `installer` executable that goes into the OS image.
    pub installer: InstallerChoice,
    /// Who signs the release.
    pub signers: BuildSigners,
    /// Outputs to make instead of those of the definition.
    pub only: Option<Vec<OutputKind>>,
    /// How many builds run side by side; without it as many as the processors and the memory of this host are enough for.
    pub jobs: Option<NonZeroUsize>,
}

/// How the inputs of a definition are obtained.
#[derive(Clone, Debug)]
pub struct InputOptions {
    /// Which of the images of a definition are meant.
    pub images: ImageChoice,
    /// How the lock file and the network are treated.
    pub policy: LockPolicy,
    /// The file of the private key that signs the modules of extensions, in PEM.
    pub module_key: Option<PathBuf>,
    pub pull: PullOptions,
    pub cache: CacheOptions,
}

impl InputOptions {
    /// Fails if there is not even room to begin: apt's lists where nothing is locked yet, and scratch files.
    pub(super) fn check_room(&self, loaded: &LoadedDefinition, output: Option<&Path>) -> Result<()> {
        let lists = if Lock::path_of(loaded).exists() { room::LEAST } else { room::FOR_LISTS };
        let temporary = std::env::temp_dir();
        let room = |purpose, directory, size, option| NeededRoom { purpose, directory, size, option };
        let mut needed = vec![
            room("the cache", &*self.cache.directory, lists, "--cache-dir"),
            room("temporary files", &*temporary, room::LEAST, "the environment variable TMPDIR"),
        ];
        needed.extend(output.map(|output| room("the media", output, room::LEAST, "--output")));
        room::check(&needed)
    }
}

#[derive(Clone, Debug)]
pub struct CacheOptions {
    pub directory: PathBuf,
    /// The directory of downloads, if it is not in the cache.
    pub downloads: Option<PathBuf>,
    pub shared: SharedOptions,
}

/// The repositories of registries through which builders share steps.
#[derive(Clone, Debug, Default)]
pub struct SharedOptions {
    /// In which a build looks for steps, in this order.
    pub from: Vec<Repository>,
    /// That get the steps that this host has made.
    pub to: Vec<Repository>,
    pub rules: StepRules,
}

impl CacheOptions {
    /// Opens the cache; reports when it has to wait for another build.
    pub fn open(&self, progress: &Progress) -> Result<Cache> {
        let wait = || progress.note("cache", "Waiting for another build that uses the same cache");
        Cache::open(&self.directory, self.downloads.as_deref(), wait)
            .class(Class::DiskIo, || format!("opening the cache {}", self.directory.display()))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PullOptions {
    /// How many transfers run at the same time.
    pub transfers: usize,
    /// Bytes a second, all transfers together.
    pub rate: Option<ByteSize>,
}
