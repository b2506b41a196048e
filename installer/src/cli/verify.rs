//! `installer verify`.

use anyhow::Result;

use crate::app::verify::verify_medium;
use base::program::Context;

/// Compare a medium with its state when it was built, and name every difference: every byte of an ISO, every payload
/// of a directory or a server.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// An ISO, a drive that holds one, a directory with release.json, the URL of an ISO or of such a directory, or oci:DIRECTORY
    /// for a release in an OCI layout; by default the medium that this system runs from.
    medium: Option<String>,
    /// The same by its former name.
    #[arg(long = "medium", value_name = "MEDIUM", hide = true, conflicts_with = "medium")]
    named: Option<String>,
    /// Show progress and failures on every console of the machine too.
    #[arg(long)]
    consoles: bool,
}

impl VerifyArgs {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        verify_medium(self.medium.or(self.named).as_deref(), self.consoles, context)
    }
}
