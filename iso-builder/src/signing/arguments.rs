//! The options about keys that several commands have.

use std::path::PathBuf;

use anyhow::Result;
use base::failure::{Class, Failure};
use trust::TrustStore;

use super::{KeyDirectory, PassphraseSource, SignerOptions, known_keys};

/// The key that signs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Signing")]
pub(crate) struct SigningArguments {
    /// Sign the release with this key: the name of one of `iso-builder keys show`, a file, or env:NAME for the text of a key file
    /// in the environment. `development` is made at its first use, and everything that shows the release says so. Repeatable.
    #[arg(long, value_name = "KEY")]
    sign_with: Vec<String>,
    /// Let a command of the shell sign, which asks a device or a service: it gets bytes on standard input and prints their Ed25519
    /// signature, 64 bytes. --sign-with is then the file of the public key.
    #[arg(long, value_name = "COMMAND", requires = "sign_with")]
    signer: Option<String>,
    #[command(flatten)]
    passphrase: PassphraseArguments,
}

/// Where the passphrase comes from, and where keys are.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PassphraseArguments {
    /// Read the passphrase of the key from the first line of this file; /dev/fd/N for a file descriptor. Otherwise it is that of the
    /// variable NQRUST_KEY_PASSPHRASE, or is asked for.
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    #[command(flatten)]
    directory: KeyDirectoryArguments,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct KeyDirectoryArguments {
    /// The directory with the user's keys, by default nqrust/keys in the user's data directory (~/.local/share).
    #[arg(long, value_name = "DIR", env = "NQRUST_KEYS")]
    keys: Option<PathBuf>,
}

/// The keys that a finished release is judged by.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Signatures")]
pub(crate) struct KnownKeyArguments {
    /// Trust this public key too: a file, or its second line. Those in the key directory are trusted anyway. Repeatable.
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,
    /// Take a release that is not signed, or not with a trusted key.
    #[arg(long)]
    allow_unsigned: bool,
    #[command(flatten)]
    directory: KeyDirectoryArguments,
}

impl KeyDirectoryArguments {
    pub(crate) fn directory(self) -> KeyDirectory {
        KeyDirectory::of_user(self.keys)
    }
}

impl PassphraseArguments {
    pub(crate) fn into_parts(self) -> (PassphraseSource, KeyDirectory) {
        (PassphraseSource { file: self.passphrase_file }, self.directory.directory())
    }
}

impl SigningArguments {
    /// The directory with the user's keys.
    pub(crate) fn directory(&self) -> KeyDirectory {
        self.passphrase.directory.clone().directory()
    }

    /// One for each key that is named.
    ///
    /// # Errors
    /// [`Class::Invalid`] for a command with several keys: it signs with one.
    pub(crate) fn options(self) -> Result<Vec<SignerOptions>> {
        let Self { sign_with, signer: command, passphrase } = self;
        if command.is_some() && sign_with.len() > 1 {
            return Err(Failure::new(
                Class::Invalid,
                "--signer signs with one key, and --sign-with names several",
            )
            .hint("Sign with the others afterwards: `iso-builder keys sign`.")
            .into());
        }
        let (passphrase, directory) = passphrase.into_parts();
        let options = |key| SignerOptions {
            key,
            command: command.clone(),
            passphrase: passphrase.clone(),
            directory: directory.clone(),
        };
        Ok(sign_with.into_iter().map(options).collect())
    }
}

impl KnownKeyArguments {
    /// Those of a test that is about something else.
    #[cfg(test)]
    pub(crate) fn allowing_unsigned() -> Self {
        Self { allow_unsigned: true, ..Self::default() }
    }

    /// The same with one key more.
    #[cfg(test)]
    pub(crate) fn trusting(mut self, key: &str) -> Self {
        self.key.push(key.to_owned());
        self
    }

    pub(crate) fn store(self) -> Result<TrustStore> {
        known_keys(&self.directory.directory(), &self.key, self.allow_unsigned)
    }
}
