//! `installer health`: whether this node is good, check by check.

use std::path::PathBuf;

use anyhow::Result;

use crate::app::health::{list_checks, show_health};
use base::program::Context;

/// Arguments of `installer health`.
#[derive(Debug, clap::Args)]
pub(super) struct HealthArgs {
    /// The directory that stands for `/`.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// List every check with what its failure means, and make none.
    #[arg(long, conflicts_with = "root")]
    list: bool,
}

impl HealthArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        if self.list { list_checks(context) } else { show_health(&self.root, context) }
    }
}
