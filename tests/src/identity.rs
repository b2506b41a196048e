//! The credentials for the nodes of the tests: an SSH key, a password and a cluster token, made once for a target
//! directory, so that media built with them stay usable between runs.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::files;

use crate::medium::lock;
use crate::paths;
use crate::programs;

pub const USER: &str = "rancher";

/// The secrets of the test nodes.
#[derive(Clone, Debug)]
pub struct Identity {
    directory: PathBuf,
    pub public_key: String,
    /// The password of [`USER`] in clear text.
    pub password: String,
    /// The cluster's token.
    pub token: String,
}

impl Identity {
    /// The identity of this target directory, made on first use.
    pub fn load() -> Result<Self> {
        let directory = paths::e2e().join("identity");
        files::make_directory(&directory, 0o700)?;
        let _lock = lock(&directory.join("lock"))?;
        let key = directory.join("id_ed25519");
        if !key.exists() {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "e2e", "-f"]).arg(&key);
            programs::run(&mut keygen, Duration::from_secs(60))?.success("ssh-keygen")?;
        }
        let public_key = fs::read_to_string(directory.join("id_ed25519.pub"))?.trim().to_owned();
        // The prefix makes a find in a log recognizable to a person.
        let password = secret(&directory.join("password"), "marked-password-")?;
        let token = secret(&directory.join("token"), "marked-token-")?;
        Ok(Self { directory, public_key, password, token })
    }

    /// An identity without files.
    #[cfg(test)]
    pub(crate) fn sample(password: &str, token: &str) -> Self {
        let (password, token) = (password.to_owned(), token.to_owned());
        Self { directory: PathBuf::new(), public_key: String::new(), password, token }
    }

    #[must_use]
    pub fn private_key(&self) -> PathBuf {
        self.directory.join("id_ed25519")
    }
}

fn secret(path: &Path, prefix: &str) -> Result<String> {
    if !path.exists() {
        let mut random = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut random))
            .context("/dev/urandom")?;
        let digits = Digest::of(&random).to_string();
        files::write_atomically(path, format!("{prefix}{}", &digits[..16]).as_bytes(), 0o600)?;
    }
    files::read_text(path)
}
