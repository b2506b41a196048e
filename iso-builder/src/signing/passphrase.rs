//! Where the passphrase of a key file comes from: a variable of the environment, a file, or the person at the terminal.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use base::files::named;

/// The environment variable with the passphrase.
pub const VARIABLE: &str = "NQRUST_KEY_PASSPHRASE";
const MAX_BYTES: u64 = 4096;

#[derive(Clone, Debug, Default)]
pub struct PassphraseSource {
    /// The file whose first line it is; `/dev/fd/N` for what another program passes on.
    pub file: Option<PathBuf>,
}

impl PassphraseSource {
    /// The passphrase of the key `name`, which there is already.
    pub fn read(&self, name: &str) -> Result<String> {
        match self.given()? {
            Some(passphrase) => Ok(passphrase),
            None => ask(&format!("Passphrase of the key {name}: "), name),
        }
    }

    /// The passphrase of a key that is about to be made. A person types it twice.
    pub fn choose(&self, name: &str) -> Result<String> {
        let passphrase = match self.given()? {
            Some(passphrase) => passphrase,
            None => {
                let first = ask(&format!("Passphrase for the new key {name}: "), name)?;
                if ask("The same again: ", name)? != first {
                    return Err(Failure::new(Class::Invalid, "the two passphrases differ")
                        .hint("Run the command again.")
                        .into());
                }
                first
            }
        };
        if passphrase.is_empty() {
            return Err(Failure::new(Class::Invalid, format!("the passphrase for the key {name} is empty"))
                .hint("Choose one. --no-passphrase makes a key that everybody can use who can read its file.")
                .into());
        }
        Ok(passphrase)
    }

    fn given(&self) -> Result<Option<String>> {
        if let Some(file) = &self.file {
            let text = named::read_text_at_most(file, MAX_BYTES)
                .class(Class::Invalid, || format!("reading the passphrase from {}", named::told(file)))?;
            return Ok(Some(text.lines().next().unwrap_or_default().to_owned()));
        }
        match std::env::var(VARIABLE) {
            Ok(passphrase) => Ok(Some(passphrase)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(Failure::new(Class::Invalid, format!("{VARIABLE} is not UTF-8")).into())
            }
        }
    }
}

fn ask(prompt: &str, name: &str) -> Result<String> {
    if !std::io::stdin().is_terminal() {
        let what =
            format!("the passphrase of the key {name} is not given, and there is no terminal to ask at");
        return Err(Failure::new(Class::Invalid, what)
            .hint(format!(
                "Set {VARIABLE}, or give --passphrase-file FILE (/dev/fd/N for a file descriptor)."
            ))
            .into());
    }
    rpassword::prompt_password(prompt)
        .class(Class::Invalid, || "reading the passphrase from the terminal".to_owned())
}
