//! The setting `containerd-registry`: where the container runtime finds images, as the hypervisor's cluster writes it
//! (JSON) and as RKE2 and K3s read it (`registries.yaml`).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failure::{Class, Failure};

/// The name of the setting.
pub const SETTING: &str = "containerd-registry";

/// Mirrors of registries, and how to talk to registries. Holds secrets.
///
/// Read with the names of the setting, and also with those of `registries.yaml`; written with the latter.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Registries {
    /// Where the images of a registry are looked for first, by the registry's host; `*` is every other host.
    #[serde(alias = "Mirrors", default, deserialize_with = "or_default")]
    mirrors: BTreeMap<String, Mirror>,
    /// How to talk to a host.
    #[serde(alias = "Configs", default, deserialize_with = "or_default")]
    configs: BTreeMap<String, Registry>,
    /// Deprecated upstream, by host as `configs` is; moved there.
    #[serde(alias = "Auths", default, deserialize_with = "or_default", skip_serializing)]
    auths: BTreeMap<String, Auth>,
}

/// Servers that have the images of another.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_debug_implementations)]
pub struct Mirror {
    /// URLs, asked in this order. Plain HTTP is used where one says `http://`.
    #[serde(
        rename = "endpoint",
        alias = "Endpoint",
        alias = "Endpoints",
        alias = "endpoints",
        default,
        deserialize_with = "or_default"
    )]
    endpoints: Vec<String>,
    /// Other paths on these servers: regular expressions for the path of a repository, and what it becomes.
    #[serde(
        rename = "rewrite",
        alias = "Rewrite",
        alias = "Rewrites",
        alias = "rewrites",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    rewrites: BTreeMap<String, String>,
}

/// How to talk to a host.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Registry {
    /// Who asks.
    #[serde(alias = "Auth", default, skip_serializing_if = "Option::is_none")]
    auth: Option<Auth>,
    /// Whom to trust.
    #[serde(alias = "TLS", alias = "Tls", default, skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
}

/// A name and a password, or both as `auth` in Docker's way.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Auth {
    #[serde(alias = "Username", default, skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(alias = "Password", default, skip_serializing_if = "String::is_empty")]
    password: String,
    #[serde(alias = "Auth", default, skip_serializing_if = "String::is_empty")]
    auth: String,
    #[serde(
        alias = "IdentityToken",
        alias = "identityToken",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    identity_token: String,
}

/// Whom to trust.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(missing_debug_implementations)]
pub struct Tls {
    #[serde(alias = "CAFile", alias = "caFile", default, skip_serializing_if = "String::is_empty")]
    ca_file: String,
    #[serde(alias = "CertFile", alias = "certFile", default, skip_serializing_if = "String::is_empty")]
    cert_file: String,
    #[serde(alias = "KeyFile", alias = "keyFile", default, skip_serializing_if = "String::is_empty")]
    key_file: String,
    #[serde(
        alias = "InsecureSkipVerify",
        alias = "insecureSkipVerify",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    insecure_skip_verify: bool,
}

/// The cluster writes `null` where there is nothing.
fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Default + Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Registries {
    /// Reads the value of the setting; `None` where it is not one. An empty text asks for nothing. The reason is not
    /// told, for it could quote a password.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Self::default());
        }
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
        let mut registries: Self = serde_json::from_value(object.into()).ok()?;
        for (host, auth) in std::mem::take(&mut registries.auths) {
            registries.configs.entry(host).or_default().auth.get_or_insert(auth);
        }
        Some(registries)
    }

    /// Whether other servers are asked in the place of this host.
    #[must_use]
    pub fn has_mirror(&self, host: &str) -> bool {
        self.mirrors.contains_key(host) || self.mirrors.contains_key("*")
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mirrors.is_empty() && self.configs.is_empty()
    }
}

impl std::fmt::Debug for Registries {
    /// Nothing of the content, which has passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registries").finish_non_exhaustive()
    }
}

/// Who asks a registry.
#[allow(missing_debug_implementations)]
pub enum Login {
    /// Someone with a password.
    Password {
        /// The name.
        name: String,
        /// The password.
        password: String,
    },
    /// Someone with a token that another log-in gave.
    IdentityToken,
}

impl Registries {
    /// Refuses what cannot be used: expressions that are none, and client certificates.
    pub fn check(&self) -> Result<()> {
        let refused = |what: String, hint: &str| Err(Failure::new(Class::Invalid, what).hint(hint).into());
        for (host, mirror) in &self.mirrors {
            for expression in mirror.rewrites.keys() {
                if let Err(error) = regex::Regex::new(expression) {
                    let what =
                        format!("the registries' rewrite {expression:?} of {host} is no expression: {error}");
                    return refused(what, "Correct the regular expression.");
                }
            }
            for endpoint in &mirror.endpoints {
                if endpoint.split_once("://").is_some_and(|(scheme, _)| !matches!(scheme, "http" | "https")) {
                    let what = format!("the registries' endpoint {endpoint} of {host} is no HTTP URL");
                    return refused(what, "Write http:// or https://, or a host alone.");
                }
            }
        }
        for (host, registry) in &self.configs {
            if registry.tls.as_ref().is_some_and(|tls| !tls.cert_file.is_empty() || !tls.key_file.is_empty())
            {
                let what = format!(
                    "the registries name a client certificate for {host}, which pulling here cannot use"
                );
                return refused(what, "Use a name and a password for pulling.");
            }
        }
        Ok(())
    }

    /// The mirror of a registry.
    #[must_use]
    pub fn mirror(&self, host: &str) -> Option<&Mirror> {
        self.mirrors.get(host).or_else(|| self.mirrors.get("*"))
    }

    /// Whom to trust when asking `host`.
    #[must_use]
    pub fn tls(&self, host: &str) -> Option<&Tls> {
        self.config(host)?.tls.as_ref()
    }

    /// Who asks `host`.
    #[must_use]
    pub fn login(&self, host: &str) -> Option<Login> {
        use base64::Engine;
        let auth = self.config(host)?.auth.as_ref()?;
        if !auth.identity_token.is_empty() {
            return Some(Login::IdentityToken);
        }
        if !auth.username.is_empty() {
            return Some(Login::Password { name: auth.username.clone(), password: auth.password.clone() });
        }
        let decoded = base64::engine::general_purpose::STANDARD.decode(&auth.auth).ok()?;
        let text = String::from_utf8(decoded).ok()?;
        let (name, password) = text.split_once(':')?;
        Some(Login::Password { name: name.to_owned(), password: password.to_owned() })
    }

    fn config(&self, host: &str) -> Option<&Registry> {
        self.configs.get(host).or_else(|| self.configs.get("*"))
    }

    /// With paths that are relative to `directory` made good from here.
    #[must_use]
    pub fn relative_to(mut self, directory: &Path) -> Self {
        for tls in self.configs.values_mut().filter_map(|registry| registry.tls.as_mut()) {
            if !tls.ca_file.is_empty() {
                tls.ca_file = directory.join(&tls.ca_file).to_string_lossy().into_owned();
            }
        }
        self
    }
}

impl Mirror {
    /// The servers in their order.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.endpoints.iter().map(String::as_str)
    }

    /// Expressions for the paths of repositories, with what these become.
    pub fn rewrites(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rewrites.iter().map(|(expression, path)| (expression.as_str(), path.as_str()))
    }
}

impl Tls {
    /// The certificate of the authority.
    #[must_use]
    pub fn ca_file(&self) -> Option<&Path> {
        Some(Path::new(&self.ca_file)).filter(|path| !path.as_os_str().is_empty())
    }

    /// Whether the server may be anyone.
    #[must_use]
    pub fn trusts_anyone(&self) -> bool {
        self.insecure_skip_verify
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_cluster_becomes_that_of_the_distribution() {
        let setting = r#"{
            "Mirrors": {"docker.io": {"Endpoints": ["https://mirror.example.org"], "Rewrites": null},
                        "*": {"Endpoints": ["https://all.example.org"], "Rewrites": {"^(.*)$": "hub/$1"}}},
            "Configs": {"mirror.example.org": {"Auth": {"Username": "u", "Password": "p"},
                                               "TLS": {"CAFile": "/oem/ca.pem", "InsecureSkipVerify": false}}},
            "Auths": {"other.example.org": {"Auth": "dTpw"}, "mirror.example.org": {"Username": "older"}}
        }"#;
        let written = serde_json::to_value(Registries::parse(setting).unwrap()).unwrap();
        let expected = serde_json::json!({
            "mirrors": {
                "docker.io": {"endpoint": ["https://mirror.example.org"]},
                "*": {"endpoint": ["https://all.example.org"], "rewrite": {"^(.*)$": "hub/$1"}},
            },
            "configs": {
                "mirror.example.org": {
                    "auth": {"username": "u", "password": "p"},
                    "tls": {"ca_file": "/oem/ca.pem"},
                },
                "other.example.org": {"auth": {"auth": "dTpw"}},
            },
        });
        assert_eq!(written, expected);
        assert!(serde_json::from_value::<Registries>(written).ok() == Registries::parse(setting));
    }

    #[test]
    fn nothing_is_allowed_and_anything_else_is_not() {
        for text in ["", " ", "{}", r#"{"Mirrors":null,"Configs":null,"Auths":null}"#] {
            assert!(Registries::parse(text).unwrap().is_empty(), "{text:?}");
        }
        for text in ["x", "[]", r#"{"Mirror": {}}"#, r#"{"Mirrors": {"a": {"Endpoints": "b"}}}"#] {
            assert!(Registries::parse(text).is_none(), "{text:?}");
        }
    }
}
