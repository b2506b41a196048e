//! `installer status`: the status of this node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use base::command::SystemRunner;
use base::failure::{Class, Failure};
use base::files::named::is_standard;
use base::files::{make_directory, parent};
use base::program::{Context, Format, print};
use base::standard_output::refuse_with_json;
use cluster::stages::observed_node::ObservedNode;
use cluster::stages::readiness_watch::ReadinessWatch;
use cluster::stages::{self, Stage};
use machine::installed_node::InstalledNode;
use metrics::{GaugeSnapshot, MetricsFile};
use node::metrics::{self as node_metrics, StoredFacts};
use node::reporter::NodeReporter;
use node::status::Status;

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// The directory that stands for `/`; stages are shown only for `/` itself.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Wait until the node is ready in its cluster, and print each change of its stages.
    #[arg(long, conflicts_with = "root")]
    wait: bool,
    /// Wait no longer than this; exit with 7 if the node is not ready then.
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    limit: Option<u64>,
    /// Write metrics of the node to this file in place of showing its status, for the textfile collector of node_exporter; `-` is standard
    /// output.
    #[arg(long, value_name = "FILE", conflicts_with = "wait")]
    metrics: Option<PathBuf>,
    /// Record the stages for the consoles and later calls; for the unit that runs at every boot.
    #[arg(long, requires = "wait", hide = true)]
    record: bool,
}

impl StatusArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.wait {
            self.wait(context)?;
            if context.format == Format::Text {
                return Ok(());
            }
        }
        let node = InstalledNode::open(&self.root)?;
        let status = match self.root == Path::new("/") {
            true => Status::gather_running(&node, &SystemRunner)?,
            false => Status::gather(&node)?,
        };
        match &self.metrics {
            None => context.show(&status, || status.to_string()),
            Some(file) => write_metrics(file, &node_metrics::of(&status, &StoredFacts::of(&node))),
        }
    }

    fn wait(&self, context: &Context) -> Result<()> {
        let text = context.format == Format::Text;
        let Some(subject) = ObservedNode::read(&self.root)? else {
            return if text { print("This node has no cluster to wait for.") } else { Ok(()) };
        };
        let watch = ReadinessWatch { root: &self.root, subject: &subject, record: self.record };
        let mut reporter = self.reporter(&subject, context);
        let mut tell = |stages: &[Stage], news: bool| {
            reporter.iter_mut().for_each(|reporter| reporter.tell(stages));
            match stages::current(stages).filter(|_| news) {
                Some(stage) if text => print(&stage_line(stage)),
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

    /// Only the watching unit reports to a fleet server, and an error there is no error of the node.
    fn reporter(&self, subject: &ObservedNode, context: &Context) -> Option<NodeReporter> {
        if !self.record {
            return None;
        }
        let result = NodeReporter::of_observed(subject, &self.root, &context.progress);
        result.unwrap_or_else(|error| {
            context
                .progress
                .note("report", format!("warning: this node does not report to its fleet server: {error:#}"));
            None
        })
    }
}

fn write_metrics(file: &Path, snapshot: &GaugeSnapshot) -> Result<()> {
    if is_standard(file) {
        refuse_with_json("the metrics")?;
        return print(&snapshot.text());
    }
    make_directory(parent(file), 0o755)?;
    MetricsFile::checked(file)?.write(snapshot)
}

/// The error of a wait that took too long.
fn not_ready(stage: &Stage) -> Failure {
    let hint = stage.next.clone().unwrap_or_else(|| "Wait longer, or see: installer status".into());
    let what = "the node did not become ready in its cluster within the time limit";
    Failure::new(Class::Join, what).because(stage_line(stage)).hint(hint)
}

fn stage_line(stage: &Stage) -> String {
    stage.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
