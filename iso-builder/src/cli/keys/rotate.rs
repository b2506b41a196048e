//! `iso-builder keys rotate`.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use base::failure::{Class, Failure};
use base::program::Context;
use formats::minisign::{KeyDerivation, KeyId, PublicKey};
use serde::Serialize;

use crate::signing::arguments::PassphraseArguments;
use crate::signing::key_directory::{DEVELOPMENT, KEEP_A_COPY, KeyFile};
use crate::signing::{KeyDirectory, NewKey, PassphraseSource};

/// Change the key that signs releases.
///
/// Makes the new key if there is none with this name, and prints what has to be written and run, with the reason of each step. Nodes move to
/// the new key by one release that both keys sign.
#[derive(Debug, clap::Args)]
pub(super) struct RotateArguments {
    /// The key that nodes trust now: its name in the key directory, or the file of its public key.
    #[arg(long, value_name = "KEY")]
    from: String,
    /// The key that comes in its place: the name of one in the key directory, which is made if there is none, or the file of a public key.
    #[arg(long, value_name = "KEY")]
    to: String,
    /// Make the new key as a file that whoever can read it can use.
    #[arg(long, conflicts_with = "passphrase_file")]
    no_passphrase: bool,
    #[command(flatten)]
    passphrase: PassphraseArguments,
}

/// A key of a rotation.
#[derive(Debug, Serialize)]
struct RotatedKey {
    name: String,
    id: KeyId,
    key: PublicKey,
    /// As `--sign-with` takes it.
    sign_with: String,
}

/// What a rotation comes to.
#[derive(Debug, Serialize)]
struct RotationPlan {
    from: RotatedKey,
    to: RotatedKey,
    /// The new key, if it was made now.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<NewKey>,
    /// The new key as `trust.keys` of an image definition has it.
    definition: String,
}

impl RotateArguments {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let (source, directory) = self.passphrase.into_parts();
        let from = RotatedKey::of(&self.from, directory.find(&self.from)?);
        if self.to == DEVELOPMENT {
            let what = "the development key cannot take the place of another key";
            return Err(Failure::new(Class::Invalid, what)
                .hint("It is to try things with. Give the new key another name.")
                .into());
        }
        let there = existing(&self.to, &directory)?;
        let made = match &there {
            Some(_) => None,
            None => Some(make(&self.to, &directory, &source, self.no_passphrase)?),
        };
        let to = RotatedKey::of(&self.to, there.map_or_else(|| directory.find(&self.to), Ok)?);
        if from.id == to.id {
            let what = format!("{} and {} are the same key, {}", self.from, self.to, from.id);
            return Err(Failure::new(Class::Invalid, what)
                .hint("Give --to the name of a new key, which is then made.")
                .into());
        }
        let definition = format!("{{name: {}, key: {}}}", to.name, to.key);
        let plan = RotationPlan { from, to, made, definition };
        context.show(&plan, || plan.to_string())
    }
}

/// The key that is there already; none if it has to be made.
fn existing(named: &str, directory: &KeyDirectory) -> Result<Option<KeyFile>> {
    let is_file = named.contains('/') || Path::new(named).exists();
    let is_there = is_file || directory.public_keys()?.iter().any(|key| key.name == named);
    is_there.then(|| directory.find(named)).transpose()
}

fn make(
    name: &str,
    directory: &KeyDirectory,
    source: &PassphraseSource,
    no_passphrase: bool,
) -> Result<NewKey> {
    directory.check_new(name)?;
    let passphrase = if no_passphrase { None } else { Some(source.choose(name)?) };
    directory.make(name, passphrase.as_deref(), KeyDerivation::MINISIGN)
}

impl RotatedKey {
    /// The key in `file`, which a person named `named`.
    fn of(named: &str, file: KeyFile) -> Self {
        let KeyFile { name, id, key, .. } = file;
        let sign_with = match named.strip_suffix(".pub") {
            Some(stem) => format!("{stem}.key"),
            None => named.to_owned(),
        };
        Self { name, id, key, sign_with }
    }
}

impl fmt::Display for RotationPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, made, definition } = self;
        match made {
            Some(made) => writeln!(f, "{made}\n{KEEP_A_COPY}\n")?,
            None => writeln!(f, "The new key is {} ({}).\n", to.id, to.name)?,
        }
        write!(
            f,
            "1. In the image definition, in place of the line of {} ({}):\n  trust:\n    keys:\n      - {definition}\n   \
             Nodes trust what the image that they run names.\n\
             2. Build the next release with both keys, and update every node to it:\n  \
             iso-builder build image.yaml --sign-with {} --sign-with {}\n   \
             They take it by the old key, and trust the new one from then on.\n\
             3. Build later releases with the new key alone:\n  iso-builder build image.yaml --sign-with {}\n   \
             A node that missed the release of step 2 has to take that one first.\n\
             If somebody else may have the old key, revoke it before step 2:\n  iso-builder keys revoke --list revoked.json {}",
            from.id, from.name, from.sign_with, to.sign_with, to.sign_with, from.id
        )
    }
}
