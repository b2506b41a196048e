//! One server with the API of a registry: its client and its login.
//!
//! Manifests and tokens are read here, with a limit for each and with retries. Blobs go through [`Downloader`], which
//! asks here for the `Authorization` header. Redirects of all of them are followed by [`redirect`], which sends the login
//! and the token to this server's origin only.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::blocking::Response;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, LINK, WWW_AUTHENTICATE};
use reqwest::{StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::challenge::Challenge;
use super::credentials::Credential;
use super::endpoint::{Endpoint, Server};
use super::problem::{Problem, ProblemKind, RegistryRequestError, RequestContext};
use super::scope::RegistryScope;
use super::settings::Settings;
use crate::download::{Attempts, Authorizer, Downloader, RetryPolicy, body, client, is_temporary, redirect};
use base::digest::Digest;
use base::failure::{Class, Failure};
use formats::oci::{ImageReference, media_types};
use model::config::registries::Tls;

/// The accepted media types. Registries convert to one of them, or refuse.
const ACCEPTED: [&str; 4] = [
    media_types::OCI_INDEX,
    media_types::OCI_MANIFEST,
    media_types::DOCKER_INDEX,
    media_types::DOCKER_MANIFEST,
];

/// The digest that a registry says a manifest has.
pub(super) const CONTENT_DIGEST: &str = "Docker-Content-Digest";

/// The largest manifest or index in bytes: what registries and containerd take.
pub const MANIFEST_LIMIT: u64 = 4 << 20;

/// How many pages a list may have.
const PAGES_MAX: usize = 64;

/// The largest answer of a token service in bytes.
const TOKEN: u64 = 1 << 20;

/// The largest explanation of a refusal that is read, in bytes.
pub(super) const REFUSAL: u64 = 64 << 10;

pub(super) struct Site {
    server: Server,
    downloader: Downloader,
    credential: Option<Credential>,
    retry: RetryPolicy,
    /// True if its certificate is checked.
    authenticated: bool,
    /// The headers that let us read or write.
    grants: Mutex<HashMap<RegistryScope, Option<HeaderValue>>>,
    /// True if the last request got no response.
    silent: AtomicBool,
}

impl Site {
    /// Prepares a server without a request to it. Runs docker's credential helpers.
    pub(super) fn new(server: &Server, settings: &Settings, docker: Option<&Path>) -> Result<Self, Failure> {
        let registries = &settings.registries;
        let config = server.config.as_ref().and_then(|key| registries.configs.get(key));
        let tls = config.and_then(|config| config.tls.clone()).unwrap_or_default();
        let authorities = authorities(&server.host, &tls, &settings.authorities)?;
        let retry = settings.retry;
        let builder = || {
            reqwest::blocking::Client::builder()
                .connect_timeout(retry.connect)
                .timeout(retry.read)
                .tls_danger_accept_invalid_certs(tls.insecure_skip_verify)
        };
        let base = server.to_string();
        let prepared =
            |error| Failure::new(Class::Network, format!("preparing a client for {base}")).because(error);
        let blocking = client(&base, &authorities, builder).map_err(prepared)?;
        let auth = config.and_then(|config| config.auth.as_ref());
        let configured = auth.map(|auth| Credential::configured(auth, &server.host)).transpose()?.flatten();
        let credential = match (configured, docker) {
            (None, Some(directory)) => Credential::of_docker(directory, &server.host)?,
            (configured, _) => configured,
        };
        Ok(Self {
            server: server.clone(),
            downloader: Downloader::over(blocking, retry, ""),
            credential,
            retry,
            authenticated: !server.plain && !tls.insecure_skip_verify,
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

    /// The time limit of a read without a byte.
    pub(super) fn read_limit(&self) -> Duration {
        self.retry.read
    }

    /// Attempts at something larger than a document.
    pub(super) fn transfer_attempts(&self) -> Attempts {
        Attempts::new(self.retry, &self.server.to_string())
    }

    /// True if the server has to show a certificate that is checked. No redirect leads from there to a server without TLS.
    pub(super) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    pub(super) fn asked(&self) -> RequestContext {
        RequestContext { login: self.credential.is_some(), writes: false }
    }

    /// True if the last request got no response.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    pub(super) fn remember<T>(&self, result: &Result<T, Problem>) {
        let silent = matches!(result, Err(problem) if problem.kind == ProblemKind::Silent);
        self.silent.store(silent, Ordering::Relaxed);
    }

    /// The unchanged manifest or index of an image, of at most 4 MiB.
    pub(super) fn manifest(&self, endpoint: &Endpoint, image: &ImageReference) -> Result<Vec<u8>, Problem> {
        self.document(endpoint, &endpoint.url("manifests", &image.version()))
    }

    /// The pages of the list of what refers to the manifest `subject` (distribution-spec 1.1, "Listing Referrers").
    pub(super) fn referrers(&self, endpoint: &Endpoint, subject: Digest) -> Result<Vec<Vec<u8>>, Problem> {
        self.pages(endpoint, endpoint.url("referrers", &subject.oci()))
    }

    /// The pages of the list of the tags of a repository (distribution-spec 1.1, "Listing Tags").
    pub(super) fn tags(&self, endpoint: &Endpoint) -> Result<Vec<Vec<u8>>, Problem> {
        self.pages(endpoint, endpoint.url("tags", "list"))
    }

    /// The pages of the list that begins at `url`.
    fn pages(&self, endpoint: &Endpoint, mut url: String) -> Result<Vec<Vec<u8>>, Problem> {
        let mut pages = Vec::new();
        while pages.len() < PAGES_MAX {
            // A registry that gives the first page has such lists: what comes later is no reason to look for a tag.
            let (page, next) = self.page(endpoint, &url).map_err(|problem| match pages.is_empty() {
                true => problem,
                false => Problem::new(ProblemKind::Silent, problem.why),
            })?;
            pages.push(page);
            match next? {
                Some(next) => url = next,
                None => return Ok(pages),
            }
        }
        Err(Problem::new(ProblemKind::Silent, format!("its list has more than {PAGES_MAX} pages")))
    }

    fn document(&self, endpoint: &Endpoint, url: &str) -> Result<Vec<u8>, Problem> {
        self.page(endpoint, url).map(|(document, _)| document)
    }

    /// A document, and the URL of the page after it, which matters for lists only.
    fn page(&self, endpoint: &Endpoint, url: &str) -> Result<(Vec<u8>, NextPage), Problem> {
        let accepted = HeaderMap::from_iter(
            HeaderValue::from_str(&ACCEPTED.join(", ")).ok().map(|value| (ACCEPT, value)),
        );
        let scope = RegistryScope::pull(&endpoint.path);
        let mut grant = self.grant(&scope)?;
        let mut renewed = false;
        let mut attempts = self.attempts();
        loop {
            let trouble = match self.get(url, &accepted, grant.as_ref()) {
                // The token may have expired.
                Ok(response) if response.status() == StatusCode::UNAUTHORIZED && !renewed => {
                    renewed = true;
                    grant = self.renew(&scope, grant.as_ref())?;
                    continue;
                }
                Ok(response) => {
                    let next = next_page(&response);
                    match self.read_manifest(response, &attempts) {
                        Ok(bytes) => return Ok((bytes, next)),
                        Err(trouble) => trouble,
                    }
                }
                Err(trouble) => trouble,
            };
            self.bear(&mut attempts, trouble)?;
        }
    }

    fn read_manifest(
        &self,
        response: Response,
        attempts: &Attempts,
    ) -> Result<Vec<u8>, RegistryRequestError> {
        if response.status() != StatusCode::OK {
            return Err(self.refusal(response, attempts));
        }
        let named =
            response.headers().get(CONTENT_DIGEST).and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes = body(response, MANIFEST_LIMIT, attempts)
            .map_err(|error| RegistryRequestError::of_body("what it sent", &error))?;
        let found = Digest::of(&bytes);
        match named.filter(|named| *named != found) {
            None => Ok(bytes),
            Some(named) => Err(RegistryRequestError::Permanent(Problem::other_digest(found, named))),
        }
    }

    fn refusal(&self, response: Response, attempts: &Attempts) -> RegistryRequestError {
        let status = response.status();
        let asked = self.asked();
        if is_temporary(status) {
            return RegistryRequestError::of_status(&response, asked);
        }
        let told = status.is_client_error().then(|| body(response, REFUSAL, attempts).ok()).flatten();
        RegistryRequestError::Permanent(Problem::told(status, &told.unwrap_or_default(), asked))
    }

    fn get(
        &self,
        url: &str,
        headers: &HeaderMap,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response, RegistryRequestError> {
        redirect::get(self.downloader.client(), url, headers, authorization)
            .map_err(RegistryRequestError::of_no_answer)
    }

    fn attempts(&self) -> Attempts {
        Attempts::new(self.retry.for_documents(), &self.server.to_string())
    }

    /// The header that lets us do what `scope` says.
    pub(super) fn grant(&self, scope: &RegistryScope) -> Result<Option<HeaderValue>, Problem> {
        let known = self.grants.lock().unwrap_or_else(PoisonError::into_inner).get(scope).cloned();
        match known {
            Some(grant) => Ok(grant),
            None => self.obtain(scope, false),
        }
    }

    /// A header other than the refused one: a new one, unless another thread has got one meanwhile.
    pub(super) fn renew(
        &self,
        scope: &RegistryScope,
        refused: Option<&HeaderValue>,
    ) -> Result<Option<HeaderValue>, Problem> {
        let known = self.grants.lock().unwrap_or_else(PoisonError::into_inner).get(scope).cloned();
        match known {
            Some(grant) if grant.as_ref() != refused => Ok(grant),
            _ => self.obtain(scope, true),
        }
    }

    fn obtain(&self, scope: &RegistryScope, refused: bool) -> Result<Option<HeaderValue>, Problem> {
        let mut attempts = self.attempts();
        loop {
            match self.ask(scope, refused, &attempts) {
                Ok(grant) => {
                    let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
                    grants.insert(scope.clone(), grant.clone());
                    return Ok(grant);
                }
                Err(trouble) => self.bear(&mut attempts, trouble)?,
            }
        }
    }

    pub(super) fn bear(&self, attempts: &mut Attempts, trouble: RegistryRequestError) -> Result<(), Problem> {
        match trouble {
            RegistryRequestError::Permanent(problem) => Err(problem),
            RegistryRequestError::Temporary(temporary) => {
                attempts.pause(temporary).map_err(|why| Problem::new(ProblemKind::Silent, why))
            }
        }
    }

    /// Finds out which login the server requires, and gets the header for it. `refused`: a request without login has been refused.
    fn ask(
        &self,
        scope: &RegistryScope,
        refused: bool,
        attempts: &Attempts,
    ) -> Result<Option<HeaderValue>, RegistryRequestError> {
        match self.challenge()? {
            // Some registries require a login for private images only.
            Challenge::None if refused => self.basic(),
            // The response to the request itself will tell what is missing.
            Challenge::None => Ok(None),
            Challenge::Basic => self.basic(),
            Challenge::Bearer { realm, service } => self.token(&realm, service.as_deref(), scope, attempts),
        }
    }

    /// True if it answers this address as a registry does. A server that wants TLS answers clear text with 400, with a
    /// redirect or not at all. Sends no login.
    pub(super) fn answers(&self) -> bool {
        let url = format!("{}/v2/", self.server);
        let answer = self.get(&url, &HeaderMap::new(), None);
        answer.is_ok_and(|response| {
            redirect::is_from(&response, &url)
                && !response.status().is_redirection()
                && !matches!(response.status(), StatusCode::BAD_REQUEST | StatusCode::UPGRADE_REQUIRED)
        })
    }

    fn challenge(&self) -> Result<Challenge, RegistryRequestError> {
        let url = format!("{}/v2/", self.server);
        let response = self.get(&url, &HeaderMap::new(), None)?;
        if is_temporary(response.status()) {
            return Err(RegistryRequestError::of_status(&response, self.asked()));
        }
        if !redirect::is_from(&response, &url) {
            // Where the password goes is for the registry alone to say.
            return Ok(Challenge::None);
        }
        let value = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        Ok(Challenge::read(value))
    }

    /// A token for `scope`, from the service that the registry names.
    fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: &RegistryScope,
        attempts: &Attempts,
    ) -> Result<Option<HeaderValue>, RegistryRequestError> {
        let strange = |why: &str| RegistryRequestError::Permanent(Problem::new(ProblemKind::Strange, why));
        let mut url =
            Url::parse(realm).map_err(|_| strange("the address of its token service is not valid"))?;
        if !is_safe(&url, self.server.plain) {
            let why = "it requests the login at an address without TLS, where others could read it";
            return Err(strange(why));
        }
        for scope in scope.words() {
            url.query_pairs_mut().append_pair("scope", &scope);
        }
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        let response = self.get(url.as_str(), &HeaderMap::new(), self.basic()?.as_ref())?;
        if !response.status().is_success() {
            return Err(RegistryRequestError::of_status(&response, self.asked()));
        }
        let bytes = body(response, TOKEN, attempts);
        let bytes = bytes
            .map_err(|error| RegistryRequestError::of_body("the answer of its token service", &error))?;
        match token_in(&bytes) {
            Some(token) => header(&format!("Bearer {token}")),
            // Do not quote the response: it may contain a secret.
            None => Err(strange("its token service answered without a token")),
        }
    }

    /// The header with the login, where there is one.
    fn basic(&self) -> Result<Option<HeaderValue>, RegistryRequestError> {
        let Some(Credential { user, password }) = &self.credential else { return Ok(None) };
        let pair = BASE64_STANDARD.encode(format!("{user}:{}", password.expose()));
        header(&format!("Basic {pair}"))
    }
}

/// True if a login and a token may go to a token service: not in clear text on behalf of a registry that has TLS.
fn is_safe(realm: &Url, plain: bool) -> bool {
    realm.scheme() == "https" || (plain && realm.scheme() == "http")
}

/// The token in the answer of a token service; older services call it `access_token`.
fn token_in(answer: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let Answer { token, access_token } = serde_json::from_slice(answer).ok()?;
    token.or(access_token).filter(|token| !token.is_empty())
}

/// Marked as sensitive, so that no log shows it.
fn header(value: &str) -> Result<Option<HeaderValue>, RegistryRequestError> {
    let Ok(mut header) = HeaderValue::from_str(value) else {
        let why = "its token is not a valid header value";
        return Err(RegistryRequestError::Permanent(Problem::new(ProblemKind::Strange, why)));
    };
    header.set_sensitive(true);
    Ok(Some(header))
}

pub(super) struct SiteAuthorizer {
    pub(super) site: Arc<Site>,
    pub(super) scope: RegistryScope,
}

impl Authorizer for SiteAuthorizer {
    fn authorization(&self) -> Result<Option<HeaderValue>, Failure> {
        self.site.grant(&self.scope).map_err(carried)
    }

    fn renew(&self, refused: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Failure> {
        self.site.renew(&self.scope, refused).map_err(carried)
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
        let hint = "Use a user name and a password (auth), or a mirror that requires no client certificate.";
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

fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
}

/// The URL of the page after one, if there is one.
type NextPage = Result<Option<String>, Problem>;

/// The URL of the next page, of the header `Link` (RFC 8288): one of the same server.
fn next_page(response: &Response) -> NextPage {
    let links = response.headers().get_all(LINK).into_iter().filter_map(|value| value.to_str().ok());
    let next = links.flat_map(|value| value.split(',')).find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let mut parameters = parameters.split(';').map(|parameter| parameter.trim().replace('"', ""));
        parameters.any(|parameter| parameter.eq_ignore_ascii_case("rel=next")).then(|| target.to_owned())
    });
    let Some(next) = next else { return Ok(None) };
    let url = response.url().join(&next).ok().filter(|url| url.origin() == response.url().origin());
    match url {
        Some(url) => Ok(Some(url.into())),
        None => Err(Problem::new(ProblemKind::Redirect, "the next page of its list is on another server")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_for_a_registry_with_tls_goes_to_a_token_service_with_tls_only() {
        for (realm, plain, safe) in [
            ("https://auth.example.org/token", false, true),
            ("HTTPS://auth.example.org/token", false, true),
            ("http://auth.example.org/token", false, false),
            ("http://auth.example.org/token", true, true),
            ("ftp://auth.example.org/token", true, false),
        ] {
            assert_eq!(is_safe(&Url::parse(realm).unwrap(), plain), safe, "{realm} {plain}");
        }
    }

    #[test]
    fn a_token_is_found_by_both_of_its_names() {
        for (answer, token) in [
            (r#"{"token": "a", "expires_in": 300}"#, Some("a")),
            (r#"{"access_token": "b"}"#, Some("b")),
            (r#"{"token": "a", "access_token": "b"}"#, Some("a")),
            (r#"{"token": ""}"#, None),
            (r#"{"errors": []}"#, None),
            ("token", None),
        ] {
            assert_eq!(token_in(answer.as_bytes()).as_deref(), token, "{answer}");
        }
    }
}
