//! Talking to one endpoint.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError as Error, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use tokio::runtime::Runtime;

use super::endpoint::Endpoint;
use super::{Fetched, Settings, credentials};
use crate::digest::Digest;
use crate::download::{Authorize, Download, Downloader, Patience, Trust, is_absent, is_denied, reason};
use crate::failure::{Class, Classify, Failure, class_of};
use crate::files::read_text;

/// What documents may be.
const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// What a user does about a blob; the places of an image say the rest.
const HINT: &str = "Check the image and the registry.";

/// Why an endpoint does not give what it is asked for.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It has no such thing.
    Absent,
    /// It wants another name or password.
    Denied(String),
    /// It sends something else.
    Damaged(String),
    /// It does not answer, or not as a registry.
    Trouble(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no such image or blob"),
            Self::Denied(why) | Self::Damaged(why) | Self::Trouble(why) => f.write_str(why),
        }
    }
}

/// One endpoint with the connections to it.
pub(super) struct Session {
    endpoint: Endpoint,
    downloader: Downloader,
    login: Arc<LogIn>,
}

/// Logs in, and remembers the tokens that it gets.
struct LogIn {
    runtime: Arc<Runtime>,
    client: oci_client::Client,
    auth: RegistryAuth,
    /// The value of the header `Authorization` by repository; none where nothing is demanded.
    headers: Mutex<BTreeMap<String, Option<String>>>,
}

impl Session {
    pub(super) fn new(endpoint: &Endpoint, settings: &Settings, runtime: Arc<Runtime>) -> Result<Self> {
        let host = endpoint.known_as();
        let tls = settings.registries.tls(host);
        let mut authorities = settings.authorities.clone();
        if let Some(path) = tls.as_ref().and_then(|tls| tls.ca_file()) {
            let what = || format!("reading the authority of {host}");
            authorities.push(read_text(path).class(Class::Invalid, what)?);
        }
        let trust = Trust { authorities, anyone: tls.is_some_and(|tls| tls.trusts_anyone()) };
        let downloader = Downloader::with(&endpoint.url(), settings.patience, HINT, &trust)?;
        let auth = credentials::find(host, settings.registries.login(host), settings.docker_config)?;
        let client = client(endpoint, settings.patience, &trust)
            .with_context(|| format!("preparing to ask {endpoint}"))?;
        let login = LogIn { runtime, client, auth, headers: Mutex::default() };
        Ok(Self { endpoint: endpoint.clone(), downloader, login: Arc::new(login) })
    }

    /// The document of the repository `path` with the tag or digest `version`.
    pub(super) fn document(&self, path: &str, version: &str, patience: Patience) -> Result<Fetched, Refusal> {
        let host = self.endpoint.host.clone();
        let reference = match version.starts_with("sha256:") {
            true => Reference::with_digest(host, path.to_owned(), version.to_owned()),
            false => Reference::with_tag(host, path.to_owned(), version.to_owned()),
        };
        let LogIn { runtime, client, auth, .. } = self.login.as_ref();
        let mut failed = 0;
        loop {
            let error = match runtime.block_on(client.pull_manifest_raw(&reference, auth, &ACCEPTED)) {
                Ok((bytes, _)) => return checked(bytes.to_vec(), version),
                Err(error) => error,
            };
            let refusal = refusal(&error);
            failed += 1;
            let passing = matches!(refusal, Refusal::Trouble(_)) && is_passing(&error);
            if !passing || failed >= patience.attempts {
                return Err(refusal);
            }
            std::thread::sleep(patience.after(failed));
        }
    }

    /// A blob of the repository `path` from `offset` on, connected.
    pub(super) fn blob(
        &self,
        path: &str,
        digest: Digest,
        size: u64,
        offset: u64,
        patience: Patience,
    ) -> Result<Download, Refusal> {
        let url = format!("{}/v2/{path}/blobs/{}", self.endpoint.url(), digest.oci());
        let reference = Reference::with_digest(self.endpoint.host.clone(), path.to_owned(), digest.oci());
        let entry = Entry { login: Arc::clone(&self.login), reference };
        let mut download =
            self.downloader.open_at(&url, size, offset).patient(patience).authorized(Arc::new(entry));
        download.connect_patiently().map_err(|failure| {
            let error = anyhow::Error::from(failure);
            let why = error.chain().last().map(ToString::to_string).unwrap_or_default();
            match class_of(&error) {
                _ if is_absent(&error) => Refusal::Absent,
                _ if is_denied(&error) => Refusal::Denied(why),
                Class::Verification => Refusal::Damaged(why),
                _ => Refusal::Trouble(why),
            }
        })?;
        Ok(download)
    }
}

/// The right to read one repository.
struct Entry {
    login: Arc<LogIn>,
    reference: Reference,
}

impl Authorize for Entry {
    fn authorization(&self, anew: bool) -> Result<Option<String>, Failure> {
        let LogIn { runtime, client, auth, headers } = self.login.as_ref();
        let path = self.reference.repository().to_owned();
        let known = headers.lock().unwrap_or_else(PoisonError::into_inner).get(&path).cloned();
        if let Some(known) = known.filter(|_| !anew) {
            return Ok(known);
        }
        let token = runtime.block_on(client.auth(&self.reference, auth, RegistryOperation::Pull));
        let header = match (token, auth) {
            (Ok(Some(token)), _) => Some(format!("Bearer {token}")),
            (Ok(None), RegistryAuth::Basic(name, password)) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
            }
            (Ok(None), _) => None,
            (Err(error), _) => {
                let why = refusal(&error).to_string();
                let what = format!("logging in at {}", self.reference.registry());
                return Err(Failure::new(Class::Network, what).because(anyhow::anyhow!("{why}")));
            }
        };
        headers.lock().unwrap_or_else(PoisonError::into_inner).insert(path, header.clone());
        Ok(header)
    }
}

/// The client of the protocol. It takes proxies from the environment as all requests of this program do.
fn client(endpoint: &Endpoint, patience: Patience, trust: &Trust) -> Result<oci_client::Client> {
    // The provider is the process's; that it is set already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let certificate =
        |pem: &String| Certificate { encoding: CertificateEncoding::Pem, data: pem.clone().into_bytes() };
    let extra: Vec<_> = trust.authorities.iter().map(certificate).collect();
    let config = |only: bool| ClientConfig {
        protocol: if endpoint.plain { ClientProtocol::Http } else { ClientProtocol::Https },
        accept_invalid_certificates: trust.anyone,
        extra_root_certificates: extra.clone(),
        tls_certs_only: if only { extra.clone() } else { Vec::new() },
        read_timeout: Some(patience.read),
        connect_timeout: Some(patience.connect),
        user_agent: concat!("nqrust/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    };
    match oci_client::Client::try_from(config(false)) {
        // A machine without certificates can still trust those that it is given.
        Err(_) if !extra.is_empty() => Ok(oci_client::Client::try_from(config(true))?),
        client => Ok(client?),
    }
}

/// A document whose digest is the one that it was asked by, if it was.
fn checked(bytes: Vec<u8>, version: &str) -> Result<Fetched, Refusal> {
    let digest = Digest::of(&bytes);
    if version.starts_with("sha256:") && version != digest.oci() {
        return Err(Refusal::Damaged(format!("it sends a manifest with the digest {}", digest.oci())));
    }
    Ok(Fetched { bytes, digest })
}

/// What an error of the protocol means. Texts of servers are shortened; what the crate puts around them is left out.
fn refusal(error: &Error) -> Refusal {
    match error {
        Error::RegistryError { envelope, .. } => {
            let codes: Vec<_> = envelope.errors.iter().map(|error| &error.code).collect();
            let has = |wanted: &[OciErrorCode]| codes.iter().any(|code| wanted.contains(code));
            let said: Vec<_> = envelope.errors.iter().map(|error| error.message.as_str()).collect();
            let said = brief(&said.join(", "));
            if has(&[OciErrorCode::ManifestUnknown, OciErrorCode::NameUnknown, OciErrorCode::NotFound]) {
                return Refusal::Absent;
            }
            if has(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                return Refusal::Denied(format!("it denies access: {said}"));
            }
            Refusal::Trouble(format!("it says: {said}"))
        }
        Error::ServerError { code: 404, .. } => Refusal::Absent,
        Error::ServerError { code: code @ (401 | 403), .. } => {
            Refusal::Denied(format!("it denies access ({code})"))
        }
        Error::ServerError { code, message, .. } => {
            Refusal::Trouble(format!("it answers {code} {}", brief(message)).trim_end().to_owned())
        }
        Error::UnauthorizedError { .. } => Refusal::Denied("it does not accept the login (401)".into()),
        Error::AuthenticationFailure(said) => {
            Refusal::Denied(format!("it does not accept the login: {}", brief(said)))
        }
        Error::DigestError(error) => Refusal::Damaged(error.to_string()),
        Error::RequestError(error) => Refusal::Trouble(reason(error)),
        other => Refusal::Trouble(brief(&other.to_string())),
    }
}

/// Whether the same request may get another answer soon.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::RequestError(error) => !error.is_builder(),
        Error::ServerError { code, .. } => *code == 408 || *code == 429 || *code >= 500,
        Error::RegistryError { envelope, .. } => {
            envelope.errors.iter().any(|error| error.code == OciErrorCode::Toomanyrequests)
        }
        _ => false,
    }
}

/// The first line of what a server says, and not much of it.
fn brief(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}
