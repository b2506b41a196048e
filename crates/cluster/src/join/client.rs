//! Requests to the servers of a cluster: no proxy, no redirection, no second try, an answer of bounded size in bounded
//! time.
//!
//! A node reaches its servers directly, whatever proxies its environment names: the client that the distributions make
//! for the authority of a cluster takes none (k3s `clientaccess.GetHTTPClient`).

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use reqwest::blocking::{Client as Http, ClientBuilder, Response};
use reqwest::header::{ACCEPT, DATE, SERVER};
use reqwest::redirect::Policy;
use reqwest::{Method, StatusCode};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig};

use super::authority::Authority;
use machine::clock::http_date;
use machine::network_trouble::NetworkTrouble;
use model::config::Secret;
use transfer::download::{carried, reason};

/// How long a server may take for an answer.
const TIMEOUT: Duration = Duration::from_secs(7);
/// With less time left than this, no request is made.
const LEAST: Duration = Duration::from_secs(1);
/// An object of the API without its content (Kubernetes, "API concepts", alternate representations).
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const ANYTHING: &str = "*/*";
/// The largest answer in bytes. A list of nodes has about 20 KiB for each.
const MOST: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub(super) struct ServerAddress {
    /// As the configuration names it.
    pub(super) host: String,
    pub(super) addresses: Vec<SocketAddr>,
}

impl ServerAddress {
    /// As messages name it, `https://HOST:PORT`.
    pub(super) fn name(&self) -> String {
        let port = self.addresses.first().map_or(443, SocketAddr::port);
        format!("https://{}:{port}", self.host)
    }
}

/// Which servers are trusted.
pub(super) enum Trust<'a> {
    /// All: for answers that prove themselves.
    All,
    /// Those with a certificate of the authority that is valid at this time.
    Authority(&'a Authority, SystemTime),
    /// The same, with a client certificate of our own.
    Mutual(&'a Authority, SystemTime, ClientIdentity),
}

/// A client certificate and its key, in memory only.
#[allow(missing_debug_implementations)]
pub(super) struct ClientIdentity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The login of a request.
#[derive(Clone, Copy)]
pub(super) enum RequestLogin<'a> {
    None,
    User(&'static str, &'a Secret),
    Bearer(&'a Secret),
}

pub(super) struct ServerAnswer {
    pub(super) status: StatusCode,
    /// The server's clock.
    pub(super) date: Option<SystemTime>,
    /// What the server calls itself.
    pub(super) server: Option<String>,
    pub(super) body: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum RequestProblem {
    Certificate(CertificateError),
    /// As a clause that follows the server's name.
    Other(NetworkTrouble),
}

impl From<RequestProblem> for NetworkTrouble {
    fn from(problem: RequestProblem) -> Self {
        match problem {
            RequestProblem::Other(trouble) => trouble,
            RequestProblem::Certificate(error) => {
                Self::Silent(format!("presents an invalid certificate: {error}"))
            }
        }
    }
}

pub(super) struct Client {
    place: ServerAddress,
    http: Http,
    until: Instant,
}

impl Client {
    pub(super) fn new(
        place: &ServerAddress,
        trust: Trust<'_>,
        until: Instant,
    ) -> Result<Self, NetworkTrouble> {
        let unable = |why: &dyn std::fmt::Display| NetworkTrouble::Unable(format!("cannot be asked: {why}"));
        // The provider is the process's; that it is set already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = Http::builder()
            .no_proxy()
            .redirect(Policy::none())
            .http1_only()
            .pool_max_idle_per_host(0)
            .resolve_to_addrs(&place.host, &place.addresses)
            .user_agent(concat!("nqrust/", env!("CARGO_PKG_VERSION")));
        let builder = trusting(builder, trust).map_err(|error| unable(&error))?;
        let http = builder.build().map_err(|error| unable(&reason(&error)))?;
        Ok(Self { place: place.clone(), http, until })
    }

    pub(super) fn place(&self) -> &ServerAddress {
        &self.place
    }

    pub(super) fn get(&self, path: &str, login: RequestLogin<'_>) -> Result<ServerAnswer, RequestProblem> {
        self.ask(Method::GET, path, ANYTHING, login)
    }

    /// An object of the API as far as it is not its content, which may be secret.
    pub(super) fn metadata(
        &self,
        path: &str,
        login: RequestLogin<'_>,
    ) -> Result<ServerAnswer, RequestProblem> {
        self.ask(Method::GET, path, METADATA, login)
    }

    pub(super) fn head(&self, path: &str, login: RequestLogin<'_>) -> Result<ServerAnswer, RequestProblem> {
        self.ask(Method::HEAD, path, ANYTHING, login)
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &'static str,
        login: RequestLogin<'_>,
    ) -> Result<ServerAnswer, RequestProblem> {
        let timeout = TIMEOUT.min(self.until.saturating_duration_since(Instant::now()));
        if timeout < LEAST {
            let why = "was not asked: the time for all checks was over";
            return Err(RequestProblem::Other(NetworkTrouble::Unable(why.into())));
        }
        let request = self.http.request(method, format!("{}{path}", self.place.name())).timeout(timeout);
        let request = request.header(ACCEPT, kind);
        let request = match login {
            RequestLogin::None => request,
            RequestLogin::User(user, password) => request.basic_auth(user, Some(password.expose())),
            RequestLogin::Bearer(token) => request.bearer_auth(token.expose()),
        };
        let problem = |error: &(dyn std::error::Error + 'static)| problem(error, timeout);
        let response = request.send().map_err(|error| problem(&error.without_url()))?;
        let (status, date) = (response.status(), date(&response));
        let server = response.headers().get(SERVER).and_then(|name| name.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        response.take(MOST).read_to_end(&mut body).map_err(|error| problem(&error))?;
        Ok(ServerAnswer { status, date, server, body })
    }
}

impl ServerAnswer {
    pub(super) fn is_ok(&self) -> bool {
        self.status == StatusCode::OK
    }

    /// The status, and the name of the server software where the answer has it.
    pub(super) fn told(&self) -> String {
        match &self.server {
            Some(server) => format!("{} (Server: {server})", self.status),
            None => self.status.to_string(),
        }
    }
}

fn trusting(builder: ClientBuilder, trust: Trust<'_>) -> Result<ClientBuilder, rustls::Error> {
    let (authority, now, identity) = match trust {
        Trust::All => return Ok(builder.tls_danger_accept_invalid_certs(true)),
        Trust::Authority(authority, now) => (authority, now, None),
        Trust::Mutual(authority, now, identity) => (authority, now, Some(identity)),
    };
    let bad = rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
    let verifier = authority.verifier(now).ok_or(bad)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match identity {
        Some(ClientIdentity { chain, key }) => config.with_client_auth_cert(chain, key)?,
        None => config.with_no_client_auth(),
    };
    Ok(builder.tls_backend_preconfigured(config))
}

/// The server's clock.
fn date(response: &Response) -> Option<SystemTime> {
    http_date(response.headers().get(DATE)?.to_str().ok()?)
}

fn problem(error: &(dyn std::error::Error + 'static), timeout: Duration) -> RequestProblem {
    let causes = || std::iter::successors(Some(error), |error| error.source());
    let tls = causes().find_map(carried);
    if let Some(rustls::Error::InvalidCertificate(why)) = tls {
        return RequestProblem::Certificate(why.clone());
    }
    let kind = causes().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind).next();
    let timed_out = causes().any(|cause| {
        cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout)
            || cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    });
    let connecting =
        causes().any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect));
    RequestProblem::Other(match (tls, kind) {
        _ if timed_out => not_yet(format!("does not answer within {} s", timeout.as_secs())),
        (Some(rustls::Error::InvalidMessage(_)), _) => silent("does not speak TLS: it is another service"),
        (Some(error), _) => silent(format!("ends the TLS handshake: {error}")),
        (None, Some(io::ErrorKind::ConnectionRefused)) => {
            not_yet("refuses the connection: nothing listens there")
        }
        // An install has set up the network of the configuration before it asks.
        (None, Some(io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown)) => {
            not_yet("cannot be reached: this system has no route to it")
        }
        (None, Some(io::ErrorKind::HostUnreachable)) => {
            not_yet("cannot be reached: no machine has the address")
        }
        _ if connecting => not_yet(format!("cannot be reached: {}", reason(error))),
        _ => not_yet(format!("breaks the answer off: {}", reason(error))),
    })
}

fn silent(what: impl Into<String>) -> NetworkTrouble {
    NetworkTrouble::Silent(what.into())
}

fn not_yet(what: impl Into<String>) -> NetworkTrouble {
    NetworkTrouble::NotYet(what.into())
}
