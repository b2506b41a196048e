//! One server that speaks the interface of a registry: how to reach it, and who to be for it.
//!
//! `oci-client` gets tokens and manifests. It tries nothing twice and tells nobody when a token could not be had, so both
//! is done here. Blobs go through [`Downloader`], which asks here for the `Authorization` header.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::token_cache::RegistryTokenType;
use oci_client::{Reference, RegistryOperation};
use reqwest::header::{HeaderValue, WWW_AUTHENTICATE};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::runtime::Runtime;

use super::Settings;
use super::challenge::Challenge;
use super::credentials::Credential;
use super::endpoint::{Endpoint, Server};
use super::problem::{Kind, Problem, Trouble};
use crate::config::registries::Tls;
use crate::download::{Attempts, Authoriser, Downloader, Patience, client, proxies};
use crate::failure::{Class, Failure};
use crate::oci::ImageReference;

/// How we call ourselves.
const AGENT: &str = concat!("nqrust/", env!("CARGO_PKG_VERSION"));

/// What we can read. Registries convert to what is accepted, or refuse.
const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// One server.
pub(super) struct Site {
    server: Server,
    oci: oci_client::Client,
    runtime: Arc<Runtime>,
    downloader: Downloader,
    credential: Option<Credential>,
    patience: Patience,
    /// The headers that let us read, by path.
    grants: Mutex<HashMap<String, Option<HeaderValue>>>,
    /// Whether it gave no answer when it was asked last.
    silent: AtomicBool,
}

impl Site {
    /// Prepares to talk to a server; asks it for nothing yet. Runs docker's credential helpers.
    pub(super) fn new(
        server: &Server,
        settings: &Settings,
        docker: Option<&Path>,
        runtime: Arc<Runtime>,
    ) -> Result<Self, Failure> {
        let registries = &settings.registries;
        let config = server.config.as_ref().and_then(|key| registries.configs.get(key));
        let tls = config.and_then(|config| config.tls.clone()).unwrap_or_default();
        let authorities = authorities(&server.host, &tls, &settings.authorities)?;
        let patience = settings.patience;
        let builder = || {
            reqwest::blocking::Client::builder()
                .connect_timeout(patience.connect)
                .timeout(patience.read)
                .tls_danger_accept_invalid_certs(tls.insecure_skip_verify)
                .user_agent(AGENT)
        };
        let base = server.to_string();
        let prepared =
            |error| Failure::new(Class::Network, format!("preparing to ask {base}")).because(error);
        let blocking = client(&base, &authorities, builder).map_err(prepared)?;
        let auth = config.and_then(|config| config.auth.as_ref());
        let configured = auth.map(|auth| Credential::configured(auth, &server.host)).transpose()?.flatten();
        let credential = match (configured, docker) {
            (None, Some(directory)) => Credential::of_docker(directory, &server.host)?,
            (configured, _) => configured,
        };
        Ok(Self {
            oci: oci(server, &authorities, tls.insecure_skip_verify, patience)?,
            server: server.clone(),
            runtime,
            downloader: Downloader::over(blocking, patience, ""),
            credential,
            patience,
            grants: Mutex::default(),
            silent: AtomicBool::new(false),
        })
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn downloader(&self) -> &Downloader {
        &self.downloader
    }

    /// Whether a user name and a password are known for it.
    pub(super) fn has_login(&self) -> bool {
        self.credential.is_some()
    }

    /// Whether it gave no answer when it was asked last.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Remembers whether it answers.
    pub(super) fn remember<T>(&self, result: &Result<T, Problem>) {
        let silent = matches!(result, Err(problem) if problem.kind == Kind::Silent);
        self.silent.store(silent, Ordering::Relaxed);
    }

    /// The manifest or index of an image, as it is.
    pub(super) fn manifest(&self, endpoint: &Endpoint, image: &ImageReference) -> Result<Vec<u8>, Problem> {
        let reference = reference(endpoint, image);
        let mut grant = self.grant(&endpoint.path)?;
        let mut renewed = false;
        let mut attempts = Attempts::new(self.patience);
        let login = self.login();
        loop {
            let pull = self.oci.pull_manifest_raw(&reference, &login, &ACCEPTED);
            let error = match self.runtime.block_on(pull) {
                Ok((bytes, _)) => return Ok(bytes.to_vec()),
                Err(error) => error,
            };
            // The token may have expired.
            if matches!(error, OciDistributionError::UnauthorizedError { .. }) && !renewed {
                renewed = true;
                grant = self.renew(&endpoint.path, grant.as_ref())?;
                continue;
            }
            self.bear(&mut attempts, Trouble::of_client(error, self.has_login()))?;
        }
    }

    /// The header that lets us read at `path`.
    fn grant(&self, path: &str) -> Result<Option<HeaderValue>, Problem> {
        let known = self.grants.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        match known {
            Some(grant) => Ok(grant),
            None => self.obtain(path, false),
        }
    }

    /// Another header than the one that was refused, unless somebody else got one in the meantime.
    fn renew(&self, path: &str, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Problem> {
        let known = self.grants.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        match known {
            Some(grant) if grant.as_ref() != refused => Ok(grant),
            _ => self.obtain(path, true),
        }
    }

    fn obtain(&self, path: &str, refused: bool) -> Result<Option<HeaderValue>, Problem> {
        let mut attempts = Attempts::new(self.patience);
        loop {
            match self.ask(path, refused) {
                Ok(grant) => {
                    let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
                    grants.insert(path.to_owned(), grant.clone());
                    return Ok(grant);
                }
                Err(trouble) => self.bear(&mut attempts, trouble)?,
            }
        }
    }

    fn bear(&self, attempts: &mut Attempts, trouble: Trouble) -> Result<(), Problem> {
        match trouble {
            Trouble::Lasting(problem) => Err(problem),
            Trouble::Passing(passing) => {
                attempts.pause(passing).map_err(|why| Problem::new(Kind::Silent, why))
            }
        }
    }

    /// Asks how the server wants to be told who asks, and obeys. `refused` tells that reading has been refused already.
    fn ask(&self, path: &str, refused: bool) -> Result<Option<HeaderValue>, Trouble> {
        let challenge = self.challenge()?;
        let reference = Reference::with_tag(self.server.host.clone(), path.to_owned(), String::new());
        if let (Challenge::None, true, Some(Credential { user, password })) =
            (&challenge, refused, &self.credential)
        {
            // Some ask for a login only where an image is not for everybody. The client does not know of that.
            let token = RegistryTokenType::Basic(user.clone(), password.expose().to_owned());
            self.runtime.block_on(self.oci.tokens.insert(&reference, RegistryOperation::Pull, token));
            return self.basic();
        }
        if challenge == Challenge::None || (challenge == Challenge::Basic && !self.has_login()) {
            // The answer to the request itself will say what is missing.
            return Ok(None);
        }
        if self.has_login() && !challenge.is_safe(self.server.plain) {
            let why = "it wants the password at an address without TLS, where others could read it";
            return Err(Trouble::Lasting(Problem::new(Kind::Strange, why)));
        }
        match self.runtime.block_on(self.oci.auth(&reference, &self.login(), RegistryOperation::Pull)) {
            Ok(Some(token)) => header(&format!("Bearer {token}")),
            // Whoever wants no token wants the password itself.
            Ok(None) => self.basic(),
            Err(OciDistributionError::AuthenticationFailure(_)) => Err(self.refusal(&challenge, path)),
            Err(error) => Err(Trouble::of_client(error, self.has_login())),
        }
    }

    fn challenge(&self) -> Result<Challenge, Trouble> {
        let url = format!("{}/v2/", self.server);
        let response = self.downloader.client().get(url).send();
        let response = response.map_err(|error| Trouble::of_request(&error.without_url()))?;
        if crate::download::is_passing(response.status()) {
            let passing = crate::download::Passing::new(format!("it answered {}", response.status()));
            return Err(Trouble::Passing(passing.asking(response.headers())));
        }
        let value = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        Ok(Challenge::read(value))
    }

    /// Why there is no token. The client keeps what the token service wrote and not its status, which is what tells a
    /// wrong password from a service that has a bad day; so the service is asked once more.
    fn refusal(&self, challenge: &Challenge, path: &str) -> Trouble {
        let Challenge::Bearer { realm, service } = challenge else {
            return Trouble::Lasting(Problem::refused(401, self.has_login()));
        };
        let scope = format!("repository:{path}:pull");
        let mut url = match reqwest::Url::parse(realm) {
            Ok(url) => url,
            Err(_) => {
                let why = "the address of its token service is not one";
                return Trouble::Lasting(Problem::new(Kind::Strange, why));
            }
        };
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let mut request = self.downloader.client().get(url);
        if let Some(Credential { user, password }) = &self.credential {
            request = request.basic_auth(user, Some(password.expose()));
        }
        match request.send() {
            Ok(response) => Trouble::of_status(response.status(), self.has_login()),
            Err(error) => Trouble::of_request(&error.without_url()),
        }
    }

    fn basic(&self) -> Result<Option<HeaderValue>, Trouble> {
        let Some(Credential { user, password }) = &self.credential else { return Ok(None) };
        let pair = BASE64_STANDARD.encode(format!("{user}:{}", password.expose()));
        header(&format!("Basic {pair}"))
    }

    fn login(&self) -> RegistryAuth {
        match &self.credential {
            Some(Credential { user, password }) => {
                RegistryAuth::Basic(user.clone(), password.expose().to_owned())
            }
            None => RegistryAuth::Anonymous,
        }
    }
}

/// A header that no log shows.
fn header(value: &str) -> Result<Option<HeaderValue>, Trouble> {
    let Ok(mut header) = HeaderValue::from_str(value) else {
        let why = "its token is not one that a request can carry";
        return Err(Trouble::Lasting(Problem::new(Kind::Strange, why)));
    };
    header.set_sensitive(true);
    Ok(Some(header))
}

/// The image as the client names it.
fn reference(endpoint: &Endpoint, image: &ImageReference) -> Reference {
    let host = endpoint.server.host.clone();
    let registry = endpoint.mirrors.clone().unwrap_or_else(|| host.clone());
    let path = endpoint.path.clone();
    let mut reference = match image.digest() {
        Some(digest) => Reference::with_digest(registry, path, digest.oci()),
        None => Reference::with_tag(registry, path, image.version()),
    };
    if endpoint.mirrors.is_some() {
        // A mirror is told whose image it is (`ns`), as containerd does.
        reference.set_mirror_registry(host);
    }
    reference
}

/// Lets us read at one path of a site.
pub(super) struct Pass {
    pub(super) site: Arc<Site>,
    pub(super) path: String,
}

impl Authoriser for Pass {
    fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        self.site.grant(&self.path).map_err(carried)
    }

    fn renew(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Failure> {
        self.site.renew(&self.path, refused).map_err(carried)
    }
}

fn carried(problem: Problem) -> Failure {
    Failure::new(Class::Network, "asking for access").because(problem)
}

/// The certificates (PEM) to trust beside those of the machine.
fn authorities(host: &str, tls: &Tls, general: &[String]) -> Result<Vec<String>, Failure> {
    let what =
        |key: &str| Failure::new(Class::Invalid, format!("reading registries.configs.{host:?}.tls.{key}"));
    if !tls.cert_file.is_empty() || !tls.key_file.is_empty() {
        let why = "client certificates are not supported";
        let hint = "Use a user name and a password (auth), or a mirror that wants no certificate.";
        return Err(what("cert_file").because(anyhow::anyhow!(why)).hint(hint));
    }
    let mut all = general.to_vec();
    if !tls.ca_file.is_empty() {
        let named = |error: std::io::Error| anyhow::anyhow!("{}: {error}", tls.ca_file);
        let pem = fs::read_to_string(&tls.ca_file).map_err(|error| {
            what("ca_file").because(named(error)).hint("Name a file with certificates in PEM form.")
        })?;
        if certificates(&pem).is_none_or(|found| found.is_empty()) {
            let why = anyhow::anyhow!("{} holds no certificate in PEM form", tls.ca_file);
            return Err(what("ca_file").because(why).hint("Name a file with certificates in PEM form."));
        }
        all.push(pem);
    }
    Ok(all)
}

/// The certificates of a PEM text.
fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
}

/// The client for tokens and manifests. Proxies are those of downloads: the configuration's, or else the environment's.
fn oci(
    server: &Server,
    authorities: &[String],
    insecure: bool,
    patience: Patience,
) -> Result<oci_client::Client, Failure> {
    let what = || Failure::new(Class::Network, format!("preparing to ask {server}"));
    // The client makes one with the settings of the machine whatever it is told, and panics where that is impossible.
    reqwest::Client::builder().build().map_err(|error| {
        let why = anyhow::anyhow!("{}", crate::download::reason(&error));
        what().because(why).hint("Install the package ca-certificates on this machine.")
    })?;
    let der = authorities.iter().filter_map(|pem| certificates(pem)).flatten();
    let extra = der.map(|der| Certificate { encoding: CertificateEncoding::Der, data: der.to_vec() });
    let proxies = proxies::chosen().unwrap_or_default();
    let config = ClientConfig {
        http_proxy: proxies.http,
        https_proxy: proxies.https,
        no_proxy: proxies.none,
        protocol: if server.plain { ClientProtocol::Http } else { ClientProtocol::Https },
        accept_invalid_certificates: insecure,
        extra_root_certificates: extra.collect(),
        platform_resolver: None,
        read_timeout: Some(patience.read),
        connect_timeout: Some(patience.connect),
        user_agent: AGENT,
        ..ClientConfig::default()
    };
    oci_client::Client::try_from(config)
        .map_err(|error| what().because(anyhow::anyhow!("{}", crate::download::reason(&error))))
}
