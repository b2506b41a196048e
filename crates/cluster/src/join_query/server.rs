//! Requests to the servers of a cluster that this machine is not part of yet.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use reqwest::blocking::{Client, Response};
use reqwest::header::{ACCEPT, DATE, SERVER};
use reqwest::{Method, StatusCode};
use rustls::CertificateError;

use crate::api::http::{self, RequestError, Trust};
use machine::clock::http_date;
use machine::network_trouble::NetworkTrouble;
use model::config::Secret;

const TIMEOUT: Duration = Duration::from_secs(7);
/// With less time left than this, no request is made.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// An object of the API without its content (Kubernetes, "API concepts", alternate representations).
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const ANYTHING: &str = "*/*";
/// The largest answer in bytes. A list of nodes has about 20 KiB for each.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

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
    /// The name of the server software.
    software: Option<String>,
    pub(super) body: Vec<u8>,
}

impl ServerAnswer {
    fn read(answer: Response) -> Result<Self, RequestError> {
        let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
        let (status, date) = (answer.status(), text(DATE).and_then(http_date));
        let software = text(SERVER).map(str::to_owned);
        Ok(Self { status, date, software, body: http::body(answer, ANSWER_BYTES_MAX)? })
    }

    pub(super) fn is_ok(&self) -> bool {
        self.status == StatusCode::OK
    }

    /// The status, and the name of the server software where the answer has it.
    pub(super) fn summary(&self) -> String {
        match &self.software {
            Some(software) => format!("{} (Server: {software})", self.status),
            None => self.status.to_string(),
        }
    }
}

pub(super) struct JoinServer {
    name: String,
    http: Client,
    until: Instant,
}

impl JoinServer {
    /// The server at any of these addresses. No request ends after `until`.
    pub(super) fn new(
        host: &str,
        addresses: &[SocketAddr],
        trust: Trust,
        until: Instant,
    ) -> Result<Self, NetworkTrouble> {
        let http = http::client(trust, TIMEOUT, Some((host, addresses)))
            .map_err(|why| NetworkTrouble::Unable(format!("cannot be asked: {why}")))?;
        let port = addresses.first().map_or(443, SocketAddr::port);
        Ok(Self { name: format!("https://{host}:{port}"), http, until })
    }

    /// As messages name it, `https://HOST:PORT`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Errors are clauses that follow the server's name.
    pub(super) fn get(&self, path: &str, login: RequestLogin<'_>) -> Result<ServerAnswer, NetworkTrouble> {
        self.ask(Method::GET, path, ANYTHING, login)
    }

    /// An object of the API without its content, which may be secret.
    pub(super) fn metadata(
        &self,
        path: &str,
        login: RequestLogin<'_>,
    ) -> Result<ServerAnswer, NetworkTrouble> {
        self.ask(Method::GET, path, METADATA, login)
    }

    pub(super) fn head(&self, path: &str, login: RequestLogin<'_>) -> Result<ServerAnswer, NetworkTrouble> {
        self.ask(Method::HEAD, path, ANYTHING, login)
    }

    /// What is wrong with the certificate of the server, found by asking for `path`.
    pub(super) fn certificate_error(&self, path: &str) -> Result<Option<CertificateError>, NetworkTrouble> {
        self.try_ask(Method::GET, path, ANYTHING, RequestLogin::None).map(Result::err)
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        login: RequestLogin<'_>,
    ) -> Result<ServerAnswer, NetworkTrouble> {
        self.try_ask(method, path, kind, login)?
            .map_err(|error| NetworkTrouble::Silent(format!("presents an invalid certificate: {error}")))
    }

    fn try_ask(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        login: RequestLogin<'_>,
    ) -> Result<Result<ServerAnswer, CertificateError>, NetworkTrouble> {
        let timeout = TIMEOUT.min(self.until.saturating_duration_since(Instant::now()));
        if timeout < TIMEOUT_MIN {
            return Err(NetworkTrouble::Unable("was not asked: the time for all checks was over".into()));
        }
        let request = self.http.request(method, format!("{}{path}", self.name)).timeout(timeout);
        let request = match login {
            RequestLogin::None => request,
            RequestLogin::User(user, password) => request.basic_auth(user, Some(password.expose())),
            RequestLogin::Bearer(token) => request.bearer_auth(token.expose()),
        };
        match http::send(request.header(ACCEPT, kind)).and_then(ServerAnswer::read) {
            Ok(answer) => Ok(Ok(answer)),
            Err(error) => match error.tls() {
                Some(rustls::Error::InvalidCertificate(why)) => Ok(Err(why.clone())),
                _ => Err(trouble(&error, timeout)),
            },
        }
    }
}

/// Tells what may pass by itself from what a person has to correct.
fn trouble(error: &RequestError, timeout: Duration) -> NetworkTrouble {
    let silent = |what: &str| NetworkTrouble::Silent(what.into());
    let not_yet = |what: &str| NetworkTrouble::NotYet(what.into());
    match (error.tls(), error.io_kind()) {
        _ if error.is_timeout() => not_yet(&format!("does not answer within {} s", timeout.as_secs())),
        (Some(rustls::Error::InvalidMessage(_)), _) => silent("does not speak TLS: it is another service"),
        (Some(error), _) => silent(&format!("ends the TLS handshake: {error}")),
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
        _ if error.is_connect() => not_yet(&format!("cannot be reached: {}", error.reason())),
        _ => not_yet(&format!("ends its answer early: {}", error.reason())),
    }
}
