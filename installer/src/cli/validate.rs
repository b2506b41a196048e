//! `installer validate`: checks install configurations and tells all mistakes at once.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Context, Format, print};
use crate::config::{self, Diagnostic, Invalid};
use crate::failure::{Class, Failure};
use crate::files;

/// Arguments of `installer validate`.
#[derive(Debug, clap::Args)]
pub(super) struct Validate {
    /// Install configurations.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Validate {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let found = Invalid(self.files.iter().flat_map(|path| diagnose(path)).collect());
        if context.format == Format::Json {
            print(&serde_json::to_string_pretty(&found.0)?)?;
        }
        let count = found.0.len();
        if count == 0 {
            let text =
                self.files.iter().map(|file| format!("{} is valid\n", file.display())).collect::<String>();
            return if context.format == Format::Text { print(&text) } else { Ok(()) };
        }
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        let summary = match context.format {
            Format::Text => format!("{count} {noun} in the configuration\n{found}"),
            Format::Json => format!("{count} {noun} in the configuration"),
        };
        Err(Failure::new(Class::Invalid, summary).into())
    }
}

fn diagnose(path: &Path) -> Vec<Diagnostic> {
    let name = path.display().to_string();
    match files::read_text(path) {
        Err(error) => vec![Diagnostic::of_file(&name, "unreadable-file", format!("{error:#}"))],
        Ok(text) => config::check(&text, &name).err().map(|invalid| invalid.0).unwrap_or_default(),
    }
}
