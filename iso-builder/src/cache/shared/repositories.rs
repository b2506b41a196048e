//! The repositories of a build.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure;
use base::parallel::locked;
use base::progress::Progress;
use formats::oci::{ImageReference, Repository};
use transfer::registry::Client;

use crate::cache::figures::BuildFigures;

/// The step of progress lines about registries.
pub(super) const STEP: &str = "shared-steps";

/// The repositories in which a build looks for steps, and to which it gives what it has made.
pub struct SharedSteps {
    pub from: Vec<Repository>,
    pub to: Vec<Repository>,
    pub client: Client,
    /// The digest of the names and versions of the programs of this host that steps run.
    pub tools: Digest,
    /// Blobs that travel at the same time.
    pub transfers: usize,
    pub progress: Progress,
    /// Of the build that uses them.
    pub figures: Arc<BuildFigures>,
    /// The repositories that did not answer in this build.
    pub silent: Mutex<BTreeSet<Repository>>,
}

impl fmt::Debug for SharedSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSteps").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}

impl SharedSteps {
    /// Tells why a repository is not used any more in this build.
    pub(super) fn give_up(&self, repository: &Repository, doing: &str, error: &anyhow::Error) {
        let why = failure::causes(error).join(": ");
        let text = format!("{doing}: {why}; {repository} is not used any more in this build");
        self.progress.warn(STEP, &text);
        locked(&self.silent).insert(repository.clone());
    }
}

/// A step in a repository.
pub(super) fn reference(repository: &Repository, tag: &str) -> Result<ImageReference> {
    let text = format!("{repository}:{tag}");
    text.parse().with_context(|| format!("naming {text}"))
}
