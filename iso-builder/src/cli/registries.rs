//! How registries are reached by commands without an image definition.

use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use base::files::{parent, read_text};
use base::size::ByteSize;
use model::config::registries::Registries;
use transfer::download::RetryPolicy;
use transfer::registry::{Client, Settings};

use crate::images::pull::DEFAULT_TRANSFERS;

#[derive(Debug, clap::Args)]
pub(super) struct RegistryArguments {
    /// Mirrors, logins and certificates of registries, in the form of `registries.yaml` of RKE2 and K3s. Logins of docker
    /// are used where it has none. Plain HTTP is spoken where an endpoint says http://, and to a registry on
    /// this machine (localhost, 127.0.0.0/8, ::1) that answers it.
    #[arg(long, value_name = "FILE")]
    registries: Option<PathBuf>,
    /// Blobs that travel at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_TRANSFERS)]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    transfers: usize,
    /// Transfer at most this much a second, all transfers together: 10Mi, 500Ki.
    #[arg(long, value_name = "SIZE")]
    rate: Option<ByteSize>,
}

impl RegistryArguments {
    pub(super) fn transfers(&self) -> usize {
        self.transfers
    }

    pub(super) fn client(&self) -> Result<Client> {
        let registries = self.registries.as_deref().map(read).transpose()?;
        Client::new(Settings {
            registries: registries.unwrap_or_default(),
            authorities: Vec::new(),
            docker_config: true,
            retry: RetryPolicy::default(),
            rate: self.rate,
        })
    }
}

/// Paths in the file are relative to it.
fn read(path: &Path) -> Result<Registries> {
    let what = || format!("reading {}", path.display());
    let text = read_text(path).class(Class::Invalid, what)?;
    // The parser's own text could quote a password.
    let registries: Registries = serde_saphyr::from_str(&text).map_err(|_| {
        let hint = "Write mirrors and configs as RKE2 and K3s read them, for instance \
                    {mirrors: {registry.example.org: {endpoint: [\"https://mirror.example.org\"]}}}.";
        Failure::new(Class::Invalid, what())
            .because(anyhow::anyhow!("it is not a registries.yaml"))
            .hint(hint)
    })?;
    Ok(registries.relative_to(parent(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;

    #[test]
    fn a_file_that_is_no_registries_yaml_is_refused_without_its_passwords() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("registries.yaml");
        std::fs::write(&path, "configs: {a.b: {auth: {passwort: hunter2}}}").unwrap();
        let text = render(&read(&path).unwrap_err());
        assert!(text.contains("registries.yaml") && !text.contains("hunter2"), "{text}");
        std::fs::write(&path, "configs: {a.b: {tls: {ca_file: ca.pem}}}").unwrap();
        let read = read(&path).unwrap();
        let file = &read.configs["a.b"].tls.as_ref().unwrap().ca_file;
        assert_eq!(Path::new(file), directory.path().join("ca.pem"));
    }
}
