//! `iso-builder lock`.

use std::path::PathBuf;

use anyhow::Result;
use base::program::Context;
use serde_json::json;

use super::build::{CacheArguments, ImageArguments, PullArguments};
use crate::lock::LockPolicy;
use crate::pipeline::{self, InputOptions, WrittenLock};

/// Resolve every input of a definition to a digest and write DEFINITION.lock beside it.
///
/// Of a definition with `variants`, each has a lock file of its own, DEFINITION.VARIANT.lock; of one with `architectures`, each has
/// DEFINITION.ARCHITECTURE.lock or DEFINITION.VARIANT.ARCHITECTURE.lock.
#[derive(Debug, clap::Args)]
pub(super) struct LockCommand {
    /// The image definition; `-` is standard input.
    definition: PathBuf,
    #[command(flatten)]
    images: ImageArguments,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    pull: PullArguments,
}

impl LockCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let options = InputOptions {
            images: self.images.into(),
            policy: LockPolicy::default(),
            module_key: None,
            pull: self.pull.into(),
            cache: self.cache.into(),
        };
        let written = pipeline::relock(&self.definition, &options, &context.progress)?;
        let line = |WrittenLock { path, lock }: &WrittenLock| {
            let (packages, images) = (lock.packages.len(), lock.images.len());
            format!("{}: {packages} packages, {images} images of registries", path.display())
        };
        let document = |WrittenLock { path, lock }: &WrittenLock| json!({ "lock": path, "packages": lock.packages.len(), "images": lock.images.len() });
        // One lock file is a document alone, as it was before there were several.
        let shown = match &written[..] {
            [one] => document(one),
            several => several.iter().map(document).collect(),
        };
        context.show(&shown, || written.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}
