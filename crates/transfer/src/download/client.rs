//! The HTTP client: its proxies and trusted CA certificates.

use anyhow::Result;
use reqwest::Certificate;
use reqwest::blocking::{Client, ClientBuilder};
use reqwest::redirect::Policy;

use super::cause::reason;
use super::proxies;
use base::failure::{Class, Classify, Failure};
use base::url::shown;

/// The error of `rustls-platform-verifier` on a machine without CA certificates.
const NO_AUTHORITIES: &str = "No CA certificates";
const INSTALL_AUTHORITIES: &str = "HTTPS needs the certificates of authorities: install the package ca-certificates, or name a file of \
                                   them in SSL_CERT_FILE.";

const AGENT: &str = concat!("nqrust/", env!("CARGO_PKG_VERSION"));

/// A client for URLs that begin like `url`, which trusts these CA certificates (PEM) too. Proxies are those of the configuration ([`proxies`]) or else of the environment. The client follows no
/// redirect; [`redirect::get`](super::redirect::get) does. All name the project to servers (`User-Agent`).
pub fn client(url: &str, authorities: &[String], builder: impl Fn() -> ClientBuilder) -> Result<Client> {
    let extra = authorities.iter().map(|pem| Certificate::from_pem_bundle(pem.as_bytes()));
    let extra = extra
        .collect::<Result<Vec<_>, _>>()
        .class(Class::Invalid, || "reading install.ca_certificates".into())?;
    let extra = extra.concat();
    // The provider is global; an error means that it is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || proxies::apply(builder().redirect(Policy::none()).user_agent(AGENT));
    let built = match extra.is_empty() {
        true => builder().build(),
        false => builder().tls_certs_merge(extra.clone()).build(),
    };
    let client = match built {
        // Without certificates on the machine no client can be made; plain HTTP needs none, and those that are
        // given may be enough.
        Err(_) if url.starts_with("http://") || !extra.is_empty() => {
            builder().tls_certs_only(extra.clone()).build()
        }
        built => built,
    };
    Ok(client.map_err(|error| {
        let why = reason(&error);
        let none = why.contains(NO_AUTHORITIES);
        let failure = Failure::new(Class::Network, format!("preparing a client for {}", shown(url)))
            .because(anyhow::anyhow!("{why}"));
        if none { failure.hint(INSTALL_AUTHORITIES) } else { failure }
    })?)
}
