//! `installer validate`: checks install configurations and reports all mistakes and warnings at once.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::validate::Validation;
use base::program::Context;

/// Arguments of `installer validate`.
#[derive(Debug, clap::Args)]
pub(super) struct ValidateArgs {
    /// Install configurations; `-` is standard input.
    #[arg(required_unless_present_any = ["cluster", "cmdline"], value_name = "FILE or -")]
    files: Vec<PathBuf>,
    /// A cluster file, checked as a whole, in place of install configurations.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "show_sources", "cmdline"])]
    cluster: Option<PathBuf>,
    /// Count warnings as mistakes.
    #[arg(long)]
    strict: bool,
    /// Treat the files as sources of one configuration, the weakest first, and show where each value comes from.
    #[arg(long)]
    show_sources: bool,
    /// Kernel parameters: alone, or as one configuration with the files, over which they have precedence. @FILE reads them from
    /// a file.
    #[arg(long, value_name = "TEXT or @FILE")]
    cmdline: Option<String>,
}

impl ValidateArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let Self { files, cluster, strict, show_sources, cmdline } = self;
        Validation { files, cluster, strict, show_sources, cmdline }.run(context)
    }
}
