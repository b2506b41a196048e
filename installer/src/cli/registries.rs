//! The registries that an install asks for the blobs of images, as its configuration describes them.

use std::io::Read;

use anyhow::Result;

use crate::config::InstallConfig;
use crate::config::registries::{Registries, SETTING};
use crate::digest::Digest;
use crate::download::Patience;
use crate::medium::{PayloadSource, Registry, RegistryMedium};
use crate::oci::Repository;
use crate::registry::{Client, Settings};
use crate::release::Release;

/// The cluster's setting with further authorities, as PEM.
const AUTHORITIES: &str = "additional-ca";

/// The registries of the images of `release`. Nobody is asked anything yet.
pub(super) fn source(
    config: &InstallConfig,
    authorities: &[String],
    release: &Release,
) -> Result<Box<dyn PayloadSource>> {
    let setting = |name: &str| config.system_settings.get(name).map(|setting| setting.expose());
    // The rules of the document have refused what does not parse.
    let registries = setting(SETTING).and_then(Registries::parse).unwrap_or_default();
    let further = setting(AUTHORITIES).filter(|pem| !pem.trim().is_empty()).map(str::to_owned);
    let client = Client::new(Settings {
        registries: registries.clone(),
        authorities: authorities.iter().cloned().chain(further).collect(),
        docker_config: false,
        patience: Patience::default(),
        rate: None,
    })?;
    Ok(Box::new(RegistryMedium::new(Box::new(Configured { client, registries }), release)?))
}

/// A client, and what it was told of mirrors.
struct Configured {
    client: Client,
    registries: Registries,
}

impl Registry for Configured {
    fn probe(&self, repository: &Repository, digest: Digest, size: u64) -> Result<()> {
        self.client.probe(repository, digest, size)
    }

    fn blob(&self, repository: &Repository, digest: Digest, size: u64) -> Result<Box<dyn Read + Send>> {
        self.client.blob(repository, digest, size, 0)
    }

    fn has_mirror(&self, host: &str) -> bool {
        self.registries.has_mirror(host)
    }
}
