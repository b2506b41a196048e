//! `iso-builder prune`.

use anyhow::Result;
use base::program::Context;
use base::size::ByteSize;

use super::build::CacheArguments;
use crate::cache::{PruneSummary, days_ago};
use crate::pipeline::CacheOptions;

/// Remove from the cache what no build has used for a while.
///
/// What is removed is made or downloaded again when a build needs it; with --offline such a build fails.
#[derive(Debug, clap::Args)]
pub(super) struct PruneCommand {
    #[command(flatten)]
    cache: CacheArguments,
    /// Keep what was used within the last DAYS days; 0 empties the cache.
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    unused_for: u32,
    /// Only print what would be removed.
    #[arg(long)]
    dry_run: bool,
}

impl PruneCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let cache = CacheOptions::from(self.cache).open(&context.progress)?;
        let pruned = cache.prune(days_ago(self.unused_for), self.dry_run)?;
        context.show(&pruned, || tell(&pruned, self.dry_run))
    }
}

fn tell(pruned: &PruneSummary, dry_run: bool) -> String {
    let verb = if dry_run { "would remove" } else { "removed" };
    let freed = ByteSize::bytes(pruned.freed);
    format!("{verb} {} steps and {} downloads, {freed}", pruned.steps, pruned.downloads)
}
