//! `installer images`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use base::failure::{Class, Failure};
use base::program::Context;
use cluster::images::{self, BlobState, ImagesReport};
use machine::installed_node::InstalledNode;

#[derive(Debug, clap::Args)]
pub(super) struct ImagesArgs {
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

impl ImagesArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let ImagesCommand::Check { root } = self.command;
        check_images(&root, context)
    }
}

/// Reads every blob of the node below `root` and prints the result; an error if a blob is missing or damaged.
fn check_images(root: &Path, context: &Context) -> Result<()> {
    let report = check(root, context)?;
    context.show(&report, || tell(&report))?;
    if report.faults.is_empty() {
        return Ok(());
    }
    let what = format!("{} of {} blobs are missing or damaged", report.faults.len(), report.blobs);
    Err(Failure::new(Class::Verification, what)
        .hint("Load the named images again from a full medium or a registry.")
        .into())
}

fn check(root: &Path, context: &Context) -> Result<ImagesReport> {
    let node = InstalledNode::open(root)?;
    node.warn(&mut |line| context.progress.note("images", line));
    let (release, install) = (node.release()?, &node.config.install);
    images::check(&release, install.own_role(), install.images(), root, &context.progress)
}

fn tell(report: &ImagesReport) -> String {
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
    let ImagesReport { images, blobs, present, .. } = report;
    let verdict = match (report.faults.is_empty(), report.complete, report.deferred) {
        (true, false, true) => {
            format!("deferred: {images} images, {present} of {blobs} blobs here; the node pulls the others")
        }
        (true, ..) => format!("complete: {images} images, {blobs} blobs"),
        (false, ..) => format!("NOT complete: {images} images, {blobs} blobs"),
    };
    text.push_str(&format!("{verdict}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;
    use cluster::images::BlobFault;

    #[test]
    fn the_last_line_is_the_verdict() {
        let report =
            ImagesReport { images: 2, blobs: 3, present: 1, deferred: true, ..ImagesReport::default() };
        assert_eq!(tell(&report), "deferred: 2 images, 1 of 3 blobs here; the node pulls the others\n");
        let whole = ImagesReport { complete: true, present: 3, ..report.clone() };
        assert_eq!(tell(&whole), "complete: 2 images, 3 blobs\n");
        let fault = BlobFault {
            digest: Digest::of(b"x"),
            state: BlobState::Damaged,
            images: vec!["a.example.org/b:1".into()],
        };
        let text = tell(&ImagesReport { faults: vec![fault], ..report });
        assert!(text.starts_with("damaged sha256:"), "{text}");
        assert!(text.ends_with("of a.example.org/b:1\nNOT complete: 2 images, 3 blobs\n"), "{text}");
    }
}
