//! `iso-builder keys`.

mod revoke;
mod rotate;

use std::path::PathBuf;

use anyhow::Result;
use base::failure::{Class, Failure};
use base::program::Context;
use formats::dsse::Envelope;
use formats::minisign::KeyDerivation;
use jiff::Timestamp;
use medium::reader::MediumReader;
use serde::Serialize;

use self::revoke::RevokeArguments;
use self::rotate::RotateArguments;
use crate::media::finished::verify::manifests_of;
use crate::media::publish::pushed_media;
use crate::media::sign::SignableMedia;
use crate::provenance::ReleaseProvenance;
use crate::signing::arguments::{
    KeyDirectoryArguments, KnownKeyArguments, PassphraseArguments, SigningArguments,
};
use crate::signing::key_directory::{DEVELOPMENT, KEEP_A_COPY, KeyFile};
use crate::signing::{NewKey, ReleaseSigner, SignatureSummary, add_all};
use crate::wording::printable;

/// Make, show, change and revoke the keys that sign releases.
///
/// A key is two files in minisign's format: NAME.key signs, and nobody else may read it; NAME.pub verifies, and everybody may. Whoever
/// loses NAME.key, or its passphrase, can make no more updates for nodes that trust only that key: keep a copy.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct KeysCommand {
    #[command(subcommand)]
    command: KeysSubcommand,
}

#[derive(Debug, clap::Subcommand)]
enum KeysSubcommand {
    New(NewArguments),
    Show(ShowArguments),
    Sign(SignArguments),
    Verify(VerifyArguments),
    Rotate(RotateArguments),
    Revoke(RevokeArguments),
}

/// Make a key.
#[derive(Debug, clap::Args)]
struct NewArguments {
    /// What the key is called wherever a release that it has signed is shown. `development` is one without a passphrase, to try
    /// things with.
    name: String,
    /// Make a key file that whoever can read it can use.
    #[arg(long, conflicts_with = "passphrase_file")]
    no_passphrase: bool,
    #[command(flatten)]
    passphrase: PassphraseArguments,
}

/// Show public keys.
#[derive(Debug, clap::Args)]
struct ShowArguments {
    /// Files of public keys, or names of keys in the key directory; all of that directory without any.
    #[arg(value_name = "KEY")]
    named: Vec<String>,
    #[command(flatten)]
    directory: KeyDirectoryArguments,
}

/// Sign finished media, wherever they were built.
///
/// Every release manifest of MEDIUM gets a signature: those of the ISOs and that of the directory that a build wrote. An ISO is changed
/// in place, at the 8192 bytes that it has for signatures; checksums and report follow. The provenance of a directory is signed too.
/// Signatures of other keys stay.
#[derive(Debug, clap::Args)]
struct SignArguments {
    /// The directory that a build wrote, an ISO, a drive that holds one, or a directory with release.json. Repeatable.
    #[arg(required = true)]
    medium: Vec<PathBuf>,
    #[command(flatten)]
    signing: SigningArguments,
}

/// Check the signatures of finished media, and nothing else of them.
///
/// `iso-builder verify` compares the media too, which takes as long as reading them.
#[derive(Debug, clap::Args)]
struct VerifyArguments {
    /// The directory that a build wrote, an ISO, a drive that holds one, a directory with release.json, or the URL of an ISO or of
    /// such a directory. Repeatable.
    #[arg(required = true)]
    medium: Vec<PathBuf>,
    #[command(flatten)]
    known: KnownKeyArguments,
}

const EXAMPLES: &str = "Examples:
  iso-builder keys new releases
  iso-builder keys show
  iso-builder build image.yaml --sign-with releases
  iso-builder keys sign dist/ --sign-with releases
  iso-builder keys verify dist/ --key releases.pub
  iso-builder keys rotate --from releases --to releases-2027
  iso-builder keys revoke --list revoked.json releases old/nqrust-0.1.0-amd64.iso
  NQRUST_KEY_PASSPHRASE=… iso-builder build image.yaml --sign-with env:RELEASE_KEY";

impl KeysCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        match self.command {
            KeysSubcommand::New(arguments) => arguments.run(context),
            KeysSubcommand::Show(arguments) => arguments.run(context),
            KeysSubcommand::Sign(arguments) => arguments.run(context),
            KeysSubcommand::Verify(arguments) => arguments.run(context),
            KeysSubcommand::Rotate(arguments) => arguments.run(context),
            KeysSubcommand::Revoke(arguments) => arguments.run(context),
        }
    }
}

impl NewArguments {
    fn run(self, context: &Context) -> Result<()> {
        let (source, directory) = self.passphrase.into_parts();
        directory.check_new(&self.name)?;
        let passphrase = match self.no_passphrase || self.name == DEVELOPMENT {
            true => None,
            false => Some(source.choose(&self.name)?),
        };
        let key = directory.make(&self.name, passphrase.as_deref(), KeyDerivation::MINISIGN)?;
        context.show(&key, || made(&key))
    }
}

fn made(key: &NewKey) -> String {
    let NewKey { name, key: public, .. } = key;
    match key.development {
        true => {
            format!("{key}\nIt is to try things with: everything that shows a release of this key says so.")
        }
        false => format!(
            "{key}\n{KEEP_A_COPY} In the image definition:\n  trust:\n    keys:\n      - {{name: {name}, key: {public}}}"
        ),
    }
}

impl ShowArguments {
    fn run(self, context: &Context) -> Result<()> {
        let directory = self.directory.directory();
        let keys = match self.named.is_empty() {
            true => directory.public_keys()?,
            false => self.named.iter().map(|named| directory.find(named)).collect::<Result<_>>()?,
        };
        let line = |KeyFile { name, id, key, development, .. }: &KeyFile| {
            let note = if *development { "  development key" } else { "" };
            format!("{id}  {key}  {name}{note}")
        };
        context.show(&keys, || match keys.is_empty() {
            true => format!("there are no keys in {}", directory.path().display()),
            false => keys.iter().map(line).collect::<Vec<_>>().join("\n"),
        })
    }
}

impl SignArguments {
    fn run(self, context: &Context) -> Result<()> {
        let options = self.signing.options()?;
        if options.is_empty() {
            let failure = Failure::new(Class::Invalid, "no key is named to sign with");
            return Err(failure.hint("Give --sign-with KEY.").into());
        }
        // All media are looked at before a passphrase is asked for.
        let paths = each_release(&self.medium);
        let media = paths.iter().map(|path| SignableMedia::open(path, &context.progress));
        let media = media.collect::<Result<Vec<_>>>()?;
        let signers = options.iter().map(ReleaseSigner::open).collect::<Result<Vec<_>>>()?;
        let when = moment()?;
        let sign = |media: SignableMedia| {
            let mut add = |manifest: &[u8], existing: Option<&[u8]>| {
                Ok(add_all(&signers, manifest, existing, when)?.unwrap_or_default())
            };
            let mut add_to_provenance = |envelope: &mut Envelope| {
                signers.iter().try_for_each(|signer| signer.sign_envelope(envelope))
            };
            media.sign(&mut add, &mut add_to_provenance, &context.progress)
        };
        let reports = media.into_iter().map(sign).collect::<Result<Vec<_>>>()?;
        context.show(&reports, || {
            let keys = signers.iter().map(|signer| format!("signed by {}", signer.key()));
            reports.iter().map(ToString::to_string).chain(keys).collect::<Vec<_>>().join("\n")
        })
    }
}

/// What was named, with the directory of each architecture in place of that of several.
fn each_release(named: &[PathBuf]) -> Vec<PathBuf> {
    named.iter().flat_map(|path| pushed_media(path)).collect()
}

/// The moment of a signature: now, or what `SOURCE_DATE_EPOCH` says (<https://reproducible-builds.org/specs/source-date-epoch/>).
pub(super) fn moment() -> Result<Timestamp> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(Timestamp::now()) };
    let second = text.to_str().and_then(|text| text.parse().ok());
    second.and_then(|second| Timestamp::from_second(second).ok()).ok_or_else(|| {
        Failure::new(Class::Invalid, "SOURCE_DATE_EPOCH is not a number of seconds since 1970").into()
    })
}

/// What a medium with a release manifest, or the provenance of one, says of its signatures.
#[derive(Debug, Serialize)]
struct CheckedSignatures {
    /// Of a provenance its file.
    medium: PathBuf,
    #[serde(flatten)]
    signatures: SignatureSummary,
}

impl VerifyArguments {
    fn run(self, context: &Context) -> Result<()> {
        let known = self.known.store()?;
        let named = each_release(&self.medium);
        let paths = named.iter().map(|path| manifests_of(path)).collect::<Result<Vec<_>>>()?.concat();
        let media = paths.iter().map(|path| MediumReader::open(path)).collect::<Result<Vec<_>>>()?;
        let directories = named.iter().filter(|path| path.is_dir());
        let provenances = directories.map(|path| ReleaseProvenance::find(path));
        let provenances: Vec<_> = provenances.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        let mut checked: Vec<_> = media
            .iter()
            .map(|medium| CheckedSignatures {
                medium: medium.path().to_owned(),
                signatures: SignatureSummary::of(medium, &known),
            })
            .collect();
        checked.extend(provenances.iter().map(|provenance| CheckedSignatures {
            medium: provenance.path().to_owned(),
            signatures: provenance.signatures(&known),
        }));
        context.show(&checked, || {
            let line = |checked: &CheckedSignatures| {
                format!("{}: {}", checked.medium.display(), printable(&checked.signatures.text))
            };
            checked.iter().map(line).collect::<Vec<_>>().join("\n")
        })?;
        media.iter().try_for_each(|medium| medium.judge(&known).map(drop))?;
        provenances.iter().try_for_each(|provenance| provenance.check(&known))
    }
}
