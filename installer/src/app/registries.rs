//! The registries from which an install downloads the blobs of images, as its configuration describes them.

use std::io::Read;

use anyhow::Result;

use base::digest::Digest;
use formats::oci::Repository;
use medium::payload_sources::{PayloadSource, Registry, RegistryMedium};
use model::config::InstallConfig;
use model::config::registries::Registries;
use model::release::Release;
use transfer::download::RetryPolicy;
use transfer::registry::{Client, Settings};

/// The cluster's setting with further authorities, as PEM.
const AUTHORITIES: &str = "additional-ca";

/// The authorities, as PEM, that a configuration trusts beside those of the system.
pub(crate) fn authorities(config: &InstallConfig) -> Vec<String> {
    let further = config.system_settings.get(AUTHORITIES).map(|setting| setting.expose());
    further.filter(|pem| !pem.trim().is_empty()).map(str::to_owned).into_iter().collect()
}

/// What asks registries on behalf of `config`: with the mirrors, logins and certificates from which the node's containerd
/// has its own (`node::cluster::registries`), so that one key serves images and releases. Sends no request yet.
pub(crate) fn client(config: &InstallConfig, authorities: &[String]) -> Result<(Client, Registries)> {
    let registries = config.node_registries();
    let client = Client::new(Settings {
        registries: registries.clone(),
        authorities: authorities.iter().cloned().chain(self::authorities(config)).collect(),
        docker_config: false,
        retry: RetryPolicy::default(),
        rate: None,
    })?;
    Ok((client, registries))
}

/// The registries of the images of `release`. Sends no request yet.
pub(crate) fn source(
    config: &InstallConfig,
    authorities: &[String],
    release: &Release,
) -> Result<Box<dyn PayloadSource>> {
    let (client, registries) = client(config, authorities)?;
    Ok(Box::new(RegistryMedium::new(Box::new(ConfiguredRegistries { client, registries }), release)?))
}

struct ConfiguredRegistries {
    client: Client,
    registries: Registries,
}

impl Registry for ConfiguredRegistries {
    fn probe(&self, repository: &Repository, digest: Digest, size: u64) -> Result<()> {
        self.client.probe(repository, digest, size)
    }

    fn document(&self, repository: &Repository, digest: Digest) -> Result<Vec<u8>> {
        Ok(self.client.document(&repository.with_digest(digest))?.bytes)
    }

    fn blob(&self, repository: &Repository, digest: Digest, size: u64) -> Result<Box<dyn Read + Send>> {
        self.client.blob(repository, digest, size, 0)
    }

    fn has_mirror(&self, host: &str) -> bool {
        self.registries.has_mirror(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;
    use model::release::{Image, Payload, Purpose};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    /// A registry that has one blob under every name; the paths of its requests.
    fn registry(blob: &'static [u8]) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
                log.lock().unwrap().push(head.first().cloned().unwrap_or_default());
                let head =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", blob.len());
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(blob));
            }
        });
        (address, asked)
    }

    #[test]
    fn a_mirror_of_the_configuration_gives_what_no_registry_has() {
        let bytes = b"one layer";
        let (address, asked) = registry(bytes);
        let mirrors = format!(r#"{{"Mirrors": {{"localhost": {{"Endpoints": ["{address}"]}}}}}}"#);
        let config = format!("system_settings: {{containerd-registry: '{mirrors}'}}");
        let (size, sha256) = (bytes.len() as u64, Digest::of(bytes));
        let payload = Payload { path: "images/x".into(), purpose: Purpose::ImageBlob, size, sha256 };
        let mut release = testing::release::release();
        release.payloads = vec![payload.clone()];
        let name = "localhost/nqrust/tools:1".into();
        release.images = vec![Image {
            name,
            digest: Digest::of(b"manifest"),
            roles: vec![],
            blobs: vec![Digest::of(b"manifest"), sha256],
            documents: 1,
        }];
        let source = source(&parse(&config, "f").unwrap(), &[], &release).unwrap();
        source.probe(&payload).unwrap();
        let mut got = Vec::new();
        source.open(&payload).unwrap().read_to_end(&mut got).unwrap();
        assert_eq!(got, bytes);
        let wanted = format!("GET /v2/nqrust/tools/blobs/{}?ns=localhost HTTP/1.1", sha256.oci());
        assert!(asked.lock().unwrap().contains(&wanted), "{:?}", asked.lock().unwrap());
        let error =
            super::source(&parse("{}", "f").unwrap(), &[], &release).unwrap().probe(&payload).unwrap_err();
        assert!(format!("{error:#}").contains("localhost/nqrust/tools is in no registry"));
    }
}
