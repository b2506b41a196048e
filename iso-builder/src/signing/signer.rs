//! Opening a key, and signing releases with it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::failure::{Class, Classify, Failure};
use base::files::named;
use formats::dsse::Envelope;
use formats::minisign::{
    KeyDerivation, ParsePublicKeyError, ParseSecretKeyError, PublicKey, SIGNATURE_BYTES, SecretKey,
    Signature, SignatureError, parse_signatures,
};
use jiff::Timestamp;
use model::release::{MANIFEST, Release};
use trust::{TrustedKey, sign_customization, sign_release};

use super::key_directory::{DEVELOPMENT, KeyComment, KeyDirectory, KeyFile, MAX_KEY_BYTES};
use super::passphrase::PassphraseSource;

/// What a key in a variable of the environment is named by.
const ENVIRONMENT: &str = "env:";

/// Which key signs.
#[derive(Clone, Debug)]
pub struct SignerOptions {
    /// The name of a key in the key directory, a file, or `env:NAME`; for `command`, the file of the public key.
    pub key: String,
    /// A command of the shell that signs: an Ed25519 signature, 64 bytes, of what it gets on standard input.
    pub command: Option<String>,
    pub passphrase: PassphraseSource,
    pub directory: KeyDirectory,
}

/// A key that is ready to sign.
#[derive(Debug)]
pub struct ReleaseSigner {
    key: TrustedKey,
    method: SigningMethod,
}

#[derive(Debug)]
enum SigningMethod {
    Key(Box<SecretKey>),
    Command(String),
}

impl ReleaseSigner {
    /// Opens the key, and asks for its passphrase if it has one. The key [`DEVELOPMENT`] is made if there is none.
    pub fn open(options: &SignerOptions) -> Result<Self> {
        let SignerOptions { key, command, passphrase, directory } = options;
        if let Some(command) = command {
            let KeyFile { name, key, development, .. } = KeyFile::read(Path::new(key))?;
            return Ok(Self {
                key: TrustedKey { name, key, development },
                method: SigningMethod::Command(command.clone()),
            });
        }
        if key == DEVELOPMENT && !directory.secret_file(key).exists() {
            directory.make(DEVELOPMENT, None, KeyDerivation::MINISIGN)?;
        }
        let (name, text) = match key.strip_prefix(ENVIRONMENT) {
            Some(variable) => (variable.to_owned(), of_environment(variable)?),
            None => of_file(key, directory)?,
        };
        let invalid = || format!("reading the secret key {key}");
        let passphrase = match SecretKey::needs_passphrase(&text).class(Class::Invalid, invalid)? {
            true => Some(passphrase.read(&name)?),
            false => None,
        };
        let secret = SecretKey::parse(&text, passphrase.as_deref().map(str::as_bytes)).map_err(|error| {
            let failure = Failure::new(Class::Invalid, invalid());
            let failure = match error {
                ParseSecretKeyError::Passphrase => {
                    failure.hint("Give the passphrase again; nobody can use the key without it.")
                }
                _ => {
                    failure.hint("Name the file that ends in .key, as `iso-builder keys new` has written it.")
                }
            };
            failure.because(error)
        })?;
        let public = secret.public_key();
        let comment = KeyComment::of(&text, public.id());
        let name = comment.name.map_or(name, ToOwned::to_owned);
        let key = TrustedKey { name, key: public, development: comment.development };
        Ok(Self { key, method: SigningMethod::Key(Box::new(secret)) })
    }

    /// The key, as a trust store has it.
    #[must_use]
    pub fn key(&self) -> &TrustedKey {
        &self.key
    }

    /// The file of signatures beside `manifest`, the bytes of a release manifest: those of other keys that `existing` has, and then
    /// this key's. A file that cannot be read is replaced.
    ///
    /// # Errors
    /// [`Class::Verification`] if the manifest is none; otherwise those of [`Self::sign`].
    pub fn add(&self, manifest: &[u8], existing: Option<&[u8]>, when: Timestamp) -> Result<Vec<u8>> {
        let release = Release::parse(manifest)
            .class(Class::Verification, || format!("reading the {MANIFEST} to sign"))?;
        let existing = existing.and_then(|existing| parse_signatures(existing).ok()).unwrap_or_default();
        let others = existing.iter().filter(|signature| signature.key() != self.key.key.id());
        let mut text: String = others.map(ToString::to_string).collect();
        text.push_str(&self.sign(&release, manifest, when)?);
        Ok(text.into_bytes())
    }

    /// The signature over `manifest`, the bytes of the manifest of `release`: text of four lines. `when` is what it says of itself.
    ///
    /// # Errors
    /// [`Class::Unexpected`] if the command fails, or makes another signature than one of this key.
    pub fn sign(&self, release: &Release, manifest: &[u8], when: Timestamp) -> Result<String> {
        let sign = |bytes: &[u8]| self.sign_bytes(bytes);
        let signature = sign_release(release, manifest, when, &self.key.key, sign)?;
        self.check(&signature, manifest)?;
        Ok(signature.to_string())
    }

    /// The signature over `content`, the bytes of a customization.
    ///
    /// # Errors
    /// As of [`Self::sign`].
    pub fn sign_customization(&self, content: &[u8], when: Timestamp) -> Result<Signature> {
        let sign = |bytes: &[u8]| self.sign_bytes(bytes);
        let signature = sign_customization(content, when, &self.key.key, sign)?;
        self.check(&signature, content)?;
        Ok(signature)
    }

    /// Adds the signature over `envelope`. An earlier one of this key is replaced.
    ///
    /// # Errors
    /// As of [`Self::sign`].
    pub fn sign_envelope(&self, envelope: &mut Envelope) -> Result<()> {
        let key = &self.key.key;
        envelope.sign(key, |bytes| self.sign_bytes(bytes))?;
        let mut own = envelope.signatures().iter().filter(|signature| signature.key() == Some(key.id()));
        self.checked(own.try_for_each(|signature| signature.verify(key, envelope)))
    }

    fn sign_bytes(&self, bytes: &[u8]) -> Result<[u8; SIGNATURE_BYTES]> {
        match &self.method {
            SigningMethod::Key(secret) => Ok(secret.sign_bytes(bytes)),
            SigningMethod::Command(command) => by_command(command, bytes),
        }
    }

    /// Fails if a command has signed something else, or with another key.
    fn check(&self, signature: &Signature, content: &[u8]) -> Result<()> {
        self.checked(signature.verify(&self.key.key, content))
    }

    fn checked(&self, verified: Result<(), SignatureError>) -> Result<()> {
        let key = &self.key.key;
        verified.map_err(|_| {
            Failure::new(Class::Unexpected, format!("what the signer made is no signature of the key {}", key.id()))
                .because(anyhow::anyhow!("it does not verify with the public key of {}", self.key.name))
                .hint("The command has to sign with Ed25519 (RFC 8032), with the key whose public file was given, the bytes on its standard input as they are.")
                .into()
        })
    }
}

/// The file of signatures that has those of all `signers`, as of [`ReleaseSigner::add`]; none without signers and `existing` ones.
pub fn add_all(
    signers: &[ReleaseSigner],
    manifest: &[u8],
    existing: Option<&[u8]>,
    when: Timestamp,
) -> Result<Option<Vec<u8>>> {
    let existing = existing.map(<[u8]>::to_vec);
    signers.iter().try_fold(existing, |text, signer| signer.add(manifest, text.as_deref(), when).map(Some))
}

/// The name and the text of the key file that `named` names.
fn of_file(named: &str, directory: &KeyDirectory) -> Result<(String, String)> {
    let path = match named.contains('/') || Path::new(named).exists() {
        true => PathBuf::from(named),
        false => directory.secret_file(named),
    };
    if !path.exists() {
        let what = format!("there is no key {named}: {} does not exist", path.display());
        return Err(Failure::new(Class::Invalid, what)
            .hint("`iso-builder keys show` lists the keys that there are, `iso-builder keys new NAME` makes one.")
            .into());
    }
    let text = named::read_text_at_most(&path, MAX_KEY_BYTES)
        .class(Class::Invalid, || format!("reading the secret key {}", path.display()))?;
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((name, text))
}

fn of_environment(variable: &str) -> Result<String> {
    std::env::var(variable).map_err(|_| {
        Failure::new(Class::Invalid, format!("the environment variable {variable} has no key"))
            .hint("Put the text of the key file into it: both lines, or the second alone.")
            .into()
    })
}

fn by_command(command: &str, bytes: &[u8]) -> Result<[u8; SIGNATURE_BYTES]> {
    let invocation = Invocation::new("sh").args(["-c", command]).stdin(bytes).output(1 << 16);
    let signature = SystemRunner.run(&invocation).context("signing by the command of --signer")?;
    let length = signature.len();
    <[u8; SIGNATURE_BYTES]>::try_from(signature).map_err(|_| {
        Failure::new(
            Class::Unexpected,
            format!("the command of --signer printed {length} bytes, and a signature has {SIGNATURE_BYTES}"),
        )
        .hint("It has to print the Ed25519 signature of its standard input, as bytes, and nothing else.")
        .into()
    })
}

/// The file of a public key that is trusted, for commands that take `--key`.
pub(super) fn trusted(file: &KeyFile) -> TrustedKey {
    let KeyFile { name, key, development, .. } = file.clone();
    TrustedKey { name, key, development }
}

/// The public key in `text`, a line of a file or the path of one.
pub(super) fn named_key(text: &str) -> Result<TrustedKey> {
    match key_in_line(text)? {
        Some(key) => Ok(TrustedKey { name: key.id().to_string(), key, development: false }),
        None => KeyFile::read(Path::new(text)).map(|file| trusted(&file)),
    }
}

/// The public key whose line `text` is; none if it is something else.
///
/// # Errors
/// [`Class::Invalid`] for the line of a secret key, which must not be shown as the name of a file that is missing.
pub(crate) fn key_in_line(text: &str) -> Result<Option<PublicKey>> {
    match PublicKey::parse(text) {
        Ok(key) => Ok(Some(key)),
        Err(error @ ParsePublicKeyError::Secret) => Err(Failure::new(
            Class::Invalid,
            "a secret key was given in place of a public one",
        )
        .because(error)
        .hint("Name the file. Whoever can read the arguments of commands or their history has this key now.")
        .into()),
        Err(ParsePublicKeyError::Layout) => Ok(None),
    }
}
