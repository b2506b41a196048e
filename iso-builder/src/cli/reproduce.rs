//! `iso-builder reproduce`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use base::failure::{Class, Failure};
use base::program::Context;
use formats::dsse::Envelope;

use super::build::{CacheArguments, ModuleKeyArguments, PullArguments};
use super::keys::moment;
use crate::media::sign::SignableMedia;
use crate::pipeline::InstallerChoice;
use crate::reproduce::{ComparedInput, ReproduceOptions, Reproduction, reproduce};
use crate::signing::arguments::SigningArguments;
use crate::signing::{ReleaseSigner, add_all, public_keys};

/// Build a release again, and compare it byte for byte.
///
/// Reads what the release says it was made of (provenance.intoto.jsonl), builds from the same definition and lock file with nothing from
/// the cache but downloads, and says of every payload and file whether it is the same; of OS images and initrds, which paths differ.
/// Ends with exit code 4 if anything does. With --sign-with, which needs --definition, a release that was reproduced gets a signature: nodes whose
/// `trust.threshold` is 2 take it only when so many builders have come to the same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReproduceCommand {
    /// The directory that a build wrote, an ISO, or a directory with release.json and the payloads.
    release: PathBuf,
    /// The image definition, with its lock file beside it; by default the one that the release names, as a path from the current
    /// directory.
    #[arg(long, value_name = "FILE")]
    definition: Option<PathBuf>,
    /// The variant of the definition that the release is; by default the one that the release names.
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Use no network: a download that is not in the cache is an error.
    #[arg(long)]
    offline: bool,
    /// Keep what is built in this directory.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The installer to put into the OS image, as of `build`.
    #[arg(long, value_name = "FILE", env = "NQRUST_INSTALLER")]
    installer: Vec<PathBuf>,
    #[command(flatten)]
    modules: ModuleKeyArguments,
    #[command(flatten)]
    cache: CacheArguments,
    #[command(flatten)]
    pull: PullArguments,
    #[command(flatten)]
    signing: SigningArguments,
}

const EXAMPLES: &str = "Examples:
  iso-builder reproduce dist/
  iso-builder reproduce nqrust-hypervisor-0.2.0-amd64.iso --definition configs/images/default.yaml
  iso-builder reproduce dist/ --definition configs/images/default.yaml --sign-with second-builder";

impl ReproduceCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let keys = public_keys(&self.signing.directory())?;
        let signers = self.signing.options()?;
        if self.definition.is_none() && !signers.is_empty() {
            let failure = Failure::new(
                Class::Invalid,
                "no definition is named, and the release would be signed",
            )
            .because(anyhow!(
                "the release itself says which one it was built from, and can say another than you expect"
            ));
            return Err(failure.hint("Name the one whose releases you sign: --definition FILE.").into());
        }
        let options = ReproduceOptions {
            release: self.release,
            definition: self.definition,
            variant: self.variant,
            installer: InstallerChoice::of(self.installer),
            offline: self.offline,
            module_key: self.modules.module_key,
            pull: self.pull.into(),
            cache: self.cache.into(),
            output: self.output,
            keys,
            signs: !signers.is_empty(),
        };
        // A passphrase is asked for before the build, not after it.
        let signers = signers.iter().map(ReleaseSigner::open).collect::<Result<Vec<_>>>()?;
        let mut reproduction = reproduce(&options, &context.progress)?;
        if reproduction.reproduced && !signers.is_empty() {
            sign(&mut reproduction, &signers, context)?;
        }
        context.show(&reproduction, || reproduction.to_string())?;
        Ok(reproduction.into_result()?)
    }
}

/// Signs the release that was compared: no other manifest than those.
fn sign(reproduction: &mut Reproduction, signers: &[ReleaseSigner], context: &Context) -> Result<()> {
    let media = SignableMedia::open(&reproduction.release, &context.progress)?;
    let digests =
        media.manifests().iter().map(|manifest| base::digest::Digest::of(manifest.bytes)).collect::<Vec<_>>();
    if digests.iter().any(|digest| !reproduction.manifests.contains(digest)) {
        let what = format!("{} has changed since it was compared", reproduction.release.display());
        return Err(Failure::new(Class::Verification, what).hint("Run the command again.").into());
    }
    let when = moment()?;
    let mut add = |manifest: &[u8], existing: Option<&[u8]>| {
        Ok(add_all(signers, manifest, existing, when)?.unwrap_or_default())
    };
    // Who used the same inputs says so too.
    let same_inputs = !reproduction.inputs.iter().any(ComparedInput::differs);
    let mut add_to_provenance = |envelope: &mut Envelope| match same_inputs {
        true => signers.iter().try_for_each(|signer| signer.sign_envelope(envelope)),
        false => Ok(()),
    };
    media.sign(&mut add, &mut add_to_provenance, &context.progress)?;
    reproduction.signed_by = signers.iter().map(|signer| signer.key().to_string()).collect();
    Ok(())
}
