//! `iso-builder prune`.

use anyhow::Result;
use base::program::Context;
use base::size::ByteSize;

use formats::oci::Repository;

use super::build::CacheArguments;
use super::registries::RegistryArguments;
use crate::cache::{PruneSummary, SharedPruneSummary, days_ago, prune_shared};
use crate::pipeline::CacheOptions;

/// Remove from the cache what no build has used for a while.
///
/// What is removed is made or downloaded again when a build needs it; with --offline such a build fails. With --shared, what builders
/// share in a registry is removed in place of what is in the cache of this host; the registry frees its blobs when it collects what nothing
/// refers to.
#[derive(Debug, clap::Args)]
pub(super) struct PruneCommand {
    #[command(flatten)]
    cache: CacheArguments,
    /// Keep what was used within the last DAYS days; 0 empties the cache.
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    unused_for: u32,
    /// Remove from this repository of a registry the steps that no build with --cache-to has made or used. Repeatable.
    #[arg(long, value_name = "REPOSITORY")]
    shared: Vec<Repository>,
    #[command(flatten)]
    registries: RegistryArguments,
    /// Only print what would be removed.
    #[arg(long)]
    dry_run: bool,
}

impl PruneCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let limit = days_ago(self.unused_for);
        if self.shared.is_empty() {
            let cache = CacheOptions::from(self.cache).open(&context.progress)?;
            let pruned = cache.prune(limit, self.dry_run)?;
            return context.show(&pruned, || tell(&pruned, self.dry_run));
        }
        let client = self.registries.client()?;
        let prune = |repository| prune_shared(&client, repository, limit, self.dry_run, &context.progress);
        let pruned = self.shared.iter().map(prune).collect::<Result<Vec<_>>>()?;
        context.show(&pruned, || {
            pruned.iter().map(|one| tell_shared(one, self.dry_run)).collect::<Vec<_>>().join("\n")
        })
    }
}

fn verb(dry_run: bool) -> &'static str {
    if dry_run { "would remove" } else { "removed" }
}

fn tell_shared(pruned: &SharedPruneSummary, dry_run: bool) -> String {
    let SharedPruneSummary { repository, removed, kept } = pruned;
    format!("{} {removed} of {} steps in {repository}", verb(dry_run), removed + kept)
}

fn tell(pruned: &PruneSummary, dry_run: bool) -> String {
    let verb = verb(dry_run);
    let freed = ByteSize::bytes(pruned.freed);
    format!("{verb} {} steps and {} downloads, {freed}", pruned.steps, pruned.downloads)
}
