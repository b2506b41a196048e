//! The setting `containerd-registry`: where the container runtime finds images, as the hypervisor's cluster writes it
//! (JSON) and as RKE2 and K3s read it (`registries.yaml`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name of the setting.
pub const SETTING: &str = "containerd-registry";

/// Mirrors of registries, and how to talk to registries. Holds secrets.
///
/// Read with the names of the setting, and also with those of `registries.yaml`; written with the latter.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_debug_implementations)]
pub struct Registries {
    #[serde(alias = "Mirrors", default, deserialize_with = "or_default")]
    mirrors: BTreeMap<String, Mirror>,
    #[serde(alias = "Configs", default, deserialize_with = "or_default")]
    configs: BTreeMap<String, Registry>,
    /// Deprecated upstream, by host as `configs` is; moved there.
    #[serde(alias = "Auths", default, deserialize_with = "or_default", skip_serializing)]
    auths: BTreeMap<String, Auth>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mirror {
    #[serde(
        rename = "endpoint",
        alias = "Endpoint",
        alias = "Endpoints",
        alias = "endpoints",
        default,
        deserialize_with = "or_default"
    )]
    endpoints: Vec<String>,
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

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registry {
    #[serde(alias = "Auth", default, skip_serializing_if = "Option::is_none")]
    auth: Option<Auth>,
    #[serde(alias = "TLS", alias = "Tls", default, skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tls {
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

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mirrors.is_empty() && self.configs.is_empty()
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
