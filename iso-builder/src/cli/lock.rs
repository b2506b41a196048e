//! `iso-builder lock`.

use std::path::PathBuf;

use anyhow::Result;
use base::program::Context;
use serde_json::json;

use super::build::{CacheArguments, PullArguments};
use crate::lock::{self, LockPolicy};
use crate::pipeline::{self, InputOptions};

/// Resolve every input of a definition to a digest and write DEFINITION.lock beside it.
#[derive(Debug, clap::Args)]
pub(super) struct LockCommand {
    /// The image definition; `-` is standard input.
    definition: PathBuf,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    pull: PullArguments,
}

impl LockCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let path = lock::Lock::path(&self.definition);
        let options = InputOptions {
            definition: self.definition,
            policy: LockPolicy::default(),
            pull: self.pull.into(),
            cache: self.cache.into(),
        };
        let locked = pipeline::relock(&options, &context.progress)?;
        let (packages, images) = (locked.packages.len(), locked.images.len());
        let text = || format!("{}: {packages} packages, {images} images of registries", path.display());
        context.show(&json!({ "lock": path, "packages": packages, "images": images }), text)
    }
}
