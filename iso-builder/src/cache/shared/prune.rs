//! Removal of steps that no build has used for a while from a registry.

use std::time::SystemTime;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::progress::Progress;
use formats::oci::Repository;
use jiff::Timestamp;
use serde::Serialize;
use transfer::registry::Client;

use super::document::StepManifest;
use super::repositories::{STEP, reference};

/// The removed steps of a repository, or those that a dry run would remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedPruneSummary {
    pub repository: String,
    pub removed: usize,
    pub kept: usize,
}

/// Removes from `repository` the steps that no build has used since `limit`; with `keep` (dry run) it only counts them. Other artifacts
/// of the repository stay.
///
/// # Errors
/// [`Class::Network`](base::failure::Class::Network) if the registry does not answer or does not let manifests be removed.
pub fn prune(
    client: &Client,
    repository: &Repository,
    limit: SystemTime,
    keep: bool,
    progress: &Progress,
) -> Result<SharedPruneSummary> {
    let limit = Timestamp::try_from(limit).context("reading the clock")?;
    let mut summary = SharedPruneSummary { repository: repository.to_string(), removed: 0, kept: 0 };
    for tag in client.tags(repository)? {
        let Some(bytes) = client.tagged(&reference(repository, &tag)?)? else { continue };
        let Ok(manifest) = StepManifest::read(&bytes) else {
            progress.note(STEP, format!("{repository}:{tag} is no step of a build and stays"));
            continue;
        };
        if manifest.used.is_some_and(|used| used >= limit) {
            summary.kept += 1;
            continue;
        }
        summary.removed += 1;
        if !keep {
            client.delete_manifest(repository, Digest::of(&bytes))?;
        }
    }
    Ok(summary)
}
