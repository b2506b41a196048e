//! `iso-builder lock`.

use std::path::PathBuf;

use anyhow::Result;
use installer::cli::{Context, print};

use super::build::CacheArguments;
use crate::build::CacheOptions;
use crate::definition::Loaded;
use crate::{lock, packages, tools};

/// Resolve every input of a definition to a digest and write DEFINITION.lock beside it.
#[derive(Debug, clap::Args)]
pub(super) struct Lock {
    /// The image definition.
    definition: PathBuf,
    #[command(flatten)]
    cache: CacheArguments,
}

impl Lock {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let loaded = Loaded::read(&self.definition)?;
        tools::check()?;
        let cache = CacheOptions::from(self.cache).open(&context.progress)?;
        let locked = packages::relock(&loaded, &cache, &context.progress)?;
        let path = lock::Lock::path(&loaded.file);
        print(&format!("{}: {} packages", path.display(), locked.packages.len()))
    }
}
