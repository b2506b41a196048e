//! After its install a node tells the server of its fleet how it comes into its cluster, until it is ready there.
//!
//! The install leaves [`FILE`] beside the node document. It is removed as soon as the server has heard that the node is ready,
//! or wants to hear nothing more of this deployment.

use crate::inventory::read_identity;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::paths::{CONFIG, below};
use super::stages::observed_node::ObservedNode;
use super::stages::{self, Stage, StageName, StageState};
use crate::fleet::handover::{FILE, Handover};
use crate::fleet::{ReportRetry, Reporter, Setup, Told, token};
use anyhow::{Context, Result};
use base::progress::Progress;
use model::config::redact::Secrets;
use model::config::text::HttpUrl;
use model::fleet::Node;

/// A node that waits says at least so often that it still does.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

/// What a node says of itself.
#[derive(Debug)]
pub struct About<'a> {
    /// Its name.
    pub hostname: Option<&'a str>,
    /// Name and version of what is installed.
    pub product: String,
    /// What is taken out of what is told.
    pub secrets: &'a Secrets,
}

/// Speaks for a node.
#[derive(Debug)]
pub struct NodeReporter {
    reporter: Reporter,
    file: PathBuf,
    last: Option<(Node, Instant)>,
}

impl NodeReporter {
    /// That of the node `observed` at `root`, as [`Self::of_node`] has it.
    ///
    /// # Errors
    /// The file cannot be read, or is none of ours.
    pub fn of_observed(observed: &ObservedNode, root: &Path, progress: &Progress) -> Result<Option<Self>> {
        let about = About {
            hostname: observed.name.as_deref(),
            product: observed.product(),
            secrets: observed.secrets(),
        };
        Self::of_node(root, &about, progress)
    }

    /// That of the node at `root`; none where its server has heard all that it wanted to, or there is no server.
    /// `progress` hears of trouble with the server.
    ///
    /// # Errors
    /// The file cannot be read, or is none of ours.
    pub fn of_node(root: &Path, about: &About<'_>, progress: &Progress) -> Result<Option<Self>> {
        // What is tried goes on until the node is ready, and a server may be away for long.
        let retry = ReportRetry {
            longest: Duration::from_secs(60),
            last: Duration::from_secs(600),
            ..ReportRetry::default()
        };
        Self::read(root, about, progress, retry)
    }

    fn read(root: &Path, about: &About<'_>, progress: &Progress, retry: ReportRetry) -> Result<Option<Self>> {
        let file = below(root, CONFIG).join(FILE);
        if !file.exists() {
            return Ok(None);
        }
        let what = || format!("reading {}", file.display());
        let kept = Handover::read(&file)?;
        // What is wrong with it is not shown: it may hold a token.
        let url =
            kept.url.parse::<HttpUrl>().map_err(|_| anyhow::anyhow!("it names no URL")).with_context(what)?;
        let mut secrets = about.secrets.clone();
        secrets.add_texts(token(&kept.url));
        let setup = Setup { url, machine: read_identity(root), retry, progress: progress.clone() };
        let reporter = Reporter::resume(setup, kept.run);
        reporter.trust(&kept.authorities);
        reporter.hide(&secrets);
        reporter.hostname(about.hostname);
        reporter.product(&about.product);
        Ok(Some(Self { reporter, file, last: None }))
    }

    /// Tells what was seen of the node, where it is news or nothing was told for a while. Never waits.
    pub fn tell(&mut self, stages: &[Stage]) {
        let node = node(stages);
        let known =
            self.last.as_ref().is_some_and(|(last, told)| *last == node && told.elapsed() < SIGN_OF_LIFE);
        if !known {
            self.reporter.tell(node.clone());
            self.last = Some((node, Instant::now()));
        }
    }

    /// Waits until the server has heard that the node is ready, for some minutes at most. A server that has not heard it
    /// is told after the next start of the machine.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn conclude(self) -> Result<()> {
        let ready = self.last.is_some_and(|(node, _)| node.ready);
        match (self.reporter.conclude(None), ready) {
            (Told::Refused, _) | (Told::Everything, true) => {
                let what = || format!("removing {}", self.file.display());
                std::fs::remove_file(&self.file).with_context(what)
            }
            (Told::NotAll | Told::Everything, _) => Ok(()),
        }
    }
}

/// Where the stages say that the node is.
fn node(stages: &[Stage]) -> Node {
    match stages::current(stages) {
        Some(stage) => Node {
            ready: false,
            failed: stage.state == StageState::Failed,
            stage: stage.name.text().into(),
            detail: stage.detail.clone(),
            next: stage.next.clone(),
        },
        None => Node {
            ready: true,
            stage: StageName::Ready.text().into(),
            detail: stages.last().map(|stage| stage.detail.clone()).unwrap_or_default(),
            ..Node::default()
        },
    }
}

#[cfg(test)]
mod tests;
