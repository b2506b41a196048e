//! `iso-builder lock`.

use std::path::PathBuf;

use anyhow::Result;
use base::program::Context;
use model::architecture::Architecture;
use serde_json::json;

use super::build::{CacheArguments, PullArguments};
use crate::lock::LockPolicy;
use crate::pipeline::{self, InputOptions, WrittenLock};

/// Resolve every input of a definition to a digest and write DEFINITION.lock beside it.
///
/// For a definition with `architectures`, each has a lock file of its own, DEFINITION.ARCHITECTURE.lock.
#[derive(Debug, clap::Args)]
pub(super) struct LockCommand {
    /// The image definition; `-` is standard input.
    definition: PathBuf,
    /// Of a definition with `architectures`, only this one.
    #[arg(long, value_name = "ARCHITECTURE")]
    architecture: Option<Architecture>,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    pull: PullArguments,
}

impl LockCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let options = InputOptions {
            architecture: self.architecture,
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
