//! `iso-builder show`.

use std::path::PathBuf;

use anyhow::Result;
use base::program::Context;

use crate::definition;

/// Print an image definition as it is after `extends`.
///
/// A comment behind each inherited value says in which file and line it is. Paths are relative to the definition, so that the
/// text, saved beside it, is a definition of its own. Secrets are hidden. With `--format json` every default is there too, and
/// the definitions that it extends, with their digests.
#[derive(Debug, clap::Args)]
pub(super) struct ShowCommand {
    /// The image definition; `-` is standard input.
    definition: PathBuf,
    /// Of a definition with `variants`, this one.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
}

impl ShowCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let shown = definition::show(&self.definition, self.variant.as_deref())?;
        context.show(&shown, || shown.yaml.clone())
    }
}
