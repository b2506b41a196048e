//! `installer status` and `installer images check`: what this node is and whether it is whole.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Context, Format, print};
use crate::config;
use crate::failure::{Class, Failure};
use crate::node::apply::below;
use crate::node::boot::DOCUMENT;
use crate::node::images::{self, BlobState, Report};
use crate::node::status::{self, Status};

/// Arguments of `installer status`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowStatus {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl ShowStatus {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let status = Status::gather(&self.root)?;
        match context.format {
            Format::Json => print(&serde_json::to_string_pretty(&status)?),
            Format::Text => print(&status.to_string()),
        }
    }
}

/// Arguments of `installer images`.
#[derive(Debug, clap::Args)]
pub(super) struct Images {
    #[command(subcommand)]
    command: ImagesCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ImagesCommand {
    /// Read every blob of the preloaded container images and compare it with its digest.
    Check {
        /// The directory that stands for `/`.
        #[arg(long, value_name = "DIR", default_value = "/")]
        root: PathBuf,
    },
}

impl Images {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let ImagesCommand::Check { root } = self.command;
        let report = check(&root, context)?;
        match context.format {
            Format::Json => print(&serde_json::to_string_pretty(&report)?)?,
            Format::Text => print(&tell(&report))?,
        }
        if report.complete {
            return Ok(());
        }
        let what = format!("{} of {} blobs are missing or damaged", report.faults.len(), report.blobs);
        Err(Failure::new(Class::Verification, what)
            .hint("Load the named images again from a full medium or a registry.")
            .into())
    }
}

fn check(root: &Path, context: &Context) -> Result<Report> {
    let release = status::release(root)?;
    let role = config::load(&below(root, DOCUMENT))?.install.role;
    images::check(&release, role, root, &context.progress)
}

fn tell(report: &Report) -> String {
    let mut text: String = report
        .faults
        .iter()
        .map(|fault| {
            let state = match fault.state {
                BlobState::Missing => "missing",
                BlobState::Damaged => "damaged",
            };
            format!("{state} {} of {}\n", fault.digest.oci(), fault.images.join(", "))
        })
        .collect();
    let verdict = if report.complete { "complete" } else { "NOT complete" };
    text.push_str(&format!("{verdict}: {} images, {} blobs\n", report.images, report.blobs));
    text
}
