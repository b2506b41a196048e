//! `iso-builder push`.

use std::path::PathBuf;

use anyhow::Result;
use base::program::Context;
use medium::artifact::ArtifactReference;

use super::registries::RegistryArguments;
use crate::media::publish::{push, pushed_media};
use crate::signing::arguments::KnownKeyArguments;

/// Publish a finished release in a registry of container images, or in an OCI layout.
///
/// What the registry has already does not travel. Prints the tag and the digest that pins the release.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PushCommand {
    /// The directory that a build wrote, an ISO, a drive that holds one, a directory with release.json and the payloads, or
    /// the URL of an ISO or of such a directory. Of a directory with a release for each of several architectures, all are pushed.
    medium: PathBuf,
    /// registry/name:tag, or oci:DIRECTORY:tag for a directory that can be carried elsewhere.
    #[arg(value_name = "REFERENCE")]
    reference: ArtifactReference,
    /// Make patches from the OS image and the initrd of this earlier release, so that nodes which run it fetch a part only; up to three
    /// releases. A medium as above, or registry/name:tag. Takes 3 GiB in TMPDIR and 1 GiB more for each.
    #[arg(long, value_name = "RELEASE")]
    delta_from: Vec<String>,
    #[command(flatten)]
    known: KnownKeyArguments,
    #[command(flatten)]
    registries: RegistryArguments,
}

const EXAMPLES: &str = "Examples:
  iso-builder push dist/ registry.example.org/nqrust/release:0.1.0
  iso-builder push dist/ oci:/media/stick/release:0.1.0
  iso-builder push dist/ registry.example.org/nqrust/release:0.2.0 --delta-from registry.example.org/nqrust/release:0.1.0";

impl PushCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let known = self.known.store()?;
        let client = self.registries.client()?;
        let transfers = self.registries.transfers();
        let push = |medium: &PathBuf| {
            push(medium, &known, &self.delta_from, &self.reference, &client, transfers, &context.progress)
        };
        let reports = pushed_media(&self.medium).iter().map(push).collect::<Result<Vec<_>>>()?;
        let text = || reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n");
        match &reports[..] {
            [report] => context.show(report, text),
            several => context.show(&several, text),
        }
    }
}
