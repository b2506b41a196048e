//! Logins for registries: those of `registries.yaml`, then those that docker keeps.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use docker_credential::{CredentialRetrievalError, DockerCredential};
use serde::Deserialize;
use std::collections::BTreeMap;

use super::endpoint::is_hub;
use base::failure::{Class, Failure};
use model::config::Secret;
use model::config::registries::Auth;

/// The name under which docker keeps the login to its own registry.
const HUB: &str = "https://index.docker.io/v1/";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Credential {
    pub(super) user: String,
    pub(super) password: Secret,
}

impl Credential {
    /// The login in an entry of `registries.yaml`.
    pub(super) fn configured(auth: &Auth, host: &str) -> Result<Option<Self>, Failure> {
        let what = || Failure::new(Class::Invalid, format!("reading registries.configs.{host:?}.auth"));
        let hint = "Give a user name and a password.";
        if !auth.username.is_empty() {
            return Ok(Some(Self { user: auth.username.clone(), password: Secret::new(&*auth.password) }));
        }
        if !auth.auth.is_empty() {
            let decoded = BASE64_STANDARD.decode(auth.auth.trim()).ok();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            let pair = decoded.as_deref().and_then(|text| text.trim_end_matches('\0').split_once(':'));
            let (user, password) = pair.ok_or_else(|| {
                let why = "auth is not the base64 form of user:password";
                what().because(anyhow::anyhow!(why)).hint(hint)
            })?;
            return Ok(Some(Self { user: user.to_owned(), password: Secret::new(password) }));
        }
        match auth.identity_token.is_empty() {
            true => Ok(None),
            false => Err(what().because(anyhow::anyhow!("identity tokens are not supported")).hint(hint)),
        }
    }

    /// The login in docker's configuration in `directory`, from its credential helpers if it names any.
    pub(super) fn of_docker(directory: &Path, host: &str) -> Result<Option<Self>, Failure> {
        let path = directory.join("config.json");
        let what =
            || Failure::new(Class::Network, format!("asking {} for the login to {host}", path.display()));
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(what().because(error)),
        };
        let helpers: CredentialHelpers = serde_json::from_slice(&bytes).map_err(|error| {
            // The error's text could quote a password.
            let place = format!("it is not valid (line {})", error.line());
            what().because(anyhow::anyhow!(place)).hint(format!("Log in again: docker login {host}"))
        })?;
        let names = if is_hub(host) { vec![HUB, "docker.io"] } else { vec![host] };
        for name in names {
            match docker_credential::get_credential_from_reader(&*bytes, name) {
                Ok(DockerCredential::UsernamePassword(user, password)) => {
                    return Ok(Some(Self { user, password: Secret::new(password) }));
                }
                Ok(DockerCredential::IdentityToken(_)) => {
                    let why = "it holds an identity token, which is not supported";
                    let hint = format!("Give user name and password under registries.configs.{host:?}.auth.");
                    return Err(what().because(anyhow::anyhow!(why)).hint(hint));
                }
                Err(error) if is_nothing(&error) => {}
                Err(error) => {
                    let (why, hint) = helpers.explain(&error, name);
                    return Err(what().because(anyhow::anyhow!(why)).hint(hint));
                }
            }
        }
        Ok(None)
    }
}

/// True if docker simply has no login for a registry.
fn is_nothing(error: &CredentialRetrievalError) -> bool {
    match error {
        CredentialRetrievalError::NoCredentialConfigured => true,
        // Every helper made with docker's library prints this, and docker itself looks for it.
        CredentialRetrievalError::HelperFailure { stdout, stderr, .. } => {
            [stdout, stderr].iter().any(|text| text.contains("credentials not found"))
        }
        _ => false,
    }
}

/// Docker's credential helpers: programs that store logins.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialHelpers {
    #[serde(default)]
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: Option<BTreeMap<String, String>>,
}

impl CredentialHelpers {
    /// The cause and the hint of an error, without the helper's output, which could contain a secret.
    fn explain(&self, error: &CredentialRetrievalError, name: &str) -> (String, String) {
        let own = self.cred_helpers.as_ref().and_then(|helpers| helpers.get(name));
        let own = own.filter(|helper| !helper.is_empty()).or(self.creds_store.as_ref());
        let helper = format!("docker-credential-{}", own.map_or("?", String::as_str));
        let again = format!("Log in again: docker login {name}");
        match error {
            CredentialRetrievalError::HelperCommunicationError => {
                let hint = format!("Install {helper}, or name another helper (credsStore, credHelpers).");
                (format!("the credential helper {helper} cannot be started"), hint)
            }
            CredentialRetrievalError::MalformedHelperResponse => {
                (format!("the output of the credential helper {helper} is not valid"), again)
            }
            CredentialRetrievalError::HelperFailure { .. } => {
                (format!("the credential helper {helper} failed"), again)
            }
            CredentialRetrievalError::CredentialMismatchError => {
                ("auth contradicts username and password".into(), again)
            }
            _ => ("the login is not valid".into(), again),
        }
    }
}

/// Where docker keeps its configuration.
pub(super) fn docker_directory() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker"));
    let named = std::env::var_os("DOCKER_CONFIG").filter(|value| !value.is_empty());
    named.map(PathBuf::from).or_else(home)
}
