//! The servers that machines speak to: one, or the replicas that a load balancer would choose from.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The addresses of servers, one of which is chosen for each connection, in turns.
pub struct Servers {
    addresses: Vec<SocketAddr>,
    tls: Option<TlsConnector>,
    connections: AtomicUsize,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Servers {
    /// Servers with plain HTTP. `addresses` must not be empty.
    pub fn new(addresses: Vec<SocketAddr>) -> Result<Self> {
        ensure!(!addresses.is_empty(), "there is no server to send requests to");
        Ok(Self { addresses, tls: None, connections: AtomicUsize::new(0) })
    }

    /// The same servers over HTTPS, with certificates of the authorities in this file (PEM).
    pub fn with_tls(self, authorities: &Path) -> Result<Self> {
        let what = || format!("reading the certificate authorities in {}", authorities.display());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(authorities).with_context(what)? {
            roots.add(certificate.with_context(what)?).with_context(what)?;
        }
        ensure!(!roots.is_empty(), "{} has no certificate", authorities.display());
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().context("preparing TLS")?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: Some(TlsConnector::from(Arc::new(config))), ..self })
    }

    pub(crate) fn tls(&self) -> Option<&TlsConnector> {
        self.tls.as_ref()
    }

    /// The server of the next connection.
    pub(crate) fn next(&self) -> Option<SocketAddr> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        self.addresses.get(number % self.addresses.len().max(1)).copied()
    }
}
