//! After its install a node reports to its fleet server how it joins its cluster, until it is ready there, and how its updates
//! go from then on.
//!
//! The install leaves [`FILE`] beside the node document. It is removed when the server no longer wants reports of this deployment.

use machine::inventory::read_identity;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base::progress::Progress;
use cluster::stages::observed_node::ObservedNode;
use cluster::stages::{self, Stage, StageName, StageState};
use machine::paths::{CONFIG, below};
use model::config::redact::Secrets;
use model::config::text::HttpUrl;
use model::fleet::{NodeReport, UpdateReport};
use reporting::fleet::handover::{FILE, Handover};
use reporting::fleet::{Reporter, ReporterSetup, policy, token};
use transfer::outbox::OutboxPolicy;

/// The longest time between two reports of a waiting node.
const REPORT_INTERVAL_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct ReportedNode<'a> {
    pub hostname: Option<&'a str>,
    pub product: String,
    /// Removed from its reports.
    pub secrets: &'a Secrets,
}

/// Reports how the updates of the node at `root` stand, if it has a server. Waits some seconds at most.
///
/// # Errors
/// The file of the server cannot be read or removed.
pub fn tell_update(
    root: &Path,
    about: &ReportedNode<'_>,
    update: UpdateReport,
    progress: &Progress,
) -> Result<()> {
    let Some((reporter, _, file)) = begin(root, about, progress, policy())? else { return Ok(()) };
    reporter.tell_update(update);
    match reporter.conclude(None).refused {
        true => remove(&file),
        false => Ok(()),
    }
}

/// The reporter of the node at `root` with what the install has left; none if there is no server.
fn begin(
    root: &Path,
    about: &ReportedNode<'_>,
    progress: &Progress,
    policy: OutboxPolicy,
) -> Result<Option<(Reporter, Handover, PathBuf)>> {
    let file = below(root, CONFIG).join(FILE);
    if !file.exists() {
        return Ok(None);
    }
    let what = || format!("reading {}", file.display());
    let kept = Handover::read(&file)?;
    // The error is not shown: it may contain a token.
    let url =
        kept.url.parse::<HttpUrl>().map_err(|_| anyhow::anyhow!("it names no URL")).with_context(what)?;
    let mut secrets = about.secrets.clone();
    secrets.add_texts(token(&kept.url));
    let setup = ReporterSetup { url, machine: read_identity(root), policy, progress: progress.clone() };
    let reporter = Reporter::resume(setup, kept.run);
    reporter.trust(&kept.authorities);
    reporter.hide(&secrets);
    reporter.hostname(about.hostname);
    reporter.product(&about.product);
    Ok(Some((reporter, kept, file)))
}

fn remove(file: &Path) -> Result<()> {
    std::fs::remove_file(file).with_context(|| format!("removing {}", file.display()))
}

/// Reports for a node that joins its cluster.
#[derive(Debug)]
pub struct NodeReporter {
    reporter: Reporter,
    kept: Handover,
    file: PathBuf,
    last: Option<(NodeReport, Instant)>,
}

impl NodeReporter {
    /// The reporter of the node `observed` at `root`, as in [`Self::of_node`].
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn of_observed(observed: &ObservedNode, root: &Path, progress: &Progress) -> Result<Option<Self>> {
        let about = ReportedNode {
            hostname: observed.name.as_deref(),
            product: observed.product(),
            secrets: observed.secrets(),
        };
        Self::of_node(root, &about, progress)
    }

    /// The reporter of the node at `root`; `None` if its server needs no more reports, or there is no server. `progress` receives
    /// errors of the server.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn of_node(root: &Path, about: &ReportedNode<'_>, progress: &Progress) -> Result<Option<Self>> {
        // Reports are sent until the node is ready, and a server may be away for long.
        let policy = OutboxPolicy {
            longest_pause: Duration::from_secs(60),
            flush: Duration::from_secs(600),
            ..policy()
        };
        Self::read(root, about, progress, policy)
    }

    fn read(
        root: &Path,
        about: &ReportedNode<'_>,
        progress: &Progress,
        policy: OutboxPolicy,
    ) -> Result<Option<Self>> {
        let begun = begin(root, about, progress, policy)?.filter(|(_, kept, _)| !kept.joined);
        Ok(begun.map(|(reporter, kept, file)| Self { reporter, kept, file, last: None }))
    }

    /// Reports the state of the node, if it has changed or the last report was a while ago. Never waits.
    pub fn tell(&mut self, stages: &[Stage]) {
        let node = node(stages);
        let known = self
            .last
            .as_ref()
            .is_some_and(|(last, told)| *last == node && told.elapsed() < REPORT_INTERVAL_MAX);
        if !known {
            self.reporter.tell(node.clone());
            self.last = Some((node, Instant::now()));
        }
    }

    /// Waits until the server knows that the node is ready, for some minutes at most. Otherwise it is reported after the next
    /// start of the machine.
    ///
    /// # Errors
    /// The file cannot be written or removed.
    pub fn conclude(self) -> Result<()> {
        let ready = self.last.is_some_and(|(node, _)| node.ready);
        let result = self.reporter.conclude(None);
        if result.refused {
            return remove(&self.file);
        }
        if ready && result.unsent == 0 {
            let what = || format!("writing {}", self.file.display());
            return self.kept.conclude(&self.file).with_context(what);
        }
        Ok(())
    }
}

fn node(stages: &[Stage]) -> NodeReport {
    match stages::current(stages) {
        Some(stage) => NodeReport {
            ready: false,
            failed: stage.state == StageState::Failed,
            stage: stage.name.text().into(),
            detail: stage.detail.clone(),
            next: stage.next.clone(),
        },
        None => NodeReport {
            ready: true,
            stage: StageName::Ready.text().into(),
            detail: stages.last().map(|stage| stage.detail.clone()).unwrap_or_default(),
            ..NodeReport::default()
        },
    }
}

#[cfg(test)]
mod tests;
