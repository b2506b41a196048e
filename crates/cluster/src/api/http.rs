//! The HTTP client for servers of a cluster: no proxy, no redirection, no second try, an answer of bounded size in bounded time.
//!
//! A node reaches its servers directly, whatever proxies its environment names: the client that the distributions make
//! for the authority of a cluster takes none (k3s `clientaccess.GetHTTPClient`).

use std::error::Error;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::blocking::{Client, RequestBuilder, Response};
use reqwest::redirect::Policy;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use transfer::download::{carried, reason};

/// Which servers are trusted.
pub(crate) enum Trust {
    /// All: for answers that prove themselves, or that nothing depends on.
    All,
    /// Those whose certificates this accepts. They are shown the certificate of the client.
    Verified(Arc<dyn ServerCertVerifier>, Option<ClientIdentity>),
}

/// A client certificate and its key, in memory only.
#[allow(missing_debug_implementations)]
pub(crate) struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientIdentity {
    /// From PEM that has both; none if it has not.
    pub(crate) fn read(pem: &[u8]) -> Option<Self> {
        let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().ok()?;
        let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
        (!chain.is_empty()).then_some(Self { chain, key })
    }
}

/// Accepts the certificates that one of these anchors has signed.
pub(crate) fn verifier(anchors: Vec<CertificateDer<'static>>) -> Option<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(anchors);
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), ring()).build().ok()
}

/// A client whose requests end after `timeout`. `resolved` has a host with the addresses at which it is asked.
///
/// # Errors
/// The certificates cannot be used; why.
pub(crate) fn client(
    trust: Trust,
    timeout: Duration,
    resolved: Option<(&str, &[SocketAddr])>,
) -> Result<Client, String> {
    // The provider is global to the process. An error only says that it is set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .http1_only()
        .pool_max_idle_per_host(0)
        .timeout(timeout)
        .user_agent(concat!("nqrust/", env!("CARGO_PKG_VERSION")));
    if let Some((host, addresses)) = resolved {
        builder = builder.resolve_to_addrs(host, addresses);
    }
    builder = match trust {
        Trust::All => builder.tls_danger_accept_invalid_certs(true),
        Trust::Verified(verifier, identity) => {
            let config = ClientConfig::builder_with_provider(ring())
                .with_safe_default_protocol_versions()
                .and_then(|config| {
                    let config = config.dangerous().with_custom_certificate_verifier(verifier);
                    match identity {
                        Some(ClientIdentity { chain, key }) => config.with_client_auth_cert(chain, key),
                        None => Ok(config.with_no_client_auth()),
                    }
                });
            builder.tls_backend_preconfigured(config.map_err(|error| error.to_string())?)
        }
    };
    builder.build().map_err(|error| reason(&error))
}

/// A client with the certificates of this node (PEM): it trusts `authorities` alone and shows the certificate in `pem`, which has
/// the key too.
///
/// # Errors
/// That they cannot be used, without the cause, which could quote the key.
pub(crate) fn node_client(authorities: &[u8], pem: &[u8], timeout: Duration) -> Result<Client, String> {
    let anchors = CertificateDer::pem_slice_iter(authorities).collect::<Result<Vec<_>, _>>().ok();
    let trust = anchors.and_then(verifier).zip(ClientIdentity::read(pem));
    let client = trust.and_then(|(verifier, identity)| {
        client(Trust::Verified(verifier, Some(identity)), timeout, None).ok()
    });
    client.ok_or_else(|| "the certificates of the node cannot be used".to_owned())
}

fn ring() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A request without an answer, or with a part of one.
#[derive(Debug)]
pub(crate) struct RequestError {
    error: Box<dyn Error + Send + Sync>,
    broken_off: bool,
}

/// As a clause that follows the name of the server.
impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self { error, broken_off: true } => write!(f, "ended its answer early: {error}"),
            _ if self.is_timeout() => f.write_str("does not answer in time"),
            _ => write!(f, "does not answer: {}", self.reason()),
        }
    }
}

impl RequestError {
    fn causes(&self) -> impl Iterator<Item = &(dyn Error + 'static)> {
        let mut next: Option<&(dyn Error + 'static)> = Some(&*self.error);
        std::iter::from_fn(move || {
            let cause = next?;
            next = cause.source();
            Some(cause)
        })
    }

    /// The innermost cause.
    pub(crate) fn reason(&self) -> String {
        reason(&*self.error)
    }

    pub(crate) fn is_timeout(&self) -> bool {
        self.causes().any(|cause| {
            let timed_out = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
            cause.downcast_ref().is_some_and(reqwest::Error::is_timeout)
                || cause.downcast_ref().is_some_and(timed_out)
        })
    }

    /// Whether there was no connection.
    pub(crate) fn is_connect(&self) -> bool {
        self.causes().any(|cause| cause.downcast_ref().is_some_and(reqwest::Error::is_connect))
    }

    /// What is wrong with the TLS of the server.
    pub(crate) fn tls(&self) -> Option<&rustls::Error> {
        self.causes().find_map(carried)
    }

    pub(crate) fn io_kind(&self) -> Option<io::ErrorKind> {
        self.causes().find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind)
    }
}

/// Sends a request. The answer may be of any length.
pub(crate) fn send(request: RequestBuilder) -> Result<Response, RequestError> {
    let sent = request.send();
    sent.map_err(|error| RequestError { error: error.without_url().into(), broken_off: false })
}

/// The body of an answer, up to so many bytes.
pub(crate) fn body(answer: Response, bytes_max: u64) -> Result<Vec<u8>, RequestError> {
    let mut bytes = Vec::new();
    let read = answer.take(bytes_max).read_to_end(&mut bytes);
    read.map_err(|error| RequestError { error: error.into(), broken_off: true })?;
    Ok(bytes)
}
