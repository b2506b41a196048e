//! With which name and password a registry is asked: those of the settings, or else those that Docker keeps.

use std::path::PathBuf;

use anyhow::Result;
use docker_credential::{CredentialRetrievalError as Trouble, DockerCredential};
use oci_client::secrets::RegistryAuth;

use crate::config::registries::Login;
use crate::failure::{Class, Failure};

/// How `host` is asked. `login` is what the settings say; without it and with `docker` Docker's own configuration counts.
pub(super) fn find(host: &str, login: Option<Login>, docker: bool) -> Result<RegistryAuth> {
    match login {
        Some(Login::Password { name, password }) => Ok(RegistryAuth::Basic(name, password)),
        Some(Login::IdentityToken) => Err(identity_token(host)),
        None if docker => of_docker(host),
        None => Ok(RegistryAuth::Anonymous),
    }
}

fn of_docker(host: &str) -> Result<RegistryAuth> {
    if !config().is_some_and(|path| path.exists()) {
        return Ok(RegistryAuth::Anonymous);
    }
    match docker_credential::get_credential(host) {
        Ok(DockerCredential::UsernamePassword(name, password)) => Ok(RegistryAuth::Basic(name, password)),
        Ok(DockerCredential::IdentityToken(_)) => Err(identity_token(host)),
        Err(Trouble::NoCredentialConfigured | Trouble::ConfigNotFound) => Ok(RegistryAuth::Anonymous),
        // What a helper says may hold a password; that it failed is enough.
        Err(trouble) => Err(unusable(host, &trouble)),
    }
}

fn unusable(host: &str, trouble: &Trouble) -> anyhow::Error {
    let config = config();
    let shown = config.as_ref().map_or_else(|| "config.json".into(), |path| path.display().to_string());
    let helper = || config.as_ref().and_then(|path| helper(path, host)).unwrap_or_else(|| "?".into());
    let why = match trouble {
        Trouble::HelperCommunicationError => {
            format!("the credential helper docker-credential-{} cannot be started", helper())
        }
        Trouble::HelperFailure { .. } => {
            format!("the credential helper docker-credential-{} failed", helper())
        }
        Trouble::MalformedHelperResponse => {
            format!(
                "the credential helper docker-credential-{} gave something else than a password",
                helper()
            )
        }
        _ => "it cannot be read, or what it has for this host is not a name and a password".into(),
    };
    Failure::new(Class::Network, format!("looking for the password of {host} in {shown}"))
        .because(anyhow::anyhow!("{why}"))
        .hint(format!("Install the helper, or run `docker login {host}` again."))
        .into()
}

fn identity_token(host: &str) -> anyhow::Error {
    Failure::new(Class::Network, format!("the login of {host} is an identity token, which is not supported"))
        .hint("Log in with a name and a password or an access token.")
        .into()
}

/// Docker's configuration file.
fn config() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".docker"));
    let directory = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from).or_else(home)?;
    Some(directory.join("config.json"))
}

/// The name of the helper that the configuration has for `host`.
fn helper(config: &std::path::Path, host: &str) -> Option<String> {
    let config: serde_json::Value =
        serde_json::from_slice(&crate::files::read_at_most(config, 1 << 20).ok()?).ok()?;
    let helper =
        config.get("credHelpers").and_then(|helpers| helpers.get(host)).or_else(|| config.get("credsStore"));
    helper?.as_str().map(str::to_owned)
}
