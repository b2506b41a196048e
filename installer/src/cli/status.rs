//! `installer status` and `installer images check`: what this node is and whether it is whole.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::{Context, Format, print};
use crate::node::images::{self, BlobState, Report};
use crate::node::paths::{DOCUMENT, below};
use crate::node::release;
use crate::node::reporter::NodeReporter;
use crate::node::stages::observed_node::ObservedNode;
use crate::node::stages::readiness_watch::Watch;
use crate::node::stages::{self, Stage};
use crate::node::status::Status;
use base::command::SystemRunner;
use base::failure::{Class, Failure};
use model::config;

/// Arguments of `installer status`.
#[derive(Debug, clap::Args)]
pub(super) struct ShowStatus {
    /// The directory that stands for `/`. Another one than `/` does not run, and is in no stage.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Wait until the node is ready in its cluster, and tell each change of its stages.
    #[arg(long, conflicts_with = "root")]
    wait: bool,
    /// Wait no longer than this; exit with 7 if the node is not ready then.
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    limit: Option<u64>,
    /// Keep what is seen for the consoles and later calls; for the unit that runs at every boot.
    #[arg(long, requires = "wait", hide = true)]
    record: bool,
}

impl ShowStatus {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.wait {
            self.wait(context)?;
            if context.format == Format::Text {
                return Ok(());
            }
        }
        let mut status = Status::gather(&self.root)?;
        if self.root == Path::new("/") {
            status.look(&self.root, &SystemRunner)?;
        }
        match context.format {
            Format::Json => print(&serde_json::to_string_pretty(&status)?),
            Format::Text => print(&status.to_string()),
        }
    }
}

impl ShowStatus {
    fn wait(&self, context: &Context) -> Result<()> {
        let text = context.format == Format::Text;
        let Some(subject) = ObservedNode::read(&self.root)? else {
            return if text { print("This node has no cluster to wait for.") } else { Ok(()) };
        };
        let watch = Watch { root: &self.root, subject: &subject, record: self.record };
        let mut reporter = self.reporter(&subject, context);
        let mut tell = |stages: &[Stage], news: bool| {
            reporter.iter_mut().for_each(|reporter| reporter.tell(stages));
            match stages::current(stages).filter(|_| news) {
                Some(stage) if text => print(&told(stage)),
                None if text && news => print("The node is ready in its cluster."),
                _ => Ok(()),
            }
        };
        let stages = watch.run(&SystemRunner, self.limit.map(Duration::from_secs), &mut tell)?;
        if let Some(Err(error)) = reporter.map(NodeReporter::conclude) {
            context.progress.note("report", format!("warning: {error:#}"));
        }
        stages::current(&stages).map_or(Ok(()), |stage| Err(not_ready(stage).into()))
    }

    /// Only the unit that watches speaks to the server of a fleet, and trouble there is no trouble of the node.
    fn reporter(&self, subject: &ObservedNode, context: &Context) -> Option<NodeReporter> {
        if !self.record {
            return None;
        }
        let result = NodeReporter::of_observed(subject, &self.root, &context.progress);
        result.unwrap_or_else(|error| {
            context
                .progress
                .note("report", format!("warning: the fleet hears nothing of this node: {error:#}"));
            None
        })
    }
}

/// The end of a wait that has taken too long.
fn not_ready(stage: &Stage) -> Failure {
    let hint = stage.next.clone().unwrap_or_else(|| "Wait longer, or see: installer status".into());
    let what = "the node is not ready in its cluster in the time that was given";
    Failure::new(Class::Join, what).because(told(stage)).hint(hint)
}

/// A stage in one line.
fn told(stage: &Stage) -> String {
    stage.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
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
        if report.faults.is_empty() {
            return Ok(());
        }
        let what = format!("{} of {} blobs are missing or damaged", report.faults.len(), report.blobs);
        Err(Failure::new(Class::Verification, what)
            .hint("Load the named images again from a full medium or a registry.")
            .into())
    }
}

fn check(root: &Path, context: &Context) -> Result<Report> {
    let release = release::read(root)?;
    let install = config::load(&below(root, DOCUMENT))?.install;
    images::check(&release, install.own_role(), install.images(), root, &context.progress)
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
    let Report { images, blobs, present, .. } = report;
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
    use crate::node::images::BlobFault;
    use base::digest::Digest;
    use base::failure::{class_of, render};

    #[test]
    fn a_wait_that_takes_too_long_ends_with_the_stage_and_what_to_do() {
        let json =
            r#"{"name": "server", "state": "waiting", "since": "1", "detail": "refused", "next": null}"#;
        let mut stage: Stage = serde_json::from_str(json).unwrap();
        let failure = |stage: &Stage| anyhow::Error::from(not_ready(stage));
        let text = render(&failure(&stage));
        assert!(text.contains("because: server waiting refused (since 1)\n  next: Wait longer"), "{text}");
        assert_eq!(class_of(&failure(&stage)).exit_code(), 7);
        stage.next = Some("Do it.".into());
        assert!(render(&failure(&stage)).ends_with("next: Do it.\n"));
    }

    #[test]
    fn the_last_line_is_the_verdict() {
        let report = Report { images: 2, blobs: 3, present: 1, deferred: true, ..Report::default() };
        assert_eq!(tell(&report), "deferred: 2 images, 1 of 3 blobs here; the node pulls the others\n");
        let whole = Report { complete: true, present: 3, ..report.clone() };
        assert_eq!(tell(&whole), "complete: 2 images, 3 blobs\n");
        let fault = BlobFault {
            digest: Digest::of(b"x"),
            state: BlobState::Damaged,
            images: vec!["a.example.org/b:1".into()],
        };
        let text = tell(&Report { faults: vec![fault], ..report });
        assert!(text.starts_with("damaged sha256:"), "{text}");
        assert!(text.ends_with("of a.example.org/b:1\nNOT complete: 2 images, 3 blobs\n"), "{text}");
    }
}
