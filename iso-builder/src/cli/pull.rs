//! `iso-builder pull`.

use std::path::PathBuf;

use anyhow::Result;
use base::program::Context;
use medium::artifact::ArtifactReference;
use model::architecture::Architecture;

use super::registries::RegistryArguments;
use crate::media::publish::pull;
use crate::signing::arguments::KnownKeyArguments;

/// Fetch a release from a registry of container images, or from an OCI layout, into a directory.
///
/// The directory is a medium like any other, for `iso-builder serve` and for installs. Files that are right stay, the rest is
/// fetched, and a run that was cut off is taken up again. With --iso the ISO is made too: the same bytes as the build
/// made, without what it was customized with.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PullCommand {
    /// registry/name:tag, registry/name@sha256:…, or oci:DIRECTORY, with :tag where it has several.
    #[arg(value_name = "REFERENCE")]
    reference: ArtifactReference,
    /// The directory for the release.
    output: PathBuf,
    /// Make the ISO of the release as well.
    #[arg(long, value_name = "FILE")]
    iso: Option<PathBuf>,
    /// Of a release for several architectures, the one to fetch; by default that of this machine.
    #[arg(long, value_name = "ARCHITECTURE", default_value_t = Architecture::of_this_program())]
    architecture: Architecture,
    #[command(flatten)]
    known: KnownKeyArguments,
    #[command(flatten)]
    registries: RegistryArguments,
}

const EXAMPLES: &str = "Examples:
  iso-builder pull registry.example.org/nqrust/release:0.1.0 release/
  iso-builder pull registry.example.org/nqrust/release:0.1.0 release/ --iso nqrust.iso
  iso-builder pull oci:/media/stick/release release/";

impl PullCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let known = self.known.store()?;
        let client = self.registries.client()?;
        let transfers = self.registries.transfers();
        let outputs = (self.output.as_path(), self.iso.as_deref());
        let report =
            pull(&self.reference, self.architecture, &known, &client, outputs, transfers, &context.progress)?;
        context.show(&report, || report.to_string())
    }
}
