//! Steps that builders share through registries of container images: what one has made, another fetches.
//!
//! A build looks for a step that it lacks in the repositories that it reads ([`fetch`]). Of one that is there, only the list of
//! outputs comes at once; a file comes when a path to it is asked for, so that a build whose steps are all there fetches what goes onto the media and
//! not what the steps were made from. Everything is checked against its digest.
//!
//! After a build, the steps that this host has made go to the repositories that it writes ([`publish`]), and what no build has used
//! for long can be removed there ([`prune`]).
//!
//! A registry is a help and no need: without an answer a build makes everything by itself. Who may write to the repository decides
//! what its readers build; for releases that nodes check, see [`crate::cache::StepTrust`].

mod document;
mod fetch;
mod prune;
mod publish;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure;
use base::parallel::locked;
use base::progress::Progress;
use formats::oci::{ImageReference, Repository};
use transfer::registry::Client;

use self::document::SharedName;
use super::key::StepKey;

pub(super) use self::fetch::FoundStep;
pub use self::prune::{SharedPruneSummary, prune};
pub(super) use self::publish::MadeStep;

/// The step of progress lines about registries.
const STEP: &str = "shared-steps";

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
    /// The repositories that did not answer in this build.
    pub silent: Mutex<BTreeSet<Repository>>,
}

impl fmt::Debug for SharedSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSteps").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}

impl SharedSteps {
    /// Looks for a step, in one repository after the other. What does not answer or has something else there is told once, and is asked no
    /// more.
    pub(super) fn find(self: &Arc<Self>, key: &StepKey) -> Result<Option<FoundStep>> {
        let name = SharedName::new(key, self.tools)?;
        for repository in &self.from {
            if locked(&self.silent).contains(repository) {
                continue;
            }
            match fetch::find(&self.client, repository, &name) {
                Ok(Some(step)) => return Ok(Some(FoundStep::new(self, repository, key.name, step))),
                Ok(None) => {}
                Err(error) => self.give_up(repository, &format!("looking for the step {}", key.name), &error),
            }
        }
        Ok(None)
    }

    /// Gives the repositories what they lack of these steps.
    pub(super) fn publish(&self, steps: &[MadeStep], scratch: &Path) {
        for repository in &self.to {
            if let Err(error) = publish::publish(self, repository, steps, scratch) {
                self.give_up(repository, "sharing the steps", &error);
            }
        }
    }

    fn give_up(&self, repository: &Repository, doing: &str, error: &anyhow::Error) {
        let why = failure::causes(error).join(": ");
        let text = format!("{doing}: {why}; {repository} is not used any more in this build");
        self.progress.warn(STEP, &text);
        locked(&self.silent).insert(repository.clone());
    }
}

/// A step in a repository.
fn reference(repository: &Repository, tag: &str) -> Result<ImageReference> {
    let text = format!("{repository}:{tag}");
    text.parse().with_context(|| format!("naming {text}"))
}
