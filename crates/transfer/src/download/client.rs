//! How servers are asked: through which proxy, and who vouches for them.

use anyhow::Result;
use reqwest::Certificate;
use reqwest::blocking::{Client, ClientBuilder};
use reqwest::redirect::Policy;

use super::cause::reason;
use super::proxies;
use base::failure::{Class, Classify, Failure};
use base::url::shown;

/// What `rustls-platform-verifier` says where the machine has no certificate that it could check others by.
const NO_AUTHORITIES: &str = "No CA certificates";
const INSTALL_AUTHORITIES: &str = "HTTPS needs the certificates of authorities: install the package ca-certificates, or name a file of \
                                   them in SSL_CERT_FILE.";

const AGENT: &str = concat!("nqrust/", env!("CARGO_PKG_VERSION"));

/// A client for URLs that begin like `url`, for servers that the authorities of these certificates (PEM) vouch
/// for too. Proxies are those of the configuration ([`proxies`]) or else of the environment. The client follows no
/// redirect; [`redirect::get`](super::redirect::get) does. All name the project to servers (`User-Agent`).
pub fn client(url: &str, authorities: &[String], builder: impl Fn() -> ClientBuilder) -> Result<Client> {
    let extra = authorities.iter().map(|pem| Certificate::from_pem_bundle(pem.as_bytes()));
    let extra = extra
        .collect::<Result<Vec<_>, _>>()
        .class(Class::Invalid, || "reading install.ca_certificates".into())?;
    let extra = extra.concat();
    // The provider is the process's; that it is set already is as good.
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
        let failure = Failure::new(Class::Network, format!("preparing to ask {}", shown(url)))
            .because(anyhow::anyhow!("{why}"));
        if none { failure.hint(INSTALL_AUTHORITIES) } else { failure }
    })?)
}
