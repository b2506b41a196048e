//! Where images are found: the key `registries` in the form that RKE2 and K3s read (`registries.yaml`), and the setting
//! `containerd-registry`, as the hypervisor's cluster writes it (JSON).

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::text::Line;
use document::secret::Secret;

pub const SETTING: &str = "containerd-registry";

/// Mirrors of registries, and how to talk to registries. Holds secrets.
///
/// Read with the names of the setting, and also with those of `registries.yaml`; written with the latter.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Registries {
    /// Where the images of a registry are looked for first, by the registry's host; `*` is every other host.
    #[serde(alias = "Mirrors", default, deserialize_with = "or_default")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "registry" }))]
    pub mirrors: BTreeMap<String, Mirror>,
    /// How to talk to a host.
    #[serde(alias = "Configs", default, deserialize_with = "or_default")]
    #[schemars(extend("propertyNames" = { "type": "string", "format": "registry" }))]
    pub configs: BTreeMap<String, Registry>,
    /// Deprecated upstream, by host as `configs` is; moved there.
    #[serde(alias = "Auths", default, deserialize_with = "or_default", skip_serializing)]
    #[schemars(skip)]
    auths: BTreeMap<String, Auth>,
}

/// Servers that have the images of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
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
    #[schemars(with = "Vec<Line>")]
    pub endpoints: Vec<String>,
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
    #[schemars(with = "BTreeMap<String, Line>", extend("propertyNames" = { "type": "string", "format": "line" }))]
    pub rewrites: BTreeMap<String, String>,
}

impl Mirror {
    /// The prefix that the rewrites put before every repository path, without slashes at its ends; none for other rewrites.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        let mut rewrites = self.rewrites.iter();
        match (rewrites.next(), rewrites.next()) {
            (None, _) => Some(""),
            (Some((pattern, path)), None) => {
                let whole = pattern.trim_start_matches('^').trim_end_matches('$');
                let prefix = path.strip_suffix("$1").or_else(|| path.strip_suffix("${1}"))?;
                let plain = ["(.*)", "(.+)"].contains(&whole) && !prefix.contains('$');
                (plain && prefix.ends_with('/')).then(|| prefix.trim_matches('/'))
            }
            _ => None,
        }
    }
}

/// How to talk to a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Registry {
    /// Who asks.
    #[serde(alias = "Auth", default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Whom to trust.
    #[serde(alias = "TLS", alias = "Tls", default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// A name and a password, or both as `auth` in Docker's way.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The name.
    #[serde(alias = "Username", default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Line")]
    pub username: String,
    /// The password.
    #[serde(alias = "Password", default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Secret")]
    pub password: String,
    /// Name and password joined by `:`, in base64.
    #[serde(alias = "Auth", default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Secret")]
    pub auth: String,
    /// A token in place of name and password; not with kubeadm.
    #[serde(
        alias = "IdentityToken",
        alias = "identityToken",
        default,
        skip_serializing_if = "String::is_empty"
    )]
    #[schemars(with = "Secret")]
    pub identity_token: String,
}

/// The fields are secrets, also to logs.
impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").finish_non_exhaustive()
    }
}

/// Whom to trust.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// A file with certificates of authorities, in PEM.
    #[serde(alias = "CAFile", alias = "caFile", default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Line")]
    pub ca_file: String,
    /// A file with the certificate that is shown to the host, in PEM.
    #[serde(alias = "CertFile", alias = "certFile", default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Line")]
    pub cert_file: String,
    /// A file with its key, in PEM.
    #[serde(alias = "KeyFile", alias = "keyFile", default, skip_serializing_if = "String::is_empty")]
    #[schemars(with = "Line")]
    pub key_file: String,
    /// Whether the certificate of the host is not checked.
    #[serde(
        alias = "InsecureSkipVerify",
        alias = "insecureSkipVerify",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub insecure_skip_verify: bool,
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
    /// Reads the value of the setting; `None` where it is not one. An empty text asks for nothing. The reason is left
    /// out, for it could quote a password.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim().is_empty() {
            return Some(Self::default());
        }
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
        let mut registries: Self = serde_json::from_value(object.into()).ok()?;
        registries.merge_auths();
        Some(registries)
    }

    /// The value of the setting that says the same, with the names that the cluster reads.
    #[must_use]
    pub fn to_setting(&self) -> String {
        let mirror = |mirror: &Mirror| json!({"Endpoints": mirror.endpoints, "Rewrites": mirror.rewrites});
        let auth = |auth: &Auth| {
            json!({
                "Username": auth.username,
                "Password": auth.password,
                "Auth": auth.auth,
                "IdentityToken": auth.identity_token,
            })
        };
        let tls = |tls: &Tls| {
            json!({
                "CAFile": tls.ca_file,
                "CertFile": tls.cert_file,
                "KeyFile": tls.key_file,
                "InsecureSkipVerify": tls.insecure_skip_verify,
            })
        };
        let registry = |registry: &Registry| json!({"Auth": registry.auth.as_ref().map(auth), "TLS": registry.tls.as_ref().map(tls)});
        let mirrors: BTreeMap<_, _> = self.mirrors.iter().map(|(host, of)| (host, mirror(of))).collect();
        let configs: BTreeMap<_, _> = self.configs.iter().map(|(host, of)| (host, registry(of))).collect();
        json!({"Mirrors": mirrors, "Configs": configs, "Auths": null}).to_string()
    }

    /// Moves what is written in the deprecated place to where it belongs; what is there already counts.
    pub fn merge_auths(&mut self) {
        for (host, auth) in std::mem::take(&mut self.auths) {
            self.configs.entry(host).or_default().auth.get_or_insert(auth);
        }
    }

    /// The credentials that are sent to registries.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let auths = self.configs.values().filter_map(|registry| registry.auth.as_ref());
        let texts = auths.flat_map(|auth| [&*auth.password, &*auth.auth, &*auth.identity_token]);
        texts.filter(|text| !text.is_empty())
    }

    /// True if other servers are asked in the place of this host.
    #[must_use]
    pub fn has_mirror(&self, host: &str) -> bool {
        self.mirrors.contains_key(host) || self.mirrors.contains_key("*")
    }

    /// True if no key is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mirrors.is_empty() && self.configs.is_empty()
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

impl std::fmt::Debug for Registries {
    /// Names the hosts and nothing else.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let configs: Vec<_> = self.configs.keys().chain(self.auths.keys()).collect();
        let mirrors: Vec<_> = self.mirrors.keys().collect();
        f.debug_struct("Registries").field("mirrors", &mirrors).field("configs", &configs).finish()
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
        let registries = Registries::parse(setting).unwrap();
        assert!(Registries::parse(&registries.to_setting()) == Some(registries));
        assert!(serde_json::from_value::<Registries>(written).ok() == Registries::parse(setting));
    }

    #[test]
    fn rewrites_are_a_prefix_or_something_else() {
        let mirror = |rewrites: &[(&str, &str)]| Mirror {
            endpoints: Vec::new(),
            rewrites: rewrites.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect(),
        };
        assert_eq!(mirror(&[]).prefix(), Some(""));
        for (from, to) in [("^(.*)$", "hub/cache/$1"), ("(.*)", "/hub/cache/$1"), ("^(.+)", "hub/cache/${1}")]
        {
            assert_eq!(mirror(&[(from, to)]).prefix(), Some("hub/cache"), "{from}");
        }
        for (from, to) in
            [("^library/(.*)$", "hub/$1"), ("^(.*)$", "hub-$1"), ("^(.*)$", "$1/hub"), ("(.*)/(.*)", "$2/$1")]
        {
            assert_eq!(mirror(&[(from, to)]).prefix(), None, "{from}");
        }
        assert_eq!(mirror(&[("^(.*)$", "a/$1"), ("^b$", "c")]).prefix(), None);
    }

    #[test]
    fn debug_output_names_hosts_and_no_secret() {
        let setting = r#"{"Mirrors": {"docker.io": {}}, "Configs": {"a.example.org": {"Auth": {"Password": "hunter2"}}}}"#;
        let shown = format!("{:?}", Registries::parse(setting).unwrap());
        assert!(
            shown.contains("docker.io") && shown.contains("a.example.org") && !shown.contains("hunter2"),
            "{shown}"
        );
    }

    #[test]
    fn files_are_found_beside_the_document_unless_their_path_is_absolute() {
        let setting = r#"{"Configs": {"a": {"TLS": {"CAFile": "certs/ca.pem"}}, "b": {"TLS": {"CAFile": "/ca.pem"}}, "c": {}}}"#;
        let registries = Registries::parse(setting).unwrap().relative_to(Path::new("/images"));
        let file = |host: &str| registries.configs[host].tls.clone().unwrap_or_default().ca_file;
        assert_eq!([file("a"), file("b"), file("c")], ["/images/certs/ca.pem", "/ca.pem", ""]);
    }

    #[test]
    fn the_schema_marks_every_secret() {
        let schema = schemars::schema_for!(Registries);
        let text = serde_json::to_string(&schema).unwrap();
        let auth = &schema.as_value()["$defs"]["Auth"]["properties"];
        for key in ["password", "auth", "identity_token"] {
            assert!(auth[key].to_string().contains("Secret"), "{key}: {text}");
        }
        assert!(!auth["username"].to_string().contains("Secret") && !text.contains("auths"), "{text}");
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
