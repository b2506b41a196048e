//! `installer validate`: checks install configurations and tells all mistakes at once.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Context, Format, media, print};
use crate::config::sources::{Combined, Document, Kind, combine};
use crate::config::{self, Diagnostic, Invalid, shape};
use crate::failure::{Class, Failure};
use crate::files;

/// Arguments of `installer validate`.
#[derive(Debug, clap::Args)]
pub(super) struct Validate {
    /// Install configurations.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Take the files for sources of one configuration, the weakest first, and tell where each value comes from.
    #[arg(long)]
    show_sources: bool,
    /// Kernel parameters, stronger than the files; @FILE reads them from a file.
    #[arg(long, value_name = "TEXT or @FILE", requires = "show_sources")]
    cmdline: Option<String>,
}

impl Validate {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.show_sources {
            return self.merge(context);
        }
        let found = Invalid(self.files.iter().flat_map(|path| diagnose(path)).collect());
        if context.format == Format::Json {
            print(&serde_json::to_string_pretty(&found.0)?)?;
        }
        if found.0.is_empty() {
            let text =
                self.files.iter().map(|file| format!("{} is valid\n", file.display())).collect::<String>();
            return if context.format == Format::Text { print(&text) } else { Ok(()) };
        }
        Err(failure(&found, context.format).into())
    }

    /// `--show-sources`: one configuration out of all files.
    fn merge(&self, context: &Context) -> Result<()> {
        let mut documents = Vec::new();
        let mut unreadable = Vec::new();
        for path in &self.files {
            let name = path.display().to_string();
            match files::read_text(path) {
                Ok(text) => documents.push(Document::yaml(Kind::File, name, text)),
                Err(error) => unreadable.push(unreadable_file(&name, &error)),
            }
        }
        let line = self.cmdline.as_deref().map(media::command_line).transpose()?;
        documents.extend(line.map(|line| Document::command_line(&line, shape::install_config())));
        let (combined, mistakes) = match combine(&documents) {
            Ok(combined) => (combined, Vec::new()),
            Err(invalid) => (Combined::default(), invalid.0),
        };
        let found = Invalid(unreadable.into_iter().chain(mistakes).collect());
        if context.format == Format::Json {
            let json = serde_json::json!({ "mistakes": found.0, "sources": combined.sources() });
            print(&serde_json::to_string_pretty(&json)?)?;
        }
        if !found.0.is_empty() {
            return Err(failure(&found, context.format).into());
        }
        if context.format == Format::Text { print(&combined.listing()) } else { Ok(()) }
    }
}

fn failure(found: &Invalid, format: Format) -> Failure {
    let count = found.0.len();
    let noun = if count == 1 { "mistake" } else { "mistakes" };
    let summary = match format {
        Format::Text => format!("{count} {noun} in the configuration\n{found}"),
        Format::Json => format!("{count} {noun} in the configuration"),
    };
    Failure::new(Class::Invalid, summary)
}

fn unreadable_file(name: &str, error: &anyhow::Error) -> Diagnostic {
    Diagnostic::of_file(name, "unreadable-file", format!("{error:#}"))
}

fn diagnose(path: &Path) -> Vec<Diagnostic> {
    let name = path.display().to_string();
    match files::read_text(path) {
        Err(error) => vec![unreadable_file(&name, &error)],
        Ok(text) => config::check(&text, &name).err().map(|invalid| invalid.0).unwrap_or_default(),
    }
}
